"""Slots, quotes, holds and reserved plans on real Slurm: with Operator rights and without."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time

import pytest
import yaml

import waiting
from conftest import folder_of
from penstock_lab.cluster import Cluster, ClusterSpec, up

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(800)]

COMMAND = [sys.executable, "-c", "from penstock.cli import main; main()"]
FLOW = """
name: flow
stages:
  - {name: first, nodes: 2, time: 1m, run: "date +%s > first.at; sleep 1"}
  - {name: second, nodes: 3, time: 1m, run: "date +%s > second.at; sleep 1", after: first}
"""


class Desk:
    """A user at the command line, with settings and files in a folder of that user's own."""

    def __init__(self, cluster: Cluster, who: str) -> None:
        self.cluster, self.who = cluster, who
        self.home = cluster.home(who)
        self.config = self.home / "provision.yaml"
        settings = {
            "agent": {"state_dir": str(self.home / "provision")},
            "slurm": {"backend": "cli"},
            "provision": {"margin": 60},
        }
        self.write(self.config.name, yaml.safe_dump(settings))
        for kind in ("at", "end", "other"):  # of the tests before
            for left in self.home.glob(f"*.{kind}"):
                left.unlink()

    def write(self, name: str, text: str) -> None:
        done = self.cluster.run_as(self.who, ["sh", "-c", f"cat > {name} <<'END'\n{text}\nEND"], cwd=self.home)
        assert done.returncode == 0, done.stderr

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {"PENSTOCK_CONFIG": str(self.config), "COLUMNS": "200"}
        return self.cluster.run_as(self.who, [*COMMAND, *words], env=env, cwd=self.home, timeout=90)

    def told(self, *words: str) -> object:
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def reservations(self) -> str:
        return self.cluster.run_as("root", ["scontrol", "-o", "show", "reservations"]).stdout


@pytest.fixture
def queue(cluster: Cluster) -> Cluster:
    """Six of eight nodes run for ten minutes, and a job of all eight waits."""
    for words in (["-N6", "-t10"], ["-N8", "-t5"]):
        made = cluster.run_as("bob", ["sbatch", "--parsable", *words, "-o", "/dev/null", "--wrap", "sleep 600"])
        assert made.returncode == 0, made.stderr
    until(lambda: "RUNNING" in cluster.run_as("root", ["squeue", "-h", "-o", "%T"]).stdout, "the job to run")
    return cluster


def until(probe, what, seconds=60.0):
    return waiting.until(probe, what, seconds)


def a_job_of_the_past(cluster: Cluster) -> None:
    """Idle jobs go by waits of alice's own jobs, of which there has to be one."""
    cluster.run_as("alice", ["sbatch", "-N1", "-t1", "-o", "/dev/null", "--wrap", "true"], check=True)
    asked = ["sacct", "-n", "-X", "-u", cluster.users["alice"], "-s", "CD", "-S", "now-1hour", "-E", "now"]
    until(lambda: cluster.run_as("alice", asked).stdout.strip(), "a job of alice's in accounting")


@pytest.mark.long
def test_what_any_user_sees(queue: Cluster) -> None:
    desk = Desk(queue, "alice")
    rows = desk.told("slots")["slots"]
    first = rows[0]
    assert first["procs"] == 2 and first["nodes"] == ["n7", "n8"] and 480 < first["duration"] <= 600
    assert max(r["procs"] for r in rows) == 8
    quotes = desk.told("quote", "-N", "2", "-t", "20m")["quotes"]
    assert quotes[0]["f"] > 0 and len(quotes[0]["delays"]) == 1 and quotes[-1]["f"] == 0
    assert desk.told("quote", "-N", "4", "-t", "5m", "--at", "now")["quotes"][0]["f"] is None
    shown = desk.run("slots", "--explain", "--gantt")
    assert shown.returncode == 0 and "our plan" in shown.stdout, shown.stderr
    shown = desk.run("quote", "-N", "2", "-t", "1m", "--explain")
    assert "sbatch --test-only" in shown.stdout, shown.stderr


def test_without_rights_a_slot_is_held_by_a_job_that_idles(queue: Cluster) -> None:
    desk = Desk(queue, "alice")
    refused = desk.run("hold", "open", "-N", "2", "-t", "1m", "--at", "now+2m", "--kind", "reservation")
    assert refused.returncode == 1 and "not permitted" in refused.stderr
    a_job_of_the_past(queue)
    dear = ["-N", "2", "-t", "10m", "--at", "now+1h", "--kind", "var"]
    late = desk.told("hold", "open", *dear, "--idle-budget", "10")
    assert late["start"] - 60 <= late["submit_at"] < late["start"] and late["idle"] <= 60
    assert desk.run("hold", "cancel", str(late["hold"])).returncode == 0
    shown = desk.run("hold", "open", *dear)
    assert re.search(
        r"runs by [0-9:]+ with a probability of \d+%, and idles for \S+ on average, 5m at most", shown.stdout
    )
    for row in desk.told("hold", "list")["holds"]:
        desk.run("hold", "cancel", str(row["hold"]))
    held = desk.told("hold", "open", "-N", "2", "-t", "1m", "--at", "now+20s", "--run", "date +%s > began; sleep 600")
    assert held["method"] == "var"
    until(lambda: desk.told("hold", "list")["holds"][0]["phase"] == "held", "the idle job to run")
    until(lambda: (desk.home / "began").exists() and (desk.home / "began").read_text().strip(), "the work to begin")
    assert -1 <= int((desk.home / "began").read_text()) - held["start"] <= 5
    assert desk.run("hold", "cancel", str(held["hold"])).returncode == 0
    mine = ["squeue", "-h", "--me", "-t", "R,PD", "-o", "%i"]
    until(lambda: not queue.run_as("alice", mine).stdout.strip(), "alice's job to end")
    entries = {e["kind"]: e["amount"] for e in desk.told("ledger")["entries"]}
    assert entries["charge"] > 0 and entries["idle"] >= 0


@pytest.mark.long
def test_until_its_slot_begins_an_idle_job_works_for_a_pool(queue: Cluster) -> None:
    pytest.importorskip("distributed")
    desk = Desk(queue, "alice")
    a_job_of_the_past(queue)
    slot = ["-N", "2", "-t", "2m", "--at", "now+50s", "--kind", "var", "--run", "date +%s > began.at; sleep 600"]
    closed = desk.run("hold", "open", *slot, "--pool", "main")
    assert closed.returncode == 3 and "penstock pool start" in closed.stderr
    try:
        assert desk.run("pool", "start", "--detach").returncode == 0
        held = desk.told("hold", "open", *slot, "--pool", "main")
        short = "".join(f'{{"command": ["true"], "name": "short{i}", "time": "1s"}}\n' for i in range(8))
        desk.write("tasks", short + '{"command": ["sleep", "100"], "name": "long", "time": "100s"}')
        assert desk.run("pool", "submit", "--larger", "--file", "tasks").returncode == 0
        until(lambda: desk.told("hold", "list")["holds"][0]["phase"] == "held", "the idle job to run")
        until(lambda: (desk.home / "began.at").exists() and (desk.home / "began.at").read_text(), "the slot")
        assert -1 <= int((desk.home / "began.at").read_text()) - held["start"] <= 5
        listed = desk.told("pool", "status", "--tasks")["listed"]
        assert {t["phase"] for t in listed if t["name"] != "long"} == {"complete"}
        assert [t["phase"] for t in listed if t["name"] == "long"] == ["waiting"], "it could not have ended in time"
        until(lambda: not desk.told("pool", "status")["members"], "its nodes to leave the pool", 30)
    finally:
        desk.run("pool", "stop")
        for row in desk.told("hold", "list")["holds"]:
            desk.run("hold", "cancel", str(row["hold"]))


def test_an_operator_reserves_charges_and_gives_back(queue: Cluster) -> None:
    desk = Desk(queue, "operator")
    desk.told("ledger", "-A", "lab", "--budget", "1000")
    alice = queue.run_as("alice", ["id", "-un"]).stdout.strip()
    held = desk.told("hold", "open", "-N", "2", "-t", "2m", "--at", "now+5m", "-u", alice, "-A", "lab")
    assert held["phase"] == "held" and f"ReservationName={held['name']}" in desk.reservations()
    assert f"Users={alice}" in desk.reservations()
    assert desk.told("ledger", "-A", "lab")["accounts"][0]["spent"] == pytest.approx(held["base"] + held["f"])
    queue.run_as("root", ["scontrol", "delete", f"ReservationName={held['name']}"])
    assert desk.told("hold", "list", "--all")["holds"][-1]["phase"] == "lost"
    assert desk.told("ledger", "-A", "lab")["accounts"][0]["spent"] == pytest.approx(0)
    busy = desk.run("hold", "open", "-N", "4", "-t", "2m", "--at", "now+10s", "--kind", "reservation")
    assert busy.returncode != 0 and "Traceback" not in busy.stderr
    poor = desk.run("hold", "open", "-N", "2", "-t", "2h", "--at", "now+1d", "-A", "lab", "--kind", "reservation")
    assert poor.returncode == 0, poor.stderr
    desk.told("ledger", "-A", "lab", "--budget", "1")
    poor = desk.run("hold", "open", "-N", "2", "-t", "2h", "--at", "now+2d", "-A", "lab", "--kind", "reservation")
    assert poor.returncode == 5 and "would be enough" in poor.stderr
    for row in desk.told("hold", "list")["holds"]:
        assert desk.run("hold", "cancel", str(row["hold"])).returncode == 0
    assert "No reservations" in desk.reservations()


def test_who_may_not_reserve_gets_a_chain_of_jobs_that_runs_to_its_end(queue: Cluster, make_agent) -> None:
    agent = make_agent("alice").start()
    done = agent.run("alice", "plan", agent.write(FLOW), "--reserve", "--json")
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)["run"]
    assert run["by"] == "chain" and "not permitted: " in run["why"], run
    assert agent.state(run["workflows"]["flow"])["strategy"] == "auto"
    queue.run_as("bob", ["scancel", "--me"])
    assert agent.finish(run["workflows"]["flow"])["phase"] == "completed"
    assert int((agent.folder / "first.at").read_text()) < int((agent.folder / "second.at").read_text())
    held = agent.run("alice", "hold", "list", "--json")
    assert json.loads(held.stdout)["holds"] == [] and "No reservations" in Desk(queue, "alice").reservations()


@pytest.mark.long
def test_who_may_only_ask_for_slots_has_jobs_in_the_queue_meanwhile(queue: Cluster) -> None:
    desk = Desk(queue, "alice")
    key, asked = desk.home / "request.key", desk.home / "asked"
    desk.write(key.name, "a key of more than sixteen bytes")
    queue.run_as("alice", ["chmod", "600", str(key)], check=True)
    settings = yaml.safe_load(desk.config.read_text())
    settings["provision"] |= {"requests": str(asked), "request_key": str(key)}
    desk.write(desk.config.name, yaml.safe_dump(settings))
    desk.write("flow.yaml", FLOW)
    run = desk.told("plan", "flow.yaml", "--reserve")["run"]
    assert run["by"] == "requests" and "not permitted: " in run["why"] and set(run["jobs"]) == {"first", "second"}
    assert len(list(asked.glob("*.request"))) == 2 and "No reservations" in desk.reservations()

    def through() -> bool:
        assert desk.run("hold", "tick").returncode == 0
        return desk.run("status").returncode == 3  # no agent, and nothing in slots

    queue.run_as("bob", ["scancel", "--me"])
    until(through, "the workflow to end", 120)
    assert int((desk.home / "first.at").read_text()) < int((desk.home / "second.at").read_text())
    assert list(asked.glob("*.request")) == [] and desk.told("hold", "list")["holds"] == []


@pytest.mark.long  # its slot begins at a full minute, and only where nodes are free then
def test_a_job_that_waits_goes_into_the_slot_that_an_operator_grants(cluster: Cluster) -> None:
    desk, chief = Desk(cluster, "alice"), Desk(cluster, "operator")
    for who in (desk, chief):
        who.write("request.key", "a key of more than sixteen bytes")
        cluster.run_as(who.who, ["chmod", "600", "request.key"], cwd=who.home, check=True)
        settings = yaml.safe_load(who.config.read_text())
        asked, key = str(who.home / "asked"), str(who.home / "request.key")
        settings["provision"] |= {"requests": asked, "request_key": key}
        who.write(who.config.name, yaml.safe_dump(settings))
    others = (["-N6", "-t20"], ["-N2", "-t2"])
    for words in others:
        cluster.run_as("bob", ["sbatch", *words, "-o", "/dev/null", "--wrap", "sleep 110"], check=True)
    running = ["squeue", "-h", "-t", "R", "-o", "%i"]
    until(lambda: len(cluster.run_as("root", running).stdout.split()) == len(others), "bob's jobs to run")
    only = "{name: only, nodes: 2, time: 1m, run: 'date +%s > only.at; sleep 1'}"
    desk.write("one.yaml", f"{{name: one, stages: [{only}]}}")
    planned = desk.told("plan", "one.yaml", "--reserve")
    job, (request,) = planned["run"]["jobs"]["only"], (desk.home / "asked").glob("*")
    chief.write(request.name, request.read_text())
    granted = chief.run("hold", "grant", request.name)
    assert granted.returncode == 0 and f"Made reservation {request.stem} on " in granted.stdout, granted.stderr
    said: list[str] = []

    def through() -> bool:
        said.extend(desk.told("hold", "tick")["changes"])
        return desk.run("status").returncode == 3

    until(through, "the workflow to end", 400)
    assert any("stage only goes into its slot" in line for line in said), said
    ran = ["sacct", "-n", "-X", "-P", "-j", str(job), "-o", "State,ReservationId"]  # its name is there only sometimes
    until(lambda: "COMPLETED" in cluster.run_as("alice", ran).stdout, "its record", 30)
    assert re.fullmatch(r"COMPLETED\|[1-9][0-9]*", cluster.run_as("alice", ran).stdout.strip())
    assert int((desk.home / "only.at").read_text()) >= planned["stages"][0]["start"] - 1
    assert list((desk.home / "asked").iterdir()) == [] and desk.told("hold", "list")["holds"] == []


def test_advice_goes_by_what_a_users_own_jobs_took(cluster: Cluster) -> None:
    desk = Desk(cluster, "alice")
    name = f"advised-{os.getpid()}-x"
    words = ["sbatch", "--parsable", "-N1", "-t60", "-o", "/dev/null", "-J", name, "--array=0-18", "--wrap", "sleep 1"]
    assert cluster.run_as("alice", words, cwd=desk.home).returncode == 0
    assert (
        cluster.run_as("bob", ["sbatch", "-N1", "-t60", "-o", "/dev/null", "-J", name, "--wrap", "true"]).returncode
        == 0
    )

    def advised() -> list[dict[str, object]]:
        jobs = desk.told("advise", "--risk", "5")["jobs"]
        return [job for job in jobs if job["job"] == "advised-#-x" and job["runs"] == 19]

    (found,) = until(advised, "nineteen tasks in accounting", 120)
    assert (found["nodes"], found["limit"], found["suggested"], found["risk"]) == (1, 3600.0, 60.0, 0.05)
    assert found["sooner"] == 0, "nobody waits here"
    answer = desk.told("advise", "--time-min-risk", "10")
    few = [job for job in answer["jobs"] if job["job"] == "advised-#-x"]
    assert [(job["suggested"], job["risk"]) for job in few] == [(None, 0.05)], "1 % takes 99 runs"
    assert [(job["time_min"], job["time_min_risk"], job["memory"]) for job in few] == [(60.0, 0.05, None)]
    assert answer["no_memory"] == "accounting has no MaxRSS here (JobAcctGatherType=jobacct_gather/none)"
    assert (answer["memory_unscheduled"], answer["no_time_min"]) == (
        "jobs get whole nodes here (SelectType=select/linear)",
        "",
    )


@pytest.mark.long
def test_advice_goes_by_the_memory_that_accounting_has(sweep: None) -> None:
    extra = (
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=1",
        "SelectTypeParameters=CR_Core_Memory",
    )
    cluster = up(ClusterSpec(nodes=2, folder=folder_of("m"), select="cons_tres", extra=extra))
    try:
        desk = Desk(cluster, "alice")
        desk.write("hold.py", "import time; data = bytearray(100 << 20); time.sleep(2)")
        words = ["sbatch", "-N1", "-t60", "--mem=1000M", "-o", "/dev/null", "-J", "held", "--array=0-18"]
        work = f"srun -n1 {sys.executable} hold.py"
        assert cluster.run_as("alice", [*words, "--wrap", work], cwd=desk.home).returncode == 0

        def advised() -> list[dict[str, object]]:
            answer = desk.told("advise", "--risk", "5")
            assert (answer["no_memory"], answer["memory_unscheduled"], answer["no_time_min"]) == ("", "", "")
            return [job["memory"] for job in answer["jobs"] if job["memory"] and job["memory"]["runs"] == 19]

        (found,) = until(advised, "nineteen tasks in accounting", 180)
        assert (found["asked"], found["unknown"], found["risk"]) == (1000 << 20, 0, 0.05)
        assert 100 << 20 < found["used"] < 160 << 20
        assert found["used"] * 1.1 <= found["suggested"] <= found["used"] * 1.1 + (64 << 20)
        shown = desk.run("advise", "--risk", "5").stdout
        assert "Memory of a node" in shown and f"{int(found['suggested']) >> 20}M" in shown
    finally:
        cluster.down()


@pytest.mark.long
def test_the_ledger_books_what_the_plan_says(queue: Cluster) -> None:
    desk = Desk(queue, "operator")
    desk.write("flow.yaml", FLOW)
    before = {(e["hold"], e["kind"]) for e in desk.told("ledger")["entries"]}
    planned = desk.told("plan", "flow.yaml", "--reserve", "--alpha", "1")
    booked = [e for e in desk.told("ledger")["entries"] if (e["hold"], e["kind"]) not in before]
    assert [e["kind"] for e in booked] == ["charge", "charge"]
    assert sum(e["amount"] for e in booked) == pytest.approx(planned["cost"], rel=1e-9)
    assert planned["run"]["by"] == "reservations" and set(planned["run"]["jobs"]) == {"first", "second"}
    assert all(point["cost"] >= planned["cost"] for point in planned["front"])
    refused = desk.run("plan", "flow.yaml", "--reserve", "--method", "paper")
    assert refused.returncode == 2 and "the method paper charges whole slots" in refused.stderr
    for row in desk.told("hold", "list")["holds"]:
        desk.run("hold", "cancel", str(row["hold"]))


@pytest.mark.long  # reservations begin at full minutes: it waits for most of five
def test_a_planned_workflow_starts_when_it_was_planned(cluster: Cluster) -> None:
    desk = Desk(cluster, "operator")
    desk.write("flow.yaml", FLOW)
    done = desk.run("plan", "flow.yaml", "--alpha", "0", "--reserve", "--json")
    assert done.returncode == 0, done.stderr
    planned = {s["name"]: s["start"] for s in json.loads(done.stdout)["stages"]}
    began = {}
    for name in ("first", "second"):
        path = desk.home / f"{name}.at"
        until(lambda: path.exists() and path.read_text().strip(), f"stage {name}", 240)  # noqa: B023
        began[name] = int(path.read_text())
    print({name: began[name] - planned[name] for name in planned})
    assert all(-1 <= began[name] - planned[name] <= 30 for name in planned)
    for row in desk.told("hold", "list")["holds"]:
        desk.run("hold", "cancel", str(row["hold"]))
    until(lambda: "No reservations" in desk.reservations(), "the reservations to go", 90)


@pytest.mark.long  # as above
def test_a_stage_that_misses_its_slot_gets_another_one(cluster: Cluster) -> None:
    desk = Desk(cluster, "operator")
    desk.write("flow.yaml", FLOW)
    done = desk.run("plan", "flow.yaml", "--alpha", "0", "--reserve")
    assert done.returncode == 0, done.stderr
    jobs = re.findall(r"Submitted batch job (\d+) for stage (\w+)", done.stdout)
    assert [name for _, name in jobs] == ["first", "second"]
    assert cluster.run_as("operator", ["scontrol", "hold", jobs[0][0]]).returncode == 0
    said: list[str] = []

    def mended() -> bool:
        said.extend(desk.told("hold", "tick")["changes"])
        return any("stage first gets another slot: it did not begin in time" in line for line in said)

    until(mended, "another slot", 240)
    until(lambda: desk.told("hold", "tick") and (desk.home / "second.at").exists(), "the second stage", 240)
    assert int((desk.home / "first.at").read_text()) < int((desk.home / "second.at").read_text())
    until(lambda: not desk.told("hold", "tick")["holds"], "the holds to be settled", 180)
    assert "No reservations" in desk.reservations()


@pytest.mark.long  # as above
def test_a_planned_workflow_moves_up_when_others_end_before_their_limits(queue: Cluster) -> None:
    desk = Desk(queue, "operator")
    desk.write("flow.yaml", FLOW)
    planned = desk.told("plan", "flow.yaml", "--alpha", "1", "--reserve")
    starts, jobs = {s["name"]: s["start"] for s in planned["stages"]}, planned["run"]["jobs"]
    assert starts["second"] > time.time() + 400, "behind those who run and wait"
    queue.run_as("bob", ["scancel", "--me"])
    said = until(lambda: desk.told("hold", "tick")["changes"], "a change")
    assert "stage second gets another slot: it can begin earlier" in "".join(said)
    until(lambda: desk.told("hold", "tick") and (desk.home / "second.at").exists(), "the second stage", 240)
    assert int((desk.home / "first.at").read_text()) < int((desk.home / "second.at").read_text())
    assert int((desk.home / "second.at").read_text()) < starts["second"] - 120
    asked = ["sacct", "-n", "-X", "-P", "-j", str(jobs["second"]), "-o", "State"]
    until(lambda: queue.run_as("operator", asked).stdout.split() == ["COMPLETED"], "the end of the same job")
    until(lambda: not desk.told("hold", "tick")["holds"], "the holds to be settled", 180)
    assert "No reservations" in desk.reservations()


@pytest.mark.long  # as above
def test_a_paused_agent_leaves_a_planned_workflow_alone(cluster: Cluster, make_agent) -> None:
    agent = make_agent("operator", provision={"margin": 60}).start()
    done = agent.run("operator", "plan", agent.write(FLOW), "--alpha", "0", "--reserve", "--json")
    assert done.returncode == 0, done.stderr
    start = json.loads(done.stdout)["stages"][0]["start"]
    jobs = cluster.run_as("root", ["squeue", "-h", "-o", "%i", "--sort=i"]).stdout.split()
    cluster.run_as("operator", ["scontrol", "hold", jobs[0]], check=True)
    assert agent.run("operator", "pause", "--feature", "workflows", "--why", "maintenance").returncode == 0
    # The agent looks once a minute: this is a minute and a half after it would have asked for another slot.
    agent.until(lambda: time.time() > start + 180, "the slot to be missed for long", 400)
    assert "left alone: workflows paused by pst-operator: maintenance" in agent.log.read_text()
    assert "another slot" not in agent.log.read_text()
    assert agent.run("operator", "resume").returncode == 0
    agent.until((agent.folder / "second.at").exists, "the second stage", 300)
    assert "stage first gets another slot" in agent.log.read_text()


@pytest.mark.long  # as above
def test_two_workflows_in_one_plan_one_of_whose_stages_takes_longer_than_its_slot(cluster: Cluster) -> None:
    desk = Desk(cluster, "operator")
    desk.write("other.yaml", FLOW.replace("name: flow", "name: other").replace(".at", ".other"))
    slow = 'run: "date +%s >> first.at; sleep 100; date +%s > first.end"'
    took = ", ".join(["20s"] * 19)
    flow = FLOW.replace("time: 1m", f"time: 4m, took: [{took}]", 1).replace('run: "date +%s > first.at; sleep 1"', slow)
    desk.write("flow.yaml", flow)
    done = desk.run("plan", "flow.yaml", "other.yaml", "--alpha", "0", "--reserve")
    assert done.returncode == 0, done.stderr
    assert "flow/first: its slot is for 1m of 4m; by what it took before, it takes longer with a probability of 5%" in (
        done.stdout
    )
    names = [f"{flow}/{stage}" for flow in ("flow", "other") for stage in ("first", "second")]
    assert re.findall(r"Submitted batch job \d+ for stage (\S+)", done.stdout) == names
    said: list[str] = []

    def ended() -> bool:
        said.extend(desk.told("hold", "tick")["changes"])
        return (desk.home / "second.at").exists() and (desk.home / "second.other").exists()

    until(ended, "the last stages", 500)
    assert any("stage first takes longer than its slot" in line for line in said)
    assert len((desk.home / "first.at").read_text().split()) == 2, "done again from the beginning"
    assert int((desk.home / "first.end").read_text()) <= int((desk.home / "second.at").read_text())
    until(lambda: not desk.told("hold", "tick")["holds"], "the holds to be settled", 180)
    assert "No reservations" in desk.reservations()


@pytest.mark.long  # as above
def test_the_tasks_of_a_planned_workflow_run_in_a_pool(cluster: Cluster) -> None:
    pytest.importorskip("distributed")
    desk = Desk(cluster, "operator")
    parents = {"a1": [], "a2": [], "a3": [], "b": ["a1", "a2", "a3"]}
    tasks = [{"name": name, "id": name, "parents": p, "children": []} for name, p in parents.items()]
    runs = [{"id": name, "runtimeInSeconds": 1.0, "coreCount": 1} for name in parents]
    workflow = {"specification": {"tasks": tasks}, "execution": {"tasks": runs}}
    desk.write("small.json", json.dumps({"name": "small", "schemaVersion": "1.5", "workflow": workflow}))
    words = ["--alpha", "0", "--max-nodes", "2", "--cores", "2", "--time", "1m", "--task", "echo {id} >>outputs"]
    closed = desk.run("plan", "small.json", *words, "--pool", "main", "--reserve")
    assert closed.returncode == 3 and "penstock pool start" in closed.stderr
    try:
        assert desk.run("pool", "start", "--detach").returncode == 0
        done = desk.run("plan", "small.json", *words, "--pool", "main", "--reserve")
        assert done.returncode == 0, done.stderr
        outputs = desk.home / "outputs"
        until(lambda: outputs.exists() and sorted(outputs.read_text().split()) == ["a1", "a2", "a3", "b"], "tasks", 400)
        names = {t["name"].split("/", 1)[1] for t in desk.told("pool", "status", "--tasks")["listed"]}
        assert len(names) == 4, "known by the run and the stage"
    finally:
        desk.run("pool", "stop")
        for row in desk.told("hold", "list")["holds"]:
            desk.run("hold", "cancel", str(row["hold"]))
    until(lambda: "No reservations" in desk.reservations(), "the reservations to go", 90)

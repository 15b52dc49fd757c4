"""`penstock slots`, `quote` and `plan` on a (simulated) cluster: running, waiting and reserved nodes, and mistakes."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.api import AccountingRecord, JobSpec, JobState
from penstock.cli import main
from penstock.errors import NotPermitted
from penstock.values.durations import duration_text
from penstock_lab.mock import control
from penstock_lab.mock.client import MockClient

FLOW = """
name: flow
stages:
  - {name: first, nodes: 1, time: 10m, run: "true"}
  - {name: second, nodes: 2, time: 20m, run: "true", after: first}
"""


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def queue(site, monkeypatch, capsys):
    """Runs commands on four nodes: two run for an hour, a job of all four and one of one node wait."""
    if not control.call(site.cluster.folder, "jobs"):
        (site.folder / "flow.yaml").write_text(FLOW)
        for nodes, limit in ((2, 3600.0), (4, 1800.0), (1, 7200.0)):
            control.call(site.cluster.folder, "submit", spec=JobSpec("x", "#!/bin/sh\nsleep 1000\n", nodes, limit))
    monkeypatch.setenv("PENSTOCK_CONFIG", str(site.config))
    monkeypatch.chdir(site.folder)

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["penstock", *arguments])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        got = capsys.readouterr()
        return Done(code, got.out, got.err)

    return run


def told(run, *arguments):
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_slots(queue):
    rows = told(queue, "slots")["slots"]
    now = min(r["start"] for r in rows)
    assert all(len(r["nodes"]) == r["procs"] for r in rows)
    assert max(r["start"] + r["duration"] for r in rows) >= now + 48 * 3600
    shown = queue("slots", "--explain", "--gantt")
    assert shown.returncode == 0, shown.stderr
    assert "SU a node-hour" in shown.stdout and "cost (SU)" in queue("plan", "flow.yaml").stdout
    assert "Waiting jobs" in shown.stdout and "# running" in shown.stdout


def test_quotes(queue):
    rows = told(queue, "quote", "-N", "4", "-t", "30m")["quotes"]
    assert rows[0]["f"] is None and rows[-1]["f"] == 0
    assert told(queue, "quote", "-N", "2", "-t", "10m", "--at", "now")["quotes"][0]["f"] is not None
    shown = queue("quote", "-N", "2", "-t", "1h", "--explain")
    assert shown.returncode == 0 and "--test-only" in shown.stdout + shown.stderr
    assert told(queue, "quote", "-N", "2", "-t", "1h", "--alpha", "1")["quotes"][0]["f"] == 0


def test_a_quote_says_when_such_a_job_would_start_in_the_queue(queue, monkeypatch):
    found = told(queue, "quote", "-N", "4", "-t", "30m")
    assert found["queued"]["guaranteed"] == pytest.approx(found["quotes"][-1]["start"], abs=2), "behind all"
    assert found["queued"]["likely"] is None
    assert "when it likely does is not known" in queue("quote", "-N", "4", "-t", "30m").stdout

    async def history(self, **_which):
        ran = (JobState.COMPLETED, 0, 0.0, 0.0, 10.0, 370.0, 3600.0, 1)
        return [AccountingRecord(i, "j", "alice", "batch", "q", "a", *ran) for i in range(30)]

    monkeypatch.setattr(MockClient, "history", history)
    found = told(queue, "quote", "-N", "4", "-t", "30m")["queued"]
    assert found["low"] <= found["likely"] <= found["high"] < found["guaranteed"] - 1800, "jobs run a tenth"
    assert "by everybody's time limits, likely at " in queue("quote", "-N", "4", "-t", "30m").stdout
    assert told(queue, "quote", "-N", "1", "-t", "30m", "--cores", "1")["queued"] is None
    slots = told(queue, "slots")["slots"]
    later = [s for s in slots if s["start"] > min(row["start"] for row in slots)]
    assert later and all(s["likely"]["likely"] <= s["likely"]["guaranteed"] for s in later)
    assert queue("slots").stdout.splitlines()[1].split()[:2] == ["start", "likely"]


def test_a_plan(queue):
    found = told(queue, "plan", "flow.yaml")
    assert [s["name"] for s in found["stages"]] == ["first", "second"]
    assert found["stages"][1]["start"] >= found["stages"][0]["end"]
    assert len(found["stages"][1]["on"]) == 2
    assert "The chosen one" in queue("plan", "flow.yaml", "--method", "greedy", "--alpha", "0").stdout


def test_a_plans_stages_say_when_they_would_start_in_the_queue(queue, monkeypatch):
    stages = told(queue, "plan", "flow.yaml")["stages"]
    assert stages[0]["likely"]["guaranteed"] < stages[1]["likely"]["guaranteed"]
    assert stages[0]["likely"]["likely"] is None
    assert (
        "When the stages likely start in the queue is not known: of too few jobs" in queue("plan", "flow.yaml").stdout
    )

    async def history(self, **_which):
        ran = (JobState.COMPLETED, 0, 0.0, 0.0, 10.0, 370.0, 3600.0, 1)
        return [AccountingRecord(i, "j", "alice", "batch", "q", "a", *ran) for i in range(30)]

    monkeypatch.setattr(MockClient, "history", history)
    first, second = (stage["likely"] for stage in told(queue, "plan", "flow.yaml")["stages"])
    for found in (first, second):
        assert found["low"] <= found["likely"] <= found["high"] <= found["guaranteed"]
    # The first one finds a free node at once; the second comes after it, and jobs run a tenth of their limits.
    assert first["likely"] < second["likely"] < second["guaranteed"] - 500
    shown = queue("plan", "flow.yaml").stdout
    assert "likely start in the queue" in shown and "(9 in 10: " in shown
    assert "likely" not in told(queue, "plan", "flow.yaml", "--cores", "1")["stages"][0]


def test_best_effort_is_told_in_the_units_of_the_other_plans(queue):
    alone = told(queue, "plan", "flow.yaml", "--method", "best-effort", "--budget", "2")
    a_second = told(queue, "quote", "-N", "1", "-t", "10m")["quotes"][0]["c"]
    assert alone["cost"] == alone["best_effort"]["cost"] == pytest.approx((600 + 2 * 1200) * a_second)
    shown = queue("plan", "flow.yaml", "--method", "best-effort").stdout
    length = duration_text(alone["makespan"])
    assert f"The queue alone, if nobody else came: cost {alone['cost']:g}, makespan {length}" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("slots", "-p", "nowhere"), 2, "-p: there is no partition 'nowhere' (partitions: "),
        (("slots", "--from", "yesterday"), 2, "--from must be now, now+2h"),
        (("slots", "--from", "2001-01-01T00:00"), 2, "--from must not lie before now"),
        (("quote", "-N", "5", "-t", "1h"), 2, "from 1 to 4"),
        (("quote", "-N", "2", "-t", "soon"), 2, "-t/--time must be a duration"),
        (("quote", "-N", "2", "-t", "1h", "--at", "@5"), 2, "--at must not lie before now"),
        (("quote", "-N", "1", "-t", "1h", "--gres", "gpu:1"), 5, "no node of"),
        (("quote", "-N", "1", "-t", "1h", "--gres", "a:b:c:d"), 2, "--gres: must be such as gpu:2"),
        (("plan", "flow.yaml", "--deadline", "now+5m"), 5, "no plan ends in 5m: the fastest takes "),
        (("plan", "flow.yaml", "--budget", "0.01"), 5, "no plan costs 0.01 or less: the cheapest costs"),
        (("plan", "flow.yaml", "--method", "best-effort", "--deadline", "now+5m"), 5, "5m: the fastest takes "),
        (("plan", "flow.yaml", "--method", "best-effort", "--budget", "1.5"), 5, "the cheapest costs 1.66667"),
        (("slots", "--queue", "x.json", "-p", "batch"), 2, "-p is for a cluster and cannot go with --queue"),
    ],
)
def test_mistakes(queue, arguments, code, said):
    done = queue(*arguments)
    assert (done.returncode, done.stdout) == (code, ""), done
    assert said in done.stderr and "Traceback" not in done.stderr


def test_nothing_is_reserved_where_the_picture_cannot_be_drawn(queue):
    pytest.importorskip("matplotlib")
    done = queue("plan", "flow.yaml", "-A", "lab", "--reserve", "--picture", "nowhere/plan.png")
    assert done.returncode == 2 and "--picture: nowhere/plan.png cannot be written" in done.stderr
    assert told(queue, "hold", "list", "--all")["holds"] == []


def test_who_may_not_reserve_gets_a_chain_of_jobs(queue, monkeypatch):
    """Without an agent, which runs it, both are said; with one it is handed over."""
    told_ = queue("plan", "flow.yaml", "--reserve", "--method", "best-effort")
    assert told_.returncode == 3 and "nothing is reserved: best effort is what the queue alone gives; and as a" in (
        told_.stderr
    )
    monkeypatch.setattr(MockClient, "reserve", _refused)
    done = queue("plan", "flow.yaml", "--reserve")
    assert done.returncode == 3
    asked = "; no request can be left for an operator (`provision.requests`, `provision.request_key`)"
    assert f"nothing is reserved: not permitted: Access/permission denied{asked}; and as a chain: " in done.stderr
    handed = []
    monkeypatch.setattr(
        "penstock_planning.commands.reserve.hand_over", lambda config, flow, how: handed.append((flow, how)) or 7
    )
    done = queue("plan", "flow.yaml", "--reserve")
    assert done.returncode == 0, done.stderr
    assert f"Nothing is reserved: not permitted: Access/permission denied{asked}. It runs as a chain of jobs" in (
        done.stdout
    )
    assert "flow is submitted as workflow 7" in done.stdout
    assert told(queue, "plan", "flow.yaml", "--reserve")["run"] == {
        "by": "chain",
        "why": f"not permitted: Access/permission denied{asked}",
        "workflows": {"flow": 7},
    }
    assert [(flow.name, [s.time_limit for s in flow.stages], how) for flow, how in handed] == [
        ("flow", [600.0, 1200.0], "auto")
    ] * 2
    assert told(queue, "hold", "list")["holds"] == [], "nothing is left of what was tried"


def test_no_slot_is_reserved_on_nodes_without_what_a_stage_asks_for(queue, monkeypatch):
    Path("gpu.yaml").write_text(FLOW.replace("name: second,", "name: second, gres: 'gpu:2',"))
    shown = queue("plan", "gpu.yaml")
    assert shown.returncode == 0 and "stage second asks for --gres=gpu:2, which is not to be had on n1, n2" in (
        shown.stderr
    )
    assert "asks for" not in queue("plan", "flow.yaml").stderr
    monkeypatch.setattr("penstock_planning.commands.reserve.hand_over", lambda config, flow, how: 7)
    run = told(queue, "plan", "gpu.yaml", "--reserve")["run"]
    assert run["by"] == "chain" and "stage second asks for --gres=gpu:2" in run["why"]
    assert told(queue, "hold", "list")["holds"] == []


async def _refused(self, spec):
    raise NotPermitted("Access/permission denied")


@pytest.mark.parametrize(
    "name",
    [path.name for path in sorted(Path(os.environ.get("PENSTOCK_WORKFLOWS", "/nowhere")).glob("*.json"))] or [""],
)
def test_real_workflows_are_planned_without_any_option(queue, name):
    if not name:
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing("PENSTOCK_WORKFLOWS must name a folder with instances of https://github.com/wfcommons/WfInstances")
    file = str(Path(os.environ["PENSTOCK_WORKFLOWS"]) / name)
    assert told(queue, "plan", file)["makespan"] > 0
    (Path.cwd() / "empty.json").write_text('{"procs": 4}')
    assert told(queue, "plan", file, "--queue", "empty.json")["makespan"] > 0


def test_only_commands_that_take_a_queue_file_say_so(queue):
    assert "--queue FILE" in queue("quote", "--help").stdout
    assert "--queue" not in queue("hold", "open", "--help").stdout


def test_holds_and_the_ledger(queue):
    told(queue, "ledger", "-A", "lab", "--budget", "1000")
    held = told(queue, "hold", "open", "-N", "2", "-t", "10m", "--at", "now+2h", "-A", "lab", "--name", "mine")
    assert held["phase"] == "new" or held["phase"] == "held"
    assert told(queue, "hold", "list")["holds"][0]["name"] == "mine"
    twice = queue("hold", "open", "-N", "2", "-t", "10m", "--at", "now+2h", "-A", "lab", "--name", "mine")
    assert twice.returncode == 5 and "a hold called mine already" in twice.stderr
    given_up = told(queue, "hold", "cancel", str(held["hold"]))
    assert (given_up["hold"], given_up["name"], given_up["phase"]) == (held["hold"], "mine", "cancelled")
    assert set(given_up) == set(held)
    assert told(queue, "hold", "list")["holds"] == []
    assert queue("hold", "tick").stdout == ""
    assert "lab" in queue("ledger").stdout
    for wrong, said in (
        (("hold", "open", "-N", "2", "-t", "1h", "--at", "now+1h", "--name", "a b"), "--name must be"),
        (("hold", "open", "-N", "2", "-t", "1h", "--at", "now+1h", "--queue", "x.json"), "only be held on a cluster"),
        (("ledger", "--budget", "5"), "--account is missing"),
        (("hold", "cancel", "99"), "there is no hold 99"),
        (("hold", "cancel", "9" * 20), "there is no hold 99999999999999999999"),
        (("plan", "flow.yaml", "--reserve", "--method", "paper"), "the method paper charges whole slots"),
        (("plan", "flow.yaml", "--reserve", "--queue", "x.json"), "--reserve is for a cluster"),
    ):
        done = queue(*wrong)
        assert done.returncode in (2, 5) and said in done.stderr, done


def test_only_idle_jobs_ask_for_past_waits(queue, monkeypatch):
    asked, history = [], MockClient.history

    async def counted(self, *arguments, **more):
        asked.append(more)
        return await history(self, *arguments, **more)

    monkeypatch.setattr(MockClient, "history", counted)
    for method, times in (("auto", 0), ("reservation", 0), ("combined", 1)):
        asked.clear()
        held = told(queue, "hold", "open", "-N", "1", "-t", "10m", "--at", "now+9h", "-A", "lab", "--kind", method)
        assert len(asked) == times and held["phase"] == "held"
        told(queue, "hold", "cancel", str(held["hold"]))


def test_plans_are_reserved_as_far_ahead_as_the_site_wants(queue, monkeypatch):
    monkeypatch.setenv("PENSTOCK_PROVISION__LIMITS", "careful")
    began = time.time()
    found = told(queue, "plan", "flow.yaml", "-A", "lab", "--reserve", "--method", "greedy", "--alpha", "0")
    assert found["stages"][0]["start"] >= began + 300
    for held in told(queue, "hold", "list")["holds"]:
        assert held["phase"] == "held" and queue("hold", "cancel", str(held["hold"])).returncode == 0


def test_a_workflow_in_slots_is_shown_explained_and_cancelled_like_any_other(queue):
    if queue("status").returncode == 0:
        for left in told(queue, "status")["reserved"]:
            told(queue, "cancel", left["name"])
    told(queue, "plan", "flow.yaml", "-A", "lab", "--reserve", "--method", "greedy", "--alpha", "0")
    (run,) = told(queue, "status")["reserved"]
    name = run["name"]
    assert name.startswith("flow-") and set(run["slots"]) == {"first", "second"}
    assert [r["name"] for r in told(queue, "top")["reserved"]] == [name]
    for which in (name, "flow"):
        shown = queue("status", which)
        assert f"workflow {name} (reserved): active" in shown.stdout, shown
        assert "slot of hold" in shown.stdout
    numbers = [stage["slot"]["hold"] for stage in run["stages"]]
    for number in numbers:
        assert "reserve" in {d["verb"] for d in told(queue, "explain", f"hold:{number}")["decisions"]}
    refused = queue("retry", name)
    assert refused.returncode == 5 and "plans the rest anew" in refused.stderr
    assert "has no stage 'third' (stages: first, second)" in queue("logs", name, "third").stderr
    done = told(queue, "cancel", name)
    assert len(done["jobs"]) == 2 and done["failed"] == []
    assert queue("status").returncode == 3, "there is nothing to show without an agent"
    assert told(queue, "hold", "list")["holds"] == []
    assert "unreserve" in {d["verb"] for d in told(queue, "explain", f"hold:{numbers[0]}")["decisions"]}
    assert queue("explain", name).returncode == 0
    unknown = queue("explain", "nothing")
    assert unknown.returncode == 3 and "no agent answers" in unknown.stderr, "which would know all names"


def test_advice_on_time_limits(queue, monkeypatch):
    now = time.time()

    async def history(self, *, ids=(), name=None, since=None):
        made = [("fold", 120, 600.0, 3600.0), ("fold", 119, 700.0, 3600.0), ("rare", 3, 60.0, 7200.0)]
        return [
            AccountingRecord(
                i, f"{name}{i}", "alice", "main", "", "", JobState.COMPLETED, 0, 0, 0, now - took, now, limit, 1
            )
            for name, count, took, limit in made
            for i in range(count)
        ]

    monkeypatch.setattr(MockClient, "history", history)
    found = told(queue, "advise")
    assert (found["risk"], found["runs_needed"]) == (0.01, 99)
    fold, rare = found["jobs"]
    assert (fold["job"], fold["runs"], fold["limit"], fold["suggested"]) == ("fold#", 239, 3600.0, 720.0)
    assert fold["risk"] == pytest.approx(1 / 240, abs=1e-6) and fold["sooner"] >= 0
    assert (rare["suggested"], rare["risk"], rare["sooner"]) == (None, 0.25, None)
    shown = queue("advise").stdout
    assert "fold#" in shown and "A risk of 0.01 takes 99 runs; `--risk 5` takes 19." in shown
    assert told(queue, "advise", "--risk", "30")["jobs"][1]["suggested"] == 60.0
    for wrong in ("0", "51", "x"):
        done = queue("advise", "--risk", wrong)
        assert done.returncode == 2 and "--risk must be above 0, at most 50" in done.stderr
    monkeypatch.setattr(MockClient, "history", _nothing)
    assert "Accounting knows of no job of yours in 90 days" in queue("advise").stdout


def test_no_advice_on_jobs_that_penstock_got_for_a_pool(queue, monkeypatch):
    now = time.time()

    async def history(self, *, ids=(), name=None, since=None):
        names = [*(f"penstock-pool-main-1a2b-{i}" for i in range(120)), *["fold"] * 120]
        return [
            AccountingRecord(i, name, "alice", "main", "", "", JobState.COMPLETED, 0, 0, 0, now - 600.0, now, 3600.0, 1)
            for i, name in enumerate(names)
        ]

    monkeypatch.setattr(MockClient, "history", history)
    assert [row["job"] for row in told(queue, "advise")["jobs"]] == ["fold"]


async def _nothing(self, *, ids=(), name=None, since=None):
    return []

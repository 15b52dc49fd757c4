"""penstock sbatch, tick, retry and logs over a real Slurm, as an ordinary user with no agent, and with a site's."""

from __future__ import annotations

import json
import time

import pytest
from agents import COMMAND, Desk, SlurmAgent

from penstock.errors import NotPermitted, PenstockError
from penstock.ipc.client import ask
from waiting import until

pytestmark = pytest.mark.slurm

# Whatever the site's own defaults are, files go where the user may write.
STAGE = "#!/bin/bash\n#SBATCH -t 2\n#PENSTOCK workflow=w stage={name} {more}\n{run}\n"


def test_it_says_and_ends_as_sbatch_does(make_agent):
    desk = Desk(make_agent())
    plain = desk.write("plain.sh", "#!/bin/bash\n#SBATCH -t 1 -o plain.out\necho $1\nexit 3\n")
    for words in (["--parsable", "--hold", plain], ["-H", plain, "-x", "y"], ["-H", "-Q", plain]):
        theirs, ours = desk.run("sbatch", *words), desk.run("penstock", "sbatch", *words)
        number = "".join(c for c in theirs.stdout if c.isdigit())
        mine = "".join(c for c in ours.stdout if c.isdigit())
        assert ours.stdout.replace(mine, "N") == theirs.stdout.replace(number, "N") if mine else not theirs.stdout
        assert (ours.returncode, ours.stderr) == (theirs.returncode, theirs.stderr) == (0, "")
    for words in (["--nonsense"], ["no-such-script"], ["-p", "nowhere", plain], ["--version"]):
        theirs, ours = desk.run("sbatch", *words), desk.run("penstock", "sbatch", *words)
        assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr), words
    # A stage, too: with --wait it ends as its job does, and -Q says nothing.
    stage = ["--penstock-workflow=said", "-t1", "-o", "/dev/null"]
    done = desk.run("penstock", "sbatch", "--wait", *stage, "--penstock-stage", "a", plain)
    assert (done.returncode, done.stdout.split()[:3]) == (3, ["Submitted", "batch", "job"])
    quiet = desk.run("penstock", "sbatch", "-HQ", *stage, "--penstock-stage", "b", "--wrap", "true")
    assert (quiet.returncode, quiet.stdout) == (0, "")
    piped = desk.run("penstock", "sbatch", "--parsable", "-H", *stage, "--penstock-stage=c", stdin="#!/bin/sh\ntrue\n")
    assert (piped.returncode, piped.stdout.strip().isdigit()) == (0, True)
    bad = desk.run("penstock", "sbatch", "-p", "nowhere", *stage, "--penstock-stage=d", plain)
    assert (bad.returncode, bad.stderr.startswith("sbatch: error:")) == (1, True)
    wrong = desk.write("wrong.sh", "#!/bin/sh\n#PENSTOCK workflow=w stge=x\n")
    before = desk.queue()
    refused = desk.run("penstock", "sbatch", wrong)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"{wrong}:2: #PENSTOCK takes" in refused.stderr
    assert desk.queue() == before
    # What was handed to sbatch is on record, in a place of the user's own.
    records = json.loads(desk.say("penstock", "audit", "--json", "--verb", "sbatch"))["records"]
    assert {(r["user"], r["door"]) for r in records} == {(desk.site.cluster.users[desk.who], "command")}
    stages = [(r["subject"], r["outcome"]) for r in records if r["code"] != "handed-on"]
    assert stages == [("said/a", "done"), ("said/b", "done"), ("said/c", "done"), ("said/d", "refused")]
    assert [r["job"] for r in records if r["subject"] == "said/c"] == [int(piped.stdout)]
    assert len(records) - len(stages) == 6
    assert desk.run("penstock", "audit", "--verify").returncode == 0


@pytest.mark.parametrize("with_agent", [False, True])
@pytest.mark.long
def test_equal_scripts_are_stages_of_one_workflow_and_may_be_named_by_their_jobs(make_agent, with_agent):
    site = make_agent()
    if with_agent:
        site.start()
    desk = Desk(site)
    script = desk.write("task.sh", "#!/bin/bash\n#SBATCH -t 1 -o /dev/null -J dask-worker\necho $PENSTOCK_STAGE\n")

    def job(*words: str) -> str:
        return desk.say(
            "penstock", "sbatch", "--parsable", "--hold", "--penstock-workflow=pool", *words, script
        ).strip()

    first, second = job(), job()
    third = job(f"--penstock-after={first},{second}")
    if not with_agent:
        desk.say("penstock", "tick")
    stages = {s["name"]: s for s in desk.workflow("pool")["stages"]}
    assert [(n, stages[n]["job"]) for n in ("dask-worker", "dask-worker-2", "dask-worker-3")] == [
        ("dask-worker", int(first)), ("dask-worker-2", int(second)), ("dask-worker-3", int(third)),
    ]  # fmt: skip
    assert f"afterok:{first}" in (found := desk.say("squeue", "-h", "-j", third, "-o", "%E")) and second in found
    other = desk.run("penstock", "sbatch", "--penstock-workflow=pool", "--penstock-after=99999", script)
    assert (other.returncode, other.stdout) == (2, "") and "say --dependency=afterok:99999" in other.stderr
    desk.say("scancel", first, second, third)
    desk.say("rm", "task.sh")


@pytest.mark.long
def test_a_workflow_waits_for_stages_that_are_said_to_come(make_agent):
    desk = Desk(make_agent().start())
    words = ["penstock", "sbatch", "--parsable", "-t1", "-o", "/dev/null", "--wrap", "true", "--penstock-workflow=late"]
    desk.say(*words, "--penstock-stage=a", "--penstock-more=1h")
    until(lambda: desk.workflow("late")["stages"][0]["phase"] == "done", "the end of its only stage")
    assert desk.workflow("late")["phase"] == "active"
    assert "active, more stages may come until " in desk.say("penstock", "status", "late")
    desk.say(*words, "--penstock-stage=b")
    until(lambda: [s["phase"] for s in desk.workflow("late")["stages"]] == ["done", "done"], "the late stage's end")
    assert desk.say("penstock", "more", "late", "no").endswith("ends with the stages that it has\n")
    until(lambda: desk.workflow("late")["phase"] == "completed", "the end")
    again = desk.run("penstock", "more", "late", "1h")
    assert (again.returncode, "it is completed" in again.stderr) == (5, True)
    assert desk.run("penstock", "more", "late", "soon").returncode == 2


@pytest.mark.long
def test_a_malleable_job_starts_on_what_is_free(make_agent, cluster):
    busy = ["sbatch", "--parsable", "-N5", "-t5", "-o", "/dev/null", "--wrap", "sleep 60"]
    rival = cluster.run_as("bob", busy, check=True).stdout.strip()
    site = make_agent()
    desk = Desk(site)
    script = desk.write("m.sh", "#!/bin/bash\n#SBATCH -t 1\n#PENSTOCK malleable=2:1000\nsleep 60\n")

    def nodes(job: str) -> str:
        return desk.say("squeue", "-h", "-j", job, "-o", "%T %D").strip()

    alone = desk.run("penstock", "sbatch", "--parsable", script)
    assert (alone.returncode, "will keep its size" in alone.stderr) == (0, True)
    until(lambda: nodes(alone.stdout.strip()) == "RUNNING 1", "a start with sbatch's own size")
    desk.say("scancel", alone.stdout.strip())
    site.start()
    assert cluster.run_as("bob", ["squeue", "-h", "-j", rival, "-o", "%D"]).stdout.strip() == "5"
    moldable = desk.say("penstock", "sbatch", "--parsable", script).strip()
    until(lambda: nodes(moldable) == "RUNNING 3", "a start on all that is free")
    said = desk.say("penstock", "sbatch", "--parsable", "-N2", script).strip()
    assert nodes(said) == "PENDING 2"


@pytest.mark.long
def test_of_an_array_only_the_tasks_that_failed_run_again(make_agent):
    desk = Desk(make_agent())
    only = "[ -e task.may-pass ] || [ $SLURM_ARRAY_TASK_ID -ne 1 ]"
    desk.write("a.sh", STAGE.format(name="a", more="expect=1", run=f"echo ran >task.$SLURM_ARRAY_TASK_ID; {only}"))
    desk.say("penstock", "sbatch", "--parsable", "--array=0-2%2", "a.sh")

    def phase() -> str:
        desk.say("penstock", "tick")
        return desk.phases()["a"]

    until(lambda: phase() == "failed", "the failure")
    desk.write("task.may-pass", "")
    desk.say("rm", "task.0", "task.1", "task.2")
    assert json.loads(desk.say("penstock", "retry", "w", "--json"))["tasks"] == {"a": "1%2"}
    until(lambda: phase() == "done", "the end")
    assert desk.say("sh", "-c", "echo task.?").split() == ["task.1"]
    desk.say("rm", "task.1", "task.may-pass")  # the user's folder is others', too


@pytest.mark.long
def test_a_workflow_by_ticks_alone_with_a_failure_and_a_retry(make_agent):
    site = make_agent()
    desk = Desk(site)
    # It is expected to end at any moment, and does when a file is there.
    waits = "until [ -e go ]; do sleep 0.2; done; echo a was here"
    desk.write("a.sh", STAGE.format(name="a", more="expect=1", run=waits))
    # It fails as long as a file is missing.
    desk.write("b.sh", STAGE.format(name="b", more="after=a expect=60", run="cat fixed"))
    desk.write("c.sh", STAGE.format(name="c", more="after=b,a", run="sleep 1"))
    jobs = {name: int(desk.say("penstock", "sbatch", "--parsable", f"{name}.sh")) for name in "abc"}
    states = desk.queue()
    assert {states[str(jobs[name])][1] for name in "bc"} <= {"Dependency", "BeginTime", "None"}
    assert all(eligible.startswith("2099-") for eligible in desk.begins(jobs["b"], jobs["c"]))
    assert states[str(jobs["c"])][2] == f"afterok:{jobs['b']}(unfulfilled),afterok:{jobs['a']}(unfulfilled)"
    doubled = desk.run("penstock", "sbatch", "a.sh")
    assert (doubled.returncode, "has a stage 'a' already" in doubled.stderr) == (2, True)

    released: list[dict] = []

    def tick() -> dict[str, str]:
        told = json.loads(desk.say("penstock", "tick", "--json"))
        assert told["ran"]
        released.extend(d for d in told["decisions"] if d["verb"] == "release")
        return desk.phases()

    until(lambda: tick() and released, "the release ahead")
    assert [(d["subject"], d["reasons"][0][0]) for d in released] == [("workflow 1/b", "asa-due")]
    assert desk.phases()["a"] == "running"
    desk.write("go", "")
    until(lambda: tick()["b"] == "failed", "the failure")
    assert desk.workflow()["phase"] == "failing"
    assert desk.queue()[str(jobs["c"])][1] in ("Dependency", "BeginTime", "DependencyNeverSatisfied")
    assert desk.say("penstock", "logs", "w", "a") == "a was here\n"
    assert "No such file" in desk.say("penstock", "logs", "w")

    desk.write("fixed", "it is there now\n")
    again = json.loads(desk.say("penstock", "retry", "w", "--json"))["jobs"]
    assert list(again) == ["b", "c"]
    until(lambda: tick()["c"] == "done", "the end")
    assert desk.say("penstock", "logs", "w", "b") == "it is there now\n"
    ended = desk.workflow()
    assert ended["phase"] == "completed"
    assert [(s["name"], s["job"], s["own"]["former"]) for s in ended["stages"]] == [
        ("a", jobs["a"], []),
        ("b", again["b"], [jobs["b"]]),
        ("c", again["c"], [jobs["c"]]),
    ]
    rows = {r["JobID"]: r for r in site.accounting(0) if int(r["JobID"]) >= jobs["a"]}
    assert int(rows[str(again["b"])]["End"]) <= int(rows[str(again["c"])]["Start"])
    assert json.loads(desk.say("penstock", "tick", "--json")) == {
        "format": 1,
        "decisions": [],
        "left": 0,
        "problems": [],
        "ran": True,
    }


def test_a_tick_steps_back_from_an_agent_and_the_agent_takes_what_was_left(make_agent):
    site = make_agent()
    desk = Desk(site)
    job = int(desk.say("penstock", "sbatch", "--parsable", "--penstock-workflow=w", "-t1", "--wrap", "sleep 2"
                       , "--penstock-stage=a"))  # fmt: skip
    site.start()
    until(lambda: desk.phases() == {"a": "done"}, "the agent")
    assert desk.workflow()["stages"][0]["job"] == job
    assert json.loads(desk.say("penstock", "tick", "--json"))["ran"] is False
    assert desk.run("penstock", "tick").stdout == ""


@pytest.mark.long
def test_ticks_submit_the_stages_of_a_workflow_file(make_agent):
    site = make_agent()
    desk = Desk(site)
    flow = desk.write("w.yaml", TestSystemMode.WORKFLOW.format(name="w"))
    assert desk.run("penstock", "submit", flow).returncode == 3
    assert desk.say("penstock", "submit", flow, "--tick", "--json") == '{\n  "format": 1,\n  "run": null\n}\n'

    def phase() -> str:
        desk.say("penstock", "tick")
        return json.loads(desk.say("penstock", "status", "w", "--json"))["workflows"][0]["phase"]

    until(lambda: phase() == "completed", "the workflow")
    assert desk.say("penstock", "logs", "w", "two") == "two of w\n"


@pytest.mark.long
def test_a_stage_that_its_owner_lets_go_too_early_is_put_back_behind_its_parent(make_agent):
    site = make_agent().start()
    desk = Desk(site)
    words = ["penstock", "sbatch", "--parsable", "--penstock-workflow=w", "-t2", "--wrap", "sleep 100"]
    # perstage, so that only the owner lets it go.
    words.append("--penstock-strategy=perstage")
    first = desk.say(*words, "--penstock-stage=a").strip()
    second = desk.say(*words, "--penstock-stage=b", "--penstock-after=a").strip()
    until(lambda: desk.phases()["a"] == "running", "the first stage")
    desk.say("scontrol", "update", f"jobid={second}", "dependency=", "StartTime=now")

    def back() -> bool:
        state, _reason, dependency = desk.queue()[second]
        return (state, dependency) == ("PENDING", f"afterok:{first}(unfulfilled)")

    until(back, "the stage to wait again")
    done = json.loads(desk.say("penstock", "cancel", "w", "--json"))
    assert done == {"format": 1, "run": 1, "jobs": [int(first), int(second)], "failed": []}
    until(lambda: desk.workflow()["phase"] == "cancelled", "the cancellation")


@pytest.mark.long
def test_a_begin_time_and_a_hold_of_the_owners_own_are_kept(make_agent):
    site = make_agent().start()
    desk = Desk(site)
    words = ["penstock", "sbatch", "--parsable", "--penstock-workflow=w", "-t2", "--wrap", "sleep 2"]
    first = desk.say(*words, "--hold", "--penstock-stage=a").strip()
    said = [*words, "--penstock-after=a"]
    late = desk.run(*said, "--penstock-stage=late", "--begin=now+1hour")
    assert (late.returncode, late.stderr) == (0, "")
    now = time.time()
    soon = desk.say(*said, "--penstock-stage=soon", "--begin=now").strip()
    own = desk.say(*said, "--penstock-stage=own", "--hold").strip()
    ends = desk.say(*said, "--penstock-stage=ends", "--deadline=now+1hour").strip()
    stages = {s["name"]: s for s in desk.workflow()["stages"]}
    assert {name: s["own"]["kept"] for name, s in stages.items()} == {
        "a": "",
        "late": "begin",
        "soon": "begin",
        "own": "",
        "ends": "begin",
    }
    assert stages["late"]["own"]["begin"] == pytest.approx(now + 3600, abs=30)
    assert stages["soon"]["own"]["begin"] is None
    assert all(begin.startswith("2099-") for begin in desk.begins(late.stdout.strip(), soon, ends))
    desk.say("scontrol", "release", first)
    until(lambda: desk.phases()["soon"] == desk.phases()["ends"] == "done", "the stages whose time has come")
    assert [desk.phases()[name] for name in ("late", "own")] == ["waiting", "queued"]
    assert desk.queue()[own][:2] == ["PENDING", "JobHeldUser"]
    assert desk.begins(late.stdout.strip())[0].startswith("2099-")
    desk.say("scontrol", "release", own)
    until(lambda: desk.phases()["own"] == "done", "the stage that its owner let go")
    desk.say("penstock", "cancel", "w")


class TestSystemMode:
    """One agent for all users: an Operator, neither root nor SlurmUser, that may not submit for anybody."""

    WORKFLOW = """name: {name}
stages:
  - {{name: one, nodes: 2, time: 60, expect: 4, run: "sleep 4; id -un"}}
  - {{name: two, nodes: 1, time: 60, expect: 2, run: "sleep 2; echo $PENSTOCK_STAGE of $PENSTOCK_WORKFLOW"}}
"""

    def test_two_users_workflows_run_as_their_own(self, make_agent, cluster):
        site = make_agent("operator", agent={"serve": "all"}).start()
        assert ask(site.socket, "ping")["uid"] == cluster.user("operator").uid != 0
        alice, bob = Desk(site, "alice"), Desk(site, "bob")
        assert alice.say("penstock", "submit", alice.write("w.yaml", self.WORKFLOW.format(name="w"))) == (
            "Submitted workflow 1\n"
        )
        bob.write("b.sh", STAGE.format(name="only", more="expect=2", run="sleep 2"))
        bob.say("penstock", "sbatch", "b.sh")
        jobs = [s["job"] for s in alice.workflow()["stages"]]
        self.refuses_what_is_alices(site, bob, jobs)
        for desk, stages in ((alice, 2), (bob, 1)):
            until(lambda desk=desk: desk.workflow()["phase"] == "completed", f"the workflow of {desk.who}")
            assert len(desk.workflow()["stages"]) == stages
        names = alice.say("sacct", "-n", "-P", "-X", "-o", "User,State", "-j", ",".join(map(str, jobs)))
        assert set(names.split()) == {f"{cluster.users['alice']}|COMPLETED"}
        assert alice.say("penstock", "logs", "w", "two") == "two of w\n"
        assert "release" in alice.say("penstock", "explain", "w1")
        assert "'operator'" not in site.said()

    def refuses_what_is_alices(self, site: SlurmAgent, bob: Desk, jobs: list[int]) -> None:
        """Bob asks for things about Alice's jobs and workflow, by the command line and by hand."""
        assert bob.run("penstock", "cancel", "1").returncode == 5
        assert bob.run("penstock", "explain", "w1").returncode == 4
        assert [w["uid"] for w in json.loads(bob.say("penstock", "status", "--json"))["workflows"]] == [
            site.cluster.user("bob").uid
        ]
        program = (
            "import json, sys; from pathlib import Path; from penstock.ipc.client import ask\n"
            "print(ask(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])))"
        )
        python = COMMAND[0]

        def by_hand(op: str, **arguments: object) -> str:
            done = bob.run(python, "-c", program, str(site.socket), op, json.dumps(arguments))
            assert done.returncode != 0, done.stdout
            return done.stderr

        stages = [{"name": "x", "job": jobs[1], "after": [], "hold": True}]
        until(lambda: any(j["id"] == jobs[1] for j in ask(site.socket, "queue")["jobs"]), "a look at the queue")
        mine = {"workflow": "mine", "strategy": "asa", "stages": stages}
        assert NotPermitted.__name__ in by_hand("guide", **mine)
        assert "is not yours" in by_hand("guide", **mine)
        assert "there is no workflow 1" in by_hand("plan", **mine, run=1)
        refusal = by_hand("cancel", run=1)  # the second once Alice's workflow has ended
        assert "no running workflow 1" in refusal or "only the agent's own user" in refusal
        for op in ("submit", "retry", "queue"):
            assert "only the agent's own user" in by_hand(op, run=1)

    def test_without_the_agent_nothing_is_submitted(self, make_agent, cluster):
        site = make_agent("operator", agent={"serve": "all"}).start()
        site.stop()
        desk = Desk(site, "alice")
        desk.write("a.sh", STAGE.format(name="a", more="", run="true"))
        before = desk.queue()
        done = desk.run("penstock", "sbatch", "a.sh")
        assert (done.returncode, done.stdout) == (3, "")
        assert "no agent answers" in done.stderr
        assert desk.queue() == before
        with pytest.raises(PenstockError):
            ask(site.socket, "ping")

"""When each strategy submits, into which jobs it cuts a workflow, and what their scripts do."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import pytest

from penstock.errors import UserError
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import StagePhase
from penstock.workflow.run.runner import Runner
from penstock.workflow.scripts import GROWTH_WAIT, combined_command, job_spec
from penstock.workflow.strategies.cuts import place_units
from penstock.workflow.strategies.registry import known_strategies, strategy_named
from penstock.workflow.strategy import Outlook, Rules, expected_end

FLOW = Workflow(
    "mosaic",
    (
        Stage("project", 4, 1800, 720, "srun ./project"),
        Stage("merge", 1, 600, 60, "./merge", ("project",)),
        Stage("view", 2, 600, 300, "./view", ("merge",)),
    ),
    source="mosaic.yaml",
)


def run_with(strategy, *entries, now=1000.0):
    run = Runner(accrues=True).start(7, FLOW, strategy, now, partition="batch")
    for name, changes in entries:
        run = run.with_stage(replace(run.stage(name), **changes))
    return run


def due(run, i, now):
    return strategy_named(run.acting).due(run, i, now)


def jobs(flow, strategy, **outlook):
    outlook = Outlook(**{"wait": lambda _geometry: 0.0, **outlook})
    return place_units(flow, strategy_named(strategy).plan(flow, outlook).cut)


def test_the_first_is_due_at_once():
    for name in known_strategies():
        assert due(run_with(name), 0, 1000).at == 1000


def test_perstage_waits_for_the_end():
    run = run_with("perstage", ("project", {"phase": StagePhase.RUNNING, "job": 1, "start": 1100, "submitted": 1000}))
    verdict = due(run, 1, 1200)
    assert verdict.at is None and verdict.reason.code == "perstage-waits"
    assert verdict.reason.text == "merge waits for project (running, job 1)"
    run = run.with_stage(replace(run.stage("project"), phase=StagePhase.DONE, end=1820))
    assert due(run, 1, 1900).at == 1820
    assert due(run, 1, 1819).at == 1819, "Slurm's clock may be ahead: what has ended has ended"


def test_asa_submits_an_estimate_before_the_expected_end():
    """Section 3.2: at t_{y-1} - a. The parent started at 1100 and is expected to take 720 s; the estimate is 33 s."""
    run = run_with(
        "asa",
        ("project", {"phase": StagePhase.RUNNING, "job": 1, "submitted": 1000, "start": 1100, "estimate": 50}),
        ("merge", {"estimate": 33.0}),
    )
    verdict = due(run, 1, 1200)
    assert (verdict.at, verdict.fixed, verdict.parent_end) == (1787, True, 1820)
    assert verdict.reason.text == ("submit merge at 00:29:47Z: project expected to end 00:30:20Z, estimated wait 33 s")
    overrun = due(run, 1, 1900)
    assert (overrun.at, overrun.fixed, overrun.parent_end) == (1867, False, 1900)


def test_asa_may_submit_before_the_parent_starts():
    """Section 4.6. The parent, submitted at 1000 with an estimate of 500, is expected to end at 1500 + 720."""
    entries = (
        ("project", {"phase": StagePhase.QUEUED, "job": 1, "submitted": 1000, "estimate": 500.0}),
        ("merge", {"estimate": 900.0}),
    )
    assert due(run_with("asa", *entries), 1, 1100).at == 2220 - 900 < 1500
    late = due(run_with("asa", *entries), 1, 1600)
    assert (late.at, late.fixed) == (1600 + 720 - 900, False), "its estimate is over: it may start any moment"


def test_asa_looks_through_a_pending_parent_to_its_own_parent():
    """merge depends on project: it cannot start before project's expected end at 1820, whatever its estimate."""
    run = run_with(
        "asa",
        ("project", {"phase": StagePhase.RUNNING, "job": 1, "submitted": 1000, "start": 1100, "estimate": 50.0}),
        ("merge", {"phase": StagePhase.QUEUED, "job": 2, "submitted": 1200, "estimate": 100.0, "depends_on": (1,)}),
        ("view", {"estimate": 10.0}),
    )
    assert expected_end(run, 1, 1250) == (1880, True)
    assert due(run, 2, 1250).at == 1870
    assert expected_end(run, 1, 2000) == (2060, False), "project overruns: everything moves with the present"


def test_asa_keeps_the_order():
    run = run_with("asa", ("merge", {"estimate": 1e5}))
    assert due(run, 1, 1000).reason.code == "asa-parent-first"
    run = run_with("asa", ("project", {"phase": StagePhase.INTENDED}), ("merge", {"estimate": 1e5}))
    assert due(run, 1, 1000).at is None


def test_bigjob_is_one_job():
    (unit,) = jobs(FLOW, "bigjob")
    assert (unit.nodes, unit.time_limit, unit.run_time) == (4, 3000, 1080)


DIAMOND = Workflow(
    "diamond",
    (
        Stage("last", 1, 600, 60, "./last", ("left", "right")),
        Stage("first", 1, 600, 100, "./first"),
        Stage("left", 2, 600, 200, "./left", ("first",)),
        Stage("right", 3, 600, 300, "./right", ("first",)),
    ),
)


def diamond_with(strategy, *entries):
    run = Runner(accrues=True).start(7, DIAMOND, strategy, 1000.0, partition="batch")
    for name, changes in entries:
        run = run.with_stage(replace(run.stage(name), **changes))
    return run


def test_a_graph_is_brought_into_an_order_that_keeps_parents_first():
    run = diamond_with("perstage")
    assert [s.name for s in run.stages] == ["first", "left", "right", "last"]
    assert [s.after for s in run.stages] == [(), (0,), (0,), (1, 2)]
    assert run.following([0]) == {1, 2, 3} and run.following([1]) == {3} and run.following([3]) == frozenset()
    (unit,) = jobs(DIAMOND, "bigjob")
    assert (unit.nodes, unit.time_limit, unit.run_time, unit.after) == (3, 2400, 660, ())
    assert [unit.command.index(c) for c in ("./first", "./left", "./right", "./last")] == sorted(
        unit.command.index(c) for c in ("./first", "./left", "./right", "./last")
    )


def test_perstage_waits_for_the_last_of_several_parents():
    ended = {"phase": StagePhase.DONE, "job": 1, "end": 1500.0}
    run = diamond_with(
        "perstage", ("first", ended), ("left", {**ended, "job": 2}), ("right", {"phase": StagePhase.QUEUED})
    )
    verdict = due(run, 3, 2000)
    assert verdict.at is None and verdict.reason.text == "last waits for right (queued)"
    run = run.with_stage(replace(run.stage("right"), phase=StagePhase.DONE, job=3, end=1800.0))
    verdict = due(run, 3, 2000)
    assert (verdict.at, verdict.parent_end) == (1800, 1800)
    assert verdict.reason.text == "submit last now: right (job 3, the last of 2) completed 00:30:00Z"


def test_asa_goes_by_the_parent_that_ends_last():
    running = {"phase": StagePhase.RUNNING, "submitted": 1000.0}
    first = ("first", {"phase": StagePhase.DONE, "job": 1, "submitted": 1000.0, "start": 1000.0, "end": 1100.0})
    left, right = ("left", {**running, "job": 2, "start": 1150.0}), ("right", {**running, "job": 3, "start": 1110.0})
    run = diamond_with("asa", first, left, right, ("last", {"estimate": 40.0}))
    verdict = due(run, 3, 1200)
    assert (verdict.at, verdict.parent_end) == (1110 + 300 - 40, 1410)
    assert "right expected to end 00:23:30Z" in verdict.reason.text
    waiting = diamond_with("asa", first, left, ("last", {"estimate": 40.0}))
    assert due(waiting, 3, 1200).reason.text == "right must be submitted before last"
    ended = run.with_stage(replace(run.stage("right"), phase=StagePhase.DONE, end=1410.0))
    assert due(ended, 3, 1420).parent_end == 1420, "left overruns: it is now that counts, not right's end"
    assert expected_end(ended, 1, 1420) == (1420, False)


def test_a_long_row_of_pending_jobs_is_no_deep_recursion():
    names = [f"s{i}" for i in range(3000)]
    flow = Workflow("w", tuple(Stage(n, 1, 60, 60, "x", tuple(names[max(i - 1, 0) : i])) for i, n in enumerate(names)))
    run = Runner(accrues=True).start(1, flow, "asa", 0.0, partition="batch")
    queued = tuple(replace(s, phase=StagePhase.QUEUED, submitted=0.0, estimate=0.0) for s in run.stages)
    run = replace(run, stages=queued)
    assert expected_end(run, 2999, 10.0) == (10 + 60 * 3000, False)


def test_an_unknown_strategy():
    with pytest.raises(UserError, match=r"no strategy 'fast' is installed \(installed: auto, asa, .*, elastic\)"):
        strategy_named("fast")


# -- scripts, run by a real bash ---------------------------------------------------------------------


def bash(script, cwd):
    return subprocess.run(
        ["bash"], input=script, text=True, capture_output=True, cwd=cwd, env={"PATH": os.environ["PATH"]}, timeout=20
    )


def stage(name, command, nodes=1):
    return Stage(name, nodes, 60, 60, command)


def spec(command, **fields):
    flow = Workflow("w", (stage("a", command),), environment={"MODE": "fast"}, **fields)
    return job_spec(flow, flow.stages[0], "3", 2, ())


def test_the_job_of_a_stage(tmp_path):
    there = tmp_path / "it's here"
    there.mkdir()
    made = spec("pwd\necho done", workdir=str(there), partition="p", account="acc", qos="q")
    assert (made.name, made.nodes, made.time_limit) == ("a.penstock.3.2.w", 1, 60)
    assert (made.partition, made.account, made.qos, made.workdir) == ("p", "acc", "q", str(there))
    assert (made.dependency, made.hold, made.requeue) == (None, False, False)
    assert made.environment == {
        "MODE": "fast", "PENSTOCK_WORKFLOW": "w", "PENSTOCK_RUN": "3", "PENSTOCK_STAGE": "a"
    }  # fmt: skip
    done = bash(made.script, tmp_path)
    assert (done.returncode, done.stdout.split("\n")[0]) == (0, str(there))
    dependent = job_spec(FLOW, FLOW.stages[1], "3", 1, (12,))
    assert (dependent.dependency, dependent.hold) == ("afterok:12", True)
    assert job_spec(FLOW, FLOW.stages[1], "3", 1, (12, 9)).dependency == "afterok:12:9"


@pytest.mark.parametrize("command", ["false\necho on", "exit 3 | true\necho on", "cd /nowhere\necho on"])
def test_the_first_failure_ends_a_stage(tmp_path, command):
    done = bash(spec(command).script, tmp_path)
    assert done.returncode != 0 and "on" not in done.stdout


def test_an_unset_variable_is_no_failure(tmp_path):
    assert bash(spec("echo [$NOT_SET]").script, tmp_path).stdout == "[]\n"


def test_bigjob_runs_the_stages_in_order_and_narrow(tmp_path):
    command = combined_command(
        [
            stage("a", "echo A $PENSTOCK_STAGE ${SLURM_NNODES-all}; cd /; exit 0", 4),
            stage("b", "echo 'B' \"$PENSTOCK_STAGE\" $SLURM_NNODES $SLURM_JOB_NUM_NODES; pwd", 2),
            stage("c", "cat <<END\n( unbalanced 'quote\nEND", 4),
        ]
    )
    done = bash(spec(command).script, tmp_path)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("penstock: stage ")]
    assert lines == ["A a all", "B b 2 2", str(tmp_path), "( unbalanced 'quote"], done.stderr
    assert done.returncode == 0
    assert [line.split()[2] for line in done.stdout.splitlines() if line.startswith("penstock:")] == ["a", "b", "c"]


def test_bigjob_stops_at_the_first_failure(tmp_path):
    command = combined_command([stage("a", "echo A"), stage("b", "false\necho no"), stage("c", "echo C")])
    done = bash(spec(command).script, tmp_path)
    assert done.returncode == 1 and "C" not in done.stdout and "no" not in done.stdout
    assert bash(spec(combined_command([stage("a", "exit 9")])).script, tmp_path).returncode == 9


def test_elastic_has_the_nodes_of_each_stage_in_its_turn():
    sizes = (1, 4, 4, 2)
    flow = Workflow("w", tuple(Stage(f"s{i}", n, 100.0, 50.0, f"run {i}") for i, n in enumerate(sizes)))
    (unit,) = jobs(flow, "elastic")
    assert (unit.name, unit.nodes, unit.time_limit, unit.run_time) == ("elastic", 1, 400 + GROWTH_WAIT, 200)
    steps = [line for line in unit.command.splitlines() if "dmr.size" in line or line.startswith("eval 'run")]
    assert [line.split("dmr.size ")[-1].split(" --")[0] for line in steps] == [
        "eval 'run 0'",
        "4",
        "eval 'run 1'",
        "eval 'run 2'",
        "2",
        "eval 'run 3'",
    ]


def test_elastic_where_jobs_cannot_grow_is_one_job_of_one_size():
    flow = Workflow("w", (Stage("a", 1, 100.0, 50.0, "true"), Stage("b", 3, 100.0, 50.0, "true", ("a",))))
    outlook = Outlook(lambda _geometry: 0.0, rules=Rules(no_merge="PrologFlags=CONTAIN"))
    plan = strategy_named("elastic").plan(flow, outlook)
    assert plan.by == "bigjob" and [u.nodes for u in place_units(flow, plan.cut)] == [3]
    assert plan.reasons[0].text == "jobs cannot grow here (PrologFlags=CONTAIN), so one job of one size is used"

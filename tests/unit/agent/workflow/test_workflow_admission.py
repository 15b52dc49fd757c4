"""Which workflow a stage joins, and what is refused before anything is submitted."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from owned_jobs import run_of, stage_of

from penstock.errors import NotFound, PenstockError, UserError
from penstock.sbatch.commands.keeping import check_agent
from penstock.workflow.phases import Kept, RunPhase, StagePhase
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategy import Rules
from penstock.workflow.submit.admission import admit, plan, plan_for_owner, planned, registration, settled


def asked(*stages: tuple, workflow: str = "w", run: int | None = None):
    entries = [{"name": s[0], "job": s[1], "after": list(s[2:])} for s in stages]
    return registration({"workflow": workflow, "strategy": "asa", "stages": entries, "run": run}, 5.0)


def known(
    number: int, *stages: tuple[str, StagePhase, *tuple[int, ...]], name: str = "w", phase: RunPhase = RunPhase.ACTIVE
) -> WorkflowRun:
    """Stages with jobs 10, 11, ..., each after those at these places."""
    made = [stage_of(n, 10 + i, after, phase=p) for i, (n, p, *after) in enumerate(stages)]
    return run_of(made, id=number, name=name, phase=phase)


def test_a_stage_joins_the_open_workflow_of_its_name():
    runs = [known(1, ("a", StagePhase.DONE), phase=RunPhase.COMPLETED), known(2, ("a", StagePhase.RUNNING))]
    run, before = plan(runs, asked(("b", 7, "a")))
    assert (run.id, [s.job for s in before["b"]]) == (2, [10])
    joined = admit(run, asked(("b", 7, "a")).stages)
    assert [(s.name, s.job, s.after) for s in joined.stages] == [("a", 10, ()), ("b", 7, (0,))]
    assert [(unit.name, unit.after) for unit in joined.units] == [("a", ()), ("b", ("a",))]


def test_a_stage_without_parents_begins_a_new_one_when_the_last_has_ended():
    runs = [known(1, ("a", StagePhase.DONE), phase=RunPhase.COMPLETED)]
    assert plan(runs, asked(("a", 7)))[0] is None
    assert plan(runs, asked(("a", 7), workflow="v"))[0] is None


def test_one_that_comes_after_an_ended_stage_opens_that_workflow_again():
    runs = [known(1, ("a", StagePhase.DONE), phase=RunPhase.COMPLETED)]
    run, before = plan(runs, asked(("b", 7, "a")))
    assert before["b"][0].phase is StagePhase.DONE
    assert admit(run, asked(("b", 7, "a")).stages).phase is RunPhase.ACTIVE


def test_a_failed_stage_is_submitted_again_and_its_old_job_remembered():
    runs = [known(1, ("a", StagePhase.FAILED), ("b", StagePhase.WAITING), phase=RunPhase.FAILING)]
    run, _ = plan(runs, asked(("a", 7)))
    again = admit(admit(run, asked(("a", 7)).stages), [replace(asked(("a", 8)).stages[0])])
    assert (again.stage("a").job, again.stage("a").mine.former, again.phase) == (8, (10, 7), RunPhase.ACTIVE)


def test_several_stages_at_once_know_each_other():
    run, before = plan([], asked(("a", 1), ("b", 2, "a")))
    assert (run, before) == (None, {"a": (), "b": ()})


def test_a_name_that_nobody_has_chosen_gives_way():
    stages = [{"name": "task", "job": n, "after": [], "free": True} for n in (7, 8)]
    request = registration({"workflow": "w", "strategy": "asa", "stages": stages}, 5.0)
    assert [s.name for s in settled([], request).stages] == ["task", "task-2"]
    runs = [known(1, ("task", StagePhase.RUNNING), ("task-3", StagePhase.DONE))]
    found = settled(runs, request)
    assert [s.name for s in found.stages] == ["task-2", "task-4"]
    assert admit(plan(runs, found)[0], found.stages).stage("task-4").job == 8
    failed = [known(1, ("task", StagePhase.FAILED), phase=RunPhase.FAILING)]
    assert settled(failed, request).stages[0].name == "task", "it takes the place of the one that failed"
    chosen = asked(("task", 7))
    assert settled(runs, chosen) == chosen


@pytest.mark.parametrize(
    ("said", "more"), [({}, None), ({"more": None}, None), ({"more": 0}, 0.0), ({"more": 60}, 60.0)]
)
def test_how_long_more_stages_may_come(said, more):
    stages = [{"name": "a", "job": 7, "after": []}]
    assert registration({"workflow": "w", "strategy": "asa", "stages": stages, **said}, 5.0).more == more


@pytest.mark.parametrize("more", [-1, 1e9, "soon", [], "nan"])
def test_no_workflow_waits_for_ever(more):
    with pytest.raises(UserError, match=r"more: must be|not a registration"):
        registration(
            {"workflow": "w", "strategy": "asa", "stages": [{"name": "a", "job": 7, "after": []}], "more": more}, 5.0
        )


def test_a_long_name_stays_one_that_is_allowed():
    stages = [{"name": "x" * 40, "job": n, "after": [], "free": True} for n in (7, 8)]
    found = settled([], registration({"workflow": "w", "strategy": "asa", "stages": stages}, 5.0))
    assert [s.name for s in found.stages] == ["x" * 40, "x" * 38 + "-2"]


def test_stages_may_be_named_by_their_jobs():
    runs = [known(1, ("a", StagePhase.RUNNING), ("12", StagePhase.RUNNING), ("c", StagePhase.RUNNING))]
    found = settled(runs, asked(("d", 7, "10", "12", "a")))
    assert found.stages[0].after == ("a", "12"), "10 is the job of a, and a stage is called 12 (the job of c)"
    again = admit(runs[0], [replace(asked(("a", 9)).stages[0])])
    assert settled([again], asked(("d", 7, "10"))).stages[0].after == ("a",), "also by a job it had before"
    with pytest.raises(UserError, match="for a job of another, say --dependency=afterok:99"):
        plan(runs, settled(runs, asked(("d", 7, "99"))))


@pytest.mark.parametrize(
    ("stages", "text"),
    [
        ([("a", 7)], "has a stage 'a' already: job 10 (running)"),
        ([("d", 7)], "has a stage 'd' already: job 11 (done)"),
        ([("b", 7, "x")], "comes after 'x', which workflow 'w' does not have (stages: a, d)"),
        ([("b", 7, "c"), ("c", 8)], "comes after 'c', which"),
        ([("b", 7), ("b", 8)], "is given twice"),
        ([("b", 7), ("c", 7)], "job 7 is stage 'b' already and cannot be stage 'c', too"),
        ([("b", 10)], "job 10 is stage 'a' already and cannot be stage 'b', too"),
        ([("b", 7), ("c", 8, "b"), ("d", 7, "c")], "job 7 is stage 'b' already and cannot be stage 'd', too"),
    ],
)
def test_what_is_refused(stages, text):
    with pytest.raises(UserError) as caught:
        plan([known(1, ("a", StagePhase.RUNNING), ("d", StagePhase.DONE))], asked(*stages))
    assert text in str(caught.value)


@pytest.mark.parametrize("phase", [StagePhase.WAITING, StagePhase.QUEUED], ids=["kept back", "held by its owner"])
def test_a_waiting_job_gives_its_place_only_to_the_one_that_names_it(phase):
    run = known(1, ("a", StagePhase.DONE), ("b", phase))
    for replaces in ({}, {"b": 10}, {"a": 11}):
        with pytest.raises(UserError, match="already"):
            plan([run], replace(asked(("b", 20)), replaces=replaces))
    named = replace(asked(("b", 20)), replaces={"b": 11})
    assert plan([run], named)[0] is run
    assert (admit(run, named.stages).stage("b").job, admit(run, named.stages).stage("b").mine.former) == (20, (11,))
    with pytest.raises(UserError, match="already"):
        plan([known(1, ("a", StagePhase.DONE), ("b", StagePhase.RUNNING))], named)


def test_a_stage_cannot_come_after_one_that_comes_after_it():
    run = known(1, ("a", StagePhase.FAILED), ("b", StagePhase.WAITING, 0), phase=RunPhase.FAILING)
    with pytest.raises(UserError, match="'a' would come after itself"):
        plan([run], asked(("a", 7, "b")))
    run = known(1, ("a", StagePhase.FAILED), ("b", StagePhase.FAILED), ("c", StagePhase.FAILED), phase=RunPhase.FAILING)
    for stages in ((("a", 7, "a"),), (("a", 7, "b"), ("b", 8, "a")), (("c", 9), ("a", 7, "b"), ("b", 8, "a"))):
        with pytest.raises(UserError, match="would come after itself"):
            plan([run], asked(*stages))
    assert plan([run], asked(("a", 7, "b"), ("b", 8, "c"), ("c", 9)))[0] is run


def test_a_workflow_of_somebody_else_is_not_there():
    with pytest.raises(NotFound, match="no workflow 9"):
        plan([known(1, ("a", StagePhase.FAILED))], asked(("a", 7), run=9))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(JSON, JSON, JSON)
def test_whatever_comes_in_is_a_registration_or_refused(workflow, stages, stage):
    for entries in (stages, [stage], [{"name": "a", "job": stage, "after": stages}]):
        try:
            registration({"workflow": workflow, "strategy": "asa", "stages": entries}, 0.0)
        except UserError:
            continue


@pytest.mark.parametrize(
    ("said", "kept", "begin"),
    [
        ({}, Kept.NOT, None),
        ({"hold": True}, Kept.HOLD, None),  # as release 0.1.0 says it
        ({"hold": False}, Kept.NOT, None),
        ({"kept": "begin", "begin": 1.8e9}, Kept.BEGIN, 1.8e9),
        ({"kept": "hold"}, Kept.HOLD, None),
        ({"kept": ""}, Kept.NOT, None),
    ],
)
def test_how_a_stage_is_kept_back_is_what_was_said(said, kept, begin):
    entry = {"name": "a", "job": 5, "after": [], **said}
    (stage,) = registration({"workflow": "w", "strategy": "asa", "stages": [entry]}, 5.0).stages
    assert (stage.own.kept, stage.own.begin) == (kept, begin)
    assert stage.entry.phase is (StagePhase.WAITING if kept else StagePhase.QUEUED)


@pytest.mark.parametrize("said", [{"kept": "rope"}, {"kept": None}, {"begin": -1}, {"begin": 1e12}, {"begin": "noon"}])
def test_no_other_way_of_keeping_back_is_taken(said):
    entry = {"name": "a", "job": 5, "after": [], **said}
    with pytest.raises(UserError, match="not a registration of stages"):
        registration({"workflow": "w", "strategy": "asa", "stages": [entry]}, 5.0)


def test_an_agent_that_would_never_let_a_job_go_is_found_out():
    check_agent(planned(*plan([], asked(("a", 0)))))
    with pytest.raises(PenstockError, match="must be started anew"):
        check_agent({"run": None, "before": {}})  # what 0.1.0 answers


def took(number: int, seconds: float, name: str = "w", phase: StagePhase = StagePhase.DONE) -> WorkflowRun:
    """A run whose stage `a` took so long."""
    made = [stage_of("a", 10, phase=phase, start=100.0, end=100.0 + seconds, nodes=4)]
    return run_of(made, id=number, name=name)


def test_what_nobody_has_said_is_expected_to_take_as_long_as_it_took_before():
    stages = [
        {"name": "a", "job": 1, "after": []},
        {"name": "b", "job": 2, "after": ["a"]},
        {"name": "c", "job": 3, "after": [], "expect": 7.0},
    ]
    fresh = registration({"workflow": "w", "strategy": "asa", "stages": stages}, 5.0)
    begun = fresh.begun(3, 1000, "alice", 5.0, plan_for_owner("asa", Rules()))
    assert (begun.owned, begun.uid, begun.user, begun.name, begun.submitted_at) == (True, 1000, "alice", "w", 5.0)
    earlier = [took(n, 1000.0 * n) for n in range(1, 14)]
    others = [took(20, 9e6, name="v"), took(21, 9e6, phase=StagePhase.FAILED), took(22, 9e6, phase=StagePhase.RUNNING)]
    run = admit(begun, fresh.stages, earlier=[*earlier, *others])
    # The mean of the latest ten.
    assert [stage.mine.expect for stage in run.stages] == [8500.0, None, 7.0]
    assert [unit.run_time for unit in run.units] == [8500.0, math.inf, 7.0]
    slower = admit(run, asked(("d", 4, "a")).stages, earlier=[took(30, 9.0)])
    assert slower.stage("a").mine.expect == 8500.0, "as it was registered"


def test_a_stage_that_is_registered_later_may_come_before_known_ones():
    """Places are given anew."""
    run = known(1, ("b", StagePhase.FAILED), ("c", StagePhase.WAITING, 0))
    fresh = asked(("a", 5), ("b", 6, "a"))
    joined = admit(plan([run], fresh)[0], fresh.stages)
    assert [(s.name, s.job, s.after) for s in joined.stages] == [("a", 5, ()), ("b", 6, (0,)), ("c", 11, (1,))]
    assert [unit.after for unit in joined.units] == [(), ("a",), ("b",)]


@given(st.permutations(list(range(6))), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_whatever_the_order_each_stage_stands_behind_those_it_comes_after(order, pairs):
    after = {f"s{i}": tuple(f"s{a}" for a, b in pairs if b == i and a < b) for i in range(6)}
    fresh = asked(*((f"s{i}", i + 1, *after[f"s{i}"]) for i in order))
    begun = fresh.begun(3, 1000, "alice", 5.0, plan_for_owner("asa", Rules()))
    run = admit(begun, fresh.stages)
    assert {s.name: {run.stages[j].name for j in s.after} for s in run.stages} == {n: set(a) for n, a in after.items()}
    assert all(j < i for i, stage in enumerate(run.stages) for j in stage.after)

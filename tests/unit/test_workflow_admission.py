"""Which workflow a stage joins, and what is refused before anything is submitted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.guided.admission import admit, plan, planned, registration
from penstock.guided.state import GuidedRun, GuidedStage, Kept

from penstock.cli.keeping import check_agent
from penstock.errors import NotFound, PenstockError, UserError
from penstock.workflow.state import Phase, RunPhase


def asked(*stages: tuple, workflow: str = "w", run: int | None = None):
    entries = [{"name": s[0], "job": s[1], "after": list(s[2:])} for s in stages]
    return registration({"workflow": workflow, "strategy": "asa", "stages": entries, "run": run}, 5.0)


def known(number: int, *stages: tuple[str, Phase], name: str = "w", phase: RunPhase = RunPhase.ACTIVE) -> GuidedRun:
    made = tuple(GuidedStage(n, 10 + i, phase=p) for i, (n, p) in enumerate(stages))
    return GuidedRun(number, 1000, "alice", name, "asa", 0.0, made, phase)


def test_a_stage_joins_the_open_workflow_of_its_name():
    runs = [known(1, ("a", Phase.DONE), phase=RunPhase.COMPLETED), known(2, ("a", Phase.RUNNING))]
    run, before = plan(runs, asked(("b", 7, "a")))
    assert (run.id, [s.job for s in before["b"]]) == (2, [10])
    joined = admit(run, asked(("b", 7, "a")).stages)
    assert [(s.name, s.job, s.after) for s in joined.stages] == [("a", 10, ()), ("b", 7, ("a",))]


def test_a_stage_without_parents_begins_a_new_one_when_the_last_has_ended():
    runs = [known(1, ("a", Phase.DONE), phase=RunPhase.COMPLETED)]
    assert plan(runs, asked(("a", 7)))[0] is None
    assert plan(runs, asked(("a", 7), workflow="v"))[0] is None


def test_one_that_comes_after_an_ended_stage_opens_that_workflow_again():
    runs = [known(1, ("a", Phase.DONE), phase=RunPhase.COMPLETED)]
    run, before = plan(runs, asked(("b", 7, "a")))
    assert before["b"][0].phase is Phase.DONE
    assert admit(run, asked(("b", 7, "a")).stages).phase is RunPhase.ACTIVE


def test_a_failed_stage_is_submitted_again_and_its_old_job_remembered():
    runs = [known(1, ("a", Phase.FAILED), ("b", Phase.SUBMITTED), phase=RunPhase.FAILING)]
    run, _ = plan(runs, asked(("a", 7)))
    again = admit(admit(run, asked(("a", 7)).stages), [replace(asked(("a", 8)).stages[0])])
    assert (again.get("a").job, again.get("a").former, again.phase) == (8, (10, 7), RunPhase.ACTIVE)


def test_several_stages_at_once_know_each_other():
    run, before = plan([], asked(("a", 1), ("b", 2, "a")))
    assert (run, before) == (None, {"a": (), "b": ()})


@pytest.mark.parametrize(
    ("stages", "text"),
    [
        ([("a", 7)], "has a stage 'a' already: job 10 (running)"),
        ([("d", 7)], "has a stage 'd' already: job 11 (done)"),
        ([("b", 7, "x")], "comes after 'x', which workflow 'w' does not have (stages: a, d)"),
        ([("b", 7, "c"), ("c", 8)], "comes after 'c', which"),
        ([("b", 7), ("b", 8)], "is there twice"),
    ],
)
def test_what_is_refused(stages, text):
    with pytest.raises(UserError) as caught:
        plan([known(1, ("a", Phase.RUNNING), ("d", Phase.DONE))], asked(*stages))
    assert text in str(caught.value)


def test_a_waiting_job_gives_its_place_only_to_the_one_that_names_it():
    run = known(1, ("a", Phase.DONE), ("b", Phase.SUBMITTED))
    for replaces in ({}, {"b": 10}, {"a": 11}):
        with pytest.raises(UserError, match="already"):
            plan([run], replace(asked(("b", 20)), replaces=replaces))
    named = replace(asked(("b", 20)), replaces={"b": 11})
    assert plan([run], named)[0] is run
    assert (admit(run, named.stages).get("b").job, admit(run, named.stages).get("b").former) == (20, (11,))
    with pytest.raises(UserError, match="already"):
        plan([known(1, ("a", Phase.DONE), ("b", Phase.RUNNING))], named)


def test_a_stage_cannot_come_after_one_that_comes_after_it():
    run = known(1, ("a", Phase.FAILED), phase=RunPhase.FAILING).with_stage(GuidedStage("b", 11, ("a",)))
    with pytest.raises(UserError, match="'a' would come after itself"):
        plan([run], asked(("a", 7, "b")))
    run = known(1, ("a", Phase.FAILED), ("b", Phase.FAILED), ("c", Phase.FAILED), phase=RunPhase.FAILING)
    for stages in ((("a", 7, "a"),), (("a", 7, "b"), ("b", 8, "a")), (("c", 9), ("a", 7, "b"), ("b", 8, "a"))):
        with pytest.raises(UserError, match="would come after itself"):
            plan([run], asked(*stages))
    assert plan([run], asked(("a", 7, "b"), ("b", 8, "c"), ("c", 9)))[0] is run


def test_a_workflow_of_somebody_else_is_not_there():
    with pytest.raises(NotFound, match="no workflow 9"):
        plan([known(1, ("a", Phase.FAILED))], asked(("a", 7), run=9))


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
    assert (stage.kept, stage.begin) == (kept, begin)


@pytest.mark.parametrize("said", [{"kept": "rope"}, {"kept": None}, {"begin": -1}, {"begin": 1e12}, {"begin": "noon"}])
def test_no_other_way_of_keeping_back_is_taken(said):
    entry = {"name": "a", "job": 5, "after": [], **said}
    with pytest.raises(UserError, match="not a registration of stages"):
        registration({"workflow": "w", "strategy": "asa", "stages": [entry]}, 5.0)


def test_an_agent_that_would_never_let_a_job_go_is_found_out():
    check_agent(planned(*plan([], asked(("a", 0)))))
    with pytest.raises(PenstockError, match="must be started anew"):
        check_agent({"run": None, "before": {}})  # what 0.1.0 answers

"""Which strategies decide when jobs are let go that their owner has submitted, and when each of them does."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest
from owned_jobs import LOOKS, RUNNER, codes, ended, look, of, run_of, stage_of

from penstock.api import Reason
from penstock.core import extensions
from penstock.errors import UserError
from penstock.workflow.phases import Kept, StagePhase
from penstock.workflow.run.instructions import Release
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategies.registry import known_strategies
from penstock.workflow.strategy import (
    Due,
    Plan,
    Rules,
    Tie,
    after_parents,
    expected_ends,
    live_parents,
    singles,
)
from penstock.workflow.submit.admission import plan_for_owner
from penstock_lab.testing import make_job

POSSIBLE = ("auto", "asa", "eager", "perstage")
BEGIN = LOOKS[Kept.BEGIN]


class TenMinutes:
    """lets a stage go ten minutes before its turn"""

    name, ahead, tie = "ten-minutes", False, Tie.AFTEROK

    def plan(self, workflow, outlook):
        return Plan(singles(workflow.order))

    def due(self, run, i, now):
        still = live_parents(run, i)
        if not still or any(run.stages[j].phase is StagePhase.WAITING for j in still):
            return after_parents(run, i, now)
        end, fixed = max(expected_ends(run, still, now)[j] for j in still)
        return Due(end - 600, Reason("ten-minutes", "ten minutes before the last parent's end"), fixed, end)


class Guarded(TenMinutes):
    """has the script wait"""

    name, tie = "guarded", Tie.GUARD


class Whole(TenMinutes):
    """makes one job of all"""

    name = "whole"

    def plan(self, workflow, outlook):
        return Plan((("whole", workflow.order),))


@pytest.fixture
def plugged(monkeypatch):
    """Strategies of plug-ins."""
    made = (TenMinutes, Guarded, Whole)
    found = [EntryPoint(c.name, f"{__name__}:{c.__name__}", "penstock.strategies") for c in made]
    monkeypatch.setattr(extensions, "entry_points", lambda group: found)


def chain(count: int, strategy: str, **more) -> WorkflowRun:
    """Jobs 1, 2, ... one behind the other, all of them kept back."""
    stages = [stage_of(f"s{i}", i + 1, (i - 1,) if i else (), Kept.BEGIN, expect=1000.0) for i in range(count)]
    return run_of(stages, strategy, **more)


def behind(number: int, **more):
    """The job behind the one before it."""
    return make_job(number, dependency="" if number == 1 else f"afterok:{number - 1}(unfulfilled)", **more)


def gone_on(run: WorkflowRun, jobs: dict, now: float, wait: float = 100.0) -> tuple[WorkflowRun, list[str]]:
    """The run after a pass whose orders were carried out, and the stages that were let go."""
    step = look(run, *jobs.values(), now=now, wait=wait)
    orders = of(Release, step)
    run = step.run
    for order in orders:
        run = RUNNER.released(run, order.stage, now)
        jobs[order.job] = replace(jobs[order.job], reason="Dependency", eligible=None)
    return run, [order.stage for order in orders]


# -- which -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", known_strategies())
@pytest.mark.parametrize("rules", [Rules(), Rules(accrues=True, whole_nodes=True), Rules(no_merge="no")])
def test_a_strategy_decides_or_is_refused_with_those_that_are_possible(strategy, rules):
    if strategy in POSSIBLE:
        assert plan_for_owner(strategy, rules).cut == (("a", ("a",)), ("b", ("b",)))
        return
    with pytest.raises(UserError) as refused:
        plan_for_owner(strategy, rules)
    if strategy == "seed":
        assert "an administrator has not allowed it" in str(refused.value)
        assert plan_for_owner(strategy, replace(rules, no_early_age=None)).by is None
        return
    assert str(refused.value) == (
        f"strategy: {strategy} is not possible here, as it has to write the jobs' scripts itself; possible are: "
        f"{', '.join(POSSIBLE)}"
    )


@pytest.mark.usefixtures("plugged")
def test_a_plug_ins_strategy_decides_if_it_needs_not_write_the_scripts():
    assert plan_for_owner("ten-minutes", Rules()).by is None
    for name in ("guarded", "whole"):
        with pytest.raises(UserError, match=f"strategy: {name} .* auto, asa, eager, perstage, ten-minutes$"):
            plan_for_owner(name, Rules())


def test_auto_is_eager_and_says_why():
    """Its other choice has a guard in the stages' scripts."""
    shared, alone = (plan_for_owner("auto", Rules(accrues=True, whole_nodes=whole)) for whole in (False, True))
    assert (shared.by, alone.by) == ("eager", "eager")
    assert "jobs share nodes" in shared.reasons[1].text
    assert "the stages' scripts cannot wait for others" in alone.reasons[1].text
    assert not [r.code for r in alone.reasons if "bigjob" in r.code], "what it never will be"
    assert (alone.levels_ahead, plan_for_owner("auto", Rules()).levels_ahead) == (50, 50), "as if submitted by hand"


# -- when --------------------------------------------------------------------------------------------------------------


def test_eager_lets_a_chain_go_so_many_levels_at_a_time():
    run, jobs = chain(6, "eager", levels_ahead=2), {n: behind(n, **BEGIN) for n in range(1, 7)}
    let_go = []
    for now in (10.0, 20.0, 30.0, 40.0):
        run, fresh = gone_on(run, jobs, now)
        let_go.append(fresh)
    assert let_go == [["s0"], ["s1"], [], []], "two levels that have not started, however often it is looked at"
    step = look(run, *jobs.values(), now=45.0)
    assert codes(step, "s2") == ["eager-too-far-ahead"]
    assert step.notes[0][1].text == "s2 is released later: too many stages before it have still to start (s1)"
    assert [s.estimate for s in run.stages] == [100.0, 100.0, None, None, None, None], "as they are let go"
    for number in range(1, 5):
        jobs[number] = make_job(number, "n1", start=50.0 * number)
        run, fresh = gone_on(run, jobs, 50.0 * number + 5)
        assert fresh == [f"s{number + 1}"], "the next level, as soon as one has started"
        jobs[number] = ended(number, start=50.0 * number, end=50.0 * number + 40)
        run, fresh = gone_on(run, jobs, 50.0 * number + 45)
        jobs[number + 1] = replace(jobs[number + 1], dependency="")
        assert fresh == []


@pytest.mark.parametrize("levels", [1, 3, 5])
def test_the_levels_are_those_of_the_plan(levels):
    run, jobs = chain(6, "auto", by="eager", levels_ahead=levels), {n: behind(n, **BEGIN) for n in range(1, 7)}
    let_go = []
    for now in range(10, 100, 10):
        run, fresh = gone_on(run, jobs, float(now))
        let_go += fresh
    assert let_go == [f"s{i}" for i in range(levels)]


def test_the_one_that_auto_has_picked_decides():
    done = look(chain(2, "auto", by="eager"), behind(1, **BEGIN), behind(2, **BEGIN))
    assert [r.code for r in of(Release, done)[0].reasons] == ["eager-first"]
    assert codes(done, "s1") == ["eager-parent-first"]


def test_asa_lets_the_next_go_a_wait_before_the_end_even_before_the_start():
    run, jobs = chain(3, "asa"), {n: behind(n, **BEGIN) for n in range(1, 4)}
    # The first begins at 2010 by what is predicted, and ends at 3010.
    for now, expected in ((10.0, ["s0"]), (1009.0, []), (1010.0, ["s1"]), (2009.0, []), (2010.0, ["s2"])):
        run, fresh = gone_on(run, jobs, now, wait=2000.0)
        assert fresh == expected
    assert [stage.due for stage in run.stages] == [0.0, 1010.0, 2010.0]
    assert [stage.estimate for stage in run.stages] == [2000.0] * 3


def test_perstage_lets_one_go_after_the_other():
    run, jobs = chain(3, "perstage"), {n: behind(n, **BEGIN) for n in range(1, 4)}
    for number in (1, 2, 3):
        run, fresh = gone_on(run, jobs, 100.0 * number)
        assert fresh == [f"s{number - 1}"]
        jobs[number] = make_job(number, "n1", start=100.0 * number)
        run, fresh = gone_on(run, jobs, 100.0 * number + 50)
        assert fresh == []
        jobs[number] = ended(number, start=100.0 * number, end=100.0 * number + 60)
        if number < 3:
            jobs[number + 1] = replace(jobs[number + 1], dependency="")


@pytest.mark.usefixtures("plugged")
def test_a_plug_ins_strategy_lets_a_stage_go_when_it_says():
    run, jobs = chain(2, "ten-minutes"), {n: behind(n, **BEGIN) for n in (1, 2)}
    run, fresh = gone_on(run, jobs, 10.0)
    assert fresh == ["s0"]
    jobs[1] = make_job(1, "n1", start=20.0)
    run, fresh = gone_on(run, jobs, 419.0)
    assert (fresh, run.stages[1].due, RUNNER.next_wake(run, 419.0)) == ([], 420.0, 420.0)
    assert gone_on(run, jobs, 420.0)[1] == ["s1"]


@pytest.mark.parametrize("strategy", POSSIBLE)
def test_none_lets_a_stage_go_before_those_that_it_comes_after(strategy):
    """Its owner may have let it depend on them long before they are let go."""
    run = chain(3, strategy, by="eager" if strategy == "auto" else None)
    held = behind(1, reason="JobHeldAdmin", priority=0)
    for now in (10.0, 1e5, 1e6):
        step = look(run, held, behind(2, **BEGIN), behind(3, **BEGIN), now=now)
        run = step.run
        assert not of(Release, step)
        assert codes(step, "s0") == ["held"]

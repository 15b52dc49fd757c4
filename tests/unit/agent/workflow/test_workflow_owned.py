"""A workflow whose owner has submitted the jobs: these views give these instructions."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import datetime
from itertools import pairwise

import pytest
from owned_jobs import LOOKS, NEVER, RUNNER, codes, ended, look, of, record, run_of, seen, stage_of, with_own

from penstock.api import JobState, Partition, Reservation
from penstock.core.pace import at_once
from penstock.slurm.states import parse_job_state
from penstock.values.waits import Estimate, Known, Observation
from penstock.workflow.documents import run_from_dict, run_to_dict
from penstock.workflow.phases import Kept, RunPhase, StagePhase
from penstock.workflow.run.instructions import Change, Finished, Lookup, Observe, Release, Requeue
from penstock.workflow.run.owned import let_go
from penstock.workflow.run.runner import Runner
from penstock.workflow.state import Order, WorkflowRun
from penstock_lab.testing import make_job

NO_ACCRUAL = Runner(accrues=False)


@pytest.fixture(params=[Kept.BEGIN, Kept.HOLD], ids=["begin", "hold of 0.1.0"], autouse=True)
def way(request):
    """How the stages of `chain` are kept back, and the jobs of `kept`: each test is one of both."""
    _way[:] = [request.param]
    return request.param


_way = [Kept.BEGIN]


def kept(number: int, on: str = "", **more: object):
    return make_job(number, dependency=on, **{**LOOKS[_way[0]], **more})


def chain(*names: str, strategy: str = "asa", **more: object) -> WorkflowRun:
    """Jobs 1, 2, ... each after the one before, all but the first kept back for the agent."""
    stages = []
    for i, name in enumerate(names):
        values = {"expect": 1000.0, "kept": _way[0] if i else Kept.NOT, **more}
        stages.append(stage_of(name, i + 1, (i - 1,) if i else (), **values))
    return run_of(stages, strategy)


def own(run: WorkflowRun, name: str, **changes: object) -> WorkflowRun:
    return run.with_stage(with_own(run.stage(name), **changes))


def test_a_stage_is_released_a_wait_before_its_parents_end():
    run = chain("a", "b")
    jobs = (make_job(1, "n1", start=0.0), kept(2, "afterok:1(unfulfilled)"))
    early = look(run, *jobs, now=800.0)
    assert (early.instructions[1:], early.run.stage("b").due) == ((), 900.0)
    assert (early.run.stage("b").parent_end, codes(early, "b")) == (1000.0, ["asa-due"])
    assert early.notes[0][1].text.startswith("release b at "), "its owner has submitted it"
    assert RUNNER.next_wake(early.run, 800.0) == 900.0
    (release,) = of(Release, look(early.run, *jobs, now=901.0))
    assert (release.stage, release.job) == ("b", 2)
    assert [r.code for r in release.reasons] == ["asa-due", "dependency-read-back"]
    again = look(early.run, *jobs, now=901.0, runner=NO_ACCRUAL)
    assert "no-accrual" in [r.code for r in of(Release, again)[0].reasons]


def test_without_an_expectation_the_limit_counts():
    run = chain("a", "b", expect=None)
    jobs = (make_job(1, "n1", start=0.0, time_limit=600.0), kept(2, "afterok:1(unfulfilled)"))
    seen_once = look(run, *jobs)
    assert seen_once.run.stage("b").due == 500.0
    assert seen_once.run == run_from_dict(run_to_dict(seen_once.run)), "also after the agent was started anew"
    unlimited = look(run, replace(jobs[0], time_limit=None), jobs[1])
    assert (of(Release, unlimited), codes(unlimited, "b")) == ([], ["asa-no-end"])
    longer = look(seen_once.run, replace(jobs[0], time_limit=900.0), jobs[1])
    assert longer.run.stage("b").due == 800.0, "its owner has changed it since"


def test_a_stage_that_would_run_into_a_maintenance_is_let_go_after_it():
    part = Partition("batch", ("n1", "n2", "n3", "n4"), True, True, None, None, None)
    ahead = Reservation("m", 2000.0, 5000.0, part.nodes, frozenset(), frozenset(), frozenset({"MAINT"}), False)
    run = chain("a", "b", strategy="perstage")
    jobs = (ended(1, time_limit=7200.0), kept(2, time_limit=7200.0))
    for now, free in ((1000.0, False), (5000.0, True)):
        view = seen(*jobs, at=now, reservations=(ahead,), partitions={"batch": part})
        step = RUNNER.step(run, view, now, lambda _geometry: Estimate(0, 100.0))
        assert bool(of(Release, step)) is free
        told = [reason.text for _stage, reason in step.notes if reason.code == "maintenance"]
        assert bool(told) is not free and all("it is released after that" in text for text in told)
        run = step.run


def test_what_a_stage_asks_for_is_what_slurm_shows():
    """The waits of three nodes are not those of one."""
    asked = []
    run, view = chain("a", "b"), seen(make_job(1, "n1"), kept(2, "afterok:1(unfulfilled)", num_nodes=3), at=50.0)
    step = RUNNER.step(run, view, 50.0, lambda geometry: asked.append(geometry) or Estimate(0, 100.0))
    (geometry,) = asked
    assert (geometry.nodes, geometry.time_limit, geometry.partition) == (3, 3600.0, "batch")
    assert (geometry.qos, geometry.account, geometry.user) == ("normal", "science", "alice")
    assert step.run.units[1].nodes == 3


# -- what a pass costs -------------------------------------------------------------------------------------------------


def cost(run: WorkflowRun, *jobs, now: float = 50.0):
    """The pass, and what it costs together with the question when the next one is due: as the runner counts it in
    stages and edges, and how many functions are called."""
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"

    walk, work = RUNNER.steps(run, seen(*jobs, at=now), now, lambda _geometry: Estimate(0, 100.0)), 0
    sys.setprofile(count)
    try:
        while True:
            work += next(walk)
    except StopIteration as end:
        step = end.value
        RUNNER.next_wake(step.run, now)
    finally:
        sys.setprofile(None)
    return step, work, calls


def line(count: int, released: float | None = None):
    """A chain and its jobs, all of them kept back, or all of them let go."""
    names = [f"c{i}" for i in range(count)]
    run = chain(*names, expect=10.0, kept=_way[0])
    on = [f"afterok:{i}(unfulfilled)" if i else "" for i in range(count)]
    if released is None:
        return run, [kept(i + 1, on[i]) for i in range(count)]
    stages = tuple(replace(stage, phase=StagePhase.QUEUED, released=released) for stage in run.stages)
    return replace(run, stages=stages), [make_job(i + 1, dependency=on[i]) for i in range(count)]


def ladder(levels: int):
    """On each level two stages, each after both of the level before; all are kept back."""
    stages, jobs = [], []
    for i in range(2 * levels):
        after = (i - i % 2 - 2, i - i % 2 - 1) if i > 1 else ()
        stages.append(stage_of(f"s{i}", i + 1, after, _way[0], expect=10.0))
        jobs.append(kept(i + 1, ",".join(f"afterok:{j + 1}(unfulfilled)" for j in after)))
    return run_of(stages), jobs


def brush(count: int):
    """A chain that has been let go, and as many stages, kept back, after its last."""
    run, jobs = line(count, released=40.0)
    stages = [stage_of(f"b{i}", count + i + 1, (count - 1,), _way[0], expect=10.0) for i in range(count)]
    more = [kept(count + i + 1, f"afterok:{count}(unfulfilled)") for i in range(count)]
    return run_of([*run.stages, *stages]), [*jobs, *more]


@pytest.mark.parametrize(
    "shape", [line, lambda n: line(n, released=40.0), lambda n: ladder(n // 2), lambda n: brush(n // 2)],
    ids=["kept back", "let go", "ladder", "brush"],
)  # fmt: skip
@pytest.mark.few(3)
def test_a_pass_costs_as_much_as_there_are_stages_and_edges(shape):
    small, large = shape(950), shape(1900)
    _step, little, few = cost(small[0], *small[1])
    step, much, many = cost(large[0], *large[1])
    run = step.run
    assert much <= 6 * (len(run.stages) + sum(len(s.after) for s in run.stages))
    assert much <= 2.1 * little
    assert many <= 2.2 * few


def test_what_is_kept_back_is_due_when_its_turn_comes():
    run, jobs = line(1900)
    step = look(run, *jobs)
    assert step.run.stages[0].due == 0.0, "at once"
    assert [r.stage for r in of(Release, step)] == ["c0"], "one behind the other"
    run, jobs = brush(950)
    # The chain was let go ten seconds ago; each of its stages takes ten.
    assert {s.due for s in look(run, *jobs).run.stages[950:]} == {50.0 + 950 * 10.0 - 100.0}


# -- what may be let go ------------------------------------------------------------------------------------------------


def test_perstage_waits_for_the_end():
    run = chain("a", "b", strategy="perstage")
    jobs = (make_job(1, "n1", start=0.0), kept(2, "afterok:1(unfulfilled)"))
    assert not of(Release, look(run, *jobs, now=5000.0))
    (release,) = of(Release, look(run, ended(1), kept(2), now=5000.0))
    assert [r.code for r in release.reasons] == ["perstage-parent-done"]


def test_a_first_stage_that_is_kept_back_is_let_go_at_once_and_its_wait_predicted():
    run = chain("a", "b", kept=_way[0])
    done = look(run, kept(1), kept(2, "afterok:1(unfulfilled)"))
    (release,) = of(Release, done)
    assert (release.stage, [r.code for r in release.reasons]) == ("a", ["asa-first"])
    assert (done.run.stage("a").estimate, codes(done, "b")) == (100.0, ["asa-parent-first"])
    assert "must be released before b" in done.notes[0][1].text
    gone = RUNNER.released(done.run, "a", 60.0)
    assert (gone.stage("a").phase, gone.stage("a").released) == (StagePhase.QUEUED, 60.0)
    assert RUNNER.released(gone, "a", 70.0) == gone
    # It begins a wait after its release, and runs 1000 s.
    after = look(gone, make_job(1), kept(2, "afterok:1(unfulfilled)"), now=70.0)
    assert after.run.stage("b").due == 60.0 + 100.0 + 1000.0 - 100.0


def test_a_stage_is_not_let_go_before_one_that_it_comes_after_and_that_is_left_alone():
    run = chain("a", "b", kept=_way[0])
    held = kept(1, reason="JobHeldAdmin", priority=0)
    done = look(run, held, kept(2, "afterok:1(unfulfilled)"), now=5000.0)
    assert (of(Release, done), codes(done, "b")) == ([], ["asa-parent-first"])


@pytest.mark.parametrize(
    "shown",
    [{"reason": "JobHeldAdmin", "priority": 0}, {"uid": 1001}, {"state": JobState.UNKNOWN}],
    ids=["held by an administrator", "somebody else's", "not understood"],
)
def test_holds_and_jobs_that_are_left_alone(shown):
    done = look(chain("a", "b"), ended(1), kept(2, "", **shown))
    assert not of(Release, done)
    assert not of(Change, done)


def test_how_a_stage_is_released_is_how_it_was_kept_back(way):
    (release,) = of(Release, look(chain("a", "b"), ended(1), kept(2), runner=NO_ACCRUAL))
    assert (release.kept, release.reset_age) == (way, way is Kept.BEGIN), "it is not to age from 2099 on"
    (release,) = of(Release, look(chain("a", "b"), ended(1), kept(2)))
    assert not release.reset_age, "where everything ages from its submission on, so has this"


def test_a_job_that_is_put_off_is_left_alone_while_its_owner_holds_it():
    run = chain("a", "b", kept=Kept.BEGIN)
    held = make_job(2, reason="JobHeldUser", priority=0, eligible=NEVER)
    done = look(run, ended(1), held)
    assert not of(Release, done)
    assert codes(done, "b") == ["held"]
    assert of(Release, look(done.run, ended(1), replace(held, reason="BeginTime", priority=1))), "its owner let it go"


def test_a_job_that_its_owner_let_go_is_not_let_go_again():
    run = chain("a", "b", kept=Kept.BEGIN)
    done = look(run, ended(1), make_job(2, reason="JobHeldAdmin", priority=0, eligible=None))
    assert not of(Release, done)
    done = look(run, ended(1), make_job(2, eligible=50.0))
    assert not of(Release, done)
    assert done.run.stage("b").phase is StagePhase.QUEUED


def test_the_owners_own_begin_time_is_waited_for():
    run = chain("a", "b", begin=1000.0)
    early = look(run, ended(1), kept(2), now=900.0)
    assert (of(Release, early), early.run.stage("b").due, codes(early, "b")) == ([], 1000.0, ["begin-later"])
    assert RUNNER.next_wake(early.run, 900.0) == 1000.0
    assert of(Release, look(early.run, ended(1), kept(2), now=1000.0))


def test_a_hold_that_is_put_on_while_it_is_kept_back_has_no_part_in_the_wait():
    run = chain("a", "b", kept=Kept.BEGIN)
    done = look(run, make_job(1, "n1", start=0.0), make_job(2, reason="JobHeldAdmin", priority=0, eligible=NEVER))
    assert done.run.stage("b").hindered is None
    late = look(run, ended(1), make_job(2, reason="JobHeldAdmin", priority=0, eligible=40.0))
    assert late.run.stage("b").hindered == "hold"


def test_a_hold_of_the_owners_own_is_left_alone(way):
    assert not of(Release, look(chain("a", "b", kept=Kept.NOT), ended(1), kept(2)))
    released = chain("a", "b", released=5.0)
    again = of(Release, look(released, ended(1), kept(2)))
    # Its begin time only the agent sets: a slurmctld that crashed has lost the release. A hold may be anybody's.
    assert len(again) == (way is Kept.BEGIN), "held again after its release"


def test_a_stage_whose_job_is_somebody_elses_ends_the_workflow():
    done = look(chain("a"), make_job(1, "n1", uid=1001))
    assert done.run.phase is RunPhase.FAILED
    assert "does not belong to alice" in done.run.why
    lost = look(chain("a"), records=[record(1, JobState.COMPLETED, user="bob")])
    assert "does not belong to alice" in lost.run.why


# -- behind those before it --------------------------------------------------------------------------------------------


def test_a_lost_dependency_is_put_back_before_anything_is_released():
    run = chain("a", "b")
    done = look(run, make_job(1, "n1", start=0.0), kept(2, "afterany:77(unfulfilled)"), now=5000.0)
    (change,) = of(Change, done)
    assert (change.job, change.dependency, change.nodelist) == (2, "afterany:77,afterok:1", None)
    assert not of(Release, done)


def test_a_dependency_on_an_unseen_parent_is_not_made():
    done = look(chain("a", "b"), kept(2), now=5000.0)
    assert not of(Change, done)
    assert not of(Release, done)
    assert codes(done, "b") == ["look-first"]


def test_a_stage_submitted_again_takes_its_followers_along():
    run = chain("a", "b")
    again = run.with_stage(replace(with_own(run.stages[0], former=(1,)), job=9))
    done = look(again, make_job(9, "n1", start=0.0), kept(2, "afterok:1(failed)"))
    assert of(Change, done)[0].dependency == "afterok:9"
    finished = look(again, ended(9), kept(2, "afterok:1(failed)"))
    assert of(Change, finished)[0].dependency == ""
    assert not of(Release, finished)
    assert of(Release, look(finished.run, kept(2)))


def test_a_job_that_started_too_early_is_put_back_once():
    run = chain("a", "b")
    jobs = (make_job(1, "n1", start=0.0), make_job(2, "n2", start=40.0))
    (requeue,) = of(Requeue, look(run, *jobs))
    assert requeue.job == 2
    marked = RUNNER.requeued(run, "b", 2, 50.0)
    assert not of(Requeue, look(marked, *jobs, now=60.0))
    old = look(marked, jobs[0], ended(2, JobState.FAILED), now=50.0)
    assert old.run.stage("b").phase is not StagePhase.FAILED, "the look is no younger than what was done to it"
    assert RUNNER.requeued(run, "b", 77, 50.0) == run, "it has another job by now"


def test_a_failed_stage_stops_those_after_it_and_nothing_else():
    run = run_of(
        [*chain("a", "b").stages, stage_of("c", 3, (), _way[0]), stage_of("d", 4, (1,), _way[0], expect=1000.0)]
    )
    done = look(run, ended(1, JobState.FAILED), kept(2), kept(3), kept(4))
    assert done.run.phase is RunPhase.FAILING
    assert done.run.why == "a: job 1 ended FAILED"
    assert [r.stage for r in of(Release, done)] == ["c"]
    assert codes(done, "b") == ["parent-broken"]
    back = look(done.run, make_job(1, "n1", start=70.0), kept(2, "afterok:1(unfulfilled)"), kept(3), kept(4), now=80.0)
    assert (back.run.phase, back.run.why) == (RunPhase.ACTIVE, None), "its owner requeued it"
    assert back.run.stage("a").failure is None


def test_a_job_that_failed_and_is_held_for_another_run_has_failed_until_it_is_let_go():
    """As 26.05 does with a job of --requeue=expedite that exits with 1."""
    run = look(chain("a", "b"), make_job(1, "n1", start=10.0), kept(2, "afterok:1(unfulfilled)")).run
    held = make_job(1, state=parse_job_state("REQUEUE_HOLD"), reason="JobHeldUser", priority=0, restarts=1)
    done = look(run, held, kept(2, "afterok:1(unfulfilled)"), now=70.0)
    assert done.run.stage("a").phase is StagePhase.FAILED and done.run.phase is RunPhase.FAILING
    assert done.run.why == (
        "a: job 1 did not complete, and is held for another run: `scontrol release 1` lets it begin"
    )
    assert look(done.run, held, kept(2), now=80.0).run.stage("a") == done.run.stage("a")
    assert done.run.jobs() == (1, 2), "who cancels the workflow leaves neither in the queue"
    back = look(done.run, replace(held, state=JobState.PENDING, priority=9), kept(2), now=90.0)
    assert (back.run.phase, back.run.stage("a").phase) == (RunPhase.ACTIVE, StagePhase.QUEUED)


# -- what Slurm and accounting say -------------------------------------------------------------------------------------


def test_what_is_not_in_the_queue_is_looked_up_and_believed_then():
    run = chain("a")
    assert of(Lookup, look(run)) == [Lookup((1,))]
    assert not of(Lookup, look(own(run, "a", registered=60.0)))
    done = look(run, records=[record(1, JobState.COMPLETED)])
    assert of(Finished, done) == [Finished(True, "1 stage completed")]
    assert (done.run.phase, done.run.ended_at) == (RunPhase.COMPLETED, 60.0)
    assert look(done.run, now=99.0).instructions == ()


def test_an_array_ends_with_its_last_task_and_fails_with_any():
    run = chain("a")
    waiting = make_job(1, array_job=1, tasks=2)
    failed = ended(7, JobState.FAILED, array_job=1, array_task=0)
    first = look(run, waiting, failed, make_job(8, "n1", array_job=1, array_task=1, start=20.0))
    assert (first.run.stage("a").phase, first.run.stage("a").start) == (StagePhase.RUNNING, 20.0)
    # the failed task has left Slurm's memory
    last = look(first.run, ended(1, array_job=1, array_task=2, end=90.0))
    assert (last.run.stage("a").phase, last.run.stage("a").slurm_state) == (StagePhase.FAILED, "FAILED")
    assert last.run.phase is RunPhase.FAILED


def test_waits_are_learned_once_and_by_the_sites_rule():
    run = chain("a", "b", released=30.0, submitted=0.0)
    jobs = (ended(1, start=5.0, end=60.0, eligible=0.0), make_job(2, "n1", start=90.0, eligible=60.0, submit=0.0))
    first, second = of(Observe, look(run, *jobs, now=100.0))
    assert (first.observation.seconds, second.observation.seconds) == (5.0, 60.0)
    assert of(Observe, look(look(run, *jobs).run, *jobs)) == []
    assert of(Observe, look(run, *jobs, runner=NO_ACCRUAL))[1].observation.seconds == 30.0
    hidden = look(run, jobs[0], replace(jobs[1], start=61.0))
    assert of(Observe, hidden)[1].observation == Observation.at_most(30.0)


def test_what_is_let_go_by_its_begin_time_ages_from_then_on_where_no_limits_are_enforced(way):
    run = chain("a", "b", released=30.0, submitted=0.0)
    jobs = (ended(1, start=5.0, end=60.0, eligible=0.0), make_job(2, "n1", start=90.0, eligible=60.0, submit=0.0))
    runner = Runner(accrues=False, ages_from_release=True)
    (observed,) = of(Observe, look(run, *jobs, runner=runner))[1:]
    assert observed.observation.seconds == (60.0 if way is Kept.BEGIN else 30.0)
    release = of(Release, look(chain("a", "b"), make_job(1, "n1", start=0.0), kept(2, "afterok:1(unfulfilled)"),
                               now=950.0, runner=runner))  # fmt: skip
    assert ("no-accrual" in [r.code for r in release[0].reasons]) is (way is Kept.HOLD)
    by_hand = run.with_stage(replace(run.stages[1], released=None))
    if way is Kept.BEGIN:
        assert len(of(Observe, look(by_hand, *jobs, runner=runner))) == 1, "nobody knows when its owner let it go"


def test_a_wait_for_a_licence_is_no_wait_in_the_queue():
    waiting = look(chain("a"), make_job(1, reason="Licenses"))
    ran = look(waiting.run, make_job(1, "n1", start=40.0, eligible=0.0))
    assert of(Observe, ran)[0].observation.known is Known.AT_MOST
    assert not look(chain("a", "b"), make_job(1, "n1", start=0.0), kept(2)).run.stage("b").hindered


def test_nothing_is_released_while_it_is_cancelled():
    run = RUNNER.cancel(chain("a", "b"), "cancelled by its owner")
    assert run.phase is RunPhase.CANCELLING
    assert look(run, ended(1), kept(2)).instructions[1:] == (), "its owner cancels the jobs"
    done = look(run, ended(1), ended(2, JobState.CANCELLED, start=50.0, end=50.0))
    assert (done.run.phase, done.run.why) == (RunPhase.CANCELLED, "cancelled by its owner")
    assert done.run.stage("b").start is None


# -- what is stored ----------------------------------------------------------------------------------------------------


def test_the_state_survives_json():
    run = chain("a", "b", order=Order(("-N2", "job.sh"), "/home"), former=(4, 5))
    assert run_from_dict(json.loads(json.dumps(run_to_dict(run)))) == run
    begun = own(run, "b", begin=77.0)
    assert run_from_dict(json.loads(json.dumps(run_to_dict(begun)))) == begun
    with pytest.raises(ValueError, match="version 99"):
        run_from_dict({**run_to_dict(run), "version": 99})


STAGE_OF_0_1_0 = {
    "after": [], "expect": 1000.0, "hold": False, "base": "", "phase": "submitted", "estimate_index": None,
    "estimate": None, "estimate_said": {}, "due": None, "registered": 0.0, "submitted": None, "released": None,
    "eligible": None, "start": None, "end": None, "partition": "", "qos": "", "account": "", "nodes": 0, "limit": None,
    "requeued_at": None, "trouble": None, "hindered": None, "slurm_state": None, "exit_code": None, "failure": None,
    "observed": False, "former": [], "asked": 0, "asked_at": None,
    "order": {"words": ["job.sh"], "workdir": "/home", "script": None},
}  # fmt: skip


def test_what_release_0_1_0_has_stored_goes_on_as_it_was():
    """Its stages are named, and may stand before those that they come after."""
    stages = [
        {**STAGE_OF_0_1_0, "name": "c", "job": 3, "after": ["b", "a"], "hold": True},
        {**STAGE_OF_0_1_0, "name": "a", "job": 1, "phase": "running", "start": 0.0, "submitted": 0.0, "limit": 600.0},
        {**STAGE_OF_0_1_0, "name": "b", "job": 2, "after": ["a"], "hold": True, "released": 40.0, "nodes": 3},
    ]
    stored = {"version": 1, "id": 3, "uid": 1000, "user": "alice", "name": "w", "strategy": "asa", "created": 7.0,
              "stages": stages, "phase": "active", "why": None, "ended_at": None}  # fmt: skip
    run = run_from_dict(stored)
    assert (run.owned, run.uid, run.user, run.name, run.strategy) == (True, 1000, "alice", "w", "asa")
    assert run.submitted_at == 7.0
    assert [(s.name, s.job, s.after, s.phase, s.mine.kept) for s in run.stages] == [
        ("a", 1, (), StagePhase.RUNNING, Kept.NOT),
        ("b", 2, (0,), StagePhase.QUEUED, Kept.HOLD),
        ("c", 3, (0, 1), StagePhase.WAITING, Kept.HOLD),
    ]
    assert run.stages[0].mine.order == Order(("job.sh",), "/home")
    assert [unit.nodes for unit in run.units] == [1, 3, 1]
    assert run_from_dict(json.loads(json.dumps(run_to_dict(run)))) == run
    held = make_job(3, dependency="afterok:1(unfulfilled),afterok:2(unfulfilled)", **LOOKS[Kept.HOLD])
    jobs = (make_job(1, "n1", start=0.0), make_job(2, dependency="afterok:1(unfulfilled)"), held)
    # b begins when a ends, at 1000, and takes as long.
    assert look(run, *jobs).run.stage("c").due == 1900.0
    (release,) = of(Release, look(run, ended(1), ended(2), replace(held, dependency="")))
    assert (release.stage, release.kept) == ("c", Kept.HOLD)


# -- jobs of which nothing is heard ------------------------------------------------------------------------------------


def asked_once(run: WorkflowRun, now: float) -> WorkflowRun:
    """The controller counts with each answer."""
    return replace(run, stages=tuple(replace(s, asked=s.asked + 1, asked_at=now) for s in run.stages))


def test_a_job_that_slurm_has_never_known_is_asked_for_so_often_and_given_up():
    run, asked, now = chain("a"), [], 10.0
    while not (done := look(run, now=now)).run.phase.final:
        if of(Lookup, done):
            asked.append(now)
            run = asked_once(run, now)
            assert RUNNER.next_wake(run, now) == now + 15.0 * 2.0 ** (len(asked) - 1)
        now += 1.0
        assert now < 1000.0
    assert asked == [10.0, 25.0, 55.0, 115.0, 235.0]
    assert done.run.phase is RunPhase.FAILED
    assert done.run.stages[0].failure == (
        "job 1 is neither in the queue nor in accounting (asked 5 times): it is no longer waited for"
    )
    cancelled = look(replace(run, phase=RunPhase.CANCELLING), now=now)
    assert cancelled.run.phase is RunPhase.CANCELLED
    assert look(run, now=now, records=[record(1, JobState.COMPLETED)]).run.phase is RunPhase.COMPLETED


def test_a_job_that_was_seen_is_never_given_up_and_asked_for_ever_more_rarely():
    run, asked, now = chain("a", submitted=5.0), [], 10.0
    while now < 86_400.0:
        done = look(run, now=now)
        assert done.run.phase is RunPhase.ACTIVE, "it was in the queue: accounting will know"
        if of(Lookup, done):
            asked.append(now)
            run = asked_once(run, now)
        now += 0.5 if now < 600 else 60.0
    assert len(asked) < 40
    assert asked[:4] == [10.0, 10.5, 11.5, 13.5]
    assert max(b - a for a, b in pairwise(asked)) <= 3660.0
    back = look(run, make_job(1, "n1"), now=now)
    assert (back.run.stages[0].asked, back.run.stages[0].asked_at) == (0, None)
    assert of(Lookup, look(run, now=5.0)), "the clock was set back"


def test_a_pass_learns_so_much_and_ends_no_workflow_before_it_has_learned_all():
    run = run_of([stage_of(f"s{i}", i + 1) for i in range(45)])
    jobs = [ended(i + 1) for i in range(45)]
    learned = []
    for _ in range(3):
        done = look(run, *jobs)
        run = done.run
        learned.append((len(of(Observe, done)), done.more, bool(of(Finished, done))))
    assert learned == [(20, True, False), (20, True, False), (5, False, True)]


def test_in_parts_it_is_the_same_step():
    run = chain("a", "b", "c")
    view = seen(make_job(1, "n1", start=0.0), kept(2, "afterok:1(unfulfilled)"), at=50.0)
    whole = RUNNER.step(run, view, 50.0, lambda _geometry: Estimate(0, 100.0))
    assert at_once(RUNNER.steps(run, view, 50.0, lambda _geometry: Estimate(0, 100.0))) == whole
    assert sum(RUNNER.steps(run, view, 50.0, lambda _geometry: Estimate(0, 100.0))) >= len(run.stages)


def test_as_long_as_more_stages_may_come_it_goes_on_although_all_have_ended():
    waits = replace(chain("a"), open_until=500.0)
    still = look(waits, ended(1), now=100.0).run
    assert (still.phase, still.stage("a").phase) == (RunPhase.ACTIVE, StagePhase.DONE)
    assert RUNNER.next_wake(still, 100.0) == 500.0
    assert run_from_dict(run_to_dict(still)).open_until == 500.0
    over = look(still, ended(1), now=500.0).run
    assert (over.phase, over.ended_at) == (RunPhase.COMPLETED, 60.0)
    broken = look(waits, ended(1, JobState.FAILED), now=100.0).run
    assert not broken.phase.final, "who submits stages as they come may submit it again"
    assert look(RUNNER.cancel(still, "enough"), ended(1), now=100.0).run.phase.final


def test_the_command_that_lets_jobs_go_names_them_all_and_their_owners_begin_time():
    assert let_go(7) == "scontrol update jobid=7 StartTime=now ResetAccrueTime"
    begin = datetime(2026, 3, 29, 8, 0).timestamp()
    assert let_go(7, 8, begin=begin) == "scontrol update jobid=7,8 StartTime=2026-03-29T08:00:00 ResetAccrueTime"

"""Guiding a workflow whose jobs somebody else submitted: these views give these instructions."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from factories import make_job
from penstock.guided.instructions import (
    Finished,
    Lookup,
    Observe,
    Ran,
    Release,
    Repoint,
    Requeue,
    Rules,
    View,
)
from penstock.guided.machine import step, steps
from penstock.guided.state import GuidedRun, GuidedStage, Kept, Order, guided_from_dict, guided_to_dict

from penstock.api import AccountingRecord, JobState
from penstock.waits.base import Estimate, Known, Observation
from penstock.workflow.state import Phase, RunPhase

RULES = Rules(accrues=True, predict=lambda geometry: Estimate(0, 100.0))
NEVER = 4_102_358_400.0  # 2099-12-31
# As Slurm shows a job that is kept back in this way.
LOOKS = {
    Kept.BEGIN: {"reason": "BeginTime", "eligible": NEVER},
    Kept.HOLD: {"priority": 0, "reason": "JobHeldUser", "eligible": None},
}


@pytest.fixture(params=[Kept.BEGIN, Kept.HOLD], ids=["begin", "hold of 0.1.0"], autouse=True)
def way(request):
    """How the stages of `chain` are kept back, and the jobs of `kept`: each test is one of both."""
    _way[:] = [request.param]
    return request.param


_way = [Kept.BEGIN]


def kept(number: int, on: str = "", **more: object):
    return make_job(number, dependency=on, **{**LOOKS[_way[0]], **more})


def ended(number: int, state: JobState = JobState.COMPLETED, **more: object):
    return make_job(number, state=state, **{"start": 10.0, "end": 60.0, **more})


def chain(*names: str, strategy: str = "asa", **more: object) -> GuidedRun:
    """Jobs 1, 2, ... each after the one before, all but the first kept back for the agent."""
    stages = [
        GuidedStage(
            n, i + 1, names[i - 1 : i] if i else (), expect=1000.0, kept=_way[0] if i else Kept.NOT, registered=0.0
        )
        for i, n in enumerate(names)
    ]
    return GuidedRun(3, 1000, "alice", "w", strategy, 0.0, tuple(replace(s, **more) for s in stages))


def look(run: GuidedRun, *jobs, now: float = 50.0, records=(), rules: Rules = RULES):
    rows: dict[int, list] = {}
    for job in jobs:
        rows.setdefault(job.array_job or job.id, []).append(job)
    return step(run, View(now, rows, {r.id: r for r in records}), now, rules)


def record(number: int, state: JobState, user: str = "alice") -> AccountingRecord:
    return AccountingRecord(number, "x", user, "batch", "", "", state, 0, 0.0, 5.0, 10.0, 60.0, 600.0, 1)


def of(kind, done):
    return [i for i in done.instructions if isinstance(i, kind)]


def test_a_stage_is_released_a_wait_before_its_parents_end():
    run = chain("a", "b")
    jobs = (make_job(1, "n1", start=0.0), kept(2, "afterok:1(unfulfilled)"))
    early = look(run, *jobs, now=800.0)
    assert (early.instructions[1:], early.run.get("b").due) == ((), 900.0)
    assert early.notes[0][1].code == "due-later"
    (release,) = of(Release, look(early.run, *jobs, now=901.0))
    assert (release.stage, release.job) == ("b", 2)
    assert "no-accrual" not in [r.code for r in release.reasons]
    again = look(early.run, *jobs, now=901.0, rules=replace(RULES, accrues=False))
    assert "no-accrual" in [r.code for r in of(Release, again)[0].reasons]


def test_without_an_expectation_the_learned_time_and_then_the_limit_count():
    run = chain("a", "b", expect=None)
    jobs = (make_job(1, "n1", start=0.0, time_limit=600.0), kept(2, "afterok:1(unfulfilled)"))
    assert look(run, *jobs).run.get("b").due == 500.0
    assert look(run, *jobs, rules=replace(RULES, expected=lambda s: 300.0)).run.get("b").due == 200.0
    unlimited = look(run, replace(jobs[0], time_limit=None), jobs[1])
    assert (of(Release, unlimited), unlimited.notes[0][1].code) == ([], "no-end")


def test_a_long_and_wide_workflow_costs_no_more_than_it_has_stages():
    """Each of two stages on a level comes after both of the level before; and then a long chain."""
    levels = [tuple(f"{side}{level}" for side in "lr") for level in range(200)]
    names = [(name, levels[level - 1] if level else ()) for level, pair in enumerate(levels) for name in pair]
    names += [(f"c{n}", (f"c{n - 1}" if n else "l199",)) for n in range(1500)]
    number = {name: i + 1 for i, (name, _) in enumerate(names)}
    stages = [
        GuidedStage(name, number[name], after, expect=10.0, kept=_way[0] if after else Kept.NOT)
        for name, after in names
    ]
    run = GuidedRun(3, 1000, "alice", "w", "asa", 0.0, tuple(stages))
    jobs = [kept(number[name], ",".join(f"afterok:{number[a]}(unfulfilled)" for a in after)) for name, after in names]
    # The second level begins a wait from now, all others as soon as they can; it is due a wait before its parent ends.
    assert look(run, *jobs).run.get("c1499").due == 50.0 + 100.0 + (199 + 1499) * 10.0 - 100.0


def test_perstage_waits_for_the_end():
    run = chain("a", "b", strategy="perstage")
    jobs = (make_job(1, "n1", start=0.0), kept(2, "afterok:1(unfulfilled)"))
    assert not of(Release, look(run, *jobs, now=5000.0))
    assert of(Release, look(run, ended(1), kept(2), now=5000.0))


@pytest.mark.parametrize(
    "seen",
    [{"reason": "JobHeldAdmin", "priority": 0}, {"uid": 1001}, {"state": JobState.UNKNOWN}],
    ids=["held by an administrator", "somebody else's", "not understood"],
)
def test_holds_and_jobs_that_are_left_alone(seen):
    done = look(chain("a", "b"), ended(1), kept(2, "", **seen))
    assert not of(Release, done)
    assert not of(Repoint, done)


def test_how_a_stage_is_released_is_how_it_was_kept_back(way):
    done = look(chain("a", "b"), ended(1), kept(2), rules=replace(RULES, accrues=False))
    (release,) = of(Release, done)
    assert (release.kept, release.reset_age) == (way, way is Kept.BEGIN), "it is not to age from 2099 on"
    (release,) = of(Release, look(chain("a", "b"), ended(1), kept(2)))
    assert not release.reset_age, "where everything ages from its submission on, so has this"


def test_a_job_that_is_put_off_is_left_alone_while_its_owner_holds_it():
    run = chain("a", "b", kept=Kept.BEGIN)
    own = make_job(2, reason="JobHeldUser", priority=0, eligible=NEVER)
    done = look(run, ended(1), own)
    assert not of(Release, done)
    assert [n.code for s, n in done.notes if s == "b"] == ["held"]
    assert of(Release, look(done.run, ended(1), replace(own, reason="BeginTime", priority=1))), "its owner let it go"


def test_a_job_that_its_owner_let_go_is_not_let_go_again():
    run = chain("a", "b", kept=Kept.BEGIN)
    done = look(run, ended(1), make_job(2, reason="JobHeldAdmin", priority=0, eligible=None))
    assert not of(Release, done)
    done = look(run, ended(1), make_job(2, eligible=50.0))
    assert not of(Release, done)
    assert done.run.get("b").phase is Phase.QUEUED


def test_the_owners_own_begin_time_is_waited_for():
    run = chain("a", "b", begin=1000.0)
    early = look(run, ended(1), kept(2), now=900.0)
    assert (of(Release, early), early.run.get("b").due) == ([], 1000.0)
    assert of(Release, look(early.run, ended(1), kept(2), now=1000.0))


def test_a_hold_that_is_put_on_while_it_is_kept_back_has_no_part_in_the_wait():
    run = chain("a", "b", kept=Kept.BEGIN)
    done = look(run, make_job(1, "n1", start=0.0), make_job(2, reason="JobHeldAdmin", priority=0, eligible=NEVER))
    assert done.run.get("b").hindered is None
    late = look(run, ended(1), make_job(2, reason="JobHeldAdmin", priority=0, eligible=40.0))
    assert late.run.get("b").hindered == "hold"


def test_a_hold_of_the_owners_own_is_left_alone():
    assert not of(Release, look(chain("a", "b", kept=Kept.NOT), ended(1), kept(2)))
    released = chain("a", "b", released=5.0)
    assert not of(Release, look(released, ended(1), kept(2))), "it was held again after its release"


def test_a_stage_whose_job_is_somebody_elses_ends_the_guiding():
    done = look(chain("a"), make_job(1, "n1", uid=1001))
    assert done.run.phase is RunPhase.FAILED
    assert "is not alice's" in done.run.why
    lost = look(chain("a"), records=[record(1, JobState.COMPLETED, user="bob")])
    assert "is not alice's" in lost.run.why


def test_a_lost_dependency_is_put_back_before_anything_is_released():
    run = chain("a", "b")
    done = look(run, make_job(1, "n1", start=0.0), kept(2, "afterany:77(unfulfilled)"), now=5000.0)
    (repoint,) = of(Repoint, done)
    assert (repoint.job, repoint.dependency) == (2, "afterany:77,afterok:1")
    assert not of(Release, done)


def test_a_dependency_on_an_unseen_parent_is_not_made():
    done = look(chain("a", "b"), kept(2), now=5000.0)
    assert not of(Repoint, done)
    assert not of(Release, done)
    assert done.notes[1][1].code == "look-first"


def test_a_stage_submitted_again_takes_its_followers_along():
    run = chain("a", "b")
    again = run.with_stage(replace(run.stages[0], job=9, former=(1,)))
    done = look(again, make_job(9, "n1", start=0.0), kept(2, "afterok:1(failed)"))
    assert of(Repoint, done)[0].dependency == "afterok:9"
    finished = look(again, ended(9), kept(2, "afterok:1(failed)"))
    assert of(Repoint, finished)[0].dependency == ""
    assert not of(Release, finished)
    assert of(Release, look(finished.run, kept(2)))


def test_a_job_that_started_too_early_is_put_back_once():
    run = chain("a", "b")
    jobs = (make_job(1, "n1", start=0.0), make_job(2, "n2", start=40.0))
    (requeue,) = of(Requeue, look(run, *jobs))
    assert requeue.job == 2
    marked = run.with_stage(replace(run.stages[1], requeued_at=50.0))
    assert not of(Requeue, look(marked, *jobs, now=60.0))


def test_a_failed_stage_stops_those_after_it_and_nothing_else():
    run = chain("a", "b")
    run = run.with_stage(GuidedStage("c", 3, (), kept=_way[0]))
    run = run.with_stage(GuidedStage("d", 4, ("b",), kept=_way[0]))
    done = look(run, ended(1, JobState.FAILED), kept(2), kept(3), kept(4))
    assert done.run.phase is RunPhase.FAILING
    assert done.run.why == "a: job 1 ended FAILED"
    assert [r.stage for r in of(Release, done)] == ["c"]
    back = look(done.run, make_job(1, "n1", start=70.0), kept(2, "afterok:1(unfulfilled)"), kept(3), kept(4), now=80.0)
    assert (back.run.phase, back.run.why) == (RunPhase.ACTIVE, None), "its owner requeued it"
    assert back.run.get("a").failure is None


def test_what_is_not_in_the_queue_is_looked_up_and_believed_then():
    run = chain("a")
    assert of(Lookup, look(run)) == [Lookup((1,))]
    assert not of(Lookup, look(replace(run, stages=(replace(run.stages[0], registered=60.0),))))
    done = look(run, records=[record(1, JobState.COMPLETED)])
    assert of(Finished, done) == [Finished(True, "all 1 stages completed")]
    assert (done.run.phase, done.run.ended_at) == (RunPhase.COMPLETED, 60.0)
    assert of(Ran, done) == [Ran("a", 50.0)]
    assert step(done.run, View(99.0, {}), 99.0, RULES).instructions == ()


def test_an_array_ends_with_its_last_task_and_fails_with_any():
    run = chain("a")
    waiting = make_job(1, array_job=1, tasks=2)
    failed = ended(7, JobState.FAILED, array_job=1, array_task=0)
    first = look(run, waiting, failed, make_job(8, "n1", array_job=1, array_task=1, start=20.0))
    assert (first.run.get("a").phase, first.run.get("a").start) == (Phase.RUNNING, 20.0)
    # the failed task has left Slurm's memory
    last = look(first.run, ended(1, array_job=1, array_task=2, end=90.0))
    assert (last.run.get("a").phase, last.run.get("a").slurm_state) == (Phase.FAILED, "FAILED")
    assert last.run.phase is RunPhase.FAILED


def test_waits_are_learned_once_and_by_the_sites_rule():
    run = chain("a", "b", released=30.0, submitted=0.0)
    jobs = (ended(1, start=5.0, end=60.0, eligible=0.0), make_job(2, "n1", start=90.0, eligible=60.0, submit=0.0))
    first, second = of(Observe, look(run, *jobs, now=100.0))
    assert (first.observation.seconds, second.observation.seconds) == (5.0, 60.0)
    assert of(Observe, look(look(run, *jobs).run, *jobs)) == []
    assert of(Observe, look(run, *jobs, rules=replace(RULES, accrues=False)))[1].observation.seconds == 30.0
    hidden = look(run, jobs[0], replace(jobs[1], start=61.0))
    assert of(Observe, hidden)[1].observation == Observation.at_most(30.0)


def test_what_is_let_go_by_its_begin_time_ages_from_then_on_where_no_limits_are_enforced(way):
    run = chain("a", "b", released=30.0, submitted=0.0)
    jobs = (ended(1, start=5.0, end=60.0, eligible=0.0), make_job(2, "n1", start=90.0, eligible=60.0, submit=0.0))
    rules = replace(RULES, accrues=False, ages_from_release=True)
    (observed,) = of(Observe, look(run, *jobs, rules=rules))[1:]
    assert observed.observation.seconds == (60.0 if way is Kept.BEGIN else 30.0)
    release = of(Release, look(chain("a", "b"), make_job(1, "n1", start=0.0), kept(2, "afterok:1(unfulfilled)"),
                               now=950.0, rules=rules))  # fmt: skip
    assert ("no-accrual" in [r.code for r in release[0].reasons]) is (way is Kept.HOLD)
    by_hand = replace(run, stages=(run.stages[0], replace(run.stages[1], released=None)))
    if way is Kept.BEGIN:
        assert len(of(Observe, look(by_hand, *jobs, rules=rules))) == 1, "nobody knows when its owner let it go"


def test_a_wait_for_a_licence_is_no_wait_in_the_queue():
    waiting = look(chain("a"), make_job(1, reason="Licenses"))
    ran = look(waiting.run, make_job(1, "n1", start=40.0, eligible=0.0))
    assert of(Observe, ran)[0].observation.known is Known.AT_MOST
    assert not look(chain("a", "b"), make_job(1, "n1", start=0.0), kept(2)).run.get("b").hindered


def test_nothing_is_released_while_it_is_cancelled():
    run = replace(chain("a", "b"), phase=RunPhase.CANCELLING, why="cancelled by its owner")
    assert not of(Release, look(run, ended(1), kept(2)))
    done = look(run, ended(1), ended(2, JobState.CANCELLED, start=50.0, end=50.0))
    assert (done.run.phase, done.run.why) == (RunPhase.CANCELLED, "cancelled by its owner")
    assert done.run.get("b").start is None


def test_the_state_survives_json():
    run = chain("a", "b", order=Order(("-N2", "job.sh"), "/home"), former=(4, 5))
    assert guided_from_dict(json.loads(json.dumps(guided_to_dict(run)))) == run
    own = run.with_stage(replace(run.stages[1], begin=77.0))
    assert guided_from_dict(json.loads(json.dumps(guided_to_dict(own)))) == own
    with pytest.raises(ValueError, match="version 99"):
        guided_from_dict({**guided_to_dict(run), "version": 99})


def test_what_release_0_1_0_has_stored_goes_on_as_it_was():
    run = replace(
        chain("a", "b"), stages=tuple(replace(s, kept=Kept(s.kept and Kept.HOLD)) for s in chain("a", "b").stages)
    )
    stored = json.loads(json.dumps(guided_to_dict(run)))
    stored["version"] = 1
    for stage in stored["stages"]:
        stage["hold"] = stage.pop("kept") == "hold"
        del stage["begin"]
    assert guided_from_dict(stored) == run
    assert [s.kept for s in guided_from_dict(stored).stages] == [Kept.NOT, Kept.HOLD]


def test_a_job_that_slurm_has_never_known_is_asked_for_so_often_and_given_up():
    """The controller counts with each answer; here accounting answers at once."""
    run, asked, now = chain("a"), [], 10.0
    while not (done := step(run, View(now, {}), now, RULES)).run.phase.final:
        if of(Lookup, done):
            asked.append(now)
            (stage,) = done.run.stages
            run = replace(run, stages=(replace(stage, asked=stage.asked + 1, asked_at=now),))
        now += 1.0
        assert now < 1000.0
    assert asked == [10.0, 25.0, 55.0, 115.0, 235.0]
    assert done.run.phase is RunPhase.FAILED
    assert done.run.stages[0].failure == (
        "job 1 was seen neither in the queue nor in accounting (asked 5 times): it is not waited for"
    )
    cancelled = step(replace(run, phase=RunPhase.CANCELLING), View(now, {}), now, RULES)
    assert cancelled.run.phase is RunPhase.CANCELLED
    assert step(run, View(now, {}, {1: record(1, JobState.COMPLETED)}), now, RULES).run.phase is RunPhase.COMPLETED


def test_a_job_that_was_seen_is_never_given_up_and_asked_for_ever_more_rarely():
    run, asked, now = chain("a", submitted=5.0), [], 10.0
    while now < 86_400.0:
        done = step(run, View(now, {}), now, RULES)
        assert done.run.phase is RunPhase.ACTIVE, "it was in the queue: accounting will know"
        if of(Lookup, done):
            asked.append(now)
            (stage,) = done.run.stages
            run = replace(run, stages=(replace(stage, asked=stage.asked + 1, asked_at=now),))
        now += 0.5 if now < 600 else 60.0
    assert len(asked) < 40
    assert asked[:4] == [10.0, 10.5, 11.5, 13.5]
    assert max(b - a for a, b in pairwise(asked)) <= 3660.0
    back = look(run, make_job(1, "n1"), now=now)
    assert (back.run.stages[0].asked, back.run.stages[0].asked_at) == (0, None)
    assert of(Lookup, step(run, View(5.0, {}), 5.0, RULES)), "the clock was set back"


def test_a_pass_learns_so_much_and_ends_no_workflow_before_it_has_learned_all():
    names = [f"s{i}" for i in range(45)]
    run = GuidedRun(3, 1000, "alice", "w", "asa", 0.0, tuple(GuidedStage(n, i + 1) for i, n in enumerate(names)))
    jobs = [ended(i + 1) for i in range(45)]
    learned = []
    for _ in range(3):
        done = look(run, *jobs)
        run = done.run
        learned.append((len(of(Observe, done)), done.more, bool(of(Finished, done))))
    assert learned == [(20, True, False), (20, True, False), (5, False, True)]


def test_in_parts_it_is_the_same_step():
    run = chain("a", "b", "c")
    rows = {1: [make_job(1, "n1", start=0.0)], 2: [kept(2, "afterok:1(unfulfilled)")]}
    walk, work = steps(run, View(50.0, rows), 50.0, RULES), []
    with pytest.raises(StopIteration) as end:
        while True:
            work.append(next(walk))
    assert end.value.value == step(run, View(50.0, rows), 50.0, RULES)
    assert sum(work) >= len(run.stages)

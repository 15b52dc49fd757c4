"""What became of jobs is remembered, and the future is drawn from it: the same for everybody who asks for that draw."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from penstock.api import AccountingRecord, JobState
from penstock.future.draws import Drawing
from penstock.future.past import ENOUGH, HOUR, PastJob, PastRecorder, QueuePast, latest_of_each, used_in
from penstock.future.present import Present, Running, Waiting
from penstock.future.replay import HORIZON
from penstock_lab.testing import make_job, make_snapshot


def ended(number, submit, start, end, limit=100.0, state=JobState.COMPLETED, **more):
    return make_job(number, "n1", state=state, submit=submit, start=start, end=end, time_limit=limit, **more)


def present(running=(), waiting=0, now=0.0):
    held = tuple(Running((1,), start, limit, max(start + limit, now + 60.0)) for start, limit in running)
    queue = tuple(Waiting(1, 0, 100.0, now) for _ in range(waiting))
    return Present(now, (1,), ((0,),), (9,), held, queue, (), {"batch": 0})


def who_comes(draw, most=10**6):
    """So many at least, as (submit, nodes, area, limit, run)."""
    found, parts = [], itertools.count()
    while len(found) < most and (arrivals := draw.arrivals(next(parts))) is not None:
        found += zip(*(column.tolist() for column in arrivals), strict=True)
    return found


# -- the past ----------------------------------------------------------------------------------------------------------


def test_ended_jobs_are_remembered_once_and_those_that_never_ran_are_not():
    recorder = PastRecorder()
    jobs = [ended(1, 0.0, 10.0, 60.0), ended(2, 0.0, None, 20.0, state=JobState.CANCELLED), make_job(3, "n2")]
    recorder.see(make_snapshot(jobs, at=100.0))
    recorder.see(make_snapshot(jobs, at=110.0))
    assert recorder.past(make_snapshot(jobs, at=110.0)).used == (0.5,)


def test_who_came_is_known_of_hours_that_were_watched_throughout():
    recorder = PastRecorder()
    for at in range(1800, 12_000, 200):
        if not 7300 < at < 7900:  # a gap of more than five minutes
            recorder.see(make_snapshot([ended(1, 3700.0, 3800.0, 3900.0)] if at < 4000 else [], at=float(at)))
    now = make_snapshot([make_job(2, num_nodes=3, submit=5000.0, tasks=2), make_job(3, submit=8000.0)], at=12_000.0)
    past = recorder.past(now)
    assert past.hours == (1,)
    waiting = PastJob(5000.0, 3, 3600.0, "batch", None, "alice")
    assert past.jobs == (PastJob(3700.0, 1, 100.0, "batch", 100.0, "alice"), waiting, waiting)
    assert past.by_user == {"alice": (1.0,)}


def test_what_is_remembered_survives_the_agent():
    recorder, again = PastRecorder(), PastRecorder()
    for at in range(0, 4000, 100):
        recorder.see(make_snapshot([ended(1, 5.0, 10.0, 60.0), ended(2, 6.0, 10.0, 60.0, limit=None)], at=float(at)))
    again.restore(json.loads(json.dumps(recorder.to_state())))
    look = make_snapshot(at=4000.0)
    assert again.past(look) == recorder.past(look) and again.past(look).hours == (0,)
    assert again.past(look).jobs[1].limit == math.inf
    for wrong in ({}, {"version": 3}, {**recorder.to_state(), "jobs": [[1]]}):
        with pytest.raises(ValueError, match="the past of the queue"):
            again.restore(wrong)
    assert again.past(look) == recorder.past(look)


def test_what_a_release_remembered_that_knew_no_users_is_read():
    recorder, again = PastRecorder(), PastRecorder()
    recorder.see(make_snapshot([ended(1, 5.0, 10.0, 60.0)], at=100.0))
    state = recorder.to_state()
    again.restore({**state, "version": 1, "jobs": [job[:6] for job in state["jobs"]]})
    past = again.past(make_snapshot(at=100.0))
    assert past.used == (0.5,) and past.by_user == {}


def test_the_latest_jobs_of_a_user_count():
    jobs = [PastJob(0.0, 1, 100.0, "batch", float(i + 1), "alice") for i in range(30)]
    jobs += [PastJob(0.0, 1, math.inf, "batch", 1.0, "bob"), PastJob(0.0, 1, 100.0, "batch", 1.0)]
    assert latest_of_each(jobs) == {"alice": tuple((i + 1) / 100 for i in range(20, 30))}


def record(number, run, limit, state=JobState.COMPLETED, start=10.0):
    end = None if run is None else start + run
    return AccountingRecord(number, "j", "alice", "batch", "normal", "a", state, 0, 0.0, 0.0, start, end, limit, 1)


def test_accounting_tells_how_much_of_their_limits_jobs_have_run():
    records = [
        record(1, 50.0, 100.0),
        record(2, None, 100.0, JobState.RUNNING),
        record(3, 50.0, None),
        record(4, 130.0, 100.0, JobState.TIMEOUT),
        record(5, 10.0, 100.0, JobState.RESIZING),
    ]
    assert used_in(records) == (0.5, 1.0)


def test_own_jobs_stand_in_until_enough_of_all_have_ended():
    recorder = PastRecorder()
    look = make_snapshot([ended(i, 0.0, 10.0, 60.0) for i in range(1, ENOUGH)], at=100.0)
    recorder.see(look)
    assert recorder.past(look, (0.1, 0.2)).used == (0.1, 0.2, *[0.5] * (ENOUGH - 1))
    look = make_snapshot([ended(ENOUGH, 0.0, 10.0, 60.0)], at=100.0)
    recorder.see(look)
    assert recorder.past(look, (0.1, 0.2)).used == tuple([0.5] * ENOUGH)


# -- draws -------------------------------------------------------------------------------------------------------------


def test_a_draw_is_the_same_whoever_asks_and_whatever_was_drawn_before():
    past = QueuePast(
        tuple(i / 50 for i in range(1, 50)),
        jobs=tuple(PastJob(i * 60.0, 1, 50.0, "batch", None) for i in range(60)),
        hours=(0,),
    )
    a, b = (Drawing(present([(-20.0, 100.0)] * 5, 7), past, 3) for _ in range(2))
    first, other = a.draw(4), b.draw(9)
    assert len(who_comes(other, 100)) >= 100
    again = b.draw(4)
    assert again.arrivals(3)[0].tolist() == first.arrivals(3)[0].tolist()
    assert (first.ends.tolist(), first.runs.tolist()) == (again.ends.tolist(), again.runs.tolist())
    assert first.ends.tolist() != other.ends.tolist()
    assert who_comes(first) == who_comes(again)
    assert list(first.own_chances(3)) == list(again.own_chances(3))


def test_a_running_job_ends_later_than_it_has_run_already():
    """Half of all jobs run a tenth of their limit; one that has run half of it is one of the others."""
    past = QueuePast(tuple([0.1] * 50 + [0.8] * 50))
    drawing = Drawing(present([(-50.0, 100.0)] * 40 + [(0.0, 100.0)] * 40 + [(-90.0, 100.0)] * 40), past, 1)
    ends = np.array(drawing.draw(0).ends)
    assert set(ends[:40]) == {30.0}
    assert set(ends[40:80]) == {10.0, 80.0} and 10 < (ends[40:80] == 10.0).sum() < 30
    assert ((ends[80:] > 0) & (ends[80:] <= 10.0)).all() and len(set(ends[80:])) == 40, "no job ran as long: evenly"


def test_jobs_of_a_user_run_as_those_of_the_same_user_did():
    """Nine in ten by the user's nine known ones; of a running job only those that ran longer count. They run alike."""
    now = present([(-50.0, 100.0)] * 20, 40)
    past = QueuePast((0.9,) * ENOUGH, by_user={"alice": (0.2,) * 6 + (0.6,) * 3})
    theirs = replace(
        now,
        running=tuple(job._replace(user="alice") for job in now.running),
        waiting=tuple(job._replace(user=user) for job in now.waiting[:20] for user in ("alice", "bob")),
    )
    drawing = Drawing(theirs, past, 1)
    draws = [drawing.draw(k) for k in range(100)]
    ends, runs = np.array([draw.ends for draw in draws]), np.array([draw.runs for draw in draws])
    assert set(ends.flat) == {10.0, 40.0} and 0.85 < (ends == 10.0).mean() < 0.95
    assert set(runs[:, 1::2].flat) == {90.0}
    short = (runs[:, ::2] == 20.0).mean(axis=1)
    assert 0.5 < short.mean() < 0.7 and 0.05 < (runs[:, ::2] == 90.0).mean() < 0.15
    assert short.std() > 0.25, "in some draws nearly all, in others hardly any"


def test_without_a_past_every_share_is_as_likely_and_nobody_comes():
    drawing = Drawing(present([(-200.0, 100.0)], 4000), QueuePast((0.5,) * (ENOUGH - 1)), 1)
    draw = drawing.draw(0)
    runs = np.array(draw.runs)
    assert draw.arrivals(0) is None
    assert 48 < runs.mean() < 52 and runs.min() >= 1.0 and runs.max() <= 100.0
    assert 0 < draw.ends[0] <= 60.0, "it is past its limit, so Slurm is about to end it"


def test_arrivals_are_whole_hours_of_the_past_from_now_on():
    jobs = [PastJob(10 * HOUR + 600.0, 2, 50.0, "batch", 30.0), PastJob(10 * HOUR + 3000.0, 3, math.inf, "batch", None)]
    jobs += [PastJob(11 * HOUR + 60.0, 1, 9.0, "elsewhere", 1.0)]
    drawing = Drawing(present(now=100 * HOUR + 900.0), QueuePast(jobs=tuple(jobs), hours=(10,)), 1)
    draw = drawing.draw(0)
    came = who_comes(draw)
    assert [submit for submit, *_ in came[:3]] == [100 * HOUR + 3000.0, 101 * HOUR + 600.0, 101 * HOUR + 3000.0]
    assert came[1][1:] == (2, 0, 50.0, 30.0)
    assert came[0][3] == HORIZON and 0 < came[0][4] <= HORIZON
    assert 1440 < len(came) < 2000 and came[1439][0] < 100 * HOUR + 900.0 + HORIZON + HOUR


def test_hours_of_the_same_time_of_day_come_again_where_there_are_enough():
    hours = tuple(range(240))
    jobs = tuple(PastJob(h * HOUR, 1 + h % 24, 50.0, "batch", 30.0) for h in hours)
    drawing = Drawing(present(now=240 * HOUR - 1.0), QueuePast(jobs=jobs, hours=hours), 5)
    draw = drawing.draw(0)
    came = who_comes(draw, 100)
    assert all((nodes - 1 - submit // HOUR + 1) % 24 <= 2 for submit, nodes, *_ in came)
    assert len({(nodes - 1 - submit // HOUR) % 24 for submit, nodes, *_ in came}) == 3

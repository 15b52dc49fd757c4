"""The live queue watched: which jobs teach, what they saw, and what a new one may expect."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.api import Geometry, JobState
from penstock.waits.learners.judged import Judged
from penstock.waits.learners.queue_learner import QueueLearner
from penstock.waits.learners.queue_view import FEATURES
from penstock.waits.learners.queue_watch import QueueWatch
from penstock_lab.testing import NODES, make_job, make_snapshot

ASK = Geometry("batch", "normal", 2, 600)


def waiting(number, since, **changes):
    return make_job(number, submit=since, eligible=since, num_nodes=2, time_limit=600.0, **changes)


def started(number, since, start, *nodes, **changes):
    nodes = nodes or ("n1", "n2")
    return make_job(number, *nodes, submit=since, eligible=since, start=start, end=start + 600, **changes)


def watch(*snapshots):
    watched = QueueWatch(QueueLearner())
    for snapshot in snapshots:
        watched.see(snapshot)
    return watched


def examples(watched):
    """(work ahead, wait) of what was learned."""
    at = FEATURES.index("work_ahead")
    return [(features[at], round(float(10**log))) for features, log in watched.learner._examples]


def test_a_job_teaches_when_it_starts_what_it_saw_before_it_queued():
    """At 100 one job of two nodes for 600 s waits; ours is submitted at 150 and starts at 400."""
    first, ours = waiting(1, 50.0), waiting(2, 150.0)
    watched = watch(make_snapshot([first], 100.0), make_snapshot([first, ours], 200.0))
    assert watched.examples == 0
    watched.see(make_snapshot([first, started(2, 150.0, 400.0)], 450.0))
    assert examples(watched) == [(2 * 600 / 8, 250)]
    assert watched.learner.times_and_waits() == [(100.0, pytest.approx(250.0))], "by the clock of the look before it"
    watched.see(make_snapshot([first, started(2, 150.0, 400.0)], 500.0))
    assert watched.examples == 1, "once"


def test_a_job_that_starts_between_two_looks_teaches_too():
    watched = watch(make_snapshot([], 100.0), make_snapshot([started(2, 130.0, 131.0)], 160.0))
    assert examples(watched) == [(0.0, 1)]
    over = replace(started(3, 170.0, 175.0), state=JobState.COMPLETED, nodes=())
    watched.see(make_snapshot([over], 220.0))
    assert len(examples(watched)) == 2


@pytest.mark.parametrize(
    "seen",
    [
        {"reason": "Licenses"},
        {"reason": "JobHeldUser"},
        {"reason": "ReqNodeNotAvail, Reserved for maintenance"},
        {"restarts": 1},
    ],
)
def test_jobs_that_wait_for_something_else_teach_nothing(seen):
    watched = watch(
        make_snapshot([], 100.0),
        make_snapshot([waiting(2, 150.0, **seen)], 200.0),
        make_snapshot([waiting(2, 150.0, restarts=seen.get("restarts", 0))], 300.0),
        make_snapshot([started(2, 150.0, 400.0, restarts=seen.get("restarts", 0))], 450.0),
    )
    assert watched.examples == 0


def test_jobs_from_before_the_watch_cancelled_ones_and_further_tasks_teach_nothing():
    old = waiting(1, 50.0)
    array = waiting(10, 150.0, array_job=10, tasks=5)
    watched = watch(make_snapshot([old], 100.0), make_snapshot([old, array, waiting(3, 150.0)], 200.0))
    watched.see(
        make_snapshot(
            [
                started(1, 50.0, 250.0),
                replace(array, tasks=3),
                started(11, 150.0, 250.0, "n3", array_job=10, array_task=0),
                started(12, 150.0, 250.0, "n4", array_job=10, array_task=1),
                replace(waiting(3, 150.0), state=JobState.CANCELLED, start=260.0, end=260.0),
            ],
            300.0,
        )
    )
    assert watched.examples == 1
    watched.see(make_snapshot([started(13, 150.0, 320.0, "n3", array_job=10, array_task=2)], 350.0))
    assert watched.examples == 1


def test_what_a_job_saw_is_not_known_when_it_was_first_seen_too_late():
    late = waiting(2, 50.0)
    watched = watch(
        make_snapshot([], 100.0), make_snapshot([late], 200.0), make_snapshot([started(2, 50.0, 220.0)], 300.0)
    )
    assert watched.examples == 0


def test_a_wait_begins_when_the_job_is_eligible():
    held = waiting(2, 150.0, reason="Dependency")
    watched = watch(
        make_snapshot([], 100.0),
        make_snapshot([replace(held, eligible=None)], 200.0),
        make_snapshot([replace(held, eligible=250.0, reason="Priority")], 300.0),
        make_snapshot([replace(started(2, 150.0, 400.0), eligible=250.0)], 450.0),
    )
    assert examples(watched) == [(0.0, 150)]


def test_until_it_has_learned_it_expects_what_the_plan_says():
    assert watch().expect(ASK, "alice") is None
    full = [make_job(i, n, end=700.0) for i, n in enumerate(NODES, start=1)]
    watched = watch(make_snapshot(full, 100.0))
    assert watched.expect(ASK, "alice") == 600
    assert watched.expect(replace(ASK, nodes=9), "alice") is None
    assert watched.expect(replace(ASK, partition="other"), "alice") is None
    assert watched.expect(replace(ASK, partition="other,batch"), "alice") == 600


def test_nodes_are_counted_once_however_many_jobs_share_them():
    """Four jobs on each of two nodes, the last ends at 800; two nodes are down: four are free now."""
    jobs = [make_job(i, "n1", "n2", end=500.0 + 100 * (i % 4)) for i in range(1, 9)]
    watched = watch(make_snapshot(jobs, 100.0, down=("n7", "n8")))
    assert watched.expect(replace(ASK, nodes=4), "alice") == 1, "at once"
    assert watched.expect(replace(ASK, nodes=5), "alice") == 700
    assert watched.expect(replace(ASK, nodes=7), "alice") is None


EXPECTED_TOO_EARLY = (1, "PENDING", "Priority", 202, 201)


@settings(deadline=None, max_examples=40)
@example([[], [EXPECTED_TOO_EARLY], [(1, "RUNNING", "Priority", None, 202)]])
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.integers(1, 12),
                st.sampled_from(["PENDING", "RUNNING", "COMPLETED", "CANCELLED", "COMPLETING", "UNKNOWN"]),
                st.sampled_from(["Priority", "Licenses", "None"]),
                st.none() | st.integers(0, 600),
                st.none() | st.integers(0, 700),
            ),
            max_size=6,
        ),
        max_size=5,
    )
)
def test_any_run_of_pictures_is_survived(pictures):
    watched = QueueWatch(QueueLearner())
    for i, rows in enumerate(pictures):
        jobs = [
            make_job(n, *(("n1",) if state in ("RUNNING", "COMPLETING") else ()), state=JobState(state), reason=reason,
                     eligible=eligible, start=start, submit=0.0)
            for n, state, reason, eligible, start in rows
        ]  # fmt: skip
        watched.see(make_snapshot(jobs, 100.0 * (i + 1)))
        expected = watched.expect(ASK, "alice")
        assert expected is None or expected >= 1
    again = QueueWatch(QueueLearner())
    again.restore(json.loads(json.dumps(watched.to_state())))
    assert again.to_state() == watched.to_state()


@pytest.mark.parametrize(
    "change", [{"version": 9}, {"recent": [None]}, {"classes": [["a"]]}, {"learner": {}}, {"users": 1}]
)
def test_a_damaged_state_is_refused(change):
    with pytest.raises(ValueError, match="state"):
        watch().restore({**watch().to_state(), **change})


def test_it_comes_to_know_a_queue_that_the_plan_misjudges():
    """A machine that is always full by the limits of its jobs, which all end after 60 s: a job waits 30 s, not 600."""
    rng, watched, now, number = np.random.default_rng(1), QueueWatch(QueueLearner()), 0.0, 100
    queue: list[tuple[int, float]] = []
    for _ in range(700):
        full = [make_job(i, n, submit=now - 1, eligible=now - 1, start=now - 1, end=now + 600, user="bob")
                for i, n in enumerate(NODES, start=1)]  # fmt: skip
        begun = [started(n, s, s + 30, "n1") for n, s in queue]
        number += 1
        queue = [(number, now - rng.integers(1, 10))]
        watched.see(make_snapshot([*full, *begun, *(waiting(n, s) for n, s in queue)], now))
        if watched.learner.due:
            watched.learner.refit()
        now += 60
    assert watched.expect(ASK, "alice") == pytest.approx(30, rel=0.3)


def test_what_was_expected_is_kept_beside_what_squeue_said_first():
    """Ours would start when the first one's limit is over; Slurm says 900 first and 300 later; it starts at 400."""
    first, ours = started(1, 50.0, 60.0, *NODES), waiting(2, 150.0)
    watched = watch(
        make_snapshot([first], 100.0),
        make_snapshot([first, replace(ours, start=900.0)], 200.0),
        make_snapshot([first, replace(ours, start=300.0)], 250.0),
        make_snapshot([started(2, 150.0, 400.0)], 450.0),
    )
    (row,) = watched.judged.rows()
    assert row["wait"] == 250 and row["squeue"] == 750 and row["queue"] == pytest.approx(660 - 100)
    assert row["bound95"] is None, "of one job nothing is known"
    assert len(watched.learner.bounds) == 1
    again = QueueWatch(QueueLearner())
    again.restore(json.loads(json.dumps(watched.to_state())))
    assert again.judged.rows() == watched.judged.rows() and len(again.learner.bounds) == 1
    for part in ("judged", "runs"):
        with pytest.raises(ValueError, match="queue watch"):
            again.restore({key: value for key, value in watched.to_state().items() if key != part})
    assert again.judged.rows() == watched.judged.rows(), "it keeps what it has"


def test_run_times_of_users_are_learned_and_bring_the_plan_nearer():
    """Alice's jobs run for 100 s with limits of 600; the next one of hers holds all nodes, and is likely to end soon.

    Ours is planned at its likely end.
    """
    hers = [started(i, 100.0 * i, 100.0 * i, *NODES, user="alice") for i in (1, 2, 3)]
    over = replace(hers[0], state=JobState.COMPLETED, nodes=(), end=190.0)
    watched = watch(make_snapshot([hers[0]], 120.0), make_snapshot([over, hers[1]], 210.0))
    assert watched._runs.expect("alice", 600) == 90, "by its own end"
    watched.see(make_snapshot([hers[1]], 260.0))
    watched.see(make_snapshot([hers[2]], 305.0))
    assert watched._runs.expect("alice", 600) == (90 + 105) // 2, "it was gone at the next look"
    assert watched.expect(ASK, "bob") == pytest.approx(300 + 97 - 305, abs=1)
    again = QueueWatch(QueueLearner())
    again.restore(json.loads(json.dumps(watched.to_state())))
    again.see(make_snapshot([hers[2]], 310.0))
    assert again.expect(ASK, "bob") == pytest.approx(300 + 97 - 310, abs=1)


def test_of_a_job_that_ended_between_looks_far_apart_nothing_is_learned():
    watched = watch(make_snapshot([started(1, 100.0, 100.0, user="alice")], 120.0), make_snapshot([], 5000.0))
    assert watched._runs.expect("alice", 600) == 600
    requeued = waiting(2, 5100.0, user="alice")
    watched.see(make_snapshot([started(2, 5100.0, 5100.0, user="alice")], 5110.0))
    watched.see(make_snapshot([requeued], 5120.0))
    assert watched._runs.expect("alice", 600) == 600, "it will run again"


def test_judged_waits_are_read_back_as_seconds():
    judged = Judged(("squeue",), 9)
    judged.restore({"version": 1, "names": ["squeue"], "rows": [[5.0, 1.0], [7.0, None]]})
    assert judged.rows() == [{"wait": 5.0, "squeue": 1.0}, {"wait": 7.0, "squeue": None}]
    with pytest.raises(ValueError, match="not seconds"):
        judged.restore({"version": 1, "names": ["squeue"], "rows": [[-5.0, 1.0]]})

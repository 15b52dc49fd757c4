"""What scancel and scontrol are asked to do to jobs of a pool; and what Slurm's own jobs have come to."""

from __future__ import annotations

import signal

import pytest

from penstock_fronts.words import Through
from penstock_pool.jobs.conditions import judged
from penstock_pool.jobs.control import read_cancel, read_control
from penstock_pool.signals import Whom
from penstock_pool.waiting import OtherJob

J = 5_000_000_001


@pytest.mark.parametrize(
    ("words", "ids", "number", "whom"),
    [
        ([f"{J}"], [(J, None)], 0, Whom.STEPS),
        ([f"{J}_3", f"{J}_[5-6,9]"], [(J, 3), (J, 5), (J, 6), (J, 9)], 0, Whom.STEPS),
        ([f"{J},{J + 1}", "-Q"], [(J, None), (J + 1, None)], 0, Whom.STEPS),
        (["-s", "USR1", f"{J}"], [(J, None)], signal.SIGUSR1, Whom.STEPS),
        (["--signal=10", "-b", f"{J}"], [(J, None)], 10, Whom.BATCH),
        (["-f", "-s", "TERM", f"{J}"], [(J, None)], signal.SIGTERM, Whom.ALL),
        (["-s", "KILL", f"{J}"], [(J, None)], 0, Whom.STEPS),
    ],
)
def test_scancel(words, ids, number, whom):
    asked = read_cancel(words)
    assert (list(asked.ids), asked.signal, asked.whom) == (ids, number, whom)


def test_scancel_by_what_jobs_are():
    assert read_cancel(["-u", "alice", "--state=PD", "-n", "a,b"]).filters == {"u": "alice", "t": "PD", "n": "a,b"}
    assert read_cancel(["--me"]).filters == {"me": ""}


@pytest.mark.parametrize("words", [[], ["-i", f"{J}"], ["-w", "n1"], ["x"], ["-s", "NOT", f"{J}"], ["--nonsense"]])
def test_scancel_that_is_not_served(words):
    with pytest.raises(Through):
        read_cancel(words)


@pytest.mark.parametrize(
    ("words", "verb", "ids", "line"),
    [
        (["show", "job"], "show", [], False),
        (["-o", "show", "jobs"], "show", [], True),
        (["show", "job", f"{J}"], "show", [(J, None)], False),
        (["show", f"job={J}_4"], "show", [(J, 4)], False),
        (["hold", f"{J},{J + 1}"], "hold", [(J, None), (J + 1, None)], False),
        (["release", f"job={J}"], "release", [(J, None)], False),
        (["requeue", f"{J}"], "requeue", [(J, None)], False),
    ],
)
def test_scontrol(words, verb, ids, line):
    asked = read_control(words)
    assert (asked.verb, list(asked.ids), asked.line) == (verb, ids, line)


@pytest.mark.parametrize(
    "words", [[], ["show"], ["show", "node"], ["update", f"job={J}", "timelimit=3"], ["hold"], ["show", "job", "x"]]
)
def test_scontrol_that_is_not_served(words):
    with pytest.raises(Through):
        read_control(words)


class TestJobsOfSlurm:
    ROWS = (
        ("7", "7", "N/A", "COMPLETED", "2026-01-01T00:00:00", "2026-01-01T00:01:00"),
        ("8", "8", "N/A", "RUNNING", "2026-01-01T00:00:00", "2026-01-01T00:09:00"),
        ("11", "10", "1", "COMPLETED", "2026-01-01T00:00:00", "2026-01-01T00:01:00"),
        ("12", "10", "2", "FAILED", "2026-01-01T00:00:05", "2026-01-01T00:02:00"),
        ("14", "13", "1", "COMPLETED", "2026-01-01T00:00:00", "2026-01-01T00:01:00"),
        ("15", "13", "2", "PENDING", "N/A", "N/A"),
    )

    def test_each_has_completed_or_not_or_goes_on(self):
        found = judged([(7, None), (8, None), (10, None), (10, 1), (13, None), (99, None)], self.ROWS)
        ends = {job: (one.ended is not None, one.completed) for job, one in found.items()}
        assert ends == {
            (7, None): (True, True),
            (8, None): (False, False),
            (10, None): (True, False),
            (10, 1): (True, True),
            (13, None): (False, False),
        }
        assert found[7, None].started is not None

    def test_nothing_is_made_up_of_a_job_that_has_no_row(self):
        assert judged([(1, None)], []) == {}
        assert OtherJob().ended is None

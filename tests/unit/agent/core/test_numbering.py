"""Job numbers that begin again: nothing is done to a job that only shares its number with one that is known."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import pytest
from factories import ManualClock

from penstock.core.acts import KnownJob
from penstock.core.executor import Concern, Executor
from penstock.core.numbering import Mark, Numbering, began_again, raised
from penstock.core.observe import Observer
from penstock.errors import NotNow
from penstock.state.store import Store
from penstock_lab.testing import make_job, make_snapshot

FEDERATED = 3 << 26


def job(number, submit, **more):
    return replace(make_job(number), submit=float(submit), **more)


def test_the_mark_is_the_highest_number_and_what_was_known_with_it():
    mark = raised(Mark(), [job(7, 100), job(9, 90, array_job=7), job(FEDERATED + 1, 500)], 130.0)
    assert mark == Mark(9, 130.0), "the task of an array has a later number than its moment"
    assert raised(mark, [job(8, 200)], 210.0) == mark == raised(mark, [], 220.0)
    assert raised(mark, [job(10, 150)], 140.0) == Mark(10, 150.0), "our clock is behind"


def test_one_that_was_not_shown_before_is_no_proof():
    """The last task of an array had number 900 when others', who are seen only now, had been given 8."""
    mark = raised(Mark(), [job(900, 90, array_job=7)], 130.0)
    assert began_again(mark, [job(8, 120)]) is None
    assert began_again(mark, [job(8, 131)]) == job(8, 131)


KNOWN = Mark(812, 1000.0)


@pytest.mark.parametrize(
    ("jobs", "found"),
    [
        ([job(3, 2000), job(2, 1500)], 2),  # a new Slurm
        ([], None),
        ([job(790, 2000)], None),  # slurmctld has crashed, and gives some numbers out again
        ([job(813, 2000), job(900, 2001)], None),  # it goes on
        ([job(2, 2000), job(813, 2000)], 2),  # one that has been asked for much already
        ([job(800, 2000), job(700, 900)], None),  # one of those before is still there: somebody sees more than before
        ([job(800, 2000, restarts=1)], None),  # requeued: it counts as submitted anew
        ([job(FEDERATED + 5, 2000)], None),  # another cluster's of a federation
    ],
)
def test_a_job_of_another_slurm(jobs, found):
    job = began_again(KNOWN, jobs)
    assert (job and job.id) == found
    assert began_again(Mark(), jobs) is None, "nothing was known"


def test_a_count_that_has_come_round_is_none():
    assert began_again(Mark(67_043_000, 1000.0), [job(1, 2000)]) is None


class Slurm:
    def __init__(self):
        self.rows = [job(811, 990), job(812, 1000)]
        self.cancelled = []

    def whoami(self):
        return "alice"

    async def jobs(self):
        return self.rows

    async def nodes(self):
        return list(make_snapshot().nodes.values())

    async def partitions(self):
        return list(make_snapshot().partitions.values())

    async def reservations(self):
        return []

    async def licenses(self):
        return []

    async def cancel(self, number, tasks=()):
        self.cancelled.append(number)


def test_the_picture_is_none_to_act_on_and_stays_so_over_restarts(tmp_path):
    slurm, clock = Slurm(), ManualClock()
    path = tmp_path / "penstock.db"

    def look():
        observer = Observer(slurm, clock, min_interval=10, stale_after=120)
        store = Store(path)
        observer.check = Numbering(store).check
        try:
            clock.at += 11
            found = asyncio.run(observer.look())
            soon = observer.next_look()
        finally:
            store.close()
        return found, soon

    assert look()[0].usable
    slurm.rows = [job(5, 1e10)]
    seen, again = look()
    assert not seen.usable and "job 5 " in seen.problems[0] and str(path) in seen.problems[0]
    assert again == clock.at + 60, "and Slurm is not asked without a pause"
    slurm.rows = [job(900, 2e10)]  # it has counted past them meanwhile
    assert not look()[0].usable
    path.rename(tmp_path / "of-the-old-one.db")
    assert look()[0].usable, "a state of its own"


def test_a_job_that_only_shares_its_number_is_not_cancelled(tmp_path):
    slurm, clock = Slurm(), ManualClock()
    mine = Concern("select", os.geteuid())
    with_uid = [replace(row, uid=os.geteuid()) for row in slurm.rows]
    slurm.rows = with_uid
    executor = Executor(Store(tmp_path / "acts.db"), clock, slurm)
    asyncio.run(executor.cancel(KnownJob(812, os.geteuid()), "bag 1", mine))
    slurm.rows = [replace(job(n, 1e10), uid=os.geteuid()) for n in (5, 812)]
    clock.at += 11
    with pytest.raises(NotNow, match="counts its jobs anew"):
        asyncio.run(executor.cancel(KnownJob(812, os.geteuid()), "bag 1", mine))
    assert slurm.cancelled == [812]

"""A command that cancels many jobs: one look for all of them, and a line that can be read."""

from __future__ import annotations

import asyncio
import os
from collections import Counter

import pytest

from penstock.api import JobSpec
from penstock.config import config_of
from penstock.console.backends import cancel_all, first_of
from penstock.core.acts import KnownJob
from penstock.errors import SlurmUnavailable
from penstock_lab.mock.backend import MockBackend, virtual_cluster


class Counted:
    """A simulated Slurm of which it is counted what it is asked."""

    def __init__(self, slurm: MockBackend) -> None:
        self._slurm = slurm
        self.asked: Counter[str] = Counter()
        self.away = ""

    def __getattr__(self, name: str) -> object:
        found = getattr(self._slurm, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def counted(*args: object, **more: object) -> object:
            self.asked[name] += 1
            if name == self.away:
                raise SlurmUnavailable(f"slurmctld gave no answer {self.asked[name]} times")
            return await found(*args, **more)

        return counted


@pytest.fixture
def slurm(monkeypatch):
    counted = Counted(virtual_cluster(start=1e9))
    monkeypatch.setattr("penstock.core.backends.make_backend", lambda _config: counted)
    return counted


def jobs(numbers):
    return [KnownJob.named(number, os.geteuid(), "x") for number in numbers]


def cancelled(tmp_path, known):
    return asyncio.run(cancel_all(config_of({"agent": {"state_dir": str(tmp_path)}}), known))


def test_of_nine_hundred_jobs_that_slurm_does_not_know_nothing_is_asked_but_one_look(tmp_path, slurm):
    assert cancelled(tmp_path, jobs(range(1000, 1900))) == []
    assert slurm.asked.pop("close") == 1
    assert slurm.asked == {"jobs": 1}


def test_those_that_are_there_are_cancelled_as_before(tmp_path, slurm):
    mine = asyncio.run(slurm._slurm.submit(JobSpec("x", "#!/bin/sh\nsleep 60\n", 1, 60.0)))
    assert cancelled(tmp_path, jobs([mine, *range(1000, 1900)])) == []
    assert slurm.asked["cancel"] == 1
    assert [job.state.name for job in asyncio.run(slurm._slurm.jobs())] == ["CANCELLED"]


def test_where_slurm_does_not_answer_that_is_said_once(tmp_path, slurm):
    slurm.away = "jobs"
    failed = cancelled(tmp_path, jobs(range(1000, 1900)))
    assert failed == ["1000-1899: slurmctld gave no answer 1 times"]


def test_many_reasons_make_no_long_line(tmp_path, slurm):
    spec = JobSpec("x", "#!/bin/sh\nsleep 60\n", 1, 60.0)
    mine = [asyncio.run(slurm._slurm.submit(spec)) for _ in range(9)]
    slurm.away = "cancel"
    failed = cancelled(tmp_path, jobs(mine))
    assert len(failed) == 9
    assert first_of(failed) == "; ".join(failed[:3]) + "; and for 6 more reasons"

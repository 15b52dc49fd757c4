"""Workloads on the simulated Slurm: `sim.cluster`."""

from __future__ import annotations

import pytest

from penstock.api import JobSpec, JobState
from penstock.errors import UserError
from penstock.sim.cluster import SimulatedJob, run
from penstock.slurm.mock.model import ClusterConfig
from penstock.slurm.mock.speedup import Amdahl


def job(submit, nodes, duration, limit=None, **more):
    return SimulatedJob(submit, JobSpec("j", "#!/bin/sh\n", nodes, limit or duration), duration, **more)


def test_jobs_come_run_and_end():
    jobs = [job(100, 2, 10), job(100, 2, 20, limit=15), job(105, 1, 5, exit_code=1)]
    first, second, third = run(ClusterConfig(nodes=2), jobs)
    assert (first.submit, first.start, first.end, first.nodes) == (100, 100, 110, ("n1", "n2"))
    assert (second.start, second.end, second.state) == (110, 125, JobState.TIMEOUT)
    assert (third.start, third.state, third.id) == (125, JobState.FAILED, 3)


def test_the_duration_is_that_on_the_nodes_the_job_asks_for():
    (outcome,) = run(ClusterConfig(nodes=4), [job(0, 4, 100, speedup=Amdahl(0.2))])
    assert outcome.end == pytest.approx(100)


def test_no_jobs_and_jobs_out_of_order():
    assert run(ClusterConfig(), []) == []
    with pytest.raises(UserError, match="before the one ahead"):
        run(ClusterConfig(), [job(10, 1, 1), job(9, 1, 1)])

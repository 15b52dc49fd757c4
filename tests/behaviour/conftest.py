"""A real Slurm that enforces limits, of each release; every test finds and leaves it without jobs."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emptied import empty
from penstock_lab.cluster import Cluster, ClusterSpec, up
from site_limits import SiteLimits

LONG = [pytest.mark.release, pytest.mark.long]


@pytest.fixture(
    scope="session",
    params=[None, pytest.param("trixie", marks=LONG), pytest.param("sid", marks=LONG)],
    ids=["installed", "24.11", "26.05"],
)
def release(request: pytest.FixtureRequest, need_slurm: Callable[[str | None], None]) -> Iterator[Cluster]:
    need_slurm(request.param)
    folder = Path(f"/var/tmp/pst-test-b{request.param or ''}-{os.getpid()}")
    it = up(ClusterSpec(nodes=8, folder=folder, release=request.param, enforce=True))
    yield it
    it.down()


@pytest.fixture
def slurm(release: Cluster) -> Iterator[Cluster]:
    """`slurm.run_as("alice", [...])` runs a command as one of its users: alice, bob, operator, or root."""
    yield release
    release.start_controller()  # a test may have killed it
    empty(release)


@pytest.fixture
def limits(slurm: Cluster) -> Iterator[SiteLimits]:
    """What sets limits; they are gone at the end of the test."""
    it = SiteLimits(slurm)
    yield it
    it.restore()

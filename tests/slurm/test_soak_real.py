"""Minutes of chaos on a real Slurm: agents, controller and nodes are killed, commands fail, and the invariants hold."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_lab.soak import real, resizes
from penstock_lab.soak.solver import End

pytestmark = [pytest.mark.slurm, pytest.mark.long]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short enough for Unix sockets, and where the cluster's users can go."""
    place = Path(tempfile.mkdtemp(prefix="penstock-soak-", dir="/var/tmp"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.timeout(2400)
def test_minutes_of_chaos_on_a_real_slurm_break_nothing(folder):
    report = real.soak(folder, 5, real.Chances(minutes=3.0, agent_kills=5, controller_kills=1))
    assert not report.wrong, "\n".join([*report.wrong, *report.last[-60:]])
    assert report.counts["lives"] > 3
    for what in ("workflows", "guided workflows", "slots", "bags", "reserved workflows", "pauses", "allow-lists"):
        assert report.counts.get(what, 0) > 0, f"no {what}"
    assert report.counts["commands"] > 10
    assert report.counts["looks at limits"] > 20
    assert report.counts["acts in the audit trails"] > 0


@pytest.mark.mpi
@pytest.mark.timeout(2400)
def test_minutes_of_chaos_around_resizes_lose_no_node_and_no_bit(folder):
    report = resizes.soak(folder, 5, real.Chances(minutes=3.0, agent_kills=4, controller_kills=1))
    assert not report.wrong, "\n".join([*report.wrong, *report.last[-60:]])
    assert report.counts["lives"] > 3 and report.counts["controller kills"] == 1
    assert report.counts["programs"] >= 10 and report.counts[End.EXACT] > 5
    assert report.counts["resizes completed"] > 10
    assert any(report.counts.get(what) for what in ("nodes killed", "nodes set down", "companions cancelled"))

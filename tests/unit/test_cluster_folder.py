"""What is recorded in a cluster's folder is believed only where nobody else can have written it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cluster import Cluster, ClusterSpec
from penstock.cluster.lifecycle import up
from penstock.errors import UserError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what another user has planted")


@pytest.fixture(params=["folder", "link"])
def planted(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder with what looks like a cluster, by another user."""
    with tempfile.TemporaryDirectory(prefix="pc-") as name:  # pytest's own may be too long for Slurm
        real, place = Path(name) / "real", Path(name) / "place"
        real.mkdir()
        (real / "cluster.json").write_text("{}")
        if request.param == "link":
            place.symlink_to(real)
            yield place
        else:
            os.chown(real, 65534, 65534)
            yield real


def test_a_cluster_that_another_user_has_planted_is_not_used(planted: Path) -> None:
    with pytest.raises(UserError, match="not a folder that belongs to you or root"):
        Cluster.load(planted)


def test_nor_is_it_joined(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cluster.lifecycle.check_programs", lambda: None)
    monkeypatch.setattr("penstock.cluster.lifecycle.slurm_version", lambda: "22.05.8")
    with pytest.raises(UserError, match="not a folder that belongs to you or root"):
        up(ClusterSpec(nodes=1, folder=planted.with_name("new"), join=planted))

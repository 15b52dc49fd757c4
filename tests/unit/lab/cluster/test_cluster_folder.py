"""What is recorded in a cluster's folder is believed only where nobody else can have written it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import NotNow, UserError
from penstock_lab.cluster import Cluster, ClusterSpec
from penstock_lab.cluster.layout import Layout
from penstock_lab.cluster.lifecycle import _claim_name as claim_name
from penstock_lab.cluster.lifecycle import up
from penstock_lab.cluster.removal import _leave as leave
from penstock_lab.cluster.removal import down

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
    monkeypatch.setattr("penstock_lab.cluster.lifecycle.check_programs", lambda: None)
    monkeypatch.setattr("penstock_lab.cluster.lifecycle.slurm_version", lambda: "22.05.8")
    with pytest.raises(UserError, match="not a folder that belongs to you or root"):
        up(ClusterSpec(nodes=1, folder=planted.with_name("new"), join=planted))


@pytest.fixture
def own() -> Iterator[Path]:
    """A short name for a folder that is not there yet."""
    with tempfile.TemporaryDirectory(prefix="pc-") as name:
        yield Path(name) / "it"


def test_users_pass_the_folders_above_whatever_the_umask(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: object) -> None:
        raise NotNow("far enough")

    monkeypatch.setattr("penstock_lab.cluster.lifecycle.check_programs", lambda: None)
    monkeypatch.setattr("penstock_lab.cluster.lifecycle.slurm_version", lambda: "22.05.8")
    monkeypatch.setattr("penstock_lab.cluster.lifecycle._build", build)
    own.parent.chmod(0o755)
    before = os.umask(0o077)
    try:
        with pytest.raises(NotNow, match="far enough"):
            up(ClusterSpec(nodes=1, folder=own / "a" / "b"))
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (own, own / "a")] == [0o755, 0o755]
    with pytest.raises(UserError, match="--dir /proc/a/b: "):
        up(ClusterSpec(nodes=1, folder=Path("/proc/a/b")))


def test_what_a_killed_down_has_left_is_removed_by_the_next(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = {"version": 0, "spec": {}, "slurm_user": "x", "processes": {}}
    for name in ("db", "etc", "home"):
        (own / name).mkdir(parents=True)
    (own / "cluster.json").write_text(json.dumps(record))
    removed: list[str] = []

    def killed(path: Path) -> None:
        removed.append(path.name)
        if len(removed) == 3:
            raise KeyboardInterrupt
        path.rmdir()

    monkeypatch.setattr("shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        down(own)
    assert (own / "cluster.json").exists()
    monkeypatch.undo()
    assert down(own)
    assert not own.exists()


def test_a_record_that_was_not_written_to_its_end_is_no_hindrance(own: Path) -> None:
    own.mkdir()
    (own / ".cluster.json.17.0f").write_text('{"vers')
    assert down(own)
    assert not own.exists()


def test_who_leaves_a_cluster_follows_no_settings_of_others(
    planted: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the cluster that it joined has gone, and somebody has made another one."""
    (planted / "joined").mkdir()
    (planted / "joined" / "penstock2").symlink_to(own)
    monkeypatch.setattr(
        "penstock_lab.cluster.database.forget", lambda *_: pytest.fail("ran a command with its settings")
    )
    monkeypatch.setattr("penstock_lab.cluster.removal.load", lambda *_: pytest.fail("believed its record"))
    leave(Layout(planted), "penstock2", own)


def test_a_name_that_another_cluster_has_just_taken_stays_its_own(own: Path) -> None:
    base = Layout(own)
    base.joined.mkdir(parents=True)
    claim_name(base, "penstock2", Path("/first"))
    with pytest.raises(NotNow, match="as penstock2; try again"):
        claim_name(base, "penstock2", Path("/second"))
    leave(base, "penstock2", Path("/second"))
    assert (base.joined / "penstock2").readlink() == Path("/first")
    leave(base, "penstock2", Path("/first"))
    assert not list(base.joined.iterdir())

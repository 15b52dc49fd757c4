"""What doctor is told of pools."""

from __future__ import annotations

import os

import pytest

from penstock.config import config_of
from penstock.core.findings import Folder, Level, Trouble
from penstock.host.logins import login
from penstock_pool import checks
from penstock_pool.part import PoolsPart

SHARED = Folder("/srv/pools", True, True, "/srv", "nfs4", 0o700, 1000, 10**12)


def found(monkeypatch, folder=SHARED, lacking=()):
    monkeypatch.setattr(checks, "missing", lambda: lacking)
    monkeypatch.setattr(checks, "folder_at", lambda path: folder)
    config = config_of({"pool": {"folder": "/srv/pools"}})
    return {finding.check: finding for finding in PoolsPart.checks(config, lambda call: call())}


def test_all_is_there(monkeypatch):
    seen = found(monkeypatch)
    assert [*seen] == ["pool-packages", "pool-folder"]
    assert {finding.level for finding in seen.values()} == {Level.OK}
    assert seen["pool-folder"].seen == "/srv/pools is on nfs4 (/srv)"


def test_packages_that_are_missing_are_named(monkeypatch):
    seen = found(monkeypatch, lacking=("cloudpickle", "distributed"))["pool-packages"]
    assert (seen.level, seen.seen) == (Level.NO, "not installed: cloudpickle, distributed")
    assert seen.change == "pip install 'penstock[pool]', if you want pools of tasks"


@pytest.mark.parametrize(
    ("folder", "level", "said"),
    [
        (Trouble("no answer within 5 s"), Level.NO, "no answer within 5 s"),
        (Folder("/", False, False, "/", "ext4", 0o755, 0, 1), Level.NO, f"{login(os.geteuid())} cannot write to /"),
        (
            Folder("/tmp", False, True, "/", "ext4", 0o1777, 0, 1),
            Level.NOTE,
            "/tmp is on ext4 (/): members on other hosts may not find the pool",
        ),
    ],
)
def test_a_folder_that_members_may_not_find(monkeypatch, folder, level, said):
    seen = found(monkeypatch, folder)["pool-folder"]
    assert (seen.level, seen.seen) == (level, said)
    assert "pool.folder" in seen.change

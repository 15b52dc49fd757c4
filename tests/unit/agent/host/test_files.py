"""Locked files, files that are replaced whole, and the back-off and the bucket that all share."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.errors import NotNow
from penstock.host.files import is_named, lock, locked, open_locked, replace, replacing, sync
from penstock.values.backoff import backoff
from penstock.values.bucket import TokenBucket


@contextmanager
def held(path, flags=os.O_CREAT | os.O_RDWR):
    with locked(path, flags, "somebody else is at work") as descriptor:
        yield descriptor


def test_a_lock_is_one_descriptors_until_it_is_closed(tmp_path):
    path = tmp_path / "lock"
    with held(path):
        with pytest.raises(NotNow, match="somebody else is at work"), held(path):
            pass
        with pytest.raises(BlockingIOError):
            open_locked(path, patience=0.02)
    assert path.stat().st_mode & 0o777 == 0o600
    first, second = (open_locked(path, os.O_RDONLY, shared=True) for _ in range(2))
    with pytest.raises(BlockingIOError):
        open_locked(path)
    os.close(first)
    os.close(second)
    with held(tmp_path, os.O_RDONLY | os.O_DIRECTORY) as folder:
        lock(folder)


def test_nothing_stays_open_of_a_lock_that_was_not_got(tmp_path):
    opened = Path("/proc/self/fd")
    with held(tmp_path / "lock"):
        before = len(list(opened.iterdir()))
        with pytest.raises(BlockingIOError):
            open_locked(tmp_path / "lock")
        assert len(list(opened.iterdir())) == before


def test_a_lock_on_a_file_that_was_removed_is_seen(tmp_path):
    path = tmp_path / "lock"
    with held(path) as mine:
        assert is_named(mine, path)
        path.unlink()
        assert not is_named(mine, path)
        path.touch()
        assert not is_named(mine, path)


def test_a_file_is_replaced_whole_or_stays_as_it_was(tmp_path):
    path = tmp_path / "file"
    replace(path, "first é")
    assert path.read_text(encoding="utf-8") == "first é"
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(RuntimeError), replacing(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_text(encoding="utf-8") == "first é"
    replace(path, b"second", mode=0o644, durable=False)
    assert path.read_bytes() == b"second"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [one.name for one in tmp_path.iterdir()] == ["file"], "nothing is left beside it"
    sync(path)
    sync(tmp_path)


def test_without_a_mode_the_umask_decides(tmp_path):
    before = os.umask(0o027)
    try:
        replace(tmp_path / "file", "", mode=None)
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_a_back_off_doubles_up_to_its_limit():
    assert [backoff(5.0, failures, 300.0) for failures in (0, 1, 2, 5, 6, 7, 10**6)] == [5, 10, 20, 160, 300, 300, 300]
    assert backoff(1.0, 10**6, 1e9) == 1024, "ten times at most"


def test_a_bucket_is_overdrawn_by_what_was_dear():
    bucket = TokenBucket(3, 2.0)
    assert bucket.delay(0.0) == 0
    bucket.take(5.0)
    assert bucket.tokens(0.0) == -2
    assert bucket.delay(0.0) == 1.5
    assert bucket.tokens(100.0) == 3

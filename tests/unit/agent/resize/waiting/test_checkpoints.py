"""Whether a program has saved its state."""

from __future__ import annotations

import os

from penstock.resize.waiting.checkpoints import Checkpoints, saved_file
from penstock.resize.waiting.model import SavedFile

FILE = "/state"


def test_a_file_counts_when_it_is_new_whole_and_at_rest():
    files: dict[str, SavedFile] = {}
    checkpoints = Checkpoints(files.get)
    old = files[FILE] = SavedFile(5.0, 100)
    assert checkpoints.now(FILE) == old
    assert not any(checkpoints.complete(FILE, old, at) for at in (10.0, 20.0))  # it is still the old one
    files[FILE] = SavedFile(21.0, 0)
    assert not any(checkpoints.complete(FILE, old, at) for at in (21.0, 30.0))  # nothing is in it yet
    files[FILE] = SavedFile(31.0, 50)
    assert not checkpoints.complete(FILE, old, 31.0)
    files[FILE] = SavedFile(32.0, 100)  # it goes on growing
    assert not checkpoints.complete(FILE, old, 33.5)
    assert not checkpoints.complete(FILE, old, 34.0)
    del files[FILE]  # it is replaced in two steps
    assert not checkpoints.complete(FILE, old, 35.0)
    files[FILE] = SavedFile(32.0, 100)
    assert not checkpoints.complete(FILE, old, 36.0)
    assert checkpoints.complete(FILE, old, 38.5)


def test_a_real_file(tmp_path):
    path = tmp_path / "state"
    assert saved_file(str(path)) is None and saved_file("a\0b") is None
    path.write_bytes(b"12345")
    os.utime(path, (7.5, 7.5))
    assert saved_file(str(path)) == SavedFile(7.5, 5)

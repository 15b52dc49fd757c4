"""State on disk: whole or not there, what was saved comes back, and nobody else's folder is read."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from dmr import checkpoint
from dmr.checkpoint import CheckpointError
from dmr.distributions import Block, Cyclic


def saved(root: Path, parts: dict[str, tuple[object, ...]]) -> None:
    checkpoint.begin(root, 3)
    checkpoint.save(root, 3, 0, parts)
    checkpoint.commit(root, 3, {"files": 1})


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "root"
    record = np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])
    parts = {
        "": (("told", [1, 2]),),
        "field": (np.asfortranarray(np.arange(12.0).reshape(3, 4)), Block()),
        "../../name": (np.arange(3), Cyclic(), Block()),
        "record": (record, Block()),
        "objects": ([{"a": 1}, None], Cyclic()),
        "none": (np.zeros((0, 4), "f4"), Block()),
    }
    saved(root, parts)
    assert checkpoint.manifest(root, 3) == {"files": 1}
    assert root.stat().st_mode & 0o777 == 0o700
    found = checkpoint.load(root, 3, 0)
    assert list(found) == list(parts)
    for name, (value, *how) in parts.items():
        assert list(found[name][1:]) == how
        if isinstance(value, np.ndarray):
            assert found[name][0].dtype == value.dtype and found[name][0].tobytes() == value.tobytes()
            assert found[name][0].flags.f_contiguous == value.flags.f_contiguous
        else:
            assert found[name][0] == value
    assert np.load(root / "epoch-3" / "rank-0-1.npy").shape == (3, 4), "plain files, for whoever wants to look"
    assert json.loads((root / "epoch-3" / "manifest.json").read_text())
    checkpoint.discard(root, 3)
    assert not list(root.iterdir())


def test_half_a_checkpoint_is_none(tmp_path: Path) -> None:
    checkpoint.begin(tmp_path, 3)
    checkpoint.save(tmp_path, 3, 0, {"a": (np.arange(3), Block())})
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        checkpoint.manifest(tmp_path, 3)
    with pytest.raises(CheckpointError, match=r"rank-0\.json"):
        checkpoint.load(tmp_path, 3, 0)


def test_the_last_one_of_an_epoch_counts(tmp_path: Path) -> None:
    saved(tmp_path, {"a": (1,)})
    saved(tmp_path, {"a": (2,)})
    assert checkpoint.load(tmp_path, 3, 0) == {"a": (2,)}


@pytest.mark.parametrize("harm", ["short array", "no array", "short pickle", "no folder"])
def test_damage_is_told_and_not_raised_through(tmp_path: Path, harm: str) -> None:
    saved(tmp_path, {"a": (np.arange(300), Block())})
    folder = tmp_path / "epoch-3"
    match harm:
        case "short array":
            (folder / "rank-0-0.npy").write_bytes((folder / "rank-0-0.npy").read_bytes()[:100])
        case "no array":
            (folder / "rank-0-0.npy").unlink()
        case "short pickle":
            (folder / "rank-0.pickle").write_bytes(b"\x80")
        case "no folder":
            checkpoint.discard(tmp_path, 3)
    with pytest.raises(CheckpointError, match="epoch-3"):
        checkpoint.load(tmp_path, 3, 0)


class OneWay:
    """A pickle calls it with one argument, as that of many an exception does (which some libraries mend for all)."""

    def __init__(self, one: int, other: int) -> None:
        self.sum = one + other

    def __reduce__(self) -> tuple[type[OneWay], tuple[int]]:
        return OneWay, (self.sum,)


@pytest.mark.parametrize(
    ("value", "why"), [({"f": lambda: None}, "^a: does not pickle: "), ([OneWay(1, 2)], "^a: pickles, but cannot be ")]
)
def test_what_would_not_come_back_is_refused_while_its_owner_lives(tmp_path: Path, value: object, why: str) -> None:
    checkpoint.begin(tmp_path, 3)
    with pytest.raises(ValueError, match=why):
        checkpoint.save(tmp_path, 3, 0, {"good": (1,), "a": (value,)})


def test_whatever_a_value_raises_when_it_is_loaded_is_told(tmp_path: Path) -> None:
    saved(tmp_path, {"a": (1,)})
    (tmp_path / "epoch-3" / "rank-0.pickle").write_bytes(pickle.dumps(OneWay(1, 2)))
    with pytest.raises(CheckpointError, match=r"rank 0 in .*: TypeError"):
        checkpoint.load(tmp_path, 3, 0)


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, {"a": (1,)})
    tmp_path.chmod(0o770)
    with pytest.raises(CheckpointError, match="chmod 700"):
        checkpoint.manifest(tmp_path, 3)
    with pytest.raises(CheckpointError, match="chmod 700"):
        checkpoint.begin(tmp_path, 4)


def test_in_a_folder_of_others_nothing_is_touched_and_no_rank_reads(tmp_path: Path) -> None:
    saved(tmp_path, {"a": (np.arange(3), Block())})
    (tmp_path / ".epoch-4").mkdir()
    (tmp_path / ".epoch-4" / "theirs").touch()
    tmp_path.chmod(0o770)
    with pytest.raises(CheckpointError, match="chmod 700"):
        checkpoint.begin(tmp_path, 4)
    assert (tmp_path / ".epoch-4" / "theirs").exists()
    with pytest.raises(CheckpointError, match="chmod 700"):
        checkpoint.load(tmp_path, 3, 0)


def test_no_place_to_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="cannot make"):
        checkpoint.begin(tmp_path / "file", 1)


def test_a_full_disk_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of numpy has no number, and so none of the system's words for it."""

    def full(*args: object, **named: object) -> None:
        raise OSError("1000 requested and 234 written")

    checkpoint.begin(tmp_path, 3)
    monkeypatch.setattr(np, "save", full)
    with pytest.raises(CheckpointError, match=r"cannot write .*\.epoch-3: 1000 requested and 234 written"):
        checkpoint.save(tmp_path, 3, 0, {"a": (np.arange(3), Block())})

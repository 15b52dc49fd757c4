"""State on disk between two runs of an application: one folder per checkpoint, in it one set of files per rank.

    DMR_CHECKPOINT_DIR/epoch-3/manifest.json        what all ranks must know; written last
                              rank-0.json           which parts rank 0 holds, and in which files
                              rank-0-0.npy          an array, as numpy saves it
                              rank-0.pickle         anything else, and how the parts are dealt

The folder is made under another name and renamed when everything is on disk: either it is whole or it is not there.
The files are read by the same user's later processes only; a folder that others can write to is refused, because
reading a pickle runs what is in it.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dmr.pickles import objection

__all__ = ["DIRECTORY", "CheckpointError", "begin", "commit", "discard", "load", "manifest", "save"]

# The variable with the folder that all nodes share; the launcher sets it where its user did not.
DIRECTORY: Final = "DMR_CHECKPOINT_DIR"


class CheckpointError(Exception):
    """The checkpoint cannot be written or read; the text names the file."""


def begin(root: Path, epoch: int) -> Path:
    """Makes the unfinished folder of a checkpoint; on one rank, before the others save."""
    folder = _unfinished(root, epoch)
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(root)  # before anything in it is touched
        _remove(folder)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise CheckpointError(f"cannot make {folder}: {error.strerror}") from error
    return folder


def save(root: Path, epoch: int, rank: int, parts: Mapping[str, tuple[Any, ...]]) -> int:
    """Writes one rank's parts: by name, a value and whatever describes it. Returns the bytes written.

    Raises:
        CheckpointError: there is no room, or another trouble with the disk.
        ValueError: a value does not pickle, or cannot be made again from its pickle; the text begins with its name.
    """
    import numpy as np

    folder = _unfinished(root, epoch)
    index: list[dict[str, str]] = []
    rest: dict[str, tuple[Any, ...]] = {}
    written = 0
    try:
        for number, (name, (value, *how)) in enumerate(parts.items()):
            plain = type(value) is np.ndarray and not value.dtype.hasobject and value.dtype.names is None
            rest[name] = tuple(how) if plain else (value, *how)
            if plain:
                file = folder / f"rank-{rank}-{number}.npy"
                with file.open("xb") as out:
                    np.save(out, value, allow_pickle=False)
                    _to_disk(out)
                    written += out.tell()
            index.append({"name": name, "array": file.name if plain else ""})
        written += _write_pickle(folder / f"rank-{rank}.pickle", rest)
        _write(folder / f"rank-{rank}.json", {"parts": index})
    except OSError as error:
        raise CheckpointError(f"cannot write {error.filename or folder}: {error.strerror or error}") from error
    return written


def commit(root: Path, epoch: int, manifest: Mapping[str, Any]) -> None:
    """Makes the checkpoint whole; on one rank, after all have saved."""
    folder = _unfinished(root, epoch)
    try:
        _write(folder / "manifest.json", manifest)
        _remove(_finished(root, epoch))
        folder.rename(_finished(root, epoch))
        _sync_folder(root)
    except OSError as error:
        raise CheckpointError(f"cannot write {error.filename or folder}: {error.strerror or error}") from error


def manifest(root: Path, epoch: int) -> dict[str, Any]:
    """What was given to `commit`."""
    file = _finished(root, epoch) / "manifest.json"
    _check_private(root)
    found: dict[str, Any] = _read(file)
    return found


def load(root: Path, epoch: int, rank: int) -> dict[str, tuple[Any, ...]]:
    """What one rank has saved."""
    import numpy as np

    folder = _finished(root, epoch)
    _check_private(root)  # on this node, too: what rank 0 has looked at may lie elsewhere
    index = _read(folder / f"rank-{rank}.json")
    try:
        with (folder / f"rank-{rank}.pickle").open("rb") as file:
            rest = pickle.load(file)  # noqa: S301 - in a folder that only this user can write to
        parts: dict[str, tuple[Any, ...]] = {}
        for part in index["parts"]:
            name = part["name"]
            value = (np.load(folder / part["array"], allow_pickle=False),) if part["array"] else ()
            parts[name] = (*value, *rest[name])
    except Exception as error:  # an object may raise anything when it is made again
        what = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"cannot read the files of rank {rank} in {folder}: {what}") from error
    return parts


def discard(root: Path, epoch: int) -> None:
    """Removes a checkpoint, whole or not."""
    for folder in (_finished(root, epoch), _unfinished(root, epoch)):
        _remove(folder)


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _finished(root: Path, epoch: int) -> Path:
    return root / f"epoch-{epoch}"


def _unfinished(root: Path, epoch: int) -> Path:
    return root / f".epoch-{epoch}"


def _check_private(root: Path) -> None:
    try:
        status = root.stat()
    except OSError as error:
        raise CheckpointError(f"{DIRECTORY}: cannot use {root}: {error.strerror}") from error
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise CheckpointError(f"{DIRECTORY}: {root} must belong to you, and nobody else may write there (chmod 700)")


def _read(file: Path) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {file}: {error}") from error


def _write(file: Path, content: Mapping[str, Any]) -> None:
    with file.open("x") as out:
        json.dump(content, out)
        _to_disk(out)


def _write_pickle(file: Path, parts: Mapping[str, tuple[Any, ...]]) -> int:
    """The bytes written."""
    try:
        with file.open("x+b") as out:
            pickle.dump(parts, out, protocol=5)
            _to_disk(out)
            # Read at once, while its owner still lives: what turns out to be lost after a restart is lost for good.
            out.seek(0)
            pickle.load(out)  # noqa: S301 - written a line above
            return out.tell()
    except OSError:
        raise
    except Exception as error:
        why = next(filter(None, (objection(name, part) for name, part in parts.items())), "")
        raise ValueError(why or f"the values do not pickle together: {type(error).__name__}: {error}") from error


def _to_disk(file: Any) -> None:  # noqa: ANN401 - text or binary
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)

"""The files of the lease. What they must survive: file systems that cache, processes that end between any two lines."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
from pathlib import Path
from typing import Final

from penstock.errors import StoreError
from penstock.host.files import replace
from penstock.state.lease.machine import Card, PidScope, parse
from penstock.state.ownership import LEASE

__all__ = [
    "LEASE",
    "LeaseGone",
    "create",
    "forget_notes",
    "in_use",
    "load_notes",
    "numbers",
    "publish",
    "published",
    "read",
    "remove",
    "rewrite",
    "save_notes",
]

_NUMBERED: Final = re.compile(r"agent\.lease\.([1-9][0-9]{0,17})", re.ASCII)
_NOTES: Final = "agent.seen."
_MOST: Final = 16 * 1024


class LeaseGone(StoreError):
    """A lease that was to be written over is not there any more: somebody else has taken over."""


def in_use(folder: Path) -> bool:
    """Whether some host has ever had a lease here, so that all have to."""
    with contextlib.suppress(OSError):
        return (folder / LEASE).exists() or bool(numbers(folder))
    return False


def numbers(folder: Path) -> set[int]:
    """The numbers of all leases."""
    return {int(found[1]) for name in os.listdir(folder) if (found := _NUMBERED.fullmatch(name))}  # noqa: PTH208


def read(folder: Path, number: int) -> bytes | None:
    """One lease. Opened anew each time: that is when network file systems look whether what they have is old."""
    try:
        with (folder / f"{LEASE}.{number}").open("rb") as file:
            return file.read(_MOST)
    except OSError as e:
        if e.errno in (errno.ENOENT, errno.ESTALE):
            return None
        raise


def create(folder: Path, number: int, text: bytes) -> bool:
    """Make a lease unless it is there; false when it is."""
    try:
        descriptor = os.open(folder / f"{LEASE}.{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            file.write(text)
            os.fsync(file.fileno())
    except OSError:
        remove(folder, number)  # say, a full disk: others need not wait for one that says nothing
        raise
    return True


def rewrite(folder: Path, number: int, text: bytes) -> None:
    """Write over a lease that is there. Raises LeaseGone when it is not."""
    # In place, by name: a rename would put back what a new holder has removed, and an open file outlives its removal.
    try:
        descriptor = os.open(folder / f"{LEASE}.{number}", os.O_WRONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            file.write(text)
            os.fsync(file.fileno())
    except OSError as e:
        if e.errno in (errno.ENOENT, errno.ESTALE):
            raise LeaseGone(f"lease {number} of {folder} is gone") from e
        raise


def remove(folder: Path, number: int) -> None:
    """Remove a lease if it is there."""
    (folder / f"{LEASE}.{number}").unlink(missing_ok=True)


# -- the copy for readers ----------------------------------------------------------------------------------------------


def publish(folder: Path, card: Card, mode: int) -> None:
    """Show a lease under the name that everybody knows."""
    replace(folder / LEASE, card.text(), mode)


def published(folder: Path) -> Card | None:
    """The lease that is shown; None where there is none, or none that can be believed.

    It is believed when it belongs to the owner of the folder, and nobody else can write to either.
    """
    try:
        around = folder.stat()
        with (folder / LEASE).open("rb") as file:
            status = os.fstat(file.fileno())
            text = file.read(_MOST)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode) or status.st_uid != around.st_uid or (status.st_mode | around.st_mode) & 0o022:
        return None
    card = parse(text)
    return card if card is not None and card.uid == status.st_uid else None


# -- what this host has seen of others ---------------------------------------------------------------------------------


def load_notes(folder: Path, place: PidScope) -> dict[int, tuple[str, float]]:
    """What `Watch.notes` were, of this boot of this host; empty when there are none or none that make sense."""
    try:
        said = json.loads((folder / _notes_name(place)).read_bytes())
        return {int(number): (str(text), float(since)) for number, (text, since) in said.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def save_notes(folder: Path, place: PidScope, notes: dict[int, tuple[str, float]]) -> None:
    """Keep `Watch.notes` for the next process on this host."""
    if place.known and notes != load_notes(folder, place):
        replace(folder / _notes_name(place), json.dumps(notes).encode("ascii"), 0o600)


def forget_notes(folder: Path) -> None:
    """Of no host: they are about holders that are over."""
    for name in os.listdir(folder):  # noqa: PTH208
        if name.startswith(_NOTES):
            (folder / name).unlink(missing_ok=True)


def _notes_name(place: PidScope) -> str:
    return _NOTES + hashlib.sha256(f"{place.boot} {place.space}".encode()).hexdigest()[:16]

"""The audit files read: records by what they are about, and whether all of it is what was written."""

from __future__ import annotations

import fcntl
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from penstock.audit import files
from penstock.audit.chain import LONGEST, Anchor, Chain, ChainEntry, ChainVerdict, entry_of
from penstock.audit.record import Door, Record, RecordKind
from penstock.state.ownership import denied, is_readable

__all__ = ["Found", "RecordFilter", "is_there", "is_told", "records", "verify"]

_TICK: Final = 0.001  # seconds; records have their times in milliseconds


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which records: of requests by this user or about this user's jobs (`uid`), about this `job`, with this `verb`,
    not older than `since` (seconds since the epoch). None: all."""

    uid: int | None = None
    job: int | None = None
    verb: str | None = None
    since: float | None = None

    def has(self, record: Record) -> bool:
        """Whether it is one of them."""
        return (
            (self.uid is None or self.uid in (record.uid, record.owner))
            and (self.job is None or self.job == record.job or self._listed(record))
            and self.verb in (None, record.verb)
            and (self.since is None or record.at >= self.since)
        )

    def _listed(self, record: Record) -> bool:
        return str(self.job) in str(record.details.get("jobs", "")).split(",") or record.details.get("job") == self.job


@dataclass(frozen=True, slots=True)
class Found:
    """The latest records that were wanted, oldest first; how many there are in all, and how many lines are none."""

    entries: tuple[tuple[ChainEntry, Record], ...]
    count: int
    unreadable: int


def is_there(folder: Path) -> bool:
    """Whether there is an audit trail. Raises NotPermitted where it is another user's."""
    if is_readable(folder / files.CURRENT):
        return True
    try:
        return bool(files.kept(folder) or files.aside(folder))
    except FileNotFoundError:
        return False
    except OSError as e:
        raise denied(folder, e, f"{folder} cannot be read") from e


def records(folder: Path, wanted: RecordFilter, most: int) -> Found:
    """The latest records, `most` of them (0: all). Raises StoreError or NotPermitted."""
    latest: deque[tuple[ChainEntry, Record]] = deque(maxlen=most or None)
    count = unreadable = 0
    with _Files(folder) as opened:
        for _name, file, size in opened:
            for line in _lines(file, size):
                try:
                    entry = entry_of(line)
                    record = entry.record()
                except ValueError:
                    unreadable += 1
                    continue
                if wanted.has(record):
                    count += 1
                    latest.append((entry, record))
    return Found(tuple(latest), count, unreadable)


def is_told(folder: Path, door: Door, intent: int, since: float) -> bool:
    """Whether there is a record of the act with this number in the journal of who acts by this door, which was begun at
    `since` (seconds since the epoch). An older record of that number is another journal's, whose place this one has
    taken. Raises StoreError or NotPermitted."""
    with _Files(folder) as opened:
        for _name, file, size in reversed(list(opened)):
            older = False
            for line in _lines(file, size):
                try:
                    record = entry_of(line).record()
                except ValueError:
                    continue
                if record.at < since - _TICK:
                    older = True
                elif record.kind is RecordKind.ACT and record.door is door and record.details.get("intent") == intent:
                    return True
            if older:  # and so is all that is in the files before
                return False
    return False


def verify(folder: Path, anchors: Sequence[Anchor]) -> ChainVerdict:
    """Whether all lines are what was written, and the anchors are among them. Raises StoreError or NotPermitted."""
    chain = Chain(anchors)
    with _Files(folder) as opened:
        for place, (name, file, size) in enumerate(opened, start=1):
            chain.file(name, _lines(file, size), last=place == len(opened))
        for path in opened.aside:
            chain.damaged(path.name, "a file in which nothing could be read was set aside here")
    return chain.verdict()


class _Files:
    """The files in order, all opened at one moment at which nobody wrote, each with its size then."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._opened: list[tuple[str, BinaryIO, int]] = []
        self.aside: list[Path] = []

    def __enter__(self) -> _Files:
        try:
            self._open()
        except OSError as e:
            self._stack.close()
            path = Path(e.filename) if isinstance(e.filename, str) else self._folder
            raise denied(path, e, f"{path} cannot be read") from e
        except BaseException:
            self._stack.close()
            raise
        return self

    def _open(self) -> None:
        try:
            lock = os.open(self._folder / files.LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # all that is here are copies
            lock = -1
        try:
            if lock >= 0:
                fcntl.flock(lock, fcntl.LOCK_SH)
            paths = [*files.kept(self._folder), self._folder / files.CURRENT]
            for path in paths:
                if path.exists():
                    file = self._stack.enter_context(path.open("rb"))
                    self._opened.append((path.name, file, os.fstat(file.fileno()).st_size))
            self.aside = files.aside(self._folder)
        finally:
            if lock >= 0:
                os.close(lock)

    def __exit__(self, *_exception: object) -> None:
        self._stack.close()

    def __iter__(self) -> Iterator[tuple[str, BinaryIO, int]]:
        return iter(self._opened)

    def __len__(self) -> int:
        return len(self._opened)


def _lines(file: BinaryIO, size: int) -> Iterable[bytes]:
    """The lines of the first bytes of a file, one longer than any can be in parts."""
    while size > 0 and (line := file.readline(min(size, LONGEST))):
        size -= len(line)
        yield line

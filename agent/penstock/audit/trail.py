"""The audit files: appended to by several processes, rotated by size, whole after a kill between any two statements.

What is written is one `write` of whole lines to a file that is opened for appending, under a lock that all writers of a
folder take. A writer that finds no whole line at the end (another was killed, or the disk was full) keeps those bytes
where they are and writes a record of what they are; nothing is ever taken out of a file. A file that has been removed
or cut is begun anew with a record that says so.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.audit import files
from penstock.audit.chain import BEGIN, REMOVED, START, TORN, ChainEntry, ChainHead, digest, entry_of, line_of, torn
from penstock.audit.record import Record, RecordKind, RecordOutcome, Scalar
from penstock.errors import AuditUnwritable
from penstock.host.files import is_named, lock, sync
from penstock.host.logins import login

__all__ = ["Trail", "Written"]

_PATIENCE: Final = 2.0
"""Seconds that a writer waits for another one."""
_TURN: Final = 0.001  # short, as one that writes without a pause lets go for moments only
_LATEST: Final = 512 * 1024
_ROOM: Final = 64 * 1024
"""Bytes that must be free where a record is to be written for sure."""


@dataclass(frozen=True, slots=True)
class Written:
    """A record as it stands in the file, and the head of the chain that it made."""

    record: Record
    line: bytes
    head: ChainHead


@dataclass(slots=True)
class _File:
    """The current file, as this process has seen it last: its size tells whether others have written."""

    descriptor: int
    size: int
    head: ChainHead
    first: int
    said: list[Record] = field(default_factory=list)
    """What is to be said of the file before anything else is written."""


class Trail:
    """The audit files of one folder. `size`: bytes after which a file is rotated, `keep` how many files there are.

    `now` gives seconds since the epoch; `known` is a head that the chain is known to have had, so that a file that was
    cut or removed since shows. All that fails raises `AuditUnwritable`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        size: int = 16 * 2**20,
        keep: int = 20,
        now: Callable[[], float] = time.time,
        known: ChainHead | None = None,
    ) -> None:
        self.folder = folder
        self.path = folder / files.CURRENT
        self.size, self.keep = size, keep
        self._now = now
        self._known = known or START
        self._file: _File | None = None
        self._lock = -1

    @property
    def head(self) -> ChainHead:
        """The last record that this process has written or seen."""
        return self._known

    def append(self, records: Sequence[Record], *, durable: bool = True) -> list[Written]:
        """Write these records; what has come into the file, records about the file itself included. When it returns
        they are there whatever becomes of this process, and with `durable` whatever becomes of the machine."""
        with self._ours():
            file = self._current()
            if file.size >= self.size and not file.said:
                file = self._rotate(file)
            return self._write(file, [*file.said, *records], durable)

    def check(self) -> None:
        """Raises AuditUnwritable where a record could not be written now."""
        with self._ours():
            file = self._current()
            self._write_again(file)
            room = os.fstatvfs(file.descriptor)
            if room.f_blocks and room.f_bavail * room.f_frsize < _ROOM:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _write_again(self, file: _File) -> None:
        """Its last byte, as it is: whoever has a file open does not see that it has become read-only."""
        if not file.size:
            return
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.pwrite(descriptor, os.pread(descriptor, 1, file.size - 1), file.size - 1)
        finally:
            os.close(descriptor)

    def latest(self) -> list[ChainEntry]:
        """The last records of the current file, oldest first; none where they cannot be read."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return []
        try:
            found = []
            begin = max(0, os.fstat(descriptor).st_size - _LATEST)
            for line in os.pread(descriptor, _LATEST, begin).splitlines(keepends=True):
                with contextlib.suppress(ValueError):
                    found.append(entry_of(line))
            return found
        except OSError:
            return []
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Let go of the files."""
        self._forget()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # -- one writer at a time ------------------------------------------------------------------------------------------

    @contextmanager
    def _ours(self) -> Iterator[None]:
        with self._failing():
            self._take_lock()
            try:
                yield
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            self._forget()  # what is in the file is read anew
            raise AuditUnwritable(f"the audit file {self.path} cannot be written: {e.strerror or e}") from e

    def _take_lock(self) -> None:
        path = self.folder / files.LOCK
        while True:
            if self._lock < 0:
                self._lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                lock(self._lock, patience=_PATIENCE, turn=_TURN)
            except BlockingIOError:
                raise OSError(errno.EAGAIN, f"another process has locked {path}") from None
            if is_named(self._lock, path):
                return
            os.close(self._lock)  # the file has been removed, and others lock another one
            self._lock = -1

    # -- the current file ----------------------------------------------------------------------------------------------

    def _current(self) -> _File:
        """The file to append to."""
        known = self._file
        if known is not None and is_named(held := known.descriptor, self.path) and os.fstat(held).st_size == known.size:
            return known
        self._forget()
        try:
            return self._look(self._open())
        except BaseException:
            self._forget()
            raise

    def _open(self) -> _File:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor, made = os.open(self.path, flags), False
        except FileNotFoundError:
            descriptor, made = os.open(self.path, flags | os.O_CREAT | os.O_EXCL, 0o600), True
        found = os.fstat(descriptor)
        self._file = _File(descriptor, found.st_size, START, 1)
        if found.st_uid not in (0, os.geteuid()):
            raise OSError(errno.EPERM, "it belongs to another user")
        if made:
            sync(self.folder)
        return self._file

    def _look(self, file: _File) -> _File:
        """What has come into the file, or out of it, since this process has seen it, if it has."""
        before = self._last_kept()
        end = files.tail(file.descriptor)
        if end.rest and _lacks_its_end(end, before):
            file.size += os.write(file.descriptor, b"\n")
            end = files.tail(file.descriptor)
        if end.entry is None:
            if end.rest and not torn(end.rest, before):
                return self._set_aside(before)
            return self._begin(file, end.rest, before)
        file.head, file.first = end.entry.head, files.first_seq(file.descriptor) or end.entry.head.seq
        if end.rest:
            file.said.append(self._torn(end.rest, file.head))
        if file.head.seq < self._known.seq:
            text = f"records {file.head.seq + 1} to {self._known.seq} are not here any more: the file was cut"
            file.said.append(self._said(BEGIN, "cut", text, before=str(self._known)))
            file.head = self._known  # the numbers of those that are gone are not given again
        elif file.head.seq == self._known.seq and file.head != self._known:
            text = f"record {file.head.seq} is another than the one that was written: the file was changed"
            file.said.append(self._said(BEGIN, "changed", text, before=str(self._known)))
        if not file.said:  # else it is said once more where it cannot be written now
            self._known = file.head
        return file

    def _begin(self, file: _File, rest: bytes, before: ChainHead | None) -> _File:
        """In a file without a whole line: it is new, or its first writer was killed."""
        if rest:
            file.said.append(self._torn(rest, before))
        if self._known.seq > (before.seq if before is not None else 0):
            text = f"the file was removed or emptied, and with it records up to {self._known.seq}"
            file.head = self._known
            file.said.append(self._said(BEGIN, REMOVED, text, before=str(self._known)))
        elif before is not None:
            file.head = before
            file.said.append(self._said(BEGIN, "rotated", f"goes on after record {before.seq}", before=str(before)))
        else:
            file.said.append(self._said(BEGIN, "first", "the first record of this trail"))
        file.first = file.head.seq + 1
        self._known = file.head
        return file

    def _set_aside(self, before: ChainHead | None) -> _File:
        """A new file in the place of one of which nothing can be read."""
        name = files.damaged_name(self._now())
        self.path.rename(self.folder / name)
        self._forget()
        file = self._open()
        if before is not None and before.seq > self._known.seq:
            self._known = before
        file.head, file.first = self._known, self._known.seq + 1
        text = f"nothing in the file before could be read; it is kept as {name}"
        file.said.append(self._said(BEGIN, "damaged", text, file=name))
        return file

    def _last_kept(self) -> ChainHead | None:
        """How the newest of the files before this one ends."""
        before = files.kept(self.folder)
        if not before:
            return None
        descriptor = os.open(before[-1], os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            entry = files.tail(descriptor).entry
        finally:
            os.close(descriptor)
        return entry.head if entry is not None else None

    def _rotate(self, file: _File) -> _File:
        """A new file in the place of this one."""
        os.fsync(file.descriptor)
        target = self.folder / files.kept_name(file.first)
        if target.exists():  # then not all that is there is one chain
            target = self.folder / files.damaged_name(self._now())
        head = file.head
        self.path.rename(target)
        self._forget()
        gone = files.kept(self.folder)[: -(self.keep - 1)]
        for path in gone:
            path.unlink()
        dropped = ", ".join(path.name for path in gone)
        text = f"goes on after {target.name}" + (f"; no longer kept: {dropped}" if gone else "")
        fresh = self._open()
        fresh.head, fresh.first = head, head.seq + 1
        more = {"before": str(head), "file": target.name, "dropped": dropped or None}
        fresh.said.append(self._said(BEGIN, "rotated", text, **more))
        return fresh

    # -- writing -------------------------------------------------------------------------------------------------------

    def _write(self, file: _File, records: Sequence[Record], durable: bool) -> list[Written]:
        head, written = file.head, []
        for record in records:
            line, head = line_of(record, head)
            written.append(Written(record, line, head))
        data = b"".join(w.line for w in written)
        if file.said and file.said[0].verb == TORN:
            data = b"\n" + data  # an end for the torn line
        done = 0
        try:
            while done < len(data):
                done += os.write(file.descriptor, data[done:])
        except OSError:
            # Not acknowledged, so not to be there; where this fails it is a torn line for the next writer.
            with contextlib.suppress(OSError):
                os.ftruncate(file.descriptor, file.size)
            raise
        if durable:
            os.fsync(file.descriptor)
        file.size += len(data)
        file.head = self._known = head
        file.said.clear()
        return written

    def _torn(self, rest: bytes, head: ChainHead | None) -> Record:
        benign = all(torn(part, head) for part in rest.split(b"\n"))
        text = (
            f"{len(rest)} bytes before this are what a killed writer left of a line"
            if benign
            else f"{len(rest)} bytes before this are no lines of this trail: somebody has changed the file"
        )
        kept = rest + b"\n"  # as they stand in the file with the end that they are given
        return self._said(TORN, "torn" if benign else "damaged", text, bytes=len(kept), sha256=digest(kept))

    def _said(self, verb: str, code: str, text: str, **details: Scalar) -> Record:
        known = {key: value for key, value in details.items() if value is not None}
        uid = os.geteuid()
        return Record(
            self._now(),
            RecordKind.FILE,
            verb,
            RecordOutcome.DONE,
            code,
            uid=uid,
            user=login(uid),
            text=text,
            details=known,
        )

    def _forget(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file.descriptor)
            self._file = None


def _lacks_its_end(end: files.Tail, before: ChainHead | None) -> bool:
    """Whether what is left of a line is all of the next one but its end."""
    try:
        entry = entry_of(end.rest + b"\n")
    except ValueError:
        return False
    return entry.follows(end.entry.head if end.entry is not None else before or START)

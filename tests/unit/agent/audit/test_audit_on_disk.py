"""A request of somebody else is answered when its record is on disk, or is not answered as done."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest
from factories import ManualClock

from penstock.audit.auditor import Auditor
from penstock.audit.reading import RecordFilter, records, verify
from penstock.audit.record import Door
from penstock.audit.trail import Trail
from penstock.errors import AuditUnwritable, OutcomeUnknown, PenstockError
from penstock.ipc.audited import RequestAudit


class Failing(Trail):
    """A file that says nothing of it when it is looked at, and cannot be written for so many times."""

    fails = 0

    def _write(self, *arguments):
        if self.fails:
            self.fails -= 1
            raise OSError(errno.EIO, "Input/output error")
        return super()._write(*arguments)


def requested(tmp_path, monkeypatch, fails, uid=1000, op="guide", door=Door.UNIX):
    """What is answered, how often it was done, and what is on disk by then."""
    monkeypatch.setattr("penstock.ipc.audited._AGAIN", 0.001, raising=False)
    trail = Failing(tmp_path)
    audit = RequestAudit(Auditor(trail, lambda: 1e9), ManualClock(1e9), lambda _subject: None)
    trail.append([])
    trail.fails = fails
    done = []

    async def operation(_uid, _request):
        done.append(1)
        return {"run": 3}

    try:
        answer = asyncio.run(audit.carry_out(door, uid, op, {"run": 3}, operation))
    except PenstockError as e:
        answer = e
    return answer, len(done), [r.verb for _entry, r in records(tmp_path, RecordFilter(), 0).entries]


def test_what_was_done_is_answered_when_its_record_is_on_disk(tmp_path, monkeypatch):
    answer, done, told = requested(tmp_path, monkeypatch, fails=4)
    assert (answer, done) == ({"run": 3}, 1)
    assert told[-2:] == ["late", "guide"]


def test_where_the_record_does_not_come_to_disk_that_is_the_answer(tmp_path, monkeypatch):
    answer, done, told = requested(tmp_path, monkeypatch, fails=10**9)
    assert isinstance(answer, OutcomeUnknown) and done == 1
    assert "it was done, but its record cannot be written" in str(answer) and "Input/output error" in str(answer)
    assert "guide" not in told


@pytest.mark.parametrize(
    ("uid", "op", "door"),
    [(1000, "pause", Door.UNIX), (os.geteuid(), "guide", Door.UNIX), (1000, "guide", Door.INBOX)],
)
def test_what_is_served_without_a_record_is_answered_at_once(tmp_path, monkeypatch, uid, op, door):
    answer, done, _told = requested(tmp_path, monkeypatch, fails=10**9, uid=uid, op=op, door=door)
    assert (answer, done) == ({"run": 3}, 1)


def test_a_file_that_has_become_read_only_is_found_before_anything_is_done(tmp_path, monkeypatch):
    trail = Trail(tmp_path)
    trail.append([])
    trail.check()
    size, opened = trail.path.stat().st_size, os.open

    def read_only(path, flags, *more):
        if path == trail.path and flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, *more)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(AuditUnwritable, match="Read-only file system"):
        trail.check()
    monkeypatch.undo()
    trail.check()
    assert trail.path.stat().st_size == size
    assert not verify(tmp_path, []).findings

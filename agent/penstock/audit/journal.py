"""Tell the system's log of records and anchors: journald by its native protocol, else syslog; ask journald for them.

The protocol is journald's "Native Journal Protocol": a datagram of `NAME=value` lines; a value of several lines is
given with its length. Messages are sent without waiting: a log that is overrun must not stop what it tells of, and is
counted.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from penstock.audit.chain import Anchor, ChainHead
from penstock.audit.record import Record, RecordKind, RecordOutcome
from penstock.errors import PenstockError

__all__ = ["ANCHOR_ID", "JOURNAL", "RECORD_ID", "SYSLOG", "SystemLog", "anchors_in_journal", "native"]

JOURNAL: Final = Path("/run/systemd/journal/socket")
SYSLOG: Final = Path("/dev/log")
RECORD_ID: Final = "6f1d2f6c8d0f4f0a9b7f1f6a4e0c5b21"
"""MESSAGE_ID of a record: `journalctl MESSAGE_ID=…` finds them all."""
ANCHOR_ID: Final = "b3d1c9a05e4a4b7f8a2c6e9d7f105c34"
"""MESSAGE_ID of an anchor, which says how far the chain is."""
_NAME: Final = "penstock-audit"
_AUTHPRIV: Final = 10
_WARNING, _NOTICE, _INFO = 4, 5, 6
_SOURCE: Final = "the journal"


class SystemLog:
    """Where this host has its log. `file` names the audit file, so that several trails can be told apart.

    `way` is "journald", "syslog" or "" (there is none); `lost` counts what could not be sent.
    """

    def __init__(self, file: Path, *, journal: Path = JOURNAL, syslog: Path = SYSLOG) -> None:
        self._file = file
        self._paths = {"journald": journal, "syslog": syslog}
        self._socket: socket.socket | None = None
        self.way = ""
        self.lost = 0
        self._connect()

    def record(self, record: Record, head: ChainHead | None) -> None:
        """Tell of a record; no head: it is not in the file (yet). Never raises."""
        fields = _fields(record)
        fields |= {"MESSAGE_ID": RECORD_ID, "PENSTOCK_AUDIT_WRITTEN": "no" if head is None else "yes"}
        self._send(_priority(record), _sentence(record), fields, head)

    def anchor(self, head: ChainHead, why: str) -> None:
        """Tell how far the chain is. Never raises."""
        text = f"the audit trail is at record {head.seq} ({why})"
        self._send(_NOTICE, text, {"MESSAGE_ID": ANCHOR_ID, "PENSTOCK_AUDIT_WHY": why}, head)

    def close(self) -> None:
        """Say nothing any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> None:
        for way, path in self._paths.items():
            sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
            try:
                sender.connect(str(path))
            except OSError:
                sender.close()
                continue
            self._socket, self.way = sender, way
            return
        self.way = ""

    def _send(self, priority: int, text: str, fields: Mapping[str, str], head: ChainHead | None) -> None:
        place = {"PENSTOCK_AUDIT_FILE": str(self._file)}
        if head is not None:
            place |= {"PENSTOCK_AUDIT_SEQ": str(head.seq), "PENSTOCK_AUDIT_HEAD": head.hash}
        for _attempt in range(2):  # it may have been started again since
            if self._socket is None:
                self._connect()
            if self._socket is None:
                return
            try:
                if self.way == "journald":
                    head_fields = {"MESSAGE": text, "PRIORITY": str(priority), "SYSLOG_IDENTIFIER": _NAME}
                    self._socket.send(native({**head_fields, **fields, **place}))
                else:
                    self._socket.send(_syslog(priority, text, place))
                return
            except BlockingIOError:
                break
            except OSError:
                self.close()
        self.lost += 1


def native(fields: Mapping[str, str]) -> bytes:
    """A datagram of journald's native protocol."""
    out = bytearray()
    for name, value in fields.items():
        data = value.encode(errors="replace")
        if b"\n" in data:
            out += name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"
        else:
            out += name.encode() + b"=" + data + b"\n"
    return bytes(out)


def _syslog(priority: int, text: str, place: Mapping[str, str]) -> bytes:
    """RFC 3164, as /dev/log takes it."""
    stamp = time.strftime("%b %e %H:%M:%S", time.localtime())
    more = " ".join(f"{name.removeprefix('PENSTOCK_AUDIT_').lower()}={value}" for name, value in place.items())
    line = " ".join(f"{text} [{more}]".split())
    return f"<{8 * _AUTHPRIV + priority}>{stamp} {_NAME}[{os.getpid()}]: {line}".encode(errors="replace")


def _fields(record: Record) -> dict[str, str]:
    given: dict[str, object] = {
        "KIND": record.kind.value,
        "VERB": record.verb,
        "OUTCOME": record.outcome.value,
        "CODE": record.code,
        "DOOR": record.door.value,
        "UID": record.uid,
        "USER": record.user,
        "OWNER": record.owner,
        "JOB": record.job,
        "SUBJECT": record.subject,
        "REQUEST": record.request,
        "COUNT": record.count if record.count != 1 else None,
        "DETAILS": json.dumps(dict(record.details)) if record.details else None,
    }
    return {f"PENSTOCK_AUDIT_{name}": str(value) for name, value in given.items() if value not in (None, "")}


def _priority(record: Record) -> int:
    if record.outcome in (RecordOutcome.REFUSED, RecordOutcome.FAILED, RecordOutcome.UNKNOWN):
        return _WARNING
    return _NOTICE if record.kind is not RecordKind.ACT else _INFO


def _sentence(record: Record) -> str:
    who = record.user or ("nobody who was proven" if record.uid is None else str(record.uid))
    what = f"{record.verb} {record.subject}".strip()
    why = f": {record.text}" if record.text else ""
    return f"{who} ({record.door.value}): {what} {record.outcome.value}{why}"


def anchors_in_journal(file: Path, owner: int, since: float | None) -> list[Anchor] | None:
    """What journald has of this audit file's chain, as told by its owner (or root) alone; None where there is no
    journald to ask. Raises PenstockError where it does not answer."""
    program = shutil.which("journalctl")
    if program is None or not JOURNAL.exists():
        return None
    words = [program, "-o", "json", "--no-pager", "-q", f"PENSTOCK_AUDIT_FILE={file}"]
    # `_UID` is what the kernel told journald: nobody else can have said this.
    words += [f"_UID={uid}" for uid in sorted({owner, 0})]
    if since is not None:
        words.append(f"--since=@{since:.0f}")
    try:
        done = subprocess.run(words, capture_output=True, check=False, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise PenstockError(f"journalctl does not answer: {e}") from e
    if done.returncode != 0:
        why = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
        raise PenstockError(f"journalctl cannot be asked: {why[0]}")
    return list(_heads(done.stdout))


def _heads(lines: bytes) -> Iterator[Anchor]:
    for line in lines.splitlines():
        try:
            found: dict[str, Any] = json.loads(line)
            yield Anchor(ChainHead.parse(f"{found['PENSTOCK_AUDIT_SEQ']}:{found['PENSTOCK_AUDIT_HEAD']}"), _SOURCE)
        except (ValueError, KeyError, TypeError):
            continue  # what was told without a place in the file

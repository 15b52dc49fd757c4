"""Where else records go: journald's socket, syslog's, and the trail of a user's own commands."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from contextlib import closing

import pytest
from factories import Doing, ManualClock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.api import JobSpec
from penstock.audit.auditor import Auditor
from penstock.audit.chain import ChainHead
from penstock.audit.journal import ANCHOR_ID, RECORD_ID, SystemLog, anchors_in_journal, native
from penstock.audit.reading import RecordFilter, records, verify
from penstock.audit.record import Door, Record, RecordKind, RecordOutcome
from penstock.audit.trail import Trail
from penstock.config import config_of
from penstock.console.acting import acting
from penstock.core.acts import SubmitJob
from penstock.core.executor import Concern
from penstock.errors import Infeasible, NotPermitted, PenstockError
from penstock.ipc.audited import CHANGING, RequestAudit
from penstock.state.leadership import open_acts
from penstock_lab.mock.backend import virtual_cluster

HEAD = ChainHead(7, "ab" * 32)


@pytest.fixture
def ear(tmp_path):
    """A socket of datagrams, as a log daemon has it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as it:
        it.bind(str(tmp_path / "log"))
        it.settimeout(5)
        yield it


def record(**changes):
    values = {"door": Door.UNIX, "uid": 1000, "user": "alice", "subject": "workflow 3", "text": "no"}
    return Record(1e9, RecordKind.REQUEST, "cancel", RecordOutcome.REFUSED, "not-permitted", **{**values, **changes})


def fields(datagram):
    """What journald makes of it."""
    found, rest = {}, datagram
    while rest:
        line, _, rest = rest.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (size,) = struct.unpack("<Q", rest[:8])
            value, rest = rest[8 : 8 + size], rest[9 + size :]
        found[name.decode()] = value.decode()
    return found


def test_journald_is_told_in_its_own_protocol(ear, tmp_path):
    log = SystemLog(tmp_path / "audit.log", journal=tmp_path / "log", syslog=tmp_path / "none")
    assert log.way == "journald"
    log.record(record(text="two\nlines", owner=77, job=5, details={"jobs": "1,2"}), HEAD)
    told = fields(ear.recv(65536))
    assert told["MESSAGE"] == "alice (unix): cancel workflow 3 refused: two\nlines"
    assert (told["PRIORITY"], told["MESSAGE_ID"], told["SYSLOG_IDENTIFIER"]) == ("4", RECORD_ID, "penstock-audit")
    assert {k.removeprefix("PENSTOCK_AUDIT_"): v for k, v in told.items() if k.startswith("PENSTOCK_AUDIT_")} == {
        "KIND": "request", "VERB": "cancel", "OUTCOME": "refused", "CODE": "not-permitted", "DOOR": "unix",
        "UID": "1000", "USER": "alice", "OWNER": "77", "JOB": "5", "SUBJECT": "workflow 3",
        "DETAILS": '{"jobs": "1,2"}', "WRITTEN": "yes",
        "FILE": str(tmp_path / "audit.log"), "SEQ": "7", "HEAD": HEAD.hash,
    }  # fmt: skip
    log.record(record(), None)
    assert fields(ear.recv(65536))["PENSTOCK_AUDIT_WRITTEN"] == "no"
    log.anchor(HEAD, "start")
    anchor = fields(ear.recv(65536))
    assert (anchor["MESSAGE_ID"], anchor["PENSTOCK_AUDIT_SEQ"]) == (ANCHOR_ID, "7")
    log.close()


def test_no_field_can_be_put_in_by_what_a_user_says():
    told = fields(native({"MESSAGE": "x\n_UID=0\nPENSTOCK_AUDIT_SEQ=9", "PRIORITY": "4"}))
    assert told == {"MESSAGE": "x\n_UID=0\nPENSTOCK_AUDIT_SEQ=9", "PRIORITY": "4"}


def test_without_journald_syslog_is_told_on_one_line(ear, tmp_path):
    log = SystemLog(tmp_path / "audit.log", journal=tmp_path / "none", syslog=tmp_path / "log")
    assert log.way == "syslog"
    log.record(record(text="two\nlines"), HEAD)
    line = ear.recv(65536).decode()
    assert line.startswith("<84>") and "\n" not in line
    assert f"penstock-audit[{os.getpid()}]: alice (unix): cancel workflow 3 refused: two lines [" in line
    assert f"seq=7 head={HEAD.hash}]" in line
    log.close()


def test_a_log_that_is_started_again_or_does_not_listen_stops_nothing(tmp_path):
    path = tmp_path / "log"
    log = SystemLog(tmp_path / "audit.log", journal=path, syslog=tmp_path / "none")
    assert log.way == ""
    log.anchor(HEAD, "nobody hears it")
    for _life in range(2):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
            ear.bind(str(path))
            ear.settimeout(5)
            log.anchor(HEAD, "now")
            assert b"(now)" in ear.recv(65536)
        path.unlink()
        log.anchor(HEAD, "gone")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(path))
        for _ in range(2000):  # more than a socket holds
            log.anchor(HEAD, "never read")
        assert log.lost > 0
    log.close()


def test_without_journald_there_is_nothing_to_compare_with(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.audit.journal.JOURNAL", tmp_path / "none")
    assert anchors_in_journal(tmp_path / "audit.log", 0, None) is None


def test_what_journalctl_says_is_asked_of_the_owner_s_words_alone(tmp_path, monkeypatch):
    """A program in its place: what it is asked, what it says, and that it fails."""
    program = tmp_path / "journalctl"
    lines = f'{{"PENSTOCK_AUDIT_SEQ": "7", "PENSTOCK_AUDIT_HEAD": "{HEAD.hash}"}}\n{{"MESSAGE": "no place"}}\nrubbish'
    program.write_text(f"#!/bin/sh\necho \"$@\" >{tmp_path}/asked\ncat <<'E'\n{lines}\nE\n")
    program.chmod(0o755)
    (tmp_path / "socket").touch()
    monkeypatch.setattr("penstock.audit.journal.JOURNAL", tmp_path / "socket")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (found,) = anchors_in_journal(tmp_path / "audit.log", 1000, 5.0)
    assert (found.head, found.source) == (HEAD, "the journal")
    asked = (tmp_path / "asked").read_text().split()
    assert {"_UID=0", "_UID=1000", "--since=@5", f"PENSTOCK_AUDIT_FILE={tmp_path}/audit.log"} <= set(asked)
    program.write_text("#!/bin/sh\necho it is broken >&2\nexit 1\n")
    with pytest.raises(PenstockError, match="it is broken"):
        anchors_in_journal(tmp_path / "audit.log", 1000, None)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
_ARGUMENTS = (
    "uid", "feature", "partition", "why", "run", "workflow", "stages", "stage", "strategy", "job", "shapes",
    "checkpoint", "seconds", "links", "units", "release",
)  # fmt: skip


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(CHANGING)), st.dictionaries(st.sampled_from(_ARGUMENTS), _JSON), st.booleans(), _JSON)
def test_whatever_is_asked_is_recorded_and_never_in_the_way(tmp_path, op, request, refused, answer):
    auditor = Auditor(Trail(tmp_path), lambda: 1e9)
    audit = RequestAudit(auditor, ManualClock(1e9), lambda _subject: None)

    async def operation(_uid, _request):
        if refused:
            raise NotPermitted("no \udc80")
        return answer

    before = auditor._trail.append([])
    asked = audit.carry_out(Door.UNIX, 1000, op, request, operation)
    if refused:
        with pytest.raises(NotPermitted):
            asyncio.run(asked)
    else:
        assert asyncio.run(asked) is answer
    last = list(records(tmp_path, RecordFilter(), 1).entries)[-1][1]
    assert (last.verb, last.uid, last.outcome.value) == (op, 1000, "refused" if refused else "done"), before
    auditor.close()


def test_what_a_user_s_own_command_does_is_in_that_user_s_trail(tmp_path):
    config = config_of({"agent": {"state_dir": str(tmp_path / "state")}})
    spec = JobSpec("x", "#!/bin/sh\ntrue\n", 1, 60.0)

    async def refuse(_slurm):
        raise Infeasible("never")

    async def command():
        async with acting(config, virtual_cluster(start=1e9)) as hand:
            concern = Concern("select", os.geteuid())
            made = await hand.executor.act(SubmitJob(spec), "bag 1", {"name": "x"}, concern)
            with pytest.raises(Infeasible):
                await hand.executor.act(Doing(refuse, "hold"), "bag 1", {}, concern)
            return made

    job = asyncio.run(command())
    store = open_acts(config)
    store.intents.intend("cancel", "bag 1", {"job": job}, 1e9 - 7200)  # a command that was killed
    store.intents.intend("cancel", "bag 2", {"job": job}, 1e9 - 60)  # one that may be at it still
    store.close()
    asyncio.run(command())
    there = [record for _entry, record in records(tmp_path / "state", RecordFilter(uid=os.geteuid()), 0).entries][1:]
    assert [(r.verb, r.outcome.value, r.code, r.door, r.job) for r in there] == [
        ("submit", "done", "", Door.COMMAND, job),
        ("hold", "failed", "infeasible", Door.COMMAND, None),
        ("cancel", "interrupted", "", Door.COMMAND, job),
        ("submit", "done", "", Door.COMMAND, job),
        ("hold", "failed", "infeasible", Door.COMMAND, None),
    ]
    assert not verify(tmp_path / "state", []).findings
    with closing(open_acts(config)) as store:
        # Killed once more before it was settled: the trail has it already, and does not get it twice.
        store.connection._db.execute("UPDATE intents SET state='open' WHERE state='interrupted'")
    asyncio.run(command())
    again = [record for _entry, record in records(tmp_path / "state", RecordFilter(uid=os.geteuid()), 0).entries]
    assert sum(record.outcome.value == "interrupted" for record in again) == 1
    with closing(open_acts(config)) as store:
        assert [(i.subject, i.state) for i in store.intents.unsettled()] == [("bag 2", "open")]

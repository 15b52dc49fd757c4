"""The audit files themselves: rotated, removed, cut, torn by kills, written by several processes, on a full disk."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from penstock.audit import files
from penstock.audit.chain import START, Anchor, ChainHead, entry_of
from penstock.audit.reading import RecordFilter, is_told, records, verify
from penstock.audit.record import Door, Record, RecordKind, RecordOutcome
from penstock.audit.trail import Trail
from penstock.errors import AuditUnwritable, NotPermitted


def record(n=0, verb="pause", **changes):
    values = {"code": "", "door": Door.UNIX, "uid": 1000, "user": "alice", "text": f"number {n}"}
    return Record(1e9 + n, RecordKind.REQUEST, verb, RecordOutcome.DONE, **{**values, **changes})


def findings(folder, *anchors):
    return [str(f) for f in verify(folder, anchors).findings]


def verbs(folder, **wanted):
    return [r.verb for _entry, r in records(folder, RecordFilter(**wanted), 0).entries]


@pytest.fixture
def trail(tmp_path):
    it = Trail(tmp_path)
    yield it
    it.close()


def test_records_are_appended_and_nobody_else_can_read_them(trail, tmp_path):
    first = trail.append([record(1), record(2)])
    assert [w.head.seq for w in first] == [1, 2, 3], "the first record says that the file begins"
    assert [w.record.verb for w in first] == ["begin", "pause", "pause"]
    assert [w.head.seq for w in trail.append([record(3)])] == [4]
    found = verify(tmp_path, [])
    assert found.last.head == trail.head and found.records == 4 and not found.findings and not found.notes
    for name in (files.CURRENT, files.LOCK):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_an_act_is_told_by_its_number_its_door_and_its_time(trail, tmp_path):
    act = Record(2000.0, RecordKind.ACT, "submit", RecordOutcome.DONE, door=Door.AGENT, details={"intent": 7})
    trail.append([act, record()])
    assert is_told(tmp_path, Door.AGENT, 7, 1999.5) and is_told(tmp_path, Door.AGENT, 7, 2000.0004)
    assert not is_told(tmp_path, Door.AGENT, 8, 1999.5)
    assert not is_told(tmp_path, Door.COMMAND, 7, 1999.5)
    assert not is_told(tmp_path, Door.AGENT, 7, 2001.0), "another journal's, whose numbers began anew"


def test_the_chain_goes_on_in_another_process_s_hands(trail, tmp_path):
    other = Trail(tmp_path)
    for n in range(6):
        (trail, other)[n % 2].append([record(n)])
    assert verify(tmp_path, []).records == 7
    assert not findings(tmp_path)
    other.close()


def test_a_file_that_is_large_enough_is_rotated_and_old_ones_go(tmp_path):
    trail = Trail(tmp_path, size=2000, keep=3)
    for n in range(40):
        trail.append([record(n)], durable=False)
    names = [p.name for p in files.kept(tmp_path)]
    assert len(names) == 2, "three files in all"
    assert names == sorted(names)
    found = verify(tmp_path, [Anchor(ChainHead(2, "0" * 64), "the journal")])
    assert not found.findings
    assert found.older == 1 and "the chain begins here with record" in str(found.notes[0])
    begins = [r for _e, r in records(tmp_path, RecordFilter(verb="begin"), 0).entries]
    assert begins[-1].code == "rotated" and "no longer kept: audit." in begins[-1].text
    assert begins[-1].details["file"] == names[-1]
    files.kept(tmp_path)[1].unlink()
    assert any("missing" in text for text in findings(tmp_path)), "one in the middle"
    trail.close()


def test_a_kill_in_the_midst_of_a_rotation(tmp_path):
    trail = Trail(tmp_path)
    trail.append([record(1)])
    trail.path.rename(tmp_path / files.kept_name(1))
    Trail(tmp_path).append([record(2)])
    trail.append([record(3)])
    assert not findings(tmp_path)
    assert verbs(tmp_path) == ["begin", "pause", "begin", "pause", "pause"]


@pytest.mark.parametrize("as_new_process", [False, True])
def test_a_removed_file_is_begun_anew_with_a_record_that_says_so(trail, tmp_path, as_new_process):
    head = [w.head for w in trail.append([record(n) for n in range(4)])][-1]
    trail.path.unlink()
    writer = Trail(tmp_path, known=head) if as_new_process else trail
    begin, after = writer.append([record(9)])
    assert (begin.record.code, begin.head.seq, after.head.seq) == ("removed", 6, 7)
    assert "removed or emptied, and with it records up to 5" in findings(tmp_path)[0]


def test_nobody_knows_of_a_removed_file_but_the_journal(trail, tmp_path):
    head = trail.append([record(n) for n in range(4)])[-1].head
    trail.path.unlink()
    Trail(tmp_path).append([record(9)])
    assert not findings(tmp_path)
    assert "the journal has record 5: the end was cut off" in findings(tmp_path, Anchor(head, "the journal"))[0]


@pytest.mark.parametrize("as_new_process", [False, True])
def test_an_end_that_was_cut_off_is_seen_by_the_next_writer(trail, tmp_path, as_new_process):
    head = trail.append([record(n) for n in range(5)])[-1].head
    there = trail.path.read_bytes().splitlines(keepends=True)
    trail.path.write_bytes(b"".join(there[:3]))
    writer = Trail(tmp_path, known=head) if as_new_process else trail
    assert [w.record.code for w in writer.append([record(9)])] == ["cut", ""]
    assert writer.head.seq == 8, "their numbers are not given again"
    assert any("records 4 to 6 are missing" in text for text in findings(tmp_path))


def test_a_last_line_that_was_replaced_is_seen_by_the_next_writer(trail, tmp_path):
    trail.append([record(1)])
    head = trail.append([record(2)])[-1].head
    forger = Trail(tmp_path / "forged")
    (tmp_path / "forged").mkdir()
    forger.append([record(1)])
    forger.append([record(3)])
    trail.path.write_bytes(forger.path.read_bytes())
    written = Trail(tmp_path, known=head).append([record(9)])
    assert [w.record.code for w in written] == ["changed", ""]
    assert "record 3 is another than the one that was written" in findings(tmp_path)[0]


def test_a_torn_line_is_kept_and_explained(trail, tmp_path):
    trail.append([record(1)])
    with trail.path.open("ab") as file:
        file.write(b'{"seq":3,"prev":"' + trail.head.hash.encode() + b'","at":"2026')
    assert not findings(tmp_path)
    assert "torn" in str(verify(tmp_path, []).notes[0])
    written = trail.append([record(2)])
    assert [(w.record.verb, w.record.code) for w in written] == [("torn", "torn"), ("pause", "")]
    assert not findings(tmp_path)
    assert b',"at":"2026\n' in trail.path.read_bytes()


@pytest.mark.parametrize("cut", range(1, 400, 37))
def test_a_kill_while_a_torn_line_is_explained(trail, tmp_path, cut):
    trail.append([record(1)])
    trail.append([record(2)])
    good = trail.path.read_bytes()
    trail.path.write_bytes(good[:-cut])
    begun = Trail(tmp_path)
    begun.append([record(3)])
    again = trail.path.read_bytes()
    trail.path.write_bytes(again[: len(good) - cut + cut // 2])
    Trail(tmp_path).append([record(4)])
    assert not findings(tmp_path)


def test_a_line_without_its_end_is_taken_as_it_is(trail, tmp_path):
    trail.append([record(1)])
    trail.path.write_bytes(trail.path.read_bytes()[:-1])
    assert [w.record.verb for w in Trail(tmp_path).append([record(2)])] == ["pause"]
    assert verbs(tmp_path) == ["begin", "pause", "pause"]
    assert not findings(tmp_path)


def test_a_last_line_that_was_changed_is_not_explained_away(trail, tmp_path):
    trail.append([record(1)])
    trail.path.write_bytes(trail.path.read_bytes().replace(b"number 1", b"number 7"))
    written = Trail(tmp_path).append([record(2)])
    assert (written[0].record.verb, written[0].record.code) == ("torn", "damaged")
    assert "audit.log:2: it is not what was written" in findings(tmp_path)[0]


def test_a_file_of_which_nothing_can_be_read_is_set_aside(trail, tmp_path):
    trail.append([record(1)])
    trail.path.write_bytes(b"\x00\x01rubbish" * 300_000)
    written = trail.append([record(2)])
    assert [w.record.code for w in written] == ["damaged", ""]
    assert any("set aside" in text for text in findings(tmp_path))
    assert "kept as audit.damaged." in written[0].record.text


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text("precious")
    (tmp_path / files.CURRENT).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AuditUnwritable, match=r"audit\.log cannot be written"):
        Trail(tmp_path).append([record(1)])
    assert (tmp_path / "elsewhere").read_text() == "precious"


def test_a_folder_that_is_gone(trail, tmp_path):
    trail.append([record(1)])
    tmp_path.rename(tmp_path.with_name("elsewhere"))
    try:
        with pytest.raises(AuditUnwritable, match="No such file"):
            trail.append([record(2)])
        with pytest.raises(AuditUnwritable):
            trail.check()
    finally:
        tmp_path.with_name("elsewhere").rename(tmp_path)
    trail.append([record(3)])
    assert verbs(tmp_path) == ["begin", "pause", "pause"]


def test_another_process_that_holds_the_lock_for_ever_does_not_stop_the_agent_for_ever(trail, tmp_path, monkeypatch):
    trail.append([record(1)])
    script = "import fcntl,sys,time; f=open(sys.argv[1]); fcntl.flock(f,2); print('has it',flush=True); time.sleep(600)"
    holder = subprocess.Popen([sys.executable, "-c", script, tmp_path / files.LOCK], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline()
        monkeypatch.setattr("penstock.audit.trail._PATIENCE", 0.1)
        with pytest.raises(AuditUnwritable, match="another process has locked"):
            trail.append([record(2)])
    finally:
        holder.kill()
        holder.wait()
    trail.append([record(2)])
    assert not findings(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_cannot_read_it():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        Trail(Path(folder)).append([record(1)])
        os.seteuid(65534)
        try:
            with pytest.raises(NotPermitted, match="the state of user root"):
                records(Path(folder), RecordFilter(), 0)
        finally:
            os.seteuid(0)


# -- kills -------------------------------------------------------------------------------------------------------------

WRITER = """
import sys, time
from pathlib import Path
from penstock.audit.trail import Trail
from penstock.audit.record import Record, RecordKind, RecordOutcome
trail = Trail(Path(sys.argv[1]), size=8000, keep=1000)
n = int(sys.argv[2])
while True:
    for _ in range(7):
        n += 1
        said = Record(float(n), RecordKind.REQUEST, "say", RecordOutcome.DONE, text=str(n) + " x" * (n % 90))
        trail.append([said], durable=n % 5 == 0)
        print(n, flush=True)
    trail.append([Record(float(n), RecordKind.REQUEST, "more", RecordOutcome.DONE, text="y" * 900)] * 20, durable=False)
    time.sleep(0.005)  # nobody writes without end, and the other waits for its turn
"""


def test_no_acknowledged_record_is_lost_by_kills_of_several_writers(tmp_path):
    """Two processes write, and are killed at any moment, again and again; each says what it was told is written."""
    told: set[str] = set()
    dice = random.Random(3)
    for life in range(10):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, tmp_path, str(1_000_000 * (2 * life + which))], stdout=subprocess.PIPE
            )
            for which in range(2)
        ]
        for writer in writers:
            assert writer.stdout.readline(), "it has begun"
        time.sleep(dice.random() * 0.3)  # what is tried is any moment, not a certain one
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
        for writer in writers:
            rest = writer.communicate()[0]
            told |= {line for line in rest.decode().split("\n")[:-1] if line}
    trail = Trail(tmp_path)
    trail.append([record(0, "end")])
    there = [r.text.split()[0] for _e, r in records(tmp_path, RecordFilter(verb="say"), 0).entries]
    assert told <= set(there), "what was acknowledged is there"
    assert len(there) == len(set(there)), "each once"
    assert findings(tmp_path) == []
    assert len(files.kept(tmp_path)) > 3, "rotations were among it"
    assert len(told) > 50


def test_a_kill_before_any_byte_of_a_line_and_between_any_two_is_no_tampering(tmp_path):
    """The file as a kill can leave it after each byte of the last write."""
    trail = Trail(tmp_path / "a")
    (tmp_path / "a").mkdir()
    trail.append([record(1)])
    before = trail.path.stat().st_size
    trail.append([record(2), record(3)])
    whole = trail.path.read_bytes()
    for size in range(before, len(whole), 5):
        folder = tmp_path / f"b{size}"
        folder.mkdir()
        (folder / files.CURRENT).write_bytes(whole[:size])
        Trail(folder).append([record(4)], durable=False)
        assert findings(folder) == [], size
        assert verbs(folder)[-1] == "pause"


def test_the_first_line_of_all_may_be_torn(tmp_path):
    trail = Trail(tmp_path / "a")
    (tmp_path / "a").mkdir()
    trail.append([])
    whole = trail.path.read_bytes()
    assert entry_of(whole).prev == START.hash
    for size in range(0, len(whole), 11):
        folder = tmp_path / f"b{size}"
        folder.mkdir()
        (folder / files.CURRENT).write_bytes(whole[:size])
        Trail(folder).append([record(4)], durable=False)
        assert findings(folder) == [], size


# -- a full disk -------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as out:
        for size in (65536, 4096, 1):
            try:
                while True:
                    out.write(b"x" * size)
            except OSError:
                continue
    return filler


def test_on_a_full_disk_it_is_said_and_it_goes_on_when_there_is_room(small):
    trail = Trail(small)
    trail.append([record(1)])
    filler = fill(small)
    with pytest.raises(AuditUnwritable, match="No space left"):
        trail.check()
    with pytest.raises(AuditUnwritable, match=f"{small}/audit.log cannot be written: No space left"):
        trail.append([record(n, text="z" * 1000) for n in range(20)])
    assert not findings(small), "what was not acknowledged is not there in parts"
    filler.unlink()
    trail.check()
    trail.append([record(2)])
    assert verbs(small) == ["begin", "pause", "pause"]
    assert not findings(small)
    trail.close()

"""What an agent writes of who asked for what and of what it did: as a process, and over a simulated Slurm."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ipc_doors import UID, Door, offered

from conftest import AgentSite
from dmr import credential, wire
from penstock.audit import files
from penstock.audit.aggregate import Repeats
from penstock.audit.auditor import ANCHOR_EVERY, Auditor
from penstock.audit.reading import RecordFilter, records, verify
from penstock.audit.record import RecordKind, RecordOutcome
from penstock.audit.trail import Trail
from penstock.errors import AuditUnwritable, NotPermitted, PenstockError, StoreError
from penstock.ipc.audited import PEER, RequestAudit
from penstock.ipc.client import ask
from penstock_lab.agent_world import World, chain, virtual
from penstock_lab.testing import make_job, make_snapshot

ALICE, BOB = 65534, 12345  # the second has no name
FLOW = """
name: told
stages:
  - {name: a, nodes: 1, time: 60, expect: 1, run: "false"}
"""

pytestmark = pytest.mark.timeout(300)


def written(folder: Path, **wanted: Any) -> list[Any]:
    return [record for _entry, record in records(folder, RecordFilter(**wanted), 0).entries]


# -- the story, with a real agent --------------------------------------------------------------------------------------


@pytest.fixture
def everybodys() -> Iterator[AgentSite]:
    """A site whose agent serves all, and which other users reach."""
    if os.geteuid() != 0:
        pytest.skip("only root can be several users")
    folder = Path(tempfile.mkdtemp(prefix="pd-"))
    folder.chmod(0o755)
    it = AgentSite(folder)
    it.configure(agent={"serve": "all"})
    try:
        it.start()
        yield it
    finally:
        it.down()
        shutil.rmtree(folder)


@contextmanager
def user(uid: int) -> Iterator[None]:
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def told(site: AgentSite, by: int, op: str, /, **arguments: Any) -> Any:
    """The agent's answer to this user, or what it was refused with."""
    with user(by):
        try:
            return ask(site.socket, op, arguments)
        except PenstockError as e:
            return e


def test_the_story_of_pause_resume_submission_cancel_and_retry_is_all_there(everybodys):
    """Who did what to whom, by uid, from the audit trail alone; it is whole after a kill; one changed byte is found."""
    site, folder = everybodys, everybodys.folder / "agent"
    assert told(site, ALICE, "pause", uid=ALICE, why="I look at it")["pauses"]
    assert told(site, BOB, "resume", uid=ALICE).exit_code == 4
    assert told(site, ALICE, "resume", uid=ALICE)["pauses"]
    assert told(site, 0, "pause", partition=None, feature="workflows", why="maintenance")["pauses"]
    assert isinstance(told(site, ALICE, "resume", feature="workflows"), NotPermitted)
    assert told(site, 0, "resume")["pauses"]
    stages = [{"name": "a", "job": 77, "after": [], "expect": None}]
    hers = told(site, ALICE, "guide", workflow="hers", strategy="asa", stages=stages)["run"]
    assert isinstance(told(site, ALICE, "submit", workflow={}, strategy="asa"), NotPermitted)
    assert isinstance(told(site, BOB, "cancel", run=hers), PenstockError)
    assert isinstance(told(site, BOB, "retry", run=hers), NotPermitted)
    (site.folder / "w.yaml").write_text(FLOW)
    assert site.run("submit", "w.yaml", "--strategy", "perstage").returncode == 0
    own = hers + 1
    site.until(lambda: ask(site.socket, "status")["workflows"][-1]["phase"] == "failed", "its failure")
    assert site.run("retry", str(own)).returncode == 0
    assert told(site, ALICE, "cancel", run=hers) == {"jobs": [77], "unwritten": ""}
    site.stop(signal.SIGKILL)

    story = [
        (r.uid, r.door.value, r.verb, r.outcome.value, r.code, r.owner, r.job)
        for r in written(folder)
        if r.kind is RecordKind.REQUEST
    ]
    assert story == [
        (ALICE, "unix", "pause", "done", "", ALICE, None),
        (BOB, "unix", "resume", "refused", "not-permitted", ALICE, None),
        (ALICE, "unix", "resume", "done", "", ALICE, None),
        (0, "unix", "pause", "done", "", None, None),
        (ALICE, "unix", "resume", "refused", "not-permitted", None, None),
        (0, "unix", "resume", "done", "", None, None),
        (ALICE, "unix", "guide", "done", "", ALICE, 77),
        (ALICE, "unix", "submit", "refused", "not-permitted", None, None),
        (BOB, "unix", "cancel", "refused", "not-found", ALICE, None),
        (BOB, "unix", "retry", "refused", "not-permitted", ALICE, None),
        (0, "unix", "submit", "done", "", 0, None),
        (0, "unix", "retry", "done", "", 0, None),
        (ALICE, "unix", "cancel", "done", "", ALICE, None),
    ]
    lifted = written(folder, verb="resume")[-1]
    assert lifted.text == "workflows paused by root: maintenance", "who had paused, and why; the requester lifted it"
    submitted = written(folder, verb="submit")
    assert [(r.kind, r.outcome) for r in submitted[1:3]] == [
        (RecordKind.REQUEST, RecordOutcome.DONE),
        (RecordKind.ACT, RecordOutcome.DONE),
    ]
    assert submitted[2].request == submitted[1].request, "the act names the request that led to it"
    assert (submitted[2].subject, submitted[2].owner) == (f"workflow {own}/a", 0)
    assert submitted[2].job is not None

    # It goes on after the kill, and both places agree.
    site.start()
    assert site.stop() == 0
    seen = site.run("audit", "--user", "nobody", "--verb", "pause", "--json")
    (only,) = json.loads(seen.stdout)["records"]
    assert (only["uid"], only["verb"], only["user"]) == (ALICE, "pause", "nobody")
    assert "workflow" in site.run("audit", "--job", "77").stdout
    checked = site.run("audit", "--verify")
    assert checked.returncode == 0, checked
    assert checked.stdout.startswith("whole: ") and "compared with the state file: 1 agree" in checked.stdout
    assert [r.verb for r in written(folder) if r.kind is RecordKind.AGENT] == ["start", "start", "stop"]

    file = folder / files.CURRENT
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    broken = site.run("audit", "--verify")
    assert broken.returncode == 1
    assert f"{folder}/audit.log:" in broken.stdout and "BROKEN" in broken.stdout
    assert "penstock audit --verify" in site.run("audit").stderr


@pytest.mark.long
def test_an_end_that_is_cut_off_while_the_agent_is_away_is_found_and_on_record(everybodys):
    site, folder = everybodys, everybodys.folder / "agent"
    for n in range(5):
        told(site, 0, "pause", why=str(n))
    assert site.stop() == 0
    file = folder / files.CURRENT
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-3]))
    cut = site.run("audit", "--verify", "--json")
    assert cut.returncode == 1
    assert "the state file has record" in json.loads(cut.stdout)["findings"][0]["text"]
    site.start()
    site.stop()
    assert written(folder, verb="begin")[-1].code == "cut"
    later = site.run("audit", "--verify")
    assert later.returncode == 1
    assert "are missing before record" in later.stdout
    file.unlink()
    gone = site.run("audit", "--verify")
    assert (gone.returncode, "the state file has record" in gone.stdout) == (1, True)
    assert site.run("audit").returncode == 7
    site.start()
    site.stop()
    assert "the file was removed or emptied" in site.run("audit", "--verify").stdout
    known = site.run("audit", "--verify", "--since", "0.001s")
    assert known.returncode == 0
    assert "before --since: " in known.stdout, "what is known does not count for ever"


def test_what_was_left_in_the_inbox_is_recorded_when_it_is_taken(everybodys):
    site, folder = everybodys, everybodys.folder / "agent"
    site.stop()
    assert site.run("pause", "--why", "from the crontab").returncode == 0
    site.start()
    site.until(lambda: written(folder, verb="pause"), "the record")
    (record,) = written(folder, verb="pause")
    assert (record.door.value, record.uid, record.outcome) == ("inbox", 0, RecordOutcome.DONE)


def test_refusals_without_end_make_a_short_record(everybodys):
    site, folder = everybodys, everybodys.folder / "agent"
    for n in range(300):
        told(site, BOB, "retry", run=n + 1)
    site.stop()
    found = written(folder, uid=BOB)
    assert len(found) < 25
    assert sum(r.count for r in found) == 300
    assert {r.code for r in found} >= {"not-permitted", "not-now"}, "the rate limit's refusals, too"


def test_who_may_not_write_it_down_is_refused_but_can_stop_things(everybodys):
    """While the audit file cannot be written an agent for all does nothing new for others, and says why."""
    site, folder = everybodys, everybodys.folder / "agent"
    (folder / files.CURRENT).rename(folder / "aside")
    (folder / files.CURRENT).mkdir()
    stages = [{"name": "a", "job": 77, "after": [], "expect": None}]
    refused = told(site, ALICE, "guide", workflow="hers", strategy="asa", stages=stages)
    assert isinstance(refused, StoreError)
    assert "audit.log cannot be written" in str(refused) and "nothing is done for others" in str(refused)
    assert told(site, ALICE, "pause", uid=ALICE)["pauses"]
    assert any("audit.log cannot be written" in p for p in told(site, 0, "status")["problems"])
    (folder / files.CURRENT).rmdir()
    (folder / "aside").rename(folder / files.CURRENT)
    assert told(site, ALICE, "guide", workflow="hers", strategy="asa", stages=stages)["run"]
    assert [r.verb for r in written(folder)][-4:] == ["late", "guide", "pause", "guide"]
    assert not any("audit" in p for p in told(site, 0, "status")["problems"])
    assert site.stop() == 0
    assert site.run("audit", "--verify").returncode == 0


# -- what is done to Slurm ---------------------------------------------------------------------------------------------


def audited(world: World, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    world.auditor = lambda: Auditor(Trail(folder), lambda: world.now)


@virtual
async def test_each_act_is_one_record_with_owner_and_request(tmp_path):
    world = World(tmp_path / "w")
    audited(world, tmp_path / "a")
    await world.boot()
    number = await world.submit(chain(10, 10), "perstage")
    await world.finish(number)
    acts = [r for r in written(tmp_path / "a") if r.kind is RecordKind.ACT]
    assert [(r.verb, r.subject, r.outcome) for r in acts] == [
        ("submit", f"workflow {number}/a", RecordOutcome.DONE),
        ("submit", f"workflow {number}/b", RecordOutcome.DONE),
    ]
    assert {r.owner for r in acts} == {os.geteuid()}
    assert [r.job for r in acts] == sorted(j.id for j in world.engine.records.values() if j.user == "alice")
    assert [r.details["intent"] for r in acts] == [1, 2]


@virtual
async def test_whenever_the_agent_dies_no_act_is_without_a_record(tmp_path):
    """Killed before each of its writes and requests in turn: what Slurm was asked for is on record in the end."""
    for at in range(2, 40, 3):
        world = World(tmp_path / f"w{at}")
        audited(world, tmp_path / f"a{at}")
        await world.boot(at)
        number = None
        while number is None:
            try:
                number = await world.submit(chain(10, 10), "perstage")
            except BaseException:  # killed while it took the workflow
                await world.restart()
                number = next((n for n, _u, _s in world.store.runs.latest()), None)
        await world.finish(number)
        told_of = {r.details.get("intent") for r in written(tmp_path / f"a{at}") if r.kind is RecordKind.ACT}
        tried = {row["id"] for row in world.store.connection.rows("SELECT id FROM intents")}
        assert tried == told_of, at
        assert not verify(tmp_path / f"a{at}", []).findings


@virtual
async def test_on_a_full_disk_nothing_is_done_for_others_until_there_is_room(tmp_path, small_disk):
    """The audit file alone is on a disk that is full: a job of somebody else is not resized, and is when it is not."""
    world = World(tmp_path / "w")
    audited(world, small_disk)
    await world.boot()
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * (os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize))
    job = await world.malleable(seconds=400)
    before = world.passes
    await world.until(lambda: world.passes > before + 30)
    assert world.resizers() == [], "nothing was done"
    assert world.store.connection.rows("SELECT * FROM intents") == []
    assert any("No space left" in text for text in world.app.troubles())
    filler.unlink()
    await world.until(lambda: len(job.sizes) > 1)
    acts = [r.verb for r in written(small_disk) if r.kind is RecordKind.ACT]
    assert acts[:2] == ["expand", "merge"]
    assert world.app.troubles() == []


@virtual
async def test_an_agent_of_ones_own_warns_and_goes_on(tmp_path, small_disk):
    world = World(tmp_path / "w")
    audited(world, small_disk)
    await world.boot()
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * (os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize))
    number = await world.submit(chain(10, 10), "perstage")
    await world.until(lambda: world.submissions() == {"a": 1})
    while "No space left" not in world.app.auditor.trouble:  # the block that was begun still takes some lines
        world.app.auditor.life("filling", "x" * 900)
    await world.finish(number)
    assert world.submissions() == {"a": 1, "b": 1}
    filler.unlink()
    world.app.auditor.catch_up()
    assert [r.subject for r in written(small_disk, verb="submit")] == [f"workflow {number}/a", f"workflow {number}/b"]
    assert "could not be written for a while" in written(small_disk, verb="late")[0].text


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


# -- programs ----------------------------------------------------------------------------------------------------------


def program_door(tmp_path: Path, **more: Any) -> Door:
    door = Door(**more)
    auditor = Auditor(Trail(tmp_path), door.clock.now, repeats=Repeats(first=2, interval=300))
    door.door._audit = RequestAudit(auditor, door.clock, lambda _subject: UID)
    return door


def test_what_programs_say_is_recorded_and_plain_checks_are_not(tmp_path):
    door = program_door(tmp_path)
    for _ in range(4):
        door.say(door.check())
        door.clock.at += 1
    assert [(r.verb, r.code, r.uid, r.owner, r.job, r.door.value) for r in written(tmp_path)[1:]] == [
        ("check", "registered", UID, UID, 7, "tcp")
    ]
    offered(door)
    said = [
        wire.Accept(job=7, epoch=3, time=door.clock.now()),
        wire.Accept(job=7, epoch=9, time=door.clock.now()),
        wire.Refuse(job=7, epoch=3, time=door.clock.now(), why="out of memory"),
    ]
    for request in said:
        door.say(request)
    assert [(r.verb, r.outcome.value, r.code, r.text) for r in written(tmp_path, job=7)[1:]] == [
        ("accept", "done", "", ""),
        ("accept", "refused", "stale-epoch", "this resize is not, or no longer, on offer"),
        ("refuse", "done", "", "out of memory"),
    ]


def test_announcements_at_every_step_are_counted(tmp_path):
    door = program_door(tmp_path)
    offered(door)
    for n in range(50):
        door.say(wire.Announce(job=7, epoch=3, time=door.clock.now(), size=2 + n % 2, in_seconds=60.0))
    assert len(written(tmp_path, verb="announce")) == 2
    door.clock.at += 301
    door.door._audit._auditor.catch_up()
    assert [r.count for r in written(tmp_path, verb="announce")] == [1, 1, 48]


def test_who_is_not_believed_or_asks_for_another_s_job_is_on_record_with_the_address(tmp_path):
    door = program_door(tmp_path)
    token = PEER.set("192.0.2.7")
    try:
        door.say(door.check(), key=credential.Key(UID, b"x" * 64))
        door.observer.last = make_snapshot([make_job(7, "n1", "n2", uid=UID + 1)])
        door.say(door.check())
    finally:
        PEER.reset(token)
    told_of = [(r.uid, r.verb, r.outcome.value, r.code, r.details["peer"]) for r in written(tmp_path)[1:]]
    assert told_of == [
        (None, "check", "refused", "not-permitted", "192.0.2.7"),
        (UID, "check", "refused", "not-permitted", "192.0.2.7"),
    ]


# -- anchors -----------------------------------------------------------------------------------------------------------


class Ear:
    """What a system's log would have."""

    def __init__(self):
        self.records, self.anchors = [], []

    def record(self, record, head):
        self.records.append((record.verb, head and head.seq))

    def anchor(self, head, why):
        self.anchors.append((head.seq, why))

    def close(self):
        pass


def test_the_chain_is_anchored_at_start_at_stop_and_in_between(tmp_path):
    ear, kept = Ear(), []
    auditor = Auditor(Trail(tmp_path), lambda: 1e9, ear, on_anchor=kept.append)
    auditor.start("")
    for _ in range(ANCHOR_EVERY + 5):
        auditor.life("reload", "")
    auditor.stop()
    auditor.close()
    end = 2 + ANCHOR_EVERY + 5 + 1
    assert ear.anchors == [(2, "start"), (ANCHOR_EVERY, "every 100 records"), (end, "stop")]
    assert [h.seq for h in kept] == [2, ANCHOR_EVERY, end]
    assert [seq for _verb, seq in ear.records] == list(range(1, end + 1))


def test_what_cannot_be_written_is_told_to_the_log_of_the_system(tmp_path):
    ear = Ear()
    auditor = Auditor(Trail(tmp_path), lambda: 1e9, ear)
    (tmp_path / files.CURRENT).mkdir()
    auditor.life("reload", "")
    assert ear.records == [("reload", None)]
    with pytest.raises(AuditUnwritable):
        auditor.require()
    (tmp_path / files.CURRENT).rmdir()
    auditor.require()
    assert ear.records[1:] == [("begin", 1), ("late", 2), ("reload", 3)]
    assert auditor.trouble == ""


def test_what_is_told_together_waits_for_the_disk_once(tmp_path, monkeypatch):
    auditor = Auditor(Trail(tmp_path), lambda: 1e9)
    auditor.life("first", "")
    waits = []
    monkeypatch.setattr(os, "fsync", waits.append)
    with auditor.together():
        for n in range(20):
            auditor.life(f"n{n}", "")
        assert len(written(tmp_path)) == 2
    assert len(waits) == 1
    assert len(written(tmp_path)) == 22


def test_nothing_is_kept_without_a_trail():
    auditor = Auditor(None, lambda: 1e9)
    auditor.start("")
    auditor.require()
    with auditor.together():
        auditor.life("x", "")
    auditor.stop()
    auditor.close()

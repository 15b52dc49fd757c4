"""What guards in job scripts are told at the door for programs, and how often they are to ask."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from ipc_doors import KEY, UID, Door, refused

from dmr import ended, wire
from penstock.api import JobState
from penstock.ipc.guards import GuardDesk
from penstock.ipc.limits import RateLimit
from penstock.ipc.server import Server
from penstock_lab.testing import make_job, make_snapshot

JOBS = [
    make_job(7, "n1", uid=UID),
    make_job(8, uid=UID, state=JobState.FAILED),
    make_job(9, uid=UID + 1),
    make_job(10, uid=UID, array_job=10, tasks=5),
]


def question(door, *jobs, job=77):
    return wire.Ended(job=job, epoch=0, jobs=jobs, time=door.clock.now())


def looking(at):
    door = Door()
    door.observer.last = make_snapshot(JOBS, at=at)
    return door


def test_a_guard_is_told_of_its_users_jobs_alone():
    door = looking(10_000.0)
    reply = door.say(question(door, 7, 8, 9, 10, 11))
    assert reply == wire.Endings(states={"7": "RUNNING", "8": "FAILED"}, again_in=30.0)
    assert door.woken == [], "the look is young"
    assert door.controller.jobs == {}, "and nothing is registered"


def test_an_old_look_is_worth_a_new_one():
    door = looking(9_980.0)
    assert isinstance(door.say(question(door, 7)), wire.Endings)
    door.observer.last = None
    assert door.say(question(door, 7)) == wire.Endings(states={}, again_in=30.0)
    assert door.woken == ["look", "look"]


def test_who_is_not_served_or_asks_too_often_is_told_so():
    door = Door(serves=lambda _uid: False)
    refused(door.say(question(door, 7)))
    door = looking(10_000.0)
    door.desk._of_user = RateLimit(2, 0.001)
    assert [type(door.say(question(door, 7))) for _ in range(3)] == [wire.Endings, wire.Endings, wire.Failure]


def test_the_more_ask_the_later_they_ask_again():
    desk, now = GuardDesk(), 1000.0
    request = wire.Ended(job=1, epoch=0, jobs=(7,))
    for number in range(1, 5001):
        answer = desk.answer(UID, replace(request, job=number), None, now)
    assert answer.again_in == 240.0
    assert desk.asked == 5000
    assert desk.answer(UID, replace(request, job=1), None, now + 500.0).again_in == 240.0
    assert desk.answer(UID, replace(request, job=1), None, now + 700.0).again_in == 30.0, "the others have gone"
    for number in range(1, 801):
        answer = desk.answer(UID, replace(request, job=number), None, now + 700.0)
    assert answer.again_in == 40.0


@pytest.fixture
def environment(tmp_path):
    key = tmp_path / "key"
    key.write_bytes(KEY.secret)
    key.chmod(0o600)
    return {**os.environ, "DMR_KEY_FILE": str(key), "SLURM_JOB_ID": "77", "DMR_TIMEOUT": "10"}


def test_a_script_asks_over_the_network(environment, tmp_path):
    async def play():
        door = Door()
        door.observer.last = make_snapshot(JOBS, at=door.clock.now())
        door.clock.now = time.time
        server = Server(SimpleNamespace(), door.door.hear)
        port = await server.listen_tcp("127.0.0.1", 0)
        try:
            words = [sys.executable, "-m", "dmr.ended", "7", "8", "9"]
            told = {**environment, "DMR_AGENT": f"127.0.0.1:{port}"}
            return await asyncio.to_thread(subprocess.run, words, env=told, capture_output=True, text=True, timeout=30)
        finally:
            await server.close()

    done = asyncio.run(play())
    assert (done.returncode, done.stdout) == (0, "7 RUNNING\n8 FAILED\nagain 30\n"), done.stderr


class Agent:
    """A client with one reply."""

    reply: wire.Reply | None = None

    @classmethod
    def from_environment(cls):
        return cls()

    def request(self, _request):
        return self.reply


@pytest.mark.parametrize(
    ("reply", "code", "out"),
    [
        (wire.Failure(error="busy"), 0, "again 30\n"),
        (wire.Failure(error="bad-request", message="op"), 1, ""),
        (wire.Done(), 1, ""),
        (None, 1, ""),
    ],
)
def test_what_is_no_answer(monkeypatch, capsys, reply, code, out):
    monkeypatch.setattr(ended, "Client", type("One", (Agent,), {"reply": reply}))
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    assert ended.main(["7"]) == code
    assert capsys.readouterr().out == out


def test_what_it_is_not_asked_right(monkeypatch, capsys):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.delenv("DMR_AGENT", raising=False)
    assert [ended.main(words) for words in ([], ["x"], ["7"])] == [2, 2, 1]
    monkeypatch.setenv("DMR_AGENT", "127.0.0.1:1")
    assert ended.main(["0"]) == 2
    assert "jobs: must be an integer" in capsys.readouterr().err

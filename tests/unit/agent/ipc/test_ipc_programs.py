"""The agent's door for programs: TCP with a credential per request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import threading
import time
from dataclasses import replace

import pytest
from ipc_doors import KEY, UID, Door, offered, refused

from dmr import credential, wire
from penstock import errors
from penstock.api import JobState
from penstock.errors import (
    NotPermitted,
)
from penstock.ipc.auth import FRESH, Verifier, make_key
from penstock.ipc.server import Server
from penstock.resize.running.words import ResizePhase
from penstock_lab.testing import make_job, make_snapshot


def test_the_key_is_made_once_and_for_its_owner_only(tmp_path):
    key = make_key(tmp_path / "key")
    assert key.uid == os.geteuid()
    assert make_key(tmp_path / "key") == key
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["key"]
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(errors.StoreError, match="chmod 600"):
        make_key(tmp_path / "key")


def test_a_check_with_the_owners_key_registers_the_job_and_wakes_the_agent():
    door = Door()
    reply = door.say(door.check())
    assert (reply.action, reply.size, reply.epoch) == ("none", 2, 0)
    assert door.controller.jobs[7].offer.maximum == 8
    assert door.woken == ["job 7 is malleable"]
    door.say(door.check())
    assert len(door.woken) == 1
    door.say(door.check(maximum=4))
    assert door.woken[1:] == ["job 7 said something new"]


def test_a_request_signed_with_another_key_is_refused():
    door = Door()
    message = refused(door.say(door.check(), credential.Key(UID, b"x" * 64)))
    assert "does not fit" in message
    assert door.controller.jobs == {}
    assert door.door.answers["refused"] == 1


@pytest.mark.parametrize("auth", ["", "key:", "key:00", "nonsense", "munge:", "munge:MUNGE:xx:"])
def test_a_request_without_a_credential_that_counts_is_refused(auth):
    door = Door()
    refused(door.raw(wire.encode(replace(door.check(), auth=auth))))
    assert door.controller.jobs == {}


def test_a_hundred_credentials_at_once_are_decoded_one_after_the_other(monkeypatch):
    door, at_once, most = Door(), [], []

    def decode(token, digest, socket):
        at_once.append(token)
        most.append(len(at_once))
        time.sleep(0.002)
        at_once.pop()
        return credential.Peer(UID, UID)

    monkeypatch.setattr(credential, "verify_munge", decode)

    async def burst():
        lines = [wire.encode(replace(door.check(), auth="munge:MUNGE:xx:")) for _ in range(100)]
        return await asyncio.gather(*(door.door.answer(line) for line in lines))

    replies = [wire.decode_reply(line) for line in asyncio.run(burst())]
    assert all(isinstance(reply, wire.CheckReply) for reply in replies) and max(most) <= 4


def test_a_munged_that_hangs_is_no_refusal(monkeypatch):
    door, hang = Door(), threading.Event()
    monkeypatch.setattr(credential, "verify_munge", lambda *_: hang.wait(20))
    monkeypatch.setattr("penstock.ipc.auth._MUNGE_LIMIT", 0.05)

    async def several():
        line = wire.encode(replace(door.check(), auth="munge:MUNGE:xx:"))
        found = await asyncio.gather(*(door.door.answer(line) for _ in range(9)))
        hang.set()
        return found

    for reply in asyncio.run(several()):
        assert "did not answer" in refused(wire.decode_reply(reply), "unavailable")


def test_a_request_changed_on_its_way_is_refused():
    door = Door()
    body = json.loads(door.line(door.check()))
    body["maximum"] = 1000
    refused(door.raw(json.dumps(body).encode() + b"\n"))


def test_a_request_counts_once():
    door = Door()
    line = door.line(door.check())
    assert isinstance(door.raw(line), wire.CheckReply)
    assert "used before" in refused(door.raw(line))
    door.clock.at += FRESH - 1
    assert "used before" in refused(door.raw(line))


@pytest.mark.parametrize("hour", [3600.0, -3600.0])
def test_a_request_that_was_refused_for_its_time_was_not_used(hour):
    """Its sender cannot tell by which clock it was refused; the same line may be good once the clock is right."""
    door = Door()
    line = door.line(door.check())
    door.clock.at += hour
    assert "check the clocks" in refused(door.raw(line))
    door.clock.at -= hour
    assert isinstance(door.raw(line), wire.CheckReply)
    assert "used before" in refused(door.raw(line))


def test_a_used_request_is_remembered_while_the_clock_is_set_to_and_fro():
    door = Door()
    door.clock.at -= FRESH - 50
    line = door.line(door.check(time=door.clock.at + FRESH - 50))
    assert isinstance(door.raw(line), wire.CheckReply)
    door.clock.at += 2 * (FRESH - 50) + 150
    assert isinstance(door.say(door.check()), wire.CheckReply)
    door.clock.at -= FRESH - 50
    assert "used before" in refused(door.raw(line))


def test_a_request_that_was_used_and_forgotten_is_not_good_again_when_the_clock_is_set_back():
    door = Door()
    line = door.line(door.check())
    assert isinstance(door.raw(line), wire.CheckReply)
    for clock in (door.clock, door.steady):
        clock.at += 3600
    latest = door.line(door.check())
    assert isinstance(door.raw(latest), wire.CheckReply)
    door.clock.at -= 3600
    assert "set back" in refused(door.raw(line))
    assert isinstance(door.say(door.check(time=door.clock.now() + 1)), wire.CheckReply), "nothing newer is refused"
    assert "check the clocks" in refused(door.raw(latest))
    door.clock.at += 3600
    assert "used before" in refused(door.raw(latest))


def test_of_clocks_that_differ_nobody_is_forgotten_too_soon_nor_refused_too_long():
    """One host ahead and one behind, each by as much as is allowed, and an agent whose clock is never set."""
    door = Door()
    for _ in range(20):
        for ahead in (FRESH, -FRESH):
            assert isinstance(door.say(door.check(time=door.clock.now() + ahead)), wire.CheckReply)
        for clock in (door.clock, door.steady):
            clock.at += 100.0


def test_nobody_can_have_the_requests_of_others_forgotten(monkeypatch):
    monkeypatch.setattr("penstock.ipc.auth._REMEMBERED", 10)
    verifier = Verifier(KEY, None)
    verifier._once(UID, "mine", 0.0, 0.0)
    for number in range(100):
        verifier._once(UID + 1, str(number), 1.0, 1.0)
    with pytest.raises(NotPermitted, match="used before"):
        verifier._once(UID, "mine", 2.0, 2.0)
    assert len(verifier._seen[UID + 1]) <= 10
    for uid in range(50):
        verifier._once(uid, "x", 10.0, 10.0)
    for number in range(100):
        verifier._once(UID, str(number), 2 * FRESH + 100, 2 * FRESH + 100)
    assert set(verifier._seen) == {UID}, "who has gone is forgotten in time"


@pytest.mark.parametrize("shift", [FRESH + 1, -FRESH - 1])
def test_a_request_from_another_time_is_refused(shift):
    door = Door()
    assert "check the clocks" in refused(door.say(door.check(time=door.clock.now() + shift)))
    assert isinstance(door.say(door.check(time=door.clock.now() + shift * 0.9)), wire.CheckReply)


def test_a_job_of_another_user_is_refused():
    door = Door()
    door.observer.last = make_snapshot([make_job(7, "n1", "n2", uid=UID + 1)])
    assert "is not yours" in refused(door.say(door.check()))
    for request in (wire.Accept(job=7, epoch=1), wire.Refuse(job=7, epoch=1, why="x")):
        assert "is not yours" in refused(door.say(replace(request, time=door.clock.now())))
    assert door.controller.jobs == {}
    assert door.woken == []


def test_a_user_whom_the_agent_does_not_serve_is_refused():
    door = Door(serves=lambda uid: uid != UID)
    assert "own user's jobs only" in refused(door.say(door.check()))


@pytest.mark.parametrize("picture", [True, False])
def test_an_unknown_job_gets_no_action_and_a_look_soon(picture):
    door = Door()
    if not picture:
        door.observer.last = None
    reply = door.say(door.check(job=99, size=5))
    assert (reply.action, reply.size) == ("none", 5)
    assert len(door.woken) == 1
    accept = wire.Accept(job=99, epoch=1, time=door.clock.now())
    refused(door.say(accept), "unknown-job")
    assert door.controller.jobs == {}


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.COMPLETED, JobState.SUSPENDED, JobState.COMPLETING])
def test_a_job_that_does_not_run_gets_no_action(state):
    door = Door(state=state)
    assert door.say(door.check()).action == "none"
    assert door.controller.jobs == {}


def test_an_offer_is_answered_with_all_nodes_and_taken_up_by_its_epoch():
    door = Door()
    offered(door)
    reply = door.say(door.check(epoch=2))
    assert (reply.action, reply.size, reply.epoch, reply.nodes) == ("expand", 4, 3, ("n1", "n2", "n3", "n4"))
    accept = wire.Accept(job=7, epoch=3, time=door.clock.now())
    assert isinstance(door.say(accept), wire.Done)
    assert door.controller.jobs[7].phase is ResizePhase.RESIZING
    again = replace(accept, id="0" * 16)
    assert isinstance(door.say(again), wire.Done)  # its answer was lost: sent again, with a credential of its own
    timings = {"spawn": 0.5}
    done = wire.Finished(job=7, epoch=3, time=door.clock.now(), size=4, nodes=reply.nodes, timings=timings)
    assert isinstance(door.say(done), wire.Done)
    assert door.controller.jobs[7].phase is ResizePhase.IDLE
    assert door.controller.jobs[7].offer.size == 4


@pytest.mark.parametrize("epoch", [2, 4])
def test_a_stale_epoch_must_not_be_resized(epoch):
    door = Door()
    before = offered(door)
    refused(door.say(wire.Accept(job=7, epoch=epoch, time=door.clock.now())), "stale-epoch")
    assert door.controller.jobs[7] == before


@pytest.mark.parametrize(
    "phase",
    [ResizePhase.IDLE, ResizePhase.ALLOCATING, ResizePhase.MERGING, ResizePhase.CLEANING, ResizePhase.GIVING_BACK],
)
def test_an_accept_outside_of_an_offer_is_stale(phase):
    door = Door()
    before = offered(door, phase)
    refused(door.say(wire.Accept(job=7, epoch=3, time=door.clock.now())), "stale-epoch")
    assert door.controller.jobs[7] == before


def test_a_refusal_gives_the_nodes_back_and_wakes_the_agent():
    door = Door()
    offered(door)
    reply = door.say(wire.Refuse(job=7, epoch=3, why="no memory", time=door.clock.now()))
    assert isinstance(reply, wire.Done)
    assert (door.controller.jobs[7].phase, door.controller.jobs[7].note) == (ResizePhase.GIVING_BACK, "no memory")
    assert door.woken == ["job 7 refused"]


def test_malformed_lines_are_bad_requests_and_the_connection_lives():
    door = Door()
    body = json.loads(door.line(door.check()))
    lines = [
        b"garbage\n",
        b"{}\n",
        b"[1]\n",
        b'{"v":2}\n',
        b"\xff\n",
        b"\n",
        json.dumps({**body, "op": "nope"}).encode() + b"\n",
        json.dumps({**body, "size": -1}).encode() + b"\n",
        json.dumps({**body, "nodes": ["n1; rm"]}).encode() + b"\n",
        json.dumps({k: v for k, v in body.items() if k != "job"}).encode() + b"\n",
    ]

    async def run():
        async def never(_uid, _line):
            raise AssertionError

        server = Server(never, door.door.hear)
        port = await server.listen_tcp("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for line in lines:
            writer.write(line)
            reply = wire.decode_reply(await asyncio.wait_for(reader.readline(), 5))
            assert isinstance(reply, wire.Failure), line
            assert reply.error == "bad-request", line
        writer.write(door.line(door.check()))
        assert isinstance(wire.decode_reply(await asyncio.wait_for(reader.readline(), 5)), wire.CheckReply)
        writer.close()
        await server.close()

    asyncio.run(run())
    assert door.door.answers["refused"] == 0


def test_a_line_that_is_too_long_ends_only_its_own_tcp_connection():
    door = Door()

    async def run():
        async def never(_uid, _line):
            raise AssertionError

        server = Server(never, door.door.hear)
        port = await server.listen_tcp("127.0.0.1", 0)
        other, to_other = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x" * (4 * wire.MAX_LINE))
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(1), 5) == b""
        to_other.write(door.line(door.check()))
        assert isinstance(wire.decode_reply(await asyncio.wait_for(other.readline(), 5)), wire.CheckReply)
        writer.close()
        to_other.close()
        await server.close()

    asyncio.run(run())

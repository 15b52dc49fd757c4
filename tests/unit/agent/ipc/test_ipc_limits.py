"""What one user may take of the agent: requests, connections, memory, time."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from ipc_doors import UID, Door, asked, offered, refused, serve

from dmr import credential, wire
from penstock.errors import (
    NotNow,
)
from penstock.ipc.auth import Verifier
from penstock.ipc.handlers import LocalDoor
from penstock.ipc.limits import RateLimit
from penstock.ipc.server import Server
from penstock_lab.testing import make_job, make_snapshot


def test_a_rate_is_each_keys_own_and_comes_back_with_time():
    limit = RateLimit(3, 2.0)
    assert [limit.allows("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert limit.allows("b", 0.0)
    with pytest.raises(NotNow, match="ask again in 1 s") as caught:
        limit.take("a", 0.1)
    assert caught.value.exit_code == 6
    assert caught.value.again_in == pytest.approx(0.4)
    assert [limit.allows("a", 0.6) for _ in range(2)] == [True, False]
    assert [limit.allows("a", 1000.0) for _ in range(4)] == [True, True, True, False]
    assert not limit.allows("a", 0.0), "a clock that goes back gives nothing"


def test_whom_the_limit_has_forgotten_had_all_of_it():
    limit = RateLimit(2, 1.0)
    limit.allows("heavy", 0.0)
    limit.allows("heavy", 0.0)
    for key in range(5000):
        limit.allows(key, 0.5 + key * 0.01)
    assert len(limit._buckets) < 2100
    limit = RateLimit(2, 1.0)
    for key in range(3000):
        limit.allows(key, 0.0)
    limit.allows("heavy", 0.0)
    limit.allows("heavy", 0.0)
    for key in range(3000):
        limit.allows(-key - 1, 0.1)
    assert not limit.allows("heavy", 0.2)


def test_a_user_who_asks_too_much_is_told_so_and_others_and_root_are_served():
    async def ping(uid, _request):
        return uid

    door = LocalDoor({"ping": ping}, RateLimit(2, 0.001))

    async def ask_as(uid):
        return json.loads(await door.answer(uid, b'{"op": "ping"}'))

    async def run():
        assert [(await ask_as(UID))["ok"] for _ in range(3)] == [True, True, False]
        reply = await ask_as(UID)
        assert (reply["error"], "too many requests" in reply["message"]) == ("NotNow", True)
        assert (await ask_as(UID + 1))["ok"]
        assert all([(await ask_as(0))["ok"] for _ in range(9)])

    asyncio.run(run())


def test_what_may_be_asked_often_is_only_that(tmp_path):
    """A key that stands twice counts as the last one, which is not what the limit was chosen by."""

    async def said(uid, request):
        return request["op"]

    async def scene():
        door = LocalDoor({"answer": said, "cancel": said}, RateLimit(1, 0.001), often=RateLimit(50, 0.001))
        lines = [b'{"op": "answer"}', b'{"op": "answer", "op": "cancel"}', b'{"op": "answer", "\\u006fp": "cancel"}']
        return [json.loads(await door.answer(UID + 1, line)) for line in lines]

    first, *others = asyncio.run(scene())
    assert first["result"] == "answer"
    assert [one["message"] for one in others] == ["op: is there twice"] * 2


def test_who_makes_the_agent_work_long_has_fewer_requests(monkeypatch):
    monkeypatch.setattr("penstock.ipc.handlers._CHEAP", 0.001)
    monkeypatch.setattr("penstock.ipc.handlers._DEAREST", 20.0)

    async def work(uid, request):
        until = time.thread_time() + request["seconds"]
        while time.thread_time() < until:
            pass
        return uid

    def asked_of(seconds):
        door = LocalDoor({"work": work}, RateLimit(50, 0.001))
        line = json.dumps({"op": "work", "seconds": seconds}).encode()

        async def run():
            answered = 0
            while json.loads(await door.answer(UID, line))["ok"]:
                answered += 1
            return answered

        return asyncio.run(run())

    assert asked_of(0.0) > 2 * asked_of(0.01) > 0
    assert asked_of(0.1) >= 2, "one request takes no more than so much"


def test_the_command_that_asks_too_much_ends_with_code_6(tmp_path):
    async def ping(uid, _request):
        return uid

    async def run():
        door = LocalDoor({"ping": ping}, RateLimit(1, 0.001))
        server = Server(lambda _uid, line: door.answer(UID, line), door.answer)
        await server.listen_unix(tmp_path / "s")
        assert await asked(tmp_path / "s", "ping") == UID
        with pytest.raises(NotNow, match="too many requests") as caught:
            await asked(tmp_path / "s", "ping")
        await server.close()
        return caught.value.exit_code

    assert asyncio.run(run()) == 6


def test_a_job_that_checks_too_often_is_told_so_and_its_answers_are_heard():
    door = Door()
    door.desk._limit = RateLimit(2, 0.5)
    assert [type(door.say(door.check())) for _ in range(2)] == [wire.CheckReply] * 2
    assert "too many" in refused(door.say(door.check()), "busy")
    offered(door)
    assert isinstance(door.say(wire.Accept(job=7, epoch=3, time=door.clock.now())), wire.Done)
    door.clock.at += 2
    assert isinstance(door.say(door.check()), wire.CheckReply)


def test_the_jobs_of_one_user_cannot_keep_those_of_others_out():
    door = Door()
    door.desk._of_user = RateLimit(2, 0.5)
    door.observer.last = make_snapshot([make_job(n, f"n{n}", uid=UID + (n == 9)) for n in (7, 8, 9)])
    assert [type(door.say(door.check(job=n, size=1, nodes=(f"n{n}",)))) for n in (7, 8)] == [wire.CheckReply] * 2
    assert "too many" in refused(door.say(door.check(job=8, size=1, nodes=("n8",))), "busy")
    other = credential.Key(UID + 1, b"o" * 64)
    door.door._verifier = Verifier(other, None)
    assert isinstance(door.say(door.check(job=9, size=1, nodes=("n9",)), other), wire.CheckReply)


def test_a_user_cannot_fill_the_memory_with_lines_that_do_not_end(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.ipc.server._LOCAL_LINE", 1_000_000)

    async def body(server):
        server._held.most = 2_000_000
        await server.listen_unix(tmp_path / "s")
        several = [await asyncio.open_unix_connection(tmp_path / "s") for _ in range(5)]
        for _reader, writer in several:
            writer.write(b"x" * 900_000)
        ended = 0
        for reader, _writer in several:
            try:
                ended += await asyncio.wait_for(reader.read(1), 1.0) == b""
            except ConnectionError:
                ended += 1
            except TimeoutError:
                pass
        assert ended >= 3, "no more than two of them find room"
        assert sum(server._held._held.values()) <= 2_000_000
        for _reader, writer in several:
            writer.close()
        long = {"op": "echo", "text": "y" * 900_000}
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s", limit=2_000_000)
        for _ in range(200):  # what was held is given back
            if not server._held._held:
                break
            await asyncio.sleep(0.02)
        writer.write(json.dumps(long).encode() + b"\n")
        assert json.loads(await reader.readline())["result"]["said"] == long["text"]
        writer.close()

    serve(body)


def test_who_proves_nothing_may_not_stay(monkeypatch):
    monkeypatch.setattr("penstock.ipc.server._UNPROVEN", 0.2)

    async def body(server):
        port = await server.listen_tcp("127.0.0.1", 0)
        stranger, friend = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        friend[1].write(b"friend\n")
        await friend[0].readline()
        await asyncio.sleep(0.25)
        for _reader, writer in (stranger, friend):
            writer.write(b"stranger\n")
        assert await asyncio.wait_for(stranger[0].readline(), 5) == b"remote stranger\n"
        assert await asyncio.wait_for(stranger[0].read(), 5) == b""
        assert await asyncio.wait_for(friend[0].readline(), 5) == b"remote stranger\n"
        friend[1].write(b"friend\n")
        assert await asyncio.wait_for(friend[0].readline(), 5) == b"remote friend\n"
        friend[1].close()

    serve(body)


def test_only_a_proven_request_counts_as_one():
    door = Door()
    other = door.line(door.check(), credential.Key(UID, b"x" * 64))
    assert [asyncio.run(door.door.hear(line))[1] for line in (b"{}\n", other, door.line(door.check()))] == [
        None,
        None,
        UID,
    ]
    door.observer.last = make_snapshot([make_job(7, "n1", "n2", uid=UID + 1)])
    reply, proven = asyncio.run(door.door.hear(door.line(door.check())))
    assert "is not yours" in refused(wire.decode_reply(reply))
    assert proven == UID


def test_one_user_gets_so_many_connections(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.ipc.server._MAX_PER_USER", 3)

    async def body(server):
        await server.listen_unix(tmp_path / "s")
        several = [await asyncio.open_unix_connection(tmp_path / "s") for _ in range(4)]
        for _reader, writer in several:
            writer.write(b'{"op": "echo", "text": 1}\n')
        lines = [await asyncio.wait_for(_first(reader), 5) for reader, _writer in several]
        assert lines.count(b"") == 1
        for _reader, writer in several:
            writer.close()

    serve(body)


def test_all_addresses_of_a_host_are_one_when_connections_are_counted(monkeypatch):
    monkeypatch.setattr("penstock.ipc.server._MAX_PER_ADDRESS", 3)

    async def body(server):
        port = await server.listen_tcp("127.0.0.1", 0)
        several = [
            await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.0.0.{n}", 0)) for n in range(2, 6)
        ]
        for _reader, writer in several:
            writer.write(b"hello\n")
        lines = [await asyncio.wait_for(_first(reader), 5) for reader, _writer in several]
        assert sorted(lines) == [b"", *3 * [b"remote hello\n"]]
        for _reader, writer in several:
            writer.close()

    serve(body)


async def _first(reader):
    try:
        return await reader.readline()
    except ConnectionError:
        return b""

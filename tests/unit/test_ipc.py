"""The agent's two doors: the Unix socket with the peer's uid from the kernel, TCP with a credential per request."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import pwd
import socket
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from factories import ManualClock, make_job, make_snapshot

from dmr import credential, wire
from penstock import errors
from penstock.api import JobState, Offer
from penstock.app import App
from penstock.config import Config
from penstock.errors import (
    AgentUnavailable,
    ConfigError,
    NotNow,
    NotPermitted,
    OutcomeUnknown,
    PenstockError,
    StoreError,
)
from penstock.ipc.auth import FRESH, Verifier, make_key, peer_uid
from penstock.ipc.client import ask, ask_agent
from penstock.ipc.handlers import LocalDoor, RemoteDoor
from penstock.ipc.limits import RateLimit
from penstock.ipc.server import Server, _peer
from penstock.malleable.machine import MalleableJob
from penstock.malleable.words import Phase
from penstock.store import Store

UID = 1000
KEY = credential.Key(UID, b"k" * 64)


def serve(body):
    """Run `body(server)` in an event loop; the server is closed after it."""

    async def run():
        seen = []

        async def local(uid, line):
            seen.append((uid, line))
            return await door.answer(uid, line)

        async def remote(line):
            return b"remote " + line, line != b"stranger\n"

        async def echo(uid, request):
            return {"uid": uid, "said": request.get("text")}

        async def fail(_uid, request):
            raise getattr(errors, request["kind"])(f"because of {request['kind']}")

        async def crash(_uid, _request):
            return 1 / 0

        door = LocalDoor({"echo": echo, "fail": fail, "crash": crash})
        server = Server(local, remote)
        server.seen = seen
        try:
            return await asyncio.wait_for(body(server), 20)
        finally:
            await server.close()

    return asyncio.run(run())


def asked(path, op, **arguments):
    return asyncio.to_thread(ask, path, op, arguments, 5.0)


def test_the_peers_uid_is_what_the_kernel_says():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_uid(ours) == os.geteuid()


def test_a_request_is_answered_with_the_callers_uid(tmp_path):
    async def body(server):
        await server.listen_unix(tmp_path / "s")
        assert await asked(tmp_path / "s", "echo", text="é\n") == {"uid": os.geteuid(), "said": "é\n"}
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o666

    serve(body)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_known_by_its_own_uid(tmp_path):
    nobody = pwd.getpwnam("nobody")
    # A socket in a folder that others may enter; a process that is really another user's.
    place = f"/tmp/penstock-ipc-{os.getpid()}.sock"
    program = (
        "import json, os, socket, sys; os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        's.sendall(b\'{"op": "echo"}\\n\'); print(s.makefile().readline())'
    )

    async def body(server):
        await server.listen_unix(type(tmp_path)(place))
        argv = [sys.executable, "-c", program, place, str(nobody.pw_uid)]
        done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, timeout=20)
        assert json.loads(done.stdout)["result"]["uid"] == nobody.pw_uid, done.stderr

    serve(body)


@pytest.mark.parametrize(
    "line",
    [b"garbage", b"{", b"[]", b"5", b"null", b'{"no": "op"}', b'{"op": "nope"}', b'{"op": ["echo"]}', b'{"op": null}',
     b"\xff\xfe", b""],
)  # fmt: skip
def test_what_is_no_request_is_refused_and_the_connection_lives(tmp_path, line):
    async def body(server):
        await server.listen_unix(tmp_path / "s")
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        writer.write(line + b"\n")
        reply = json.loads(await reader.readline())
        assert (reply["ok"], reply["error"]) == (False, "UserError")
        assert "operations: crash, echo, fail" in reply["message"]
        writer.write(b'{"op": "echo", "text": 1}\n{"op": "echo", "text": 2}\n')
        assert [json.loads(await reader.readline())["result"]["said"] for _ in range(2)] == [1, 2]
        writer.close()

    serve(body)


def test_a_line_that_is_too_long_ends_its_connection_and_nothing_else(tmp_path):
    async def body(server):
        await server.listen_unix(tmp_path / "s")
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            for _ in range(200):
                writer.write(b"x" * 100_000)
                await writer.drain()
            assert await reader.readexactly(1)
        writer.close()
        assert server.seen == []
        assert (await asked(tmp_path / "s", "echo", text="still here"))["said"] == "still here"

    serve(body)


def test_peers_that_go_away_or_say_half_a_line_do_no_harm(tmp_path):
    async def body(server):
        await server.listen_unix(tmp_path / "s")
        for sent in (b"", b'{"op": "ec', b'{"op": "echo"}\n'):
            _reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
            writer.write(sent)
            await writer.drain()
            writer.close()
        assert (await asked(tmp_path / "s", "echo", text=1))["said"] == 1
        # One that is silent keeps nobody waiting.
        _reader, silent = await asyncio.open_unix_connection(tmp_path / "s")
        assert (await asked(tmp_path / "s", "echo", text=2))["said"] == 2
        silent.close()

    serve(body)


@pytest.mark.parametrize(
    "kind",
    ["UserError", "ConfigError", "NotPermitted", "Infeasible", "NotFound", "NotNow", "SlurmUnavailable",
     "OutcomeUnknown", "StoreError", "PenstockError"],
)  # fmt: skip
def test_the_kind_of_an_error_travels_to_the_client(tmp_path, kind):
    async def body(server):
        await server.listen_unix(tmp_path / "s")
        with pytest.raises(PenstockError) as caught:
            await asked(tmp_path / "s", "fail", kind=kind)
        assert type(caught.value).__name__ == kind
        assert caught.value.exit_code == getattr(errors, kind).exit_code
        assert str(caught.value) == f"because of {kind}"

    serve(body)


def test_a_bug_in_an_operation_is_an_error_of_that_request_only(tmp_path):
    async def body(server):
        await server.listen_unix(tmp_path / "s")
        with pytest.raises(PenstockError, match=r"internal error.*ZeroDivisionError") as caught:
            await asked(tmp_path / "s", "crash")
        assert caught.value.exit_code == 1
        assert (await asked(tmp_path / "s", "echo", text=1))["said"] == 1

    serve(body)


@pytest.mark.parametrize("name", ["__doc__", "annotations", "nonsense", "", None])
def test_an_error_of_an_unknown_kind_is_a_plain_error(tmp_path, name):
    async def body(server):
        async def odd(_uid, _line):
            return json.dumps({"ok": False, "error": name, "message": "odd"}).encode() + b"\n"

        server._on_local = odd
        await server.listen_unix(tmp_path / "s")
        with pytest.raises(PenstockError, match="odd") as caught:
            await asked(tmp_path / "s", "echo")
        assert type(caught.value) is PenstockError

    serve(body)


def test_without_an_agent_the_error_says_how_to_start_one(tmp_path):
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(AgentUnavailable, match=r"penstock agent.*systemctl --user start") as caught:
            ask(path, "ping")
        assert caught.value.exit_code == 3
        assert str(path) in str(caught.value)


def test_without_a_sites_agent_nobody_is_told_to_start_one(tmp_path, monkeypatch):
    own = Config.model_validate({"agent": {"state_dir": str(tmp_path)}})
    site = Config.model_validate({"agent": {"state_dir": str(tmp_path), "serve": "all"}})
    with pytest.raises(AgentUnavailable, match=r"penstock agent.*systemctl --user start"):
        ask_agent(own, "ping")
    with pytest.raises(AgentUnavailable, match="systemctl status penstock") as caught:
        ask_agent(site, "ping")
    assert "--user" not in str(caught.value)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(AgentUnavailable, match="systemctl status penstock"):
        ask_agent(own, "ping")
    missing = Config.model_validate({"agent": {"state_dir": str(tmp_path / "new")}})
    with pytest.raises(AgentUnavailable, match="systemctl --user start"):
        ask_agent(missing, "ping")


@contextlib.contextmanager
def deaf_agent(path):
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()
        yield


@pytest.mark.parametrize("op", ["ping", "pause"])
def test_an_agent_that_does_not_answer_in_time_is_none(tmp_path, op):
    with deaf_agent(tmp_path / "s"), pytest.raises(AgentUnavailable):
        ask(tmp_path / "s", op, timeout=0.1)


@pytest.mark.parametrize("op", ["guide", "retry", "submit"])
def test_what_may_have_been_done_is_not_said_to_have_failed(tmp_path, op):
    with deaf_agent(tmp_path / "s"), pytest.raises(OutcomeUnknown, match=r"has the request.*penstock status"):
        ask(tmp_path / "s", op, timeout=0.1)
    with pytest.raises(AgentUnavailable):
        ask(tmp_path / "nobody", op, timeout=0.1)


def test_a_second_agent_at_the_same_socket_is_refused(tmp_path):
    async def body(server):
        await server.listen_unix(tmp_path / "s")
        second = Server(server._on_local, server._on_remote)
        with pytest.raises(PenstockError, match="another agent already listens"):
            await second.listen_unix(tmp_path / "s")
        await second.close()
        assert (await asked(tmp_path / "s", "echo", text=1))["said"] == 1

    serve(body)


def test_a_stale_socket_is_replaced_and_a_closed_server_removes_its_own(tmp_path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "s"))  # as kill -9 leaves it

    async def body(server):
        await server.listen_unix(tmp_path / "s")
        assert (await asked(tmp_path / "s", "echo", text=1))["said"] == 1

    serve(body)
    assert not (tmp_path / "s").exists()


def test_tcp_takes_the_given_port_or_picks_one(tmp_path):
    async def body(server):
        port = await server.listen_tcp("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"a\n")
        assert await reader.readline() == b"remote a\n"
        writer.close()
        await server.close()
        assert await server.listen_tcp("127.0.0.1", port) == port

    serve(body)


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, StoreError), (errno.EACCES, ConfigError)])
def test_a_socket_for_which_there_is_no_room_is_no_mistake_of_the_configuration(tmp_path, monkeypatch, number, kind):
    async def fails(*_args, **_more):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(asyncio, "start_unix_server", fails)
    with pytest.raises(kind, match=r"`agent\.socket`: cannot listen at"):
        serve(lambda server: server.listen_unix(tmp_path / "s"))


def test_a_key_for_which_there_is_no_room_is_a_fault_of_the_state(tmp_path, monkeypatch):
    real = os.open
    monkeypatch.setattr(os, "open", lambda *_args: real("/dev/full", os.O_WRONLY))
    with pytest.raises(StoreError, match="key: No space left on device"):
        make_key(tmp_path / "key")
    monkeypatch.undo()
    assert make_key(tmp_path / "key")


# -- credentials -------------------------------------------------------------------------------------------------------


def test_the_key_is_made_once_and_for_its_owner_only(tmp_path):
    key = make_key(tmp_path / "key")
    assert key.uid == os.geteuid()
    assert make_key(tmp_path / "key") == key
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["key"]
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(errors.StoreError, match="chmod 600"):
        make_key(tmp_path / "key")


# -- the door for programs ---------------------------------------------------------------------------------------------


class Door:
    """A RemoteDoor over a snapshot with alice's running job 7, and a way to speak to it."""

    def __init__(self, serves=lambda _uid: True, **changes):
        self.clock = ManualClock(10_000.0)
        self.woken = []
        # A message reaches neither the backend nor a policy: those are the loop's.
        app = App(Config.model_validate({}), SimpleNamespace(), self.clock, Store(":memory:"))
        self.controller = app.malleable
        self.controller._wake = self.woken.append
        self.observer = SimpleNamespace(last=make_snapshot([make_job(7, "n1", "n2", uid=UID, **changes)]))
        self.door = RemoteDoor(
            self.controller, self.observer, Verifier(KEY, None), self.clock, serves, lambda: self.woken.append("look")
        )

    def check(self, **changes):
        values = {"job": 7, "epoch": 0, "size": 2, "minimum": 1, "maximum": 8, "nodes": ("n1", "n2")}
        return wire.Check(**{**values, "time": self.clock.now(), **changes})

    def line(self, request, key=KEY):
        return wire.encode(wire.signed(request, lambda digest: credential.sign_key(digest, key)))

    def say(self, request, key=KEY):
        return self.raw(self.line(request, key))

    def raw(self, line):
        return wire.decode_reply(asyncio.run(self.door.answer(line)))


def refused(reply, error="not-permitted"):
    assert isinstance(reply, wire.Failure), reply
    assert reply.error == error
    return reply.message


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


def test_nobody_can_have_the_requests_of_others_forgotten(monkeypatch):
    monkeypatch.setattr("penstock.ipc.auth._REMEMBERED", 10)
    verifier = Verifier(KEY, None)
    verifier._once(UID, "mine", 0.0)
    for number in range(100):
        verifier._once(UID + 1, str(number), 1.0)
    with pytest.raises(NotPermitted, match="used before"):
        verifier._once(UID, "mine", 2.0)
    assert len(verifier._seen[UID + 1]) <= 10
    for uid in range(50):
        verifier._once(uid, "x", 10.0)
    for number in range(100):
        verifier._once(UID, str(number), 2 * FRESH + 100)
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


def offered(door, phase=Phase.OFFERED, epoch=3):
    offer = Offer(job=7, size=2, minimum=1, maximum=8, nodes=("n1", "n2"))
    me = MalleableJob(
        7, UID, offer, ("n1", "n2"), epoch=epoch, phase=phase, target=4, target_nodes=("n1", "n2", "n3", "n4")
    )
    door.controller.jobs[7] = me
    return me


def test_an_offer_is_answered_with_all_nodes_and_taken_up_by_its_epoch():
    door = Door()
    offered(door)
    reply = door.say(door.check(epoch=2))
    assert (reply.action, reply.size, reply.epoch, reply.nodes) == ("expand", 4, 3, ("n1", "n2", "n3", "n4"))
    accept = wire.Accept(job=7, epoch=3, time=door.clock.now())
    assert isinstance(door.say(accept), wire.Done)
    assert door.controller.jobs[7].phase is Phase.RESIZING
    again = replace(accept, id="0" * 16)
    assert isinstance(door.say(again), wire.Done)  # its answer was lost: sent again, with a credential of its own
    timings = {"spawn": 0.5}
    done = wire.Finished(job=7, epoch=3, time=door.clock.now(), size=4, nodes=reply.nodes, timings=timings)
    assert isinstance(door.say(done), wire.Done)
    assert door.controller.jobs[7].phase is Phase.IDLE
    assert door.controller.jobs[7].offer.size == 4


@pytest.mark.parametrize("epoch", [2, 4])
def test_a_stale_epoch_must_not_be_resized(epoch):
    door = Door()
    before = offered(door)
    refused(door.say(wire.Accept(job=7, epoch=epoch, time=door.clock.now())), "stale-epoch")
    assert door.controller.jobs[7] == before


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.ALLOCATING, Phase.MERGING, Phase.CLEANING, Phase.GIVING_BACK])
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
    assert (door.controller.jobs[7].phase, door.controller.jobs[7].note) == (Phase.GIVING_BACK, "no memory")
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


# -- what one user may take --------------------------------------------------------------------------------------------


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
    assert len(limit._left) < 2100
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


def test_who_makes_the_agent_work_long_has_fewer_requests(monkeypatch):
    monkeypatch.setattr("penstock.ipc.handlers._CHEAP", 0.001)

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
    door.door._limit = RateLimit(2, 0.5)
    assert [type(door.say(door.check())) for _ in range(2)] == [wire.CheckReply] * 2
    assert "too many" in refused(door.say(door.check()), "busy")
    offered(door)
    assert isinstance(door.say(wire.Accept(job=7, epoch=3, time=door.clock.now())), wire.Done)
    door.clock.at += 2
    assert isinstance(door.say(door.check()), wire.CheckReply)


def test_the_jobs_of_one_user_cannot_keep_those_of_others_out():
    door = Door()
    door.door._of_user = RateLimit(2, 0.5)
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
        False,
        False,
        True,
    ]
    door.observer.last = make_snapshot([make_job(7, "n1", "n2", uid=UID + 1)])
    reply, proven = asyncio.run(door.door.hear(door.line(door.check())))
    assert "is not yours" in refused(wire.decode_reply(reply))
    assert proven


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


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        (("192.0.2.7", 1), "192.0.2.7"),
        (("::ffff:192.0.2.7", 1, 0, 0), "192.0.2.7"),
        (("2001:db8::1:2:3:4", 1, 0, 0), "2001:db8::/64"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::/64"),
        (("::1", 1, 0, 0), "this host"),
        (("::ffff:127.0.0.9", 1, 0, 0), "this host"),
        (None, "nobody"),
    ],
)
def test_a_peer_is_a_host_not_an_address(name, peer):
    class Connected:
        def get_extra_info(self, _what):
            return name

    assert _peer(Connected()) == peer


async def _first(reader):
    try:
        return await reader.readline()
    except ConnectionError:
        return b""


@pytest.mark.parametrize("line", [b'{"op": "echo", "text": "\\ud800"}', b"[" * 100_000])
def test_a_request_that_can_be_neither_stored_nor_answered_is_refused(line):
    async def echo(_uid, request):
        return request["text"]

    reply = json.loads(asyncio.run(LocalDoor({"echo": echo}).answer(UID, line)))
    assert (reply["ok"], reply["error"]) == (False, "UserError")

"""The agent's local door: the Unix socket with the peer's uid from the kernel."""

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

import pytest
from ipc_doors import UID, asked, serve

from penstock import errors
from penstock.config import config_of
from penstock.errors import (
    AgentUnavailable,
    ConfigError,
    OutcomeUnknown,
    PenstockError,
    StoreError,
)
from penstock.host.peers import peer_uid
from penstock.ipc.auth import make_key
from penstock.ipc.client import ask, ask_agent
from penstock.ipc.handlers import LocalDoor
from penstock.ipc.server import Server


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
        assert reply["message"].endswith("; if a part was installed since the agent started, start it anew")
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
    own = config_of({"agent": {"state_dir": str(tmp_path)}})
    site = config_of({"agent": {"state_dir": str(tmp_path), "serve": "all"}})
    with pytest.raises(AgentUnavailable, match=r"penstock agent.*systemctl --user start"):
        ask_agent(own, "ping")
    with pytest.raises(AgentUnavailable, match="systemctl status penstock") as caught:
        ask_agent(site, "ping")
    assert "--user" not in str(caught.value)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(AgentUnavailable, match="systemctl status penstock"):
        ask_agent(own, "ping")
    missing = config_of({"agent": {"state_dir": str(tmp_path / "new")}})
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
    with deaf_agent(tmp_path / "s"), pytest.raises(OutcomeUnknown, match=r"got the request.*penstock status"):
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
    def fails(*_args):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket.socket, "bind", fails)
    with pytest.raises(kind, match=r"`agent\.socket`: cannot listen at"):
        serve(lambda server: server.listen_unix(tmp_path / "s"))


def test_a_key_for_which_there_is_no_room_is_a_fault_of_the_state(tmp_path, monkeypatch):
    real = os.open
    monkeypatch.setattr(os, "open", lambda *_args: real("/dev/full", os.O_WRONLY))
    with pytest.raises(StoreError, match="key: No space left on device"):
        make_key(tmp_path / "key")
    monkeypatch.undo()
    assert make_key(tmp_path / "key")


@pytest.mark.parametrize("line", [b'{"op": "echo", "text": "\\ud800"}', b"[" * 100_000])
def test_a_request_that_can_be_neither_stored_nor_answered_is_refused(line):
    async def echo(_uid, request):
        return request["text"]

    reply = json.loads(asyncio.run(LocalDoor({"echo": echo}).answer(UID, line)))
    assert (reply["ok"], reply["error"]) == (False, "UserError")


def test_a_command_waits_its_turn_where_many_are_at_the_door(tmp_path):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen(0)
        with socket.socket(socket.AF_UNIX) as before:
            before.connect(str(tmp_path / "s"))

            async def run():
                asking = asyncio.ensure_future(asked(tmp_path / "s", "ping"))
                done, _ = await asyncio.wait({asking}, timeout=0.3)
                assert not done, "there is no room for it yet"
                listening.accept()[0].close()
                connection, _address = await asyncio.to_thread(listening.accept)
                await asyncio.to_thread(connection.recv, 100)
                connection.sendall(b'{"ok": true, "result": "its turn"}\n')
                connection.close()
                return await asking

            assert asyncio.run(run()) == "its turn"
    with pytest.raises(AgentUnavailable, match="no agent answers"):
        asyncio.run(asked(tmp_path / "none", "ping"))

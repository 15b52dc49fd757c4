"""Connections never take the descriptors that the agent needs for its own work, and its log does not grow by them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import structlog
from ipc_doors import asked, serve

from conftest import COMMAND
from penstock.host import descriptors
from penstock.host.listener import Listener
from penstock.ipc.client import ask

STRANGERS = 1040


@contextlib.contextmanager
def limited(soft):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def with_room(connections):
    """The limit under which there is room for so many more, whatever the tests before have left open."""
    gc.collect()
    limit = descriptors.used() + connections
    while limit - descriptors.reserve(limit) - descriptors.used() < connections:
        limit += 1
    return limit


def test_the_reserve():
    assert [descriptors.reserve(limit) for limit in (32, 64, 256, 1024, 4096, 16384, 10**6)] == [
        24, 24, 32, 128, 512, 1024, 1024,
    ]  # fmt: skip


def test_full_doors_leave_room_for_the_next_one():
    assert [descriptors.for_doors(there) for there in (-3, 0, 1, 2, 20, 64, 4096)] == [1, 1, 1, 1, 18, 56, 3584]


def test_what_is_open_is_counted():
    gc.collect()
    before = descriptors.used()
    with socket.socket() as one, socket.socket() as other:
        assert descriptors.used() == before + 2
        with limited(with_room(6)):
            assert descriptors.room() == 6
            one.close()
            assert descriptors.room() == 7
        other.close()


def test_nothing_is_taken_without_room_and_the_log_has_a_line_at_the_beginning_and_at_the_end(tmp_path, capsys):
    said = ""

    def lines():
        nonlocal said
        said += capsys.readouterr().out
        return said.count("no new connections are accepted"), said.count("new connections are accepted again")

    async def run():
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(tmp_path / "s"))
        listening.listen(50)
        room, taken = [0], []
        listener = Listener("local", listening, taken.append, lambda: room[0] - len(taken), lambda: True)

        async def until(number, expected):
            for _ in range(1000):
                if (len(taken), lines()) == (number, expected):
                    break
                await asyncio.sleep(0.01)
            assert (len(taken), lines()) == (number, expected)

        several = [socket.socket(socket.AF_UNIX) for _ in range(40)]
        for one in several:
            one.connect(str(tmp_path / "s"))
        await until(0, (1, 0))
        room[0] = 30
        await until(30, (2, 1))
        room[0] = 100
        await until(40, (2, 2))
        listener.close()
        for one in (*several, *taken):
            one.close()

    structlog.reset_defaults()  # whatever a command of an earlier test has set up
    asyncio.run(run())


def test_who_has_spoken_stays_and_strangers_make_room(tmp_path):
    async def body(server):
        with limited(with_room(20)):
            await server.listen_unix(tmp_path / "s")
        gate = server._doors["local"].gate
        assert 15 <= gate.bounds.most <= 20
        friend = await asyncio.open_unix_connection(tmp_path / "s")
        friend[1].write(b'{"op": "echo", "text": "hello"}\n')
        assert json.loads(await friend[0].readline())["ok"]
        strangers = [await asyncio.open_unix_connection(tmp_path / "s") for _ in range(60)]
        assert await asked(tmp_path / "s", "echo", text="others too") == {"uid": os.getuid(), "said": "others too"}
        friend[1].write(b'{"op": "echo", "text": "still here"}\n')
        assert json.loads(await friend[0].readline())["result"]["said"] == "still here"
        assert len(gate) <= gate.bounds.most
        assert server.turned_away["local"] >= 40
        for _reader, writer in (*strangers, friend):
            writer.close()

    serve(body)


def test_one_who_reads_nothing_does_not_keep_a_descriptor(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.ipc.server._DRAIN", 0.2)

    async def body(server):
        await server.listen_unix(tmp_path / "s")
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(str(tmp_path / "s"))
            before = None
            for _ in range(500):
                if len(server._doors["local"]) == 1:
                    break
                await asyncio.sleep(0.01)
            before = descriptors.used()
            line = json.dumps({"op": "echo", "text": "x" * 1_000_000}).encode() + b"\n"
            await asyncio.to_thread(deaf.sendall, line)
            for _ in range(1000):
                if descriptors.used() < before:
                    break
                await asyncio.sleep(0.01)
            assert descriptors.used() < before
            assert len(server._doors["local"].gate) == 0

    serve(body)


_KNOCK = """
import os, socket, sys, time
tcp, unix, number = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
several = []
for _ in range(number):
    several.append(socket.create_connection(("127.0.0.1", tcp)))
if os.geteuid() == 0:
    os.setgroups([])
for place in range(number):
    if os.getuid() == 0 and place % 60 == 0:  # of each user
        os.seteuid(0)
        os.seteuid(60000 + place // 60)
    several.append(socket.socket(socket.AF_UNIX))
    several[-1].connect(unix)
print("there", flush=True)
time.sleep(600)
"""


def _start(site, limit):
    """An agent with so many descriptors at most."""
    code = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit})); {COMMAND[2]}"
    with site.log.open("ab") as log:
        site.process = subprocess.Popen(
            [*COMMAND[:2], code, "agent"], env=site.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    site.until(site.answers, "the agent")
    return site.process


def _looked_at(site):
    return ask(site.socket, "cluster")["at"] or 0.0


@pytest.mark.parametrize("limit", [1024, 64])
def test_an_agent_with_few_descriptors_goes_on_whoever_knocks(site, limit):
    """At both doors, of many users. Each look at the simulated Slurm takes descriptors, as a command of a real one."""
    if site.process is not None and site.process.poll() is None:
        site.stop()
    process = _start(site, limit)
    port = ask(site.socket, "env")["DMR_AGENT"].rpartition(":")[2]
    words = [sys.executable, "-c", _KNOCK, port, str(site.socket), str(STRANGERS // 2)]
    before = site.log.stat().st_size
    with subprocess.Popen(words, stdout=subprocess.PIPE) as knocking:
        try:
            assert knocking.stdout.readline() == b"there\n"
            since = _looked_at(site)
            site.until(lambda: _looked_at(site) > since + 3.0, "looks at Slurm")
            held = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
            assert held <= limit - 16, f"{held} of {limit} are open: a command of Slurm needs eight"
            assert ask(site.socket, "ping")["pid"] == process.pid
            assert ask(site.socket, "status")["problems"] == []
        finally:
            knocking.kill()
    assert site.log.stat().st_size - before < 20_000, site.said()
    site.stop()

"""The door of a pool's scheduler, at which its owner's front programs ask, and everybody on the network may knock."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
import threading
from types import SimpleNamespace

import pytest
from floods import ONLY_ROOT, OTHERS, flood

from penstock.fronts.programs.pools import DOOR
from penstock_pool.folder import PoolFolder
from penstock_pool.jobs import door as module
from penstock_pool.jobs.conditions import SlurmJobs
from penstock_pool.jobs.door import JobsDoor
from penstock_pool.jobs.rows import JobOwner
from waiting import until

pytest.importorskip("cryptography")


class Opened:
    """A door in a loop and a thread of its own, and its owner, who asks."""

    def __init__(self, path):
        self.folder = PoolFolder("main", path)
        self.folder.make()
        owner = JobOwner(os.geteuid(), "me", os.getegid(), "us", "c")
        self.door = JobsDoor(self.folder, owner, SlurmJobs(None), "127.0.0.1", {})
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        queue = SimpleNamespace(awaited=lambda: ())
        self.do(self.door.open(SimpleNamespace(machine=SimpleNamespace(queue=queue))))
        said = json.loads((self.folder.path / DOOR).read_text())
        self.address = said["host"], said["port"]
        self.place = f"{said['host']}:{said['port']}"

    def do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def connected(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(self.folder.certificate)
        context.load_cert_chain(self.folder.certificate, self.folder.key)
        return context.wrap_socket(socket.create_connection(self.address, timeout=20))

    def asked(self):
        with self.connected() as one:
            one.sendall(b'{"op": "none"}\n')
            return json.loads(one.makefile().readline())

    def down(self):
        self.do(self.door.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(60)
        self.loop.close()


@pytest.fixture
def opened(tmp_path):
    it = Opened(tmp_path / "main")
    yield it
    it.down()


def answered(opened, number=5):
    return [opened.asked()["error"][:23] for _ in range(number)] == number * ["no request of this vers"]


@ONLY_ROOT
@pytest.mark.parametrize("kind", ["idle", "half", "dribble", "endless", "storm"])
@pytest.mark.few(1)
def test_the_owner_is_answered_during_an_attack(opened, kind):
    with flood(kind, opened.place, 400, b"no handshake\n"):
        assert answered(opened)
        gate = opened.door._guests.gate
        assert gate._of_peer[f"uid {OTHERS}"] <= gate.bounds.of_peer == 256


def test_who_does_not_prove_to_be_the_owner_is_sent_away(opened, monkeypatch):
    with monkeypatch.context() as hasty, socket.create_connection(opened.address, 60) as silent:
        hasty.setattr(module, "_HANDSHAKE", 0.5)
        assert silent.recv(1) == b""
    until(lambda: len(opened.door._guests) == 0, "its place to be free")
    assert answered(opened)


def test_the_owners_own_connections_are_not_bounded_by_a_share(opened):
    with contextlib.ExitStack() as kept:
        for _ in range(30):
            opened.door._guests.gate.bounds = module.bounds_for(40)
            kept.enter_context(opened.connected())
        assert answered(opened)
    until(lambda: len(opened.door._guests) == 0, "those who have left to be forgotten")

"""The agent's two doors for their tests: a server with both, and the one for programs by itself."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from factories import ManualClock

from dmr import credential, wire
from penstock import errors
from penstock.api import Offer
from penstock.app import App
from penstock.config import config_of
from penstock.ipc.auth import Verifier
from penstock.ipc.client import ask
from penstock.ipc.handlers import LocalDoor, RemoteDoor
from penstock.ipc.server import Server
from penstock.resize.running.machine import MalleableJob
from penstock.resize.running.part import MalleablePart
from penstock.resize.running.programs import Programs
from penstock.resize.running.words import ResizePhase
from penstock.state.store import Store
from penstock_lab.testing import make_job, make_snapshot

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
            return b"remote " + line, None if line == b"stranger\n" else UID

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


class Door:
    """A RemoteDoor over a snapshot with alice's running job 7, and a way to speak to it."""

    def __init__(self, serves=lambda _uid: True, **changes):
        self.clock = ManualClock(10_000.0)
        self.woken = []
        # A message reaches neither the backend nor a policy: those are the loop's.
        app = App(config_of({}), SimpleNamespace(operators=None), self.clock, Store(":memory:"))
        self.controller = app.part(MalleablePart).controller
        self.controller._wake = self.woken.append
        self.observer = SimpleNamespace(last=make_snapshot([make_job(7, "n1", "n2", uid=UID, **changes)]))
        self.steady = ManualClock(0.0)
        verifier = Verifier(KEY, None, self.steady.now)
        want_look = lambda: self.woken.append("look")  # noqa: E731
        self.desk = Programs(self.controller, self.observer, self.clock, serves, want_look)
        self.door = RemoteDoor(self.desk, verifier, self.clock)

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


def offered(door, phase=ResizePhase.OFFERED, epoch=3):
    offer = Offer(job=7, size=2, minimum=1, maximum=8, nodes=("n1", "n2"))
    me = MalleableJob(
        7, UID, offer, ("n1", "n2"), epoch=epoch, phase=phase, target=4, target_nodes=("n1", "n2", "n3", "n4")
    )
    door.controller.jobs[7] = me
    return me

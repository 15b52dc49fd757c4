"""A site's view on a Slurm that is made up, and those who ask it, by one clock that is moved by hand."""

from __future__ import annotations

import asyncio
import os

from factories import ManualClock

from penstock.api import License, Node, Partition, Reservation
from penstock.site.look.client import SharedLook
from penstock.slurm.privacy import Privacy
from penstock_lab.testing import make_job
from penstock_site_view.looks import Looks
from penstock_site_view.service import ViewService

ME = os.geteuid()
MINE, OTHERS = make_job(1, "n1", uid=ME), make_job(2, uid=ME + 1, user="bob")
NODES = [Node("n1", "ALLOCATED", 2, True, ("batch",), 1000.0), Node("n2", "IDLE", 2, True, ("batch",))]
PARTITION = Partition("batch", ("n1", "n2"), True, True, None, 600.0, None, billing={"CPU": 1.0})
RESERVATION = Reservation("r", 1.0, float("inf"), ("n2",), frozenset({"bob"}), frozenset(), frozenset({"FLEX"}), True)
OPEN = Privacy("c")
CLOSED = Privacy("c", frozenset({"jobs", "reservations"}), privileged=frozenset({"root", "view"}))


class FakeReader:
    """What Slurm would say, and how often it was asked."""

    def __init__(self, rule=OPEN) -> None:
        self.clock, self.rule, self.asked, self.error = ManualClock(5000.0), rule, [], None
        self.queue = [MINE, OTHERS]
        self.takes = 0.0

    def now(self):
        return self.clock.now()

    def whoami(self):
        return "view"

    async def _said(self, what, answer):
        await asyncio.sleep(0)
        self.asked.append(what)
        self.clock.at += self.takes
        if self.error is not None:
            raise self.error
        return answer

    async def privacy(self):
        return await self._said("privacy", self.rule)

    async def jobs(self):
        return await self._said("jobs", list(self.queue))

    async def nodes(self):
        return await self._said("nodes", NODES)

    async def partitions(self):
        return await self._said("partitions", [PARTITION])

    async def reservations(self):
        return await self._said("reservations", [RESERVATION])

    async def licenses(self):
        return await self._said("licenses", [License("matlab", 4, 1)])


class Scene:
    """A service at a socket, and those who ask it, on one clock."""

    def __init__(self, folder, rule=OPEN) -> None:
        self.reader = FakeReader(rule)
        self.path = folder / "view.sock"
        self.looks = Looks(self.reader, 15.0, steady=self.reader.now)
        self.service = ViewService(self.looks)

    def asker(self, trusted=(ME,), cluster="c", **more):
        return SharedLook(self.path, trusted, cluster, steady=self.reader.now, **{"timeout": 5.0, **more})

    async def __aenter__(self):
        self.service.listen(self.path)
        return self

    async def __aexit__(self, *_):
        await self.service.close()

    @property
    def clock(self):
        return self.reader.clock

    async def look(self, asker):
        return await asker.look(self.clock.now())


def in_scene(folder, work, rule=OPEN):
    async def play():
        async with Scene(folder, rule) as scene:
            return await work(scene)

    return asyncio.run(play())

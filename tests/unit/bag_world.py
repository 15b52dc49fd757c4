"""Bags on two simulated clusters under a virtual clock."""

from __future__ import annotations

from factories import hand

from penstock.api import JobSpec
from penstock.config import config_of
from penstock_lab.mock.backend import virtual_site
from penstock_lab.mock.controller import Controller
from penstock_lab.mock.model import ClusterConfig
from penstock_lab.mock.speedup import Work
from penstock_planning.broker.acts import BagActs
from penstock_planning.broker.assess import assess, open_market
from penstock_planning.broker.bags import Bags
from penstock_planning.broker.choice import Preference, lanes_of
from penstock_planning.broker.clusters import view_clusters
from penstock_planning.broker.passes import run_pass
from penstock_planning.broker.place import place
from penstock_planning.broker.shape import hindrance, shape
from penstock_planning.broker.site import NodeFacts, SiteFile
from penstock_planning.broker.tasks import bag_at
from penstock_planning.select.correction import Corrections
from penstock_planning.select.matchmaking import unmet
from penstock_planning.select.spread import spread

START = 1_700_000_000.0
KNOWN = SiteFile(partitions={"near/main": NodeFacts(base=2e9), "far/main": NodeFacts(base=1e9)})
BY = Preference()


def hindered(bag, candidate):
    """Why jobs of the bag can never run there, under the account and the QOS that it names."""
    owned = bag.options.get("account", ""), bag.options.get("qos", "")
    return hindrance(bag, candidate, shape(bag, candidate), unmet(bag.task, candidate.resource), owned)


class BagWorld:
    """Cluster `near` of four nodes, `far` of two that are half as fast, each node one core."""

    def __init__(self, folder):
        self.backend = virtual_site([ClusterConfig(4, "near", cpus=1), ClusterConfig(2, "far", cpus=1)], "alice", START)
        self.config = config_of({"agent": {"state_dir": folder}})
        self.bags = Bags(folder / "bags")
        self.executor = hand(self.backend)
        self.bag = bag_at(
            {"name": "md", "run": "#MOCK duration=500", "time": "20m",
             "requirements": [{"type": "compute", "amount": 1e12}]},
            "t", folder, "t",
        )  # fmt: skip

    def block(self, cluster, seconds, limit, nodes):
        """Somebody else's job."""
        engine = self.backend.on(cluster).engine
        Controller(engine).submit("bob", JobSpec("other", "#!/bin/sh\n", nodes, limit), Work(seconds))
        self.backend.clock.advance(0.0)

    async def market(self, only=()):
        views, problems = await view_clusters(self.backend, only)
        return await open_market(self.config, views, problems, KNOWN)

    async def submit(self, count, jobs=None):
        market = await self.market()
        found = await assess(market, self.bag, count, Corrections())
        run = self.bags.new(self.bag, count, self.backend.now(), {})
        plan = jobs or spread(count, lanes_of(found))
        problems = await place(
            run, found, plan, lambda: self.bags.save(run), self.backend.now(), BagActs(self.executor, run)
        )
        market.close()
        return run, plan, problems

    async def step(self, number, hysteresis=None, by=BY):
        """A pass by a command of its own: everything is read from the file."""
        run = self.bags.load(number)
        market = await self.market()
        done = await run_pass(self.bags, run, market, BagActs(self.executor, run), hysteresis, by)
        market.close()
        return self.bags.load(number), done

    async def until_done(self, number, hysteresis=None, step=100.0, limit=100_000.0):
        moves = []
        while self.backend.now() < START + limit:
            run, done = await self.step(number, hysteresis)
            moves += done.moves
            if run.finished is not None:
                return run, done, moves
            self.backend.clock.advance(step)
        raise AssertionError(done)

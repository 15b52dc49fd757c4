"""Bags of 64 to 1024 tasks over four resources (Ha et al., section IV-B): random, by the paper's model, and ours.

A strategy runs one bag after the other in one simulation, so that the same background meets every strategy; each bag
waits for the end of the one before. Times to completion are those of the paper (golden case G11).

    random        each task to any of the four; a pilot job for each machine's share, single cores on OSG (the baseline)
    round-robin   the same with equal shares
    least-loaded  each task to where the fewest jobs run and wait
    model         all to the resource of the least Tq + Tx: mean wait of the last 7 days by XDMoD's ranges, base clock
    best          all to the resource of the least TTC by our predicted waits, as a job array
    spread        over several, so that the last task is done as early as possible
    ours          spread, and moved while it waits
    ours-95       the same by the 95 % quantile of the waits
"""

from __future__ import annotations

import asyncio
import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

import numpy as np

from penstock.api import JobSpec
from penstock.config import config_of
from penstock.core.executor import Executor
from penstock.host import logs
from penstock.state.store import Store
from penstock_lab.mock.jobs import SimJob
from penstock_lab.papers.select_world import AMOUNT, MIXED, RESOURCES, World
from penstock_planning.broker.acts import BagActs
from penstock_planning.broker.assess import ClusterMarket, assess, open_market
from penstock_planning.broker.bags import Bags
from penstock_planning.broker.choice import Preference, lanes_of
from penstock_planning.broker.clusters import view_clusters
from penstock_planning.broker.passes import run_pass
from penstock_planning.broker.place import place
from penstock_planning.broker.tasks import Bag
from penstock_planning.select.buckets import Waited, mean_wait
from penstock_planning.select.consumables import Capability, Consumable, Requirement, Resource, Task
from penstock_planning.select.ranking import Sooner, Wait, rank
from penstock_planning.select.spread import Hysteresis, spread
from penstock_planning.select.workload import Times, times_of

__all__ = ["PROTOCOL", "SIZES", "STRATEGIES", "TASK", "BagTrial", "Outcome", "Protocol", "measure"]

SIZES: Final = (64, 128, 256, 512, 1024)
STRATEGIES: Final = ("random", "round-robin", "least-loaded", "model", "best", "spread", "ours", "ours-95")
_DAY: Final = 86400.0
_LIMITS: Final = {"bridges": 5 * 3600.0, "comet": 5 * 3600.0, "supermic": 5 * 3600.0, "osg": 10 * 3600.0}
_ARRAY: Final = 1000
"""Jobs of an array at most (MaxArraySize)."""
_LOOK: Final = 600.0
TASK: Final = Task("md", ((Requirement(Consumable.of("compute"), AMOUNT),),))


@dataclass(frozen=True, slots=True)
class Protocol:
    """`warm` days to fill the queues, then every `gap` days a bag; `rounds` of all sizes."""

    sizes: Sequence[int] = SIZES
    rounds: int = 4
    warm: float = 7.0
    gap: float = 1.0
    seed: int = 1
    strategies: Sequence[str] = STRATEGIES


PROTOCOL: Final = Protocol()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a bag: `shares` are its tasks by resource, `waits` the mean waits (s) of its jobs there, `moved`
    how many tasks were moved."""

    strategy: str
    size: int
    round: int
    times: Times
    shares: Mapping[str, int]
    waits: Mapping[str, float]
    moved: int = 0

    def row(self) -> dict[str, object]:
        """For programs."""
        return {
            "strategy": self.strategy,
            "tasks": self.size,
            "round": self.round,
            "ttc": self.times.total,
            "tq": self.times.waiting,
            "tx": self.times.execution,
            "shares": dict(self.shares),
            "waits": dict(self.waits),
            "moved": self.moved,
        }


def measure(protocol: Protocol, tell: Callable[[str], None] = lambda text: None) -> list[Outcome]:
    """All strategies, as many at once as there are cores."""
    found: list[Outcome] = []
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        pending = {pool.submit(_simulate, protocol, name): name for name in protocol.strategies}
        try:
            for done, future in enumerate(as_completed(pending), 1):
                found += future.result()
                tell(f"mixed {done}/{len(pending)} {pending[future]}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    order = {name: place for place, name in enumerate(protocol.strategies)}
    return sorted(found, key=lambda o: (order[o.strategy], o.size, o.round))


def _simulate(protocol: Protocol, strategy: str) -> list[Outcome]:
    logs.configure("error", "text")
    bags = [(size, number) for number in range(protocol.rounds) for size in protocol.sizes]
    world = World(MIXED, protocol.warm + len(bags) * protocol.gap + 3.0, protocol.seed)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for order, (size, number) in enumerate(bags):
            # In the course of a day as well: the queues have one.
            at = (protocol.warm + order * protocol.gap + 0.37 * (order % 3)) * _DAY
            world.clock.advance_to(at)
            rng = np.random.default_rng([protocol.seed, order])
            sent = asyncio.run(BagTrial(world, Path(folder), size, rng).run(strategy))
            found.append(Outcome(strategy, size, number, *sent))
    return found


class BagTrial:
    """One bag under a strategy, to its end. `limit` is the time limit of its tasks (s); None: left to the strategy."""

    def __init__(
        self, world: World, folder: Path, size: int, rng: np.random.Generator, limit: float | None = None
    ) -> None:
        self._world = world
        self._size = size
        self._rng = rng
        self._limit = limit
        self._config = config_of({"agent": {"state_dir": folder, "seed": 1}})
        self._bags = Bags(folder / "bags")
        self._jobs: list[tuple[str, int]] = []
        self._shares: Counter[str] = Counter()

    async def run(self, strategy: str) -> tuple[Times, dict[str, int], dict[str, float], int]:
        """Submit it, let time pass until all is done; its times, where its tasks went and waited, how many moved."""
        moved = 0
        if strategy in ("best", "spread", "ours", "ours-95"):
            moved = await self._ours(strategy)
        else:
            for name, count in self._chosen(strategy).items():
                await self._pilot(name, count)
        self._finish()
        return self._times(), dict(self._shares), self._waits(), moved

    # -- the paper's ways ------------------------------------------------------------------------------------------

    def _chosen(self, strategy: str) -> dict[str, int]:
        names = list(RESOURCES)
        if strategy == "random":
            return dict(Counter(names[i] for i in self._rng.integers(len(names), size=self._size)))
        if strategy == "round-robin":
            return dict(Counter(names[i % len(names)] for i in range(self._size)))
        if strategy == "least-loaded":
            jobs = {n: sum(not j.state.ended for j in e.jobs.values()) for n, e in self._world.engines.items()}
            found: Counter[str] = Counter()
            for _ in range(self._size):
                least = min(names, key=lambda n: jobs[n])
                jobs[least] += 1
                found[least] += 1
            return dict(found)
        return {self._modelled(): self._size}

    def _modelled(self) -> str:
        """Algorithm 3 over Tq + Tx as the paper predicts them."""
        now, resources, waits = self._world.clock.now(), [], {}
        for name, target in RESOURCES.items():
            rate = Capability(Consumable.of("compute"), target.base)
            resources.append(Resource(name, (rate,), correction=target.more))
            jobs = (
                Waited(name, "main", j.time_limit, j.num_nodes * target.cores, j.start - j.submit, j.start)
                for j in self._world.engines[name].records.values()
                if j.start is not None and j.start > now - 8 * _DAY
            )
            processors = self._size if target.cores > 1 else 1
            waits[name] = Wait(mean_wait(jobs, name, "main", _LIMITS[name], processors, now) or 0.0)
        return rank(TASK, resources, waits, affinity=Sooner())[0].resource

    async def _pilot(self, name: str, count: int) -> None:
        """One job for a machine's whole share, or as many of one core."""
        target = RESOURCES[name]
        self._shares[name] += count
        arrays = [None] if target.cores > 1 else [min(_ARRAY, count - n) for n in range(0, count, _ARRAY)]
        for size in arrays:
            array = None if size is None else f"0-{size - 1}"
            nodes = math.ceil(count / target.cores) if array is None else 1
            spec = JobSpec("bench.bag", "#!/bin/sh\n", nodes, _LIMITS[name], array=array)
            self._jobs.append((name, await self._world.of(name).submit(spec)))

    # -- ours ------------------------------------------------------------------------------------------------------

    async def _ours(self, strategy: str) -> int:
        bag = Bag(TASK, self._size, run="true", limit=self._limit)
        quantile = 0.95 if strategy == "ours-95" else None
        market = await self._market()
        assessed = await assess(market, bag, self._size, self._bags.corrections())
        lanes = lanes_of(assessed, quantile)
        if strategy == "best":
            lanes = [min(lanes, key=lambda lane: lane.starts[0] + lane.run)]
        run = self._bags.new(bag, self._size, self._world.clock.now(), {})
        acts = BagActs(Executor(Store(":memory:"), self._world.clock, self._world.backend), run)
        jobs, now = spread(self._size, lanes), self._world.clock.now()
        await place(run, assessed, jobs, lambda: self._bags.save(run), now, acts)
        market.close()
        hysteresis = Hysteresis() if strategy.startswith("ours") else None
        while run.finished is None:
            self._world.clock.advance(_LOOK)
            market = await self._market()
            done = (await run_pass(self._bags, run, market, acts, hysteresis, Preference(quantile=quantile))).progress
            market.close()
            # Where nothing waits that might move, further looks would change nothing.
            if not done.unplaced and not (done.waiting and hysteresis is not None):
                self._jobs = [(array.cluster, array.job) for array in run.arrays if array.job is not None]
                self._finish()
        for array in run.arrays:
            self._shares[array.cluster] += sum(len(array.pieces[i]) for i in array.alive)
        return sum(move["tasks"] for move in run.moves)

    async def _market(self) -> ClusterMarket:
        views, problems = await view_clusters(self._world.backend)
        return await open_market(self._config, views, problems, self._world.site)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        while any(not j.state.ended for name, job in self._jobs for j in _jobs_of(self._world, name, job)):
            self._world.clock.advance(_LOOK)

    def _times(self) -> Times:
        """Of all jobs that ran; those of an array each."""
        return times_of(((j.submit, j.start), (j.start, j.end)) for _, j in self._ran() if j.start and j.end)

    def _waits(self) -> dict[str, float]:
        found: dict[str, list[float]] = {}
        for name, job in self._ran():
            found.setdefault(name, []).append((job.start or 0.0) - job.submit)
        return {name: fmean(waits) for name, waits in found.items()}

    def _ran(self) -> Iterator[tuple[str, SimJob]]:
        for name, job in self._jobs:
            for each in _jobs_of(self._world, name, job):
                if each.start is not None and each.end is not None:
                    yield name, each


def _jobs_of(world: World, name: str, job: int) -> list[SimJob]:
    """The job, or all jobs of an array."""
    engine = world.engines[name]
    found = engine.records[job]
    return [found] if found.array is None else [*(engine.records[m] for m in found.array.members), found]

"""A morning on a cluster: the real agent over the simulated Slurm, in virtual time, with workflows in all states, a
malleable job, others' jobs and reservations. What the dashboard shows of it is the same each time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dashboard_scene import SLOTS
from penstock.api import JobSpec, JobState, ReservationSpec, Snapshot
from penstock.future.bands import Misses
from penstock.future.past import QueuePast
from penstock.waits.live.recorder import past_in
from penstock.waits.live.starts import misses_in
from penstock.workflow.model import Stage, Workflow
from penstock_dashboard.feed import Feed
from penstock_lab.agent_world import Program, World
from penstock_lab.mock.model import PartitionConfig

MINUTE = 60.0
BEGIN = 1_772_787_600.0
"""Friday 6 March 2026, 09:00 UTC."""
SETTINGS = {"agent": {"interval": 15, "idle_interval": 15}, "dmr": {"policy": "throughput", "cooldown": 240}}


class Day:
    """`feed` has what the page gets. The morning is over when it is made; `later` lets more of it pass."""

    def __init__(self, folder: Path) -> None:
        self.running = asyncio.new_event_loop()
        self.running.set_exception_handler(lambda _loop, _context: None)
        names = tuple(f"n{i}" for i in range(1, 17))
        partitions = (
            PartitionConfig("batch", names, max_time=4 * 3600.0),
            PartitionConfig("short", names[:4], max_time=1800.0),
        )
        self.world = World(
            folder, SETTINGS, start=BEGIN - 150 * MINUTE, nodes=16, cluster="granite", cpus=32, partitions=partitions,
            operators=("alice",),
        )  # fmt: skip
        self.random = random.Random(3)
        self.world.clock.advance(1.0)
        self.do(self.world.boot())
        self.feed = Feed(self.ask, self.world.clock.now, self.known, SLOTS)
        self._morning()

    def do(self, something: Any) -> Any:
        """Run it here and now."""
        return self.running.run_until_complete(something)

    def ask(self, op: str, request: Mapping[str, Any]) -> Any:
        """At the agent's door, as its own user."""
        return self.do(self.world.app.operations[op](0, dict(request)))

    def known(self, cluster: str, snapshot: Snapshot) -> tuple[QueuePast, Misses]:
        """What the agent's state file knows."""
        store = self.world.app.store
        return past_in(store, cluster, snapshot), misses_in(store, cluster)

    def later(self, minutes: float) -> None:
        """Let it pass; the dashboard looks each minute."""
        end = self.world.now + minutes * MINUTE
        while self.world.now < end:
            until = min(self.world.now + MINUTE, end)
            self.do(self.world.until(lambda until=until: self.world.now >= until, seconds=3600))
            self.feed.look()

    def job(self, user: str, nodes: int, limit: float, run: float, partition: str | None = None) -> int:
        """A job of somebody, minutes."""
        script = f"#!/bin/sh\nsleep {run * MINUTE:g}\n"
        return int(
            self.do(self.world.backend.as_user(user).submit(JobSpec("work", script, nodes, limit * MINUTE, partition)))
        )

    def flow(self, name: str, strategy: str, *stages: tuple[str, int, float, float, float, str]) -> int:
        """Stages are (name, nodes, limit, expected, real run time in minutes, after)."""
        made = tuple(
            Stage(
                stage, nodes, limit * MINUTE, expect * MINUTE,
                f"sleep {abs(run) * MINUTE:g}" + ("\nexit 3" if run < 0 else ""), tuple(after.split()),
            )
            for stage, nodes, limit, expect, run, after in stages
        )  # fmt: skip
        return int(self.do(self.world.submit(Workflow(name, made), strategy)))

    def _morning(self) -> None:
        people = ("bob", "carol", "dave", "erin")
        for _ in range(26):
            limit = self.random.choice((20, 30, 45, 60))
            self.job(
                self.random.choice(people), self.random.randint(1, 5), limit, limit * self.random.uniform(0.25, 0.7)
            )
            self.later(self.random.choice((1, 2, 3, 5)))
        self.world.engine.fail_node("n16")
        self._malleable()
        self.flow("calibrate", "auto", ("fetch", 1, 10, 4, 3, ""), ("fit", 2, 20, 9, 8, "fetch"))
        self.later(12)
        self.flow(
            "lenses", "auto", ("load", 1, 10, 3, 2, ""), ("trace", 3, 30, 15, -4, "load"), ("sum", 1, 10, 2, 2, "trace")
        )
        self.later(20)
        self.job("carol", 4, 60, 34)
        self.later(14)
        self.job("dave", 1, 90, 70)
        course = ReservationSpec("course", BEGIN + 60 * MINUTE, 60 * MINUTE, 2, "batch", users=("erin",))
        self.do(self.world.backend.as_user("root").reserve(course))
        self.flow(
            "mosaic", "auto", ("project", 4, 30, 20, 18, ""), ("background", 3, 30, 12, 12, ""),
            ("merge", 2, 20, 8, 9, "project background"), ("publish", 1, 10, 2, 2, "merge"),
        )  # fmt: skip
        self.later(9)
        self.job("carol", 6, 25, 12)
        self.later(3)
        self.job("bob", 8, 60, 30)
        self.flow("survey", "perstage", ("scan", 6, 40, 25, 20, ""), ("sort", 2, 10, 5, 4, "scan"))
        self.job("erin", 1, 15, 6)
        self.later(4)

    def _malleable(self) -> None:
        script = f"#!/bin/sh\nsleep {95 * MINUTE:g}\n"
        spec = JobSpec("solver", script, 2, 120 * MINUTE, "batch")
        number = self.do(self.world.backend.submit(spec))
        while self.world.engine.jobs[number].state is not JobState.RUNNING:
            self.later(1)
        self.world.programs.append(Program(self.world, number, every=20.0, minimum=2, maximum=8, preferred=4))

    def down(self) -> None:
        """End it."""
        self.world.kill()
        self.running.close()

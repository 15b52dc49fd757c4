"""Bags under stable loads by every means that a user has, each in a fork of the same instant of the same queues.

At each instant the same bag is sent in every way: what others submit, how long they run and how long the bag's own
jobs take is the same in all of them. The user is one of those whose jobs fill the machines, so that accounting knows
waits of theirs. Instants of a level of load and a seed are 27 hours apart, each at another time of the day.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.host import logs
from penstock_lab.mock.model import Scheduler
from penstock_lab.paired.forks import in_forks
from penstock_lab.paired.series import keep, taken_up
from penstock_lab.papers import select_rivals
from penstock_lab.papers.select_bags import SIZES, TASK, BagTrial
from penstock_lab.papers.select_rivals import LIMIT, drawn_order
from penstock_lab.papers.select_world import RESOURCES, World
from penstock_planning.broker.bags import Bags
from penstock_planning.select.correction import Corrections

__all__ = [
    "ANYWHERE",
    "BOUND",
    "EARLIEST",
    "FAST",
    "LEAST",
    "LEVELS",
    "NEW",
    "OURS",
    "PROTOCOL",
    "RANDOM",
    "Bagged",
    "Protocol",
    "fair_world",
    "measure",
    "ways",
]

LEVELS: Final = (0.7, 0.85, 0.95)
"""Offered loads of all four machines."""
RANDOM: Final = "one at random"
LEAST: Final = "least loaded"
EARLIEST: Final = "-M"
ANYWHERE: Final = "-p"
FAST: Final = ", fast machines"
"""Only the three machines of about the same speed: what a user does who knows that the fourth is slow."""
OURS: Final = "ours"
NEW: Final = "ours, first bag"
"""Without a correction: no task of this kind has ever run anywhere."""
BOUND: Final = "bound"
_DAY: Final = 86400.0
_FIRST, _APART = 4 * _DAY, 27 * 3600.0
_TAIL: Final = 7 * _DAY
_USER: Final = "user0"
_SLOW: Final = "osg"
_TAUGHT: Final = 5
"""Runs on each machine by which the correction is taught: those of `penstock profile`, or of an earlier bag."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """Levels of load, sizes of bags, seeds of others' jobs, and instants of each."""

    levels: Sequence[float] = LEVELS
    sizes: Sequence[int] = SIZES
    seeds: int = 2
    instants: int = 10


PROTOCOL: Final = Protocol()


@dataclass(frozen=True, slots=True)
class Bagged:
    """A bag of `size` tasks at an instant: by each way its time to completion (s), how many of its tasks moved, and how
    many each machine was given."""

    level: float
    seed: int
    number: int
    size: int
    ttc: Mapping[str, float]
    moved: Mapping[str, int]
    shares: Mapping[str, Mapping[str, int]]

    @property
    def machine(self) -> str:
        """What its file calls it."""
        return f"{self.level:g}"

    def told(self) -> dict[str, Any]:
        """For a line of a file."""
        return {
            "level": self.level,
            "seed": self.seed,
            "number": self.number,
            "tasks": self.size,
            "ttc": dict(self.ttc),
            "moved": dict(self.moved),
            "shares": {way: dict(each) for way, each in self.shares.items()},
        }

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Bagged:
        """What `told` has written."""
        return cls(
            told["level"], told["seed"], told["number"], told["tasks"], told["ttc"], told["moved"], told["shares"]
        )


def measure(
    protocol: Protocol, kept: Path | None, tell: Callable[[str], None], at_once: int | None = None
) -> list[Bagged]:
    """All bags; those that the file `kept` has are not measured again, and each new one is added to it."""
    logs.configure("error", "text")
    found = {} if kept is None else {(b.level, b.seed, b.number, b.size): b for b in taken_up(kept, Bagged.read)}
    for seed in range(1, protocol.seeds + 1):
        for level in protocol.levels:
            for bagged in _instants(protocol, level, seed, frozenset(found), at_once):
                found[bagged.level, bagged.seed, bagged.number, bagged.size] = bagged
                if kept is not None:
                    keep(kept, bagged)
            tell(f"fair: load {level:g}, seed {seed} of {protocol.seeds}")
    return [
        found[level, seed, number, size]
        for level in protocol.levels
        for seed in range(1, protocol.seeds + 1)
        for number in range(protocol.instants)
        for size in protocol.sizes
    ]


def _instants(
    protocol: Protocol,
    level: float,
    seed: int,
    done: frozenset[tuple[float, int, int, int]],
    at_once: int | None,
) -> Iterator[Bagged]:
    wanted = [[size for size in protocol.sizes if (level, seed, n, size) not in done] for n in range(protocol.instants)]
    last = max((number for number, sizes in enumerate(wanted) if sizes), default=None)
    if last is None:
        return
    days = (_FIRST + _APART * last + _TAIL) / _DAY
    world = fair_world(level, days, seed)
    for number, sizes in enumerate(wanted[: last + 1]):
        world.clock.advance_to(_FIRST + _APART * number)
        cases = {
            (size, name): way for size in sizes for name, way in ways(world, size, seed=seed, number=number).items()
        }
        told = in_forks(cases, at_once)
        for size in sizes:
            mine = {name: each for (n, name), each in told.items() if n == size}
            yield Bagged(
                level,
                seed,
                number,
                size,
                {name: each["ttc"] for name, each in mine.items()},
                {name: each["moved"] for name, each in mine.items() if each["moved"]},
                {name: each["shares"] for name, each in mine.items() if each["shares"]},
            )


def fair_world(level: float, days: float, seed: int) -> World:
    """All four machines at this load for so many days, under Slurm's backfill."""
    loads = dict.fromkeys(RESOURCES, level)
    return World(loads, days, seed, user=_USER, max_array=max(SIZES) + 1, scheduler=Scheduler.REPLAN)


def ways(world: World, size: int, *, seed: int, number: int) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every way by its name. What is drawn depends on the instant alone."""
    order = drawn_order(np.random.default_rng([seed, number]))
    fast = [name for name in order if name != _SLOW]
    found: dict[str, Callable[[], dict[str, Any]]] = {
        BOUND: partial(_bound, world, size),
        RANDOM: partial(_sent, world, size, order[:1]),
        LEAST: partial(_least, world, size, order),
        LEAST + FAST: partial(_least, world, size, fast),
        EARLIEST: partial(_earliest, world, size, order),
        EARLIEST + FAST: partial(_earliest, world, size, fast),
        ANYWHERE: partial(_sent, world, size, order),
        ANYWHERE + FAST: partial(_sent, world, size, fast),
        OURS: partial(_ours, world, size, seed, taught=True),
        NEW: partial(_ours, world, size, seed, taught=False),
    }
    return found


def _bound(world: World, size: int) -> dict[str, Any]:
    return {"ttc": select_rivals.bound(world, size), "moved": 0, "shares": {}}


def _least(world: World, size: int, names: Sequence[str]) -> dict[str, Any]:
    return _sent(world, size, [select_rivals.least_loaded(world, names)])


def _earliest(world: World, size: int, names: Sequence[str]) -> dict[str, Any]:
    return _sent(world, size, [select_rivals.earliest(world, size, names)])


def _sent(world: World, size: int, names: Sequence[str]) -> dict[str, Any]:
    sent = select_rivals.sent(world, size, names)
    return {"ttc": sent.times.total, "moved": 0, "shares": dict(sent.shares)}


def _ours(world: World, size: int, seed: int, *, taught: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if taught:
            Bags(folder / "bags").save_corrections(_lessons(seed))
        trial = BagTrial(world, folder, size, np.random.default_rng(seed), LIMIT)
        times, shares, _waits, moved = asyncio.run(trial.run("ours"))
    return {"ttc": times.total, "moved": moved, "shares": shares}


def _lessons(seed: int) -> Corrections:
    """What a few runs on each machine have taught."""
    learned, rng = Corrections(), np.random.default_rng([seed, 99])
    for name, target in RESOURCES.items():
        predicted = TASK.requirements[0].amount / target.base * target.more
        for _ in range(_TAUGHT):
            learned.observe(
                TASK.name, f"{name}/main", predicted, target.seconds * float(rng.normal(1.0, target.scatter))
            )
    return learned

"""Front programs of one user keep neither the agent's own looks nor other users' waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from penstock.errors import SlurmUnavailable
from penstock.slurm.budget import BudgetLimits, RequestBudget
from penstock.slurm.look_cache import LookCache
from penstock.slurm.raw_looks import RawText
from penstock.slurm.turns import behind_all
from penstock_fronts.door import ShimDoor

GREEDY, OTHER = 1000, 1001
RATE = 2.0  # the default of slurm.requests_per_second
INTERVAL = 1 / RATE
CONFIG = "ClusterName             = c\nSLURM_VERSION           = 22.05.8\nPrivateData             = none\n"
COMMANDS = (
    ("squeue", ["--me"]),
    ("squeue", ["-a"]),
    ("squeue", ["-r"]),
    ("sacct", ["-X"]),
    ("scontrol", ["show", "job"]),
    ("scontrol", ["-o", "show", "job"]),
)


class Loop(asyncio.SelectorEventLoop):
    """Its time goes on when all wait."""

    now = 1000.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run(body: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(body)


def now() -> float:
    return asyncio.get_running_loop().time()


class Site:
    """An agent's budget, and looks that take a tenth of a second each."""

    def __init__(self) -> None:
        self.budget = RequestBudget(BudgetLimits(per_second=RATE), clock=now)
        self.door = ShimDoor(self, 15.0, shared=True, environment={}, cache=LookCache(15.0, clock=now))  # type: ignore[arg-type]
        self.own: list[float] = []
        self.looks: list[float] = []

    async def _look(self, text: str = "") -> RawText:
        ticket = await self.budget.admit("slurmctld", changing=False, patience=30.0)
        self.looks.append(ticket.at)
        await asyncio.sleep(0.1)
        self.budget.answered(ticket, True)
        return RawText(text, "\x1f-\x1f")

    async def squeue(self, *_words: str) -> RawText:
        return await self._look()

    async def sacct(self, *_words: str) -> RawText:
        return await self._look()

    async def scontrol(self, *words: str) -> RawText:
        return await self._look(CONFIG if words == ("show", "config") else "")

    async def clusters(self) -> frozenset[str]:
        return frozenset({"c"})

    async def agent(self) -> None:
        """What the agent itself asks: a look every two seconds, and a burst of acts now and then."""
        for second in range(120):
            begun = now()
            if second % 2 == 0:
                await self.budget.admit("slurmctld", changing=False, patience=30.0)
            if second % 30 == 29:
                await asyncio.gather(*(self._act() for _ in range(8)))
            self.own.append(now() - begun)
            await asyncio.sleep(max(0.0, begun + 1.0 - now()))

    async def _act(self) -> None:
        await self.budget.admit("slurmctld", changing=True, patience=30.0)

    async def greedy(self) -> None:
        """Five requests a second, each with something changed since."""
        asked = []
        for number in range(600):
            await self.door.touched(GREEDY, {"jobs": [number + 1]})
            program, words = COMMANDS[number % len(COMMANDS)]
            asked.append(asyncio.ensure_future(self.ask(GREEDY, program, words)))
            await asyncio.sleep(0.2)
        for one in asked:
            one.cancel()

    async def ask(self, uid: int, program: str, words: list[str]) -> float:
        begun = now()
        await self.door.answer(uid, {"program": program, "words": words, "environ": {}})
        return now() - begun


async def waits(*others: Callable[[Site], Awaitable[None]]) -> tuple[Site, list[float]]:
    """How long each look of a user takes who asks every seven seconds for jobs of their own."""
    site = Site()
    await site.ask(OTHER, "sacct", [])  # what is known of the site is known
    beside = [asyncio.ensure_future(other(site)) for other in others]
    await asyncio.sleep(20)
    took = []
    for number in range(14):
        await site.door.touched(OTHER, {"jobs": [10_000 + number]})
        took.append(await site.ask(OTHER, "sacct", []))
        await asyncio.sleep(7)
    for one in beside:
        await one
    return site, took


def test_while_one_user_asks_five_times_a_second_others_and_the_agent_hardly_notice():
    alone, quiet = run(waits(Site.agent))
    site, busy = run(waits(Site.agent, Site.greedy))
    assert len(site.looks) > 3 * len(alone.looks), "the greedy one has looks taken, too"
    assert max(b - q for b, q in zip(busy, quiet, strict=True)) <= INTERVAL + 0.01
    assert max(site.own) == max(alone.own) == 0.0, "the agent's own requests never wait for front programs"
    assert site.budget.turns.waited > 60, "those of the greedy user do"
    assert site.budget.turns.waited_of[OTHER] <= len(busy) * (INTERVAL + 0.01)


def test_a_look_that_somebody_else_joins_comes_when_it_is_their_turn():
    async def test() -> list[str]:
        budget = RequestBudget(BudgetLimits(burst=4, per_second=RATE), clock=now)
        for _ in range(4):
            await budget.admit("slurmctld", changing=True, patience=30.0)
        order: list[str] = []

        async def ask(name: str, askers: set[int]) -> None:
            with behind_all(askers):
                await budget.admit("slurmctld", changing=False, patience=30.0)
            order.append(name)

        shared: set[int] = {GREEDY}
        asked = [asyncio.ensure_future(ask(name, {GREEDY})) for name in ("first", "second")]
        asked.append(asyncio.ensure_future(ask("shared", shared)))
        await asyncio.sleep(0.1)
        shared.add(OTHER)
        await asyncio.gather(*asked)
        return order

    assert run(test()) == ["first", "shared", "second"]


def test_who_would_wait_longer_than_they_will_is_told_at_once_and_those_behind_go_on():
    async def test() -> None:
        budget = RequestBudget(BudgetLimits(burst=4, per_second=RATE), clock=now)
        for _ in range(8):
            await budget.admit("slurmctld", changing=True, patience=30.0)
        begun = now()
        with behind_all({GREEDY}), pytest.raises(SlurmUnavailable, match="too many requests"):
            await budget.admit("slurmctld", changing=False, patience=0.3)
        assert now() == begun
        assert budget.refused["turns"] == 1
        with behind_all({GREEDY}):
            await budget.admit("slurmctld", changing=False, patience=30.0)

    run(test())


def test_one_that_is_given_up_takes_no_turn():
    async def test() -> None:
        budget = RequestBudget(BudgetLimits(burst=4, per_second=RATE), clock=now)
        for _ in range(4):
            await budget.admit("slurmctld", changing=True, patience=30.0)
        with behind_all({GREEDY}):
            one = asyncio.ensure_future(budget.admit("slurmctld", changing=False, patience=30.0))
            await asyncio.sleep(0.1)
            one.cancel()
        before = now()
        with behind_all({OTHER}):
            await budget.admit("slurmctld", changing=False, patience=30.0)
        assert now() - before <= 3 * INTERVAL

    run(test())

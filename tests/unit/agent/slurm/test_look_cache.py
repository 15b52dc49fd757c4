"""Looks are shared, grow old, and are taken anew when something was done since."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from penstock.errors import SlurmUnavailable
from penstock.ipc.handlers import LocalDoor
from penstock.ipc.limits import RateLimit
from penstock.slurm.look_cache import LookCache


class World:
    """A clock that moves when told, and looks that can be held up."""

    def __init__(self) -> None:
        self.now = 100.0
        self.looks = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = False
        self.cache: LookCache[int] = LookCache(5.0, clock=lambda: self.now, sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def take(self) -> int:
        self.looks += 1
        look = self.looks
        await self.gate.wait()
        if self.fails:
            raise SlurmUnavailable("away")
        return look

    async def get(self, since: float = float("-inf"), kind: str = "k") -> int:
        return (await self.cache.get(kind, self.take, since)).content


def in_loop(test: Callable[[World], object]) -> None:
    async def run() -> None:
        await test(World())  # type: ignore[misc]

    asyncio.run(run())


def test_a_look_serves_for_its_age():
    async def test(w: World) -> None:
        assert await w.get() == 1
        w.now += 4.9
        assert await w.get() == 1
        w.now += 0.2
        assert await w.get() == 2
        assert await w.get(kind="other") == 3

    in_loop(test)


def test_all_who_wait_get_one_look():
    async def test(w: World) -> None:
        w.gate.clear()
        asking = [asyncio.ensure_future(w.get()) for _ in range(20)]
        await asyncio.sleep(0)
        w.gate.set()
        assert await asyncio.gather(*asking) == [1] * 20

    in_loop(test)


def test_what_was_touched_is_looked_at_anew_and_once():
    async def test(w: World) -> None:
        await w.get()
        w.now += 0.2
        w.cache.touch([7], 1000)
        assert await w.get(w.cache.since([8], None)) == 1
        assert await w.get(w.cache.since(None, 1001)) == 1
        before = w.now
        assert await w.get(w.cache.since([7], None)) == 2
        assert w.now == pytest.approx(before + 0.8), "no more than one look a second"
        assert await w.get(w.cache.since(None, None)) == 2
        assert await w.get(w.cache.since(None, 1000)) == 2

    in_loop(test)


def test_who_does_not_know_which_jobs_were_touched_says_0():
    async def test(w: World) -> None:
        await w.get()
        w.now += 2
        w.cache.touch([0], 1000)
        for jobs, uid in (([7], None), (None, 1000), (None, 1001), (None, None)):
            assert w.cache.since(jobs, uid) == w.now

    in_loop(test)


def test_a_look_that_was_under_way_when_something_was_touched_is_none():
    async def test(w: World) -> None:
        w.gate.clear()
        first = asyncio.ensure_future(w.get())
        while not w.looks:
            await asyncio.sleep(0)
        w.now += 0.1
        w.cache.touch([7], 1000)
        second = asyncio.ensure_future(w.get(w.cache.since([7], None)))
        await asyncio.sleep(0)
        w.gate.set()
        assert (await first, await second) == (1, 2)

    in_loop(test)


def test_one_who_goes_does_not_take_the_look_along():
    async def test(w: World) -> None:
        w.gate.clear()
        leaves, stays = asyncio.ensure_future(w.get()), asyncio.ensure_future(w.get())
        await asyncio.sleep(0)
        leaves.cancel()
        await asyncio.sleep(0)
        w.gate.set()
        assert await stays == 1

    in_loop(test)


def test_a_look_that_failed_is_told_to_all_and_not_kept():
    async def test(w: World) -> None:
        w.fails = True
        told = await asyncio.gather(w.get(), w.get(), return_exceptions=True)
        assert [type(one) for one in told] == [SlurmUnavailable] * 2
        w.fails = False
        assert await w.get() == 2

    in_loop(test)


def test_what_front_programs_ask_has_a_measure_of_its_own():
    async def said(_uid: int, _request: object) -> object:
        return {}

    async def test(_w: World) -> None:
        door = LocalDoor({"answer": said, "ping": said}, RateLimit(2, 0.001), None, RateLimit(20, 0.001))
        told = [json.loads(await door.answer(1, b'{"op": "answer", "words": []}\n'))["ok"] for _ in range(10)]
        assert told == [True] * 10
        assert [json.loads(await door.answer(1, b'{"op": "ping"}\n'))["ok"] for _ in range(3)] == [True, True, False]

    in_loop(test)

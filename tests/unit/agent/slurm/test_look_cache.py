"""Looks are shared, grow old, and are taken anew when something was done since."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable

import pytest

from penstock.errors import SlurmUnavailable
from penstock.fronts.answers.door import ShimDoor, site_of
from penstock.ipc.handlers import LocalDoor
from penstock.ipc.limits import RateLimit
from penstock.slurm.look_cache import LookCache
from penstock.slurm.raw_looks import RawText


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


CONFIG = "ClusterName             = c\nSLURM_VERSION           = 22.05.8\nPrivateData             = none\n"


def test_the_site():
    site = site_of(CONFIG, "PartitionName=batch\n   AllowGroups=ALL Hidden=NO")
    assert (site.cluster, site.release) == ("c", (22, 5, 8))
    assert not (site.private or site.hidden or site.federated)
    assert site_of(CONFIG.replace("none", "jobs"), "AllowGroups=ALL").private
    assert site_of(CONFIG, "AllowGroups=wheel").hidden
    assert site_of(CONFIG, "AllowGroups=ALL Hidden=YES").hidden
    assert site_of(CONFIG + "FederationParameters    = fed_display\n", "").federated


class Looks:
    """Slurm, of one job of user 7."""

    def __init__(self, config: str = CONFIG) -> None:
        self.config, self.asked, self.down = config, [], False

    async def squeue(self, letters: str, *options: str) -> RawText:
        self.asked.append(("squeue", *options))
        if self.down:
            raise SlurmUnavailable("away")
        job = {"i": "1", "A": "1", "F": "1", "T": "RUNNING", "U": "7"}
        lines = ["".join(f"{text}<" for text in row) for row in (letters, [job.get(one, "x") for one in letters])]
        return RawText("\n".join(lines) + "\n", "<")

    async def sacct(self, *options: str) -> RawText:
        raise AssertionError(options)

    async def scontrol(self, *words: str) -> RawText:
        return RawText(self.config if "config" in words else "AllowGroups=ALL")

    async def clusters(self) -> frozenset[str]:
        return frozenset({"c"})


def ask(door: ShimDoor, *words: str, uid: int | None = None, **environ: str) -> dict[str, object]:
    request = {"program": "squeue", "words": list(words), "environ": environ}
    told = asyncio.run(door.answer(os.geteuid() if uid is None else uid, request))
    assert isinstance(told, dict)
    return told


def test_the_door_serves_its_own_user_and_lets_others_through():
    looks = Looks()
    door = ShimDoor(looks, 5.0, environment={"SLURM_CONF": "/etc/s"})  # type: ignore[arg-type]
    good = {"SLURM_CONF": "/etc/s"}
    assert ask(door, "-h", "-o", "%i %T", **good) == {"out": "1 RUNNING\n", "err": "", "code": 0}
    assert ask(door, "-h", "-o", "%T", **good)["out"] == "RUNNING\n"
    assert len(looks.asked) == 1
    for told in (
        ask(door, "-h", uid=12345, **good),
        ask(door, "-h"),
        ask(door, "-h", SLURM_CONF="/other"),
        ask(door, "-o", "%S", TZ="Asia/Tokyo", **good),
        ask(door, "-j", "77", **good),
        ask(door, "--nothing", **good),
    ):
        assert list(told) == ["through"]
    assert door.answers == {("squeue", "served"): 2, ("squeue", "through"): 6}


def test_no_look_is_no_empty_queue():
    looks = Looks()
    looks.down = True
    told = ask(ShimDoor(looks, 5.0, environment={}), "-h")  # type: ignore[arg-type]
    assert told == {"through": "no look: away"}


def test_an_agent_of_all_serves_others_unless_slurm_hides_something():
    door = ShimDoor(Looks(), 15.0, shared=True, environment={})  # type: ignore[arg-type]
    assert ask(door, "-h", "-o", "%i", uid=12345)["out"] == "1\n"
    private = ShimDoor(Looks(CONFIG.replace("none", "jobs")), 15.0, shared=True, environment={})  # type: ignore[arg-type]
    assert "PrivateData" in str(ask(private, "-h", uid=12345)["through"])


def test_what_front_programs_ask_has_a_measure_of_its_own():
    async def said(_uid: int, _request: object) -> object:
        return {}

    async def test(_w: World) -> None:
        door = LocalDoor({"answer": said, "ping": said}, RateLimit(2, 0.001), None, RateLimit(20, 0.001))
        told = [json.loads(await door.answer(1, b'{"op": "answer", "words": []}\n'))["ok"] for _ in range(10)]
        assert told == [True] * 10
        assert [json.loads(await door.answer(1, b'{"op": "ping"}\n'))["ok"] for _ in range(3)] == [True, True, False]

    in_loop(test)

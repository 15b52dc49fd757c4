"""When Dask's workers that wait in the queue are kept, cancelled, and asked for ahead."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("distributed")

from penstock.tools.dask_jobqueue import PenstockAdaptive


class Cluster:
    """Four workers, of which two are there."""

    job_header = "#SBATCH -p batch\n#SBATCH -t 00:05:00\n"
    status = None

    def __init__(self) -> None:
        self.plan = self.requested = {0, 1, 2, 3}
        self.observed = {0, 1}
        self.scheduler = SimpleNamespace(tasks={}, workers={})
        self.comm = SimpleNamespace(adaptive_target=self._target, workers_to_close=self._to_close)
        self.wanted = 4

    @property
    def scheduler_comm(self):
        return self.comm

    async def _target(self, target_duration):
        return self.wanted

    async def _to_close(self, target, **_more):
        return [0, 1][target:]


@pytest.fixture
def now(monkeypatch) -> list[float]:
    it = [1000.0]
    monkeypatch.setattr(PenstockAdaptive, "_clock", staticmethod(lambda: it[0]))
    return it


def adaptive(wait: float | None, **options) -> PenstockAdaptive:
    it = PenstockAdaptive(Cluster(), interval=0, wait_count=1, **options)
    it._expected = SimpleNamespace(seconds=lambda: wait)
    return it


def asked(it: PenstockAdaptive, target: int) -> dict:
    async def once() -> dict:
        it.cluster.wanted = target
        return await it.recommendations(await it.safe_target())

    return asyncio.run(once())


def test_what_waits_is_kept_for_as_long_as_a_new_one_would_wait(now):
    it = adaptive(100.0)
    assert asked(it, 2) == {"status": "same"}
    now[0] += 99
    assert asked(it, 2) == {"status": "same"}
    now[0] += 2
    told = asked(it, 2)
    assert (told["status"], set(told["workers"])) == ("down", {2, 3})


def test_it_is_the_longest_wait_that_was_expected_meanwhile(now):
    it = adaptive(10.0)
    assert asked(it, 2) == {"status": "same"}
    for wait, later, status in ((100.0, 5, "same"), (1.0, 80, "same"), (1.0, 20, "down")):
        it._expected = SimpleNamespace(seconds=lambda wait=wait: wait)
        now[0] += later
        assert asked(it, 2)["status"] == status


def test_demand_that_comes_back_begins_it_anew(now):
    it = adaptive(100.0)
    for _ in range(5):
        assert asked(it, 0)["workers"] == [0, 1], "what runs and is idle is closed"
        now[0] += 90
        assert asked(it, 4) == {"status": "same"}
        now[0] += 90
    assert asked(it, 6) == {"status": "up", "n": 6}


def test_without_an_agent_a_wait_is_what_it_is_said_to_be(now):
    it = adaptive(None, unknown=50.0)
    assert asked(it, 2) == {"status": "same"}
    now[0] += 51
    assert asked(it, 2)["status"] == "down"


def task(state: str, name: str, duration: float = -1, waiting_on=()) -> SimpleNamespace:
    return SimpleNamespace(
        state=state,
        prefix=SimpleNamespace(name=name, duration_average=duration),
        waiting_on=[SimpleNamespace(key=key) for key in waiting_on],
    )


def test_workers_are_asked_for_ahead(now):
    tasks = {
        "a": task("processing", "first"),
        "b": task("processing", "long", 500.0),
        **{f"c{i}": task("waiting", "second", -1, ["a"]) for i in range(8)},
        "d": task("waiting", "second", -1, ["a", "b"]),
        "e": task("waiting", "second", -1, ["c1"]),
    }

    async def target(it: PenstockAdaptive) -> int:
        it.cluster.wanted = 1
        return await it.target()

    for wait, expect, wanted in ((60.0, {"first": 90.0}, 1), (60.0, {}, 1), (None, {"first": 90.0}, 1)):
        it = adaptive(wait, expect=expect)
        it.cluster.scheduler.tasks = tasks
        assert asyncio.run(target(it)) == wanted
    it = adaptive(60.0, expect={"first": 90.0})
    it.cluster.scheduler = SimpleNamespace(tasks=tasks, workers={"w": SimpleNamespace(nthreads=2)})
    assert asyncio.run(target(it)) == 1
    now[0] += 31
    assert asyncio.run(target(it)) == 5, "eight and the long one, two on each"
    it._expected = SimpleNamespace(seconds=lambda: 1.0)
    assert asyncio.run(target(it)) == 5, "what was asked for is not taken back by a shorter wait"
    it.cluster.scheduler.tasks = {key: one for key, one in tasks.items() if not key.startswith("c")}
    assert asyncio.run(target(it)) == 1

"""What is learned of programs' speeds, under the whole agent over the simulated Slurm: it survives a kill, it is one
program's and not another's, and no belief keeps a job on its size for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.api import JobSpec, JobState, JobTexts
from penstock.errors import SlurmUnavailable
from penstock.resize.running.learning import program_of
from penstock_lab.agent_world import APP, SITE, Program, World, settled, virtual

pytestmark = pytest.mark.usefixtures("quick_and_quiet")

SETTINGS = {"dmr": {"policy": "throughput"}}


class Measuring(Program):
    """One that says what its steps take: `speed` gives their seconds by size; None: it says nothing."""

    speed: Callable[[int], float] | None = None
    work = 5_000.0

    async def step(self) -> None:
        if self.speed is not None:
            seconds = self.speed(len(self.nodes) or 1)
            self.more = {**self.more, "step_seconds": seconds, "steps_left": max(int(self.work / self.speed(1)), 1)}
        await super().step()


def perfect(size: int) -> float:
    return 10.0 / size


def partly(size: int) -> float:
    """Enough to be shared: half of the nodes give more than half of the speed."""
    return 3.0 + 7.0 / size


def flat(_size: int) -> float:
    return 10.0


async def program(world: World, name: str, nodes: int, speed: Callable[[int], float] | None, **more: Any) -> Measuring:
    """A job of that name which runs at once."""
    job = await world.backend.submit(JobSpec(name, "#!/bin/sh\nsleep 40000\n", nodes, 50_000.0))
    one = Measuring(world, job, **APP["companion"], **more)
    one.speed = speed
    world.programs.append(one)
    await world.until(lambda: world.engine.jobs[job].state is JobState.RUNNING)
    one.sizes = [nodes]
    return one


def world_of(folder: Any, nodes: int = 8) -> World:
    return World(folder, SETTINGS, nodes=nodes, **SITE["companion"])


async def for_seconds(world: World, seconds: float) -> None:
    end = world.now + seconds
    await world.until(lambda: world.now >= end, seconds + 60)


@pytest.mark.parametrize("speed", [partly, None], ids=["measured", "says-nothing"])
@virtual
async def test_after_a_kill_a_job_that_has_grown_still_gives_back_what_it_was_lent(tmp_path, speed):
    world = world_of(tmp_path)
    await world.boot()
    grown = await program(world, "grown", 2, speed)
    await world.until(lambda: grown.sizes[-1] == 8 and settled(world, grown))
    await world.restart()
    rival = await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 300\n", 4, 600))
    await world.until(lambda: world.engine.records[rival].state is JobState.RUNNING, 60)
    assert grown.sizes[:2] == [2, 8] and grown.sizes[2] < 8


@virtual
async def test_one_that_has_only_what_it_was_submitted_with_keeps_it_and_the_reason_is_true(tmp_path):
    world = world_of(tmp_path)
    await world.boot()
    mine = await program(world, "mine", 8, None)
    rival = await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 300\n", 4, 600))
    await for_seconds(world, 60)
    assert world.engine.records[rival].state is JobState.PENDING and mine.sizes == [8]
    (*_, said) = world.store.decisions.of(f"job {mine.job}")
    assert said["reasons"][0][0] == "speed-unknown"
    assert "not known" in said["reasons"][0][1]


@virtual
async def test_a_program_that_scales_badly_keeps_no_other_from_growing(tmp_path):
    world = world_of(tmp_path)
    await world.boot()
    heat = await program(world, "heat", 1, flat, preferred=4, maximum=4)
    await for_seconds(world, 120)
    await world.backend.cancel(heat.job)
    good = await program(world, "sleep", 1, perfect, preferred=4, maximum=4)
    await world.until(lambda: good.sizes[-1] == 4, 60)


@pytest.mark.few(2)
@pytest.mark.parametrize("names", ["{}{}", "same"], ids=["programs", "one-name"])
@pytest.mark.parametrize("apart", [0.0, 100.0], ids=["at-once", "one-by-one"])
@virtual
async def test_of_ten_programs_each_good_one_reaches_its_best_size_and_each_bad_one_stays_small(tmp_path, names, apart):
    world = world_of(tmp_path, 80)
    await world.boot()
    ten = []
    for number in range(10):
        speed = (flat, perfect)[number % 2]
        ten.append(await program(world, names.format(speed.__name__, number), 1, speed, maximum=8))
        if apart:
            await for_seconds(world, apart)
    await for_seconds(world, 900)
    assert [len(one.nodes) for one in ten[1::2]] == [8] * 5
    assert [len(one.nodes) for one in ten[::2]] == [1] * 5
    sizes = [len(one.sizes) for one in ten[::2]]
    assert max(sizes) <= 7, "each was tried three times at most in half an hour, and ever more rarely"


@virtual
async def test_slurm_is_asked_once_for_the_program_of_a_job_and_not_again_after_a_kill(tmp_path):
    asked: list[str] = []
    world = world_of(tmp_path)
    world.failing = lambda method: asked.append(method)
    await world.boot()
    one = await program(world, "one", 1, flat)
    await for_seconds(world, 300)
    await world.restart()
    await for_seconds(world, 300)
    assert asked.count("texts") == 1
    assert world.malleables.jobs[one.job].program.startswith("?"), "a script from stdin has no command"
    await program(world, "two", 1, flat)
    await for_seconds(world, 60)
    assert asked.count("texts") == 2


def test_a_program_is_its_jobs_name_without_numbers_and_its_command():
    def program_in(name: str, command: str = "/x/run.sh") -> str:
        return program_of(JobTexts(1, name, command=command))

    assert program_in("cg-17") == program_in("cg-18") != program_in("cg")
    assert program_in("cg", "/x/run.sh 1") != program_in("cg", "/x/run.sh 2")
    assert program_in("cg", "").startswith("?") and not program_in("cg").startswith("?")


@virtual
async def test_where_slurm_does_not_say_which_program_it_is_jobs_are_served_all_the_same(tmp_path):
    world = world_of(tmp_path)
    world.failing = lambda method: SlurmUnavailable("down") if method == "texts" else None
    await world.boot()
    one = await program(world, "one", 1, perfect)
    await world.until(lambda: one.sizes[-1] == 8 and settled(world, one), 60)
    assert world.malleables.jobs[one.job].program == ""
    world.failing = world.app.backend.failing = lambda _method: None
    await world.until(lambda: world.malleables.jobs[one.job].program, 120)


@virtual
async def test_what_cannot_be_read_of_it_is_set_aside_and_harms_no_job(tmp_path):
    world = world_of(tmp_path)
    await world.boot()
    one = await program(world, "one", 1, perfect)
    await world.until(lambda: world.store.learning.learned_under("speeds "))
    (key,) = world.store.learning.learned_under("speeds ")
    world.store.learning.save_learned(key, {"version": 1, "curve": 5}, world.now)
    world.kill()
    await world.boot()
    await world.until(lambda: one.sizes[-1] == 8 and settled(world, one), 120)
    assert any(f"{key}" in name for name in world.store.learning.learned_under("aside "))


@virtual
async def test_an_agent_that_is_killed_every_minute_does_not_try_a_useless_size_each_time(tmp_path):
    world = world_of(tmp_path)
    await world.boot()
    bad = await program(world, "bad", 1, flat, maximum=8)
    for _ in range(8):
        await for_seconds(world, 60)
        await world.restart()
    assert bad.sizes == [1, 8, 1]

"""penstock pause and resume: what is left alone, by whom it can be told, and that it outlives the agent."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from penstock.api import JobSpec, JobState
from penstock.core.pauses import Pause, PauseControl
from penstock.errors import NotFound, NotPermitted, UserError
from penstock.state.store import Store
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import RunPhase
from penstock_lab.agent_world import World, virtual

pytestmark = pytest.mark.usefixtures("quick_and_quiet")

ME = os.geteuid()
FLOW = Workflow("w", (Stage("a", 2, 100, 20, "sleep 20"), Stage("b", 2, 100, 20, "sleep 20", ("a",))))


def test_a_pause_covers_its_scope_and_is_kept(tmp_path):
    store = Store(tmp_path / "db")
    pause_control = PauseControl(store)
    assert pause_control.on("malleable", 7, ["batch"]) is None
    pause_control.pause(Pause("malleable", 7, "batch", by=ME, why="acceptance tests"))
    pause_control.pause(Pause("malleable", 7, "batch", by=ME, why="still"))
    pause_control = PauseControl(store)
    (kept,) = pause_control.pauses
    assert kept.why == "still"
    assert pause_control.on("malleable", 7, ["x", "batch"]).text.endswith(": still")
    for other in (("workflows", 7, ["batch"]), ("malleable", 8, ["batch"]), ("malleable", 7, ["x"])):
        assert pause_control.on(*other) is None
    pause_control.pause(Pause(by=ME))
    assert pause_control.on("workflows", 8, []).text.startswith("everything paused by ")
    pause_control.resume([kept])
    assert [p.scope for p in PauseControl(store).pauses] == [(None, None, None)]


@virtual
async def test_a_paused_workflow_is_left_as_it_is_also_after_a_restart(tmp_path):
    world = World(tmp_path)
    await world.boot()
    number = await world.submit(FLOW, "perstage")
    await world.until(lambda: world.living())
    await world.app.operations["pause"](ME, {"feature": "workflows", "partition": "main", "why": "upgrade"})
    await world.restart()
    start, passes = world.now, world.passes
    await world.until(lambda: world.now > start + 300)
    assert world.submissions() == {"a": 1} and not world.living(), "its job went on to its end"
    assert world.passes - passes < 100, "nothing is polled for"
    assert [d["reasons"][0][0] for d in world.store.decisions.of(f"workflow {number}")][-1] == "paused"
    told = await world.app.operations["status"](ME, {})
    assert [p for p in told["problems"] if p.endswith(": upgrade")]
    await world.app.operations["resume"](ME, {})
    run = await world.finish(number, 100)
    assert run.phase is RunPhase.COMPLETED and world.submissions() == {"a": 1, "b": 1}


@virtual
async def test_a_paused_workflow_can_be_cancelled(tmp_path):
    world = World(tmp_path)
    await world.boot()
    number = await world.submit(FLOW, "perstage")
    await world.until(lambda: world.living())
    await world.app.operations["pause"](ME, {})
    await world.app.operations["cancel"](ME, {"run": number})
    assert (await world.finish(number, 60)).phase is RunPhase.CANCELLED


@virtual
async def test_a_paused_job_keeps_its_size(tmp_path):
    world = World(tmp_path)
    await world.boot()
    await world.app.operations["pause"](ME, {"feature": "malleable"})
    program = await world.malleable(300)
    start = world.now
    await world.until(lambda: world.now > start + 100)
    assert len(world.engine.job(program.job).nodes) == 2 and not world.store.resizes.latest()
    await world.app.operations["resume"](ME, {"feature": "malleable"})
    await world.until(lambda: len(world.engine.job(program.job).nodes) > 2, 60)


@virtual
async def test_a_shrink_that_was_not_taken_up_is_withdrawn(tmp_path):
    world = World(tmp_path)
    await world.boot()
    program = await world.malleable(600)
    await world.until(lambda: len(world.engine.job(program.job).nodes) > 2)
    await world.until(lambda: world.malleables.jobs[program.job].phase == "idle")
    program.next_at = float("inf")  # it says nothing more
    await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 20\n", 4, 25))
    await world.until(lambda: world.malleables.jobs[program.job].phase == "proposed")
    await world.app.operations["pause"](ME, {"feature": "malleable"})
    await world.until(lambda: world.malleables.jobs[program.job].phase == "idle", 30)
    assert any(j.state is JobState.PENDING for j in world.living("bob"))


@virtual
async def test_who_may_pause_what(tmp_path):
    world = World(tmp_path)
    await world.boot()
    pause, resume = world.app.operations["pause"], world.app.operations["resume"]
    for request in ({}, {"uid": ME}, {"uid": 4711}):
        with pytest.raises(NotPermitted):
            await pause(4711 if ME != 4711 else 4712, request)
    world.app.config = replace(world.app.config, agent=replace(world.app.config.agent, serve="all"))
    await pause(4711, {"uid": 4711})
    with pytest.raises(NotPermitted):
        await resume(4711, {})
    with pytest.raises(NotFound, match="everything of 4711 paused by 4711"):
        await resume(ME, {"feature": "malleable"})
    await resume(4711, {"uid": 4711})
    await pause(ME, {"uid": 4711})
    with pytest.raises(NotPermitted, match="not paused by you"):
        await resume(4711, {"uid": 4711})
    await resume(ME, {})
    for wrong in ({"feature": "all"}, {"uid": "alice"}, {"partition": 7}, {"partition": "nowhere"}):
        await world.app.observer.look()
        with pytest.raises(UserError):
            await pause(ME, wrong)
    assert world.app.executor.pause_control.pauses == ()

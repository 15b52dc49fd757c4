"""`penstock explain` has an answer for every stage, whenever the agent was killed; and what is over, ends."""

from __future__ import annotations

import pytest
from stored_states import owners_run

from penstock.errors import StoreError
from penstock.workflow.documents import run_to_dict
from penstock.workflow.phases import RunPhase, StagePhase, Submitter
from penstock.workflow.state import StageRun
from penstock_lab.agent_world import World, chain, virtual

pytestmark = pytest.mark.usefixtures("quick_and_quiet")


@virtual
async def test_a_stage_is_explained_though_the_agent_was_killed_after_its_submission(tmp_path):
    k, blown, taken_over = 0, True, 0
    while blown:
        world = World(tmp_path / str(k))
        await world.boot()
        number = await world.submit(chain(5), "perstage")
        world.fuse.at = world.fuse.points + k
        run = await world.finish(number)
        blown = world.lives > 1
        for stage in run.stages:
            said = world.store.decisions.of(f"workflow {number}/{stage.name}")
            assert said, (k, stage.name)
            taken_over += any(code == "taken-over" for d in said for code, _text in d["reasons"])
        world.kill()
        k += 1
    assert taken_over


@virtual
async def test_a_stage_is_explained_though_the_disk_was_full_after_its_submission(tmp_path, monkeypatch):
    world = World(tmp_path)
    await world.boot()
    number = await world.submit(chain(5, 5, 5), "perstage")
    write = world.store.connection.execute

    def full(sql, args=()):
        if sql.startswith("INSERT INTO decisions") and args[2] == f"workflow {number}/b":
            raise StoreError("database or disk is full")
        return write(sql, args)

    with monkeypatch.context() as here:
        here.setattr(world.store.connection, "execute", full)
        await world.until(lambda: world.workflows.runs[number].stage("b").job is not None)
        await world.until(lambda: world.workflows.runs[number].stage("c").job is not None)
    run = await world.finish(number)
    (told,) = world.store.decisions.of(f"workflow {number}/b")
    assert told["reasons"][0][0] == "not-written" and f"job {run.stage('b').job} " in told["reasons"][0][1]


@virtual
async def test_a_users_own_workflow_is_over_though_the_agent_was_killed_when_it_had_ended(tmp_path):
    world = World(tmp_path)
    await world.boot()
    number = world.store.runs.add(1000, {}, world.now, Submitter.OWNER)
    over = {"phase": RunPhase.COMPLETED, "why": "1 stage completed"}
    ended = owners_run(number, (StageRun("a", phase=StagePhase.DONE, job=7),), 1000, "alice", **over)
    world.store.runs.save(number, run_to_dict(ended))
    await world.restart()
    await world.until(lambda: number not in world.workflows.runs)
    assert world.store.runs.latest(live_only=True, submitter=Submitter.OWNER) == []
    assert [d["reasons"] for d in world.store.decisions.of(f"workflow {number}")] == [
        [["completed", "1 stage completed"]]
    ]


@virtual
async def test_a_cancelled_workflow_of_jobs_that_never_were_ends(tmp_path):
    world = World(tmp_path)
    await world.boot()
    stage = {"name": "a", "job": 4_000_000, "after": [], "hold": True}
    uid = world.engine.uid_of("alice")
    number = await world.workflows.registrations.register(uid, {"workflow": "w", "strategy": "asa", "stages": [stage]})
    world.workflows.cancel(number, "cancelled by its owner")
    await world.until(lambda: number not in world.workflows.runs, 500)
    assert world.store.runs.latest(live_only=True, submitter=Submitter.OWNER) == []

"""`penstock explain` has an answer for every stage, whenever the agent was killed."""

from __future__ import annotations

import pytest
from agent_world import World, chain, virtual

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
            said = world.store.decisions(f"workflow {number}/{stage.name}")
            assert said, (k, stage.name)
            taken_over += any(code == "taken-over" for d in said for code, _text in d["reasons"])
        world.kill()
        k += 1
    assert taken_over

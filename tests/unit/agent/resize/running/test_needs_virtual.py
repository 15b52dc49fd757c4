"""A companion for a job of which nobody can say what its nodes need: it is not asked for, and people hear why."""

from __future__ import annotations

import pytest

from penstock.api import Allocation, NodeNeeds
from penstock_lab.agent_world import APP, SITE, START, World, virtual

pytestmark = pytest.mark.usefixtures("quick_and_quiet")


@virtual
async def test_where_needs_are_unknown_no_companion_is_asked_for(tmp_path, monkeypatch):
    world = World(tmp_path, **SITE["companion"])
    await world.boot()
    why = "it has asked for gpu, but Slurm does not say how many each of its nodes has"

    asked = []

    async def needs(job: int) -> NodeNeeds:
        asked.append(world.now)
        return NodeNeeds(unknown=why)

    monkeypatch.setattr(world.app.backend, "node_needs", needs)
    await world.malleable(seconds=3000, **APP["companion"])
    await world.until(lambda: any(me.note == why for me in world.malleables.jobs.values()))
    await world.until(lambda: world.now > START + 600)
    assert 2 <= len(asked) <= 8, "ever more rarely"
    assert not any(isinstance(record.spec, Allocation) for record in world.engine.records.values())

"""Programs with the library of commit fd8d5927 under the agent of today, and what that agent had stored of them.

`tests/fixtures/fd8d5927/programs.json` has what that commit wrote of both, over its own simulated Slurm. Lines and
documents by themselves are read in `state/test_states_of_fd8d5927.py`.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import fields
from typing import Any

import pytest

from dmr import wire
from penstock.api import JobSpec, JobState
from penstock.resize.running.words import ResizePhase
from penstock_lab.agent_world import APP, SITE, WAYS, Program, World, settled, virtual
from places import PROJECT

pytestmark = pytest.mark.usefixtures("quick_and_quiet")

FROZEN = PROJECT / "tests" / "fixtures" / "fd8d5927" / "programs.json.gz"
PROGRAMS: dict[str, Any] = json.loads(gzip.decompress(FROZEN.read_bytes()))
STORED: dict[str, dict[str, dict[str, Any]]] = PROGRAMS["stored"]
EVERY = [pair for each in PROGRAMS["ways"] for pair in each["dialogue"]]


def test_a_program_of_today_says_and_hears_what_one_of_then_did():
    """So that `World`, whose programs are of today, is one of such programs."""
    requests = {kind.op: kind for kind in (wire.Check, wire.Announce, wire.Accept, wire.Finished)}
    for line, answer in EVERY:
        said, heard = json.loads(line), json.loads(answer)
        names = {f.name for f in fields(requests[said["op"]])}
        assert set(said) == names | {"v", "op"}
        if "action" in heard:
            assert set(heard) - {"errand"} == {f.name for f in fields(wire.CheckReply)} | {"v", "ok"}


def test_a_launcher_is_asked_for_nodes_once():
    """`node_request` alone: what libraries before that commit looked for is not said any more."""
    wanted = wire.NodeRequest(name="penstock-1-a", node_count=1, time_limit=60.0, patience=40.0)
    line = json.loads(wire.encode(wire.CheckReply(action="none", size=2, epoch=0, node_request=wanted)))
    assert line["node_request"]["name"] == "penstock-1-a"
    assert [key for key, value in line.items() if value == line["node_request"]] == ["node_request"]


async def breathe(world: World, program: Program) -> None:
    await world.until(lambda: program.sizes[-1] == 8)
    rival = await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 30\n", 4, 60))
    await world.until(lambda: world.engine.records[rival].state is JobState.COMPLETED)
    await world.until(lambda: program.sizes[-1] == 8 and len(program.sizes) >= 4)
    await world.until(lambda: settled(world, program))


@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_such_a_program_grows_and_shrinks_as_it_did(tmp_path, way):
    world = World(tmp_path, **SITE[way])
    await world.boot()
    program = await world.malleable(takes=6.0, **APP[way])
    await breathe(world, program)
    (was,) = [each["sizes"] for each in PROGRAMS["ways"] if each["way"] == way]
    assert program.sizes == was
    await world.until(lambda: world.engine.records[program.job].state.ended and not world.malleables.jobs)
    assert world.engine.owner == {}


def as_stored_then(state: dict[str, Any]) -> dict[str, Any]:
    """What is stored today, as that commit had written it."""
    any_of_it = STORED["launcher"]["idle+"]
    companions = [{key: c[key] for key in any_of_it["companions"][0]} for c in state["companions"]]
    offer = {key: state["offer"][key] for key in any_of_it["offer"]}
    whole = {**state, "offer": offer, "companions": companions}
    return {key: whole[key] for key in any_of_it}


@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_the_agent_is_upgraded_at_any_point_of_a_resize(tmp_path, way):
    """What is stored at this point is put back as that commit had it, and the next agent starts from there."""
    reached, number, points = set(), 0, 1
    while number < points:
        world = World(tmp_path / str(number), **SITE[way])
        await world.boot()
        program = await world.malleable(seconds=600, takes=6.0, **APP[way])

        async def upgrade(world=world, number=number):
            if world.passes == number + 1 and world.lives == 1:
                rows = world.store.connection._db.execute("SELECT job, state FROM malleable").fetchall()
                for job, text in rows:
                    old = as_stored_then(json.loads(text))
                    reached.add(ResizePhase(old["phase"]))
                    world.store.connection._db.execute(
                        "UPDATE malleable SET state=? WHERE job=?", (json.dumps(old), job)
                    )
                world.fuse.dead = True

        world.each_pass = upgrade
        await breathe(world, program)
        points = world.passes
        world.kill()
        number += 3 if way == "launcher" else 1  # a third of the points takes as long as all of the others' ways
    under_way = ResizePhase.MERGING if way == "merge" else ResizePhase.JOINING
    wanted = {ResizePhase.IDLE, under_way, ResizePhase.RESIZING, ResizePhase.LEAVING}
    assert (len(reached) > 2) if way == "launcher" else wanted <= reached, reached

"""Programs with the library of release 0.1.0 under the agent of today, and what that agent had stored of them.

In `programs_of_0_1_0`: `wire.json` has lines between such programs and that agent, one of each kind, `malleable.json`
what the agent had stored at each point of their resizes. That release wrote both, over its own simulated Slurm.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from dmr import credential, wire
from penstock.api import JobSpec, JobState
from penstock.resize.running.machine import MalleableJob
from penstock.resize.running.words import ResizePhase
from penstock_lab.agent_world import APP, SITE, WAYS, Program, World, settled, virtual

pytestmark = pytest.mark.usefixtures("quick_and_quiet")

FOLDER = Path(__file__).parent / "programs_of_0_1_0"
WIRE: dict[str, Any] = json.loads((FOLDER / "wire.json").read_text(encoding="utf-8"))
STORED: dict[str, dict[str, dict[str, Any]]] = json.loads((FOLDER / "malleable.json").read_text(encoding="utf-8"))[
    "ways"
]
DIALOGUES: dict[str, list[list[str]]] = {each["way"]: each["dialogue"] for each in WIRE["ways"]}
LINES = [pytest.param(*pair, id=f"{way}-{i}") for way in WAYS for i, pair in enumerate(DIALOGUES[way])]
EVERY = [pair for way in WAYS for pair in DIALOGUES[way]]
DOCUMENTS = [pytest.param(text, id=f"{way}-{when}") for way in WAYS for when, text in STORED[way].items()]


def form(op: str) -> list[str]:
    """The keys of a request of that release."""
    (keys, *more) = {tuple(said) for line, _ in EVERY if (said := json.loads(line))["op"] == op}
    assert not more
    return list(keys)


def answers(op: str) -> set[str]:
    """The keys of every good answer that it got."""
    found = [json.loads(answer) for line, answer in EVERY if json.loads(line)["op"] == op]
    return set.intersection(*(set(said) for said in found if said["ok"]))


# -- the lines ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("line", "_answer"), LINES)
def test_what_such_a_program_says_is_understood_and_its_credential_fits(line, _answer):
    said = json.loads(line)
    received = wire.decode_request(line.encode())
    request = received.request
    assert (request.op, request.job, request.epoch, request.id) == (said["op"], 1, said["epoch"], said["id"])
    token = said["auth"]
    assert token == credential.sign_key(received.digest, credential.Key(0, WIRE["key"].encode()))
    if isinstance(request, wire.Check):
        assert request.requests_nodes is said["errands"]
        assert (request.method, request.companion, request.nodes) == (
            said["method"],
            said["companion"],
            tuple(said["nodes"]),
        )


@pytest.mark.parametrize(("_line", "answer"), LINES)
def test_a_program_of_today_understands_the_agent_of_0_1_0(_line, answer):
    said = json.loads(answer)
    reply = wire.decode_reply(answer.encode())
    if isinstance(reply, wire.CheckReply):
        assert (reply.action, reply.size, list(reply.nodes)) == (said["action"], said["size"], said["nodes"])
        assert reply.node_request is None, "it was not told that this program could ask for nodes"


def test_that_agent_finds_in_requests_of_today_all_that_it_wants():
    head: dict[str, Any] = {"job": 1, "epoch": 1}
    today = [
        wire.Check(**head, size=2, minimum=1, maximum=4),
        wire.Announce(**head, size=2, in_seconds=1.0),
        wire.Accept(**head),
        wire.Refuse(**head, why=""),
        wire.Finished(**head, size=2),
    ]
    for request in today:
        missing = set(form(request.op)) - set(json.loads(wire.encode(request)))
        assert missing <= {"errands"}, "without it that agent asks no launcher for nodes"


# -- such programs under the agent of today ----------------------------------------------------------------------------


class OldWorld(World):
    """What its programs say is written as by 0.1.0, and they read of an answer what that release would."""

    async def say(self, request: wire.Request) -> wire.Reply | None:
        body = json.loads(wire.encode(request))
        body["errands"] = body.pop("requests_nodes", False)
        body = {key: body[key] for key in form(request.op)} | {"auth": ""}
        digest = wire.decode_request(json.dumps(body).encode()).digest
        body["auth"] = credential.sign_key(digest, self.key)
        answer = json.loads(await self.door.answer(json.dumps(body).encode() + b"\n"))
        if not answer["ok"]:
            assert answer["error"] in wire.ERRORS
            return wire.Failure(error=answer["error"], message=answer["message"])
        if "action" not in answer:
            return wire.Done()
        wanted = answer.pop("errand", None)
        assert answers("check") - {"errand"} <= set(answer)
        assert answer["action"] in ("none", "expand", "shrink"), "it knows no other"
        known = {f.name for f in fields(wire.CheckReply)} - {"node_request"}
        reply = {key: tuple(value) if key == "nodes" else value for key, value in answer.items() if key in known}
        ask = None
        if wanted is not None:
            keys = ("name", "node_count", "time_limit", "patience", "partition", "account", "qos", "exclusive")
            ask = wire.NodeRequest(**{key: wanted[key] for key in keys})
        return wire.CheckReply(**reply, node_request=ask)


async def breathe(world: World, program: Program) -> None:
    await world.until(lambda: program.sizes[-1] == 8)
    rival = await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 30\n", 4, 60))
    await world.until(lambda: world.engine.records[rival].state is JobState.COMPLETED)
    await world.until(lambda: program.sizes[-1] == 8 and len(program.sizes) >= 4)
    await world.until(lambda: settled(world, program))


@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_such_a_program_grows_and_shrinks_as_it_did(tmp_path, way):
    world = OldWorld(tmp_path, **SITE[way])
    await world.boot()
    program = await world.malleable(takes=6.0, **APP[way])
    await breathe(world, program)
    (was,) = [each["sizes"] for each in WIRE["ways"] if each["way"] == way]
    assert program.sizes == was
    await world.until(lambda: world.engine.records[program.job].state.ended and not world.malleables.jobs)
    assert world.engine.owner == {}


@pytest.mark.parametrize(("asked", "told"), [({}, True), ({"gres": "gpu:1"}, False), ({"constraint": "fast"}, False)])
def test_such_a_launcher_is_not_asked_for_what_it_could_not_ask_slurm_for(asked, told):
    wanted = wire.NodeRequest(name="penstock-1-a", node_count=1, time_limit=60.0, patience=40.0, **asked)
    line = wire.encode(wire.CheckReply(action="none", size=2, epoch=0, node_request=wanted))
    assert ("errand" in json.loads(line)) is told


# -- what the agent had stored -----------------------------------------------------------------------------------------


def as_stored_then(state: dict[str, Any]) -> dict[str, Any]:
    """What is stored today, as that release had written it."""
    any_of_it = STORED["launcher"]["idle with a companion"]
    offer = {**state["offer"], "errands": state["offer"]["requests_nodes"]}
    companions = [{key: c[key] for key in any_of_it["companions"][0]} for c in state["companions"]]
    whole = {**state, "offer": {key: offer[key] for key in any_of_it["offer"]}, "companions": companions}
    return {key: whole[key] for key in any_of_it}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_was_stored_is_read_as_what_it_was(document):
    me = MalleableJob.from_dict(document)
    again = json.loads(json.dumps(me.to_dict()))
    assert MalleableJob.from_dict(again) == me
    offer = {**document["offer"], "requests_nodes": document["offer"]["errands"]}
    offer.pop("errands")
    assert {key: again["offer"][key] for key in offer} == offer
    assert [
        {key: c[key] for key in was} for c, was in zip(again["companions"], document["companions"], strict=True)
    ] == (document["companions"])
    apart = {"offer", "companions", "owed", "extend"}
    assert {key: again[key] for key in document.keys() - apart} == {
        key: document[key] for key in document.keys() - apart
    }


@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_the_agent_is_upgraded_at_any_point_of_a_resize(tmp_path, way):
    """What is stored at this point is put back as 0.1.0 had it, and the next agent starts from there."""
    reached, number, points = set(), 0, 1
    while number < points:
        world = OldWorld(tmp_path / str(number), **SITE[way])
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

"""penstock bags: passes beside other commands, --watch and --cancel, on simulated clusters."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager

import pytest
from bag_world import START, BagWorld
from click.testing import CliRunner

from penstock.errors import NotNow, SlurmUnavailable
from penstock.host import logs
from penstock_planning.broker.bags import Bags
from penstock_planning.commands import bags as module


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Four tasks of 500 s on their way; the command looks at the simulated clusters, and time passes as it sleeps."""
    logs.configure("error", "text")
    world = BagWorld(tmp_path)
    world.down, world.number = 0, asyncio.run(world.submit(4))[0].id

    @asynccontextmanager
    async def at_market(config, where=None):
        if world.down:
            world.down -= 1
            raise SlurmUnavailable("no cluster answers")
        market = await world.market()
        yield market, world
        market.close()

    monkeypatch.setattr(module, "at_market", at_market)
    monkeypatch.setattr(module, "load", lambda: world.config)
    monkeypatch.setattr(module.time, "sleep", lambda seconds: world.backend.clock.advance(seconds))
    monkeypatch.setattr(module.time, "time", world.backend.now)
    return world


def run(*arguments):
    return CliRunner().invoke(module.bags, arguments)


def others(monkeypatch, *what):
    """What other commands do just before this one gets the lock, one after the other."""
    free, left = Bags.locked, list(what)

    @contextmanager
    def locked(bags):
        if left:
            left.pop(0)()
        with free(bags):
            yield

    monkeypatch.setattr(Bags, "locked", locked)


def refuse():
    raise NotNow("another penstock command works on the bags at this moment")


def test_a_watch_goes_on_after_another_command_or_a_cluster_that_was_away(world, monkeypatch):
    others(monkeypatch, refuse, refuse)
    world.down = 2
    done = run("--watch")
    assert done.exit_code == 0 and world.bags.load(world.number).finished is not None
    assert done.stderr.count("works on the bags at this moment") == 1, "it is said once"
    assert "no cluster answers" not in done.stderr, "it is the same trouble still"
    world.number = asyncio.run(world.submit(4))[0].id
    others(monkeypatch, refuse)
    assert isinstance(run().exception, NotNow), "one pass says that it could not be made"


def test_what_another_command_has_saved_meanwhile_is_kept(world, monkeypatch):
    def stop():
        other = world.bags.load(world.number)
        other.finished, other.settings = START, {"cancelled": True}
        world.bags.save(other)

    others(monkeypatch, stop)
    assert run("--json").exit_code == 0
    kept = world.bags.load(world.number)
    assert (kept.finished, kept.settings) == (START, {"cancelled": True})


def test_a_bag_that_is_cancelled_while_another_command_moves_its_tasks(world, monkeypatch):
    def move():
        other = world.bags.load(world.number)
        other.moves.append({"tasks": 1})
        world.bags.save(other)

    others(monkeypatch, move)
    assert run(str(world.number), "--cancel").output == f"Bag {world.number} is cancelled\n"
    kept = world.bags.load(world.number)
    assert kept.settings["cancelled"] and kept.finished is not None and kept.moves == [{"tasks": 1}]


def test_a_bag_that_had_ended_is_not_cancelled(world):
    world.backend.clock.advance(5000.0)
    said = f"Bag {world.number} had ended before\n"
    assert run(str(world.number), "--cancel").output == said, "nobody had looked yet"
    ended = world.bags.load(world.number).finished
    assert ended is not None and "cancelled" not in world.bags.load(world.number).settings
    world.backend.clock.advance(100.0)
    assert run(str(world.number), "--cancel").output == said
    assert world.bags.load(world.number).finished == ended

"""Hours of virtual chaos: work of every kind, an agent that dies between any two lines, and all invariants hold."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path

import pytest
import structlog

import penstock.resize.running.part
from penstock.errors import NotPermitted
from penstock.ipc.auth import Verifier
from penstock_lab.soak import invariants, virtual
from penstock_lab.soak.chaos import Storm
from penstock_lab.soak.invariants import Act
from penstock_lab.soak.world import NOT_THE_AGENT, World


@pytest.fixture(autouse=True)
def own_log(monkeypatch):
    """The soak listens to the agent's log."""
    monkeypatch.setattr(
        penstock.resize.running.part, "make_policy", functools.cache(penstock.resize.running.part.make_policy)
    )
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_hours_of_chaos_break_nothing(tmp_path):
    report = virtual.soak(tmp_path, 11, 6.0, episode=(3.0, 4.0))
    assert report.wrong == [], report.last[-20:]
    assert report.episodes >= 1
    assert report.counts["kills"] > 2
    assert report.counts["workflows"] > 4
    assert report.counts["forged requests refused"] > 20


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(21, 24))
def test_days_of_chaos_break_nothing(tmp_path, seed):
    report = virtual.soak(tmp_path, seed, 48.0)
    assert report.wrong == [], report.last[-40:]


def test_what_is_left_out_of_the_kills_is_there():
    assert all(Path(folder).is_dir() for folder in NOT_THE_AGENT)


def test_the_soak_sees_an_act_that_nobody_asked_for(tmp_path, monkeypatch):
    """An agent that cancels a job of somebody who asked for nothing does not get through."""
    tick = World.tick

    async def sly(self, latest):
        await tick(self, latest)
        rigid = [j for j in self.living() if j.name.startswith("rigid")]
        if rigid:
            self.acts.append(Act("cancel", rigid[0].id, self.now))

    monkeypatch.setattr(World, "tick", sly)
    report = virtual.soak(tmp_path, 12, 2.0, episode=(1.0, 2.0))
    assert any("cancel of job" in text for text in report.wrong)


def test_what_the_agent_refused_while_its_clock_was_wrong_was_not_used(tmp_path, monkeypatch):
    """Told at first "check the clocks", a program's line is good once the clock is right: nothing was repeated."""
    heard = []
    uid = Verifier.uid

    async def proven(self, received, now):
        try:
            found = await uid(self, received, now)
        except NotPermitted as e:
            heard.append(str(e))
            raise
        heard.append("good")
        return found

    monkeypatch.setattr(Verifier, "uid", proven)

    async def body():
        world = World(tmp_path, 1, virtual.settings(), virtual.site_of(1))
        storm = Storm(world, 1)
        await world.boot()
        await world.malleable(2, 3600.0, every=5.0)
        while "good" not in heard:
            await world.tick(world.now + 5.0)
        world.offset = -3600.0
        while "check the clocks" not in heard[-1]:
            await world.tick(world.now + 5.0)
        world.offset = 0.0
        heard.clear()
        await storm._forge()
        world.app.store.connection._db.close()
        return storm.forgeries

    forgeries = asyncio.run(body())
    assert invariants.refused(forgeries) == []
    repeated = [f for f in forgeries if "used before" in f.what]
    assert len(repeated) == 2, "the last that was used, and one that is fresh by the clock"
    assert heard.count("the request was used before") == 2


def test_the_soak_sees_a_request_that_is_good_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(Verifier, "_once", lambda *_: None)
    report = virtual.soak(tmp_path, 11, 4.0, episode=(3.0, 4.0))
    assert any("used before was accepted" in text for text in report.wrong)

"""Hours of virtual chaos: work of every kind, an agent that dies between any two lines, and all invariants hold."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest
import structlog

import penstock.app

sys.path.append(str(Path(__file__).parents[2] / "bench"))
from soak import virtual
from soak.invariants import Act
from soak.world import World


@pytest.fixture(autouse=True)
def own_log(monkeypatch):
    """The soak listens to the agent's log."""
    monkeypatch.setattr(penstock.app, "make_policy", functools.cache(penstock.app.make_policy))
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

"""The observer beside a view that others share: for looking, never for acting."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from factories import ManualClock

from penstock.api import Node
from penstock.config import config_of, load
from penstock.core.executor import FRESH
from penstock.core.observe import Observer
from penstock.errors import ConfigError, SlurmUnavailable
from penstock.site import VIEW_SOCKET
from penstock.site.viewing import shared_look
from penstock_lab.testing import make_job, make_snapshot


class Direct:
    """Slurm, which counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def jobs(self):
        self.asked += 1
        return [make_job(7)]

    async def nodes(self):
        return []

    partitions = reservations = licenses = nodes


class Others:
    """A view, with the look that it is given."""

    def __init__(self) -> None:
        self.using, self.promise, self.asked, self.has, self.outcomes = False, 15.0, 0, None, {}

    async def look(self, now):
        self.asked += 1
        if isinstance(self.has, Exception):
            raise self.has
        self.using = self.has is not None
        return self.has


class Scene:
    def __init__(self, has=None) -> None:
        self.clock, self.slurm, self.others = ManualClock(1000.0), Direct(), Others()
        self.others.has = has
        self.observer = Observer(self.slurm, self.clock, min_interval=10.0, stale_after=120.0)
        self.observer.shared = self.others

    def look(self, max_age=None):
        return asyncio.run(self.observer.look(max_age))


def test_what_others_saw_is_used_with_its_own_age():
    scene = Scene(make_snapshot([make_job(1)], at=990.0))
    seen = scene.look()
    assert set(seen.jobs) == {1} and seen.taken_at == 990.0 and scene.slurm.asked == 0
    assert scene.observer.looks == 1
    scene.clock.at += 4.0  # 14 s old: good as long as the view promises
    assert scene.look() is seen and scene.others.asked == 1
    scene.clock.at += 2.0
    scene.look()
    assert scene.others.asked == 2


def test_a_look_to_act_on_is_slurms_own():
    scene = Scene(make_snapshot([make_job(1)], at=999.9))
    scene.look()
    seen = scene.look(FRESH)
    assert scene.others.asked == 1 and set(seen.jobs) == {1}  # a tenth of a second old
    scene.clock.at += 2.0
    seen = scene.look(FRESH)
    assert scene.others.asked == 1 and scene.slurm.asked == 1 and set(seen.jobs) == {7} and seen.taken_at == 1002.0


def test_an_older_look_of_others_does_not_take_back_what_was_seen_since():
    scene = Scene(make_snapshot([make_job(1)], at=990.0))
    scene.look()
    scene.clock.at += 3.0
    fresh = scene.look(FRESH)
    scene.clock.at += 16.0
    scene.others.has = make_snapshot([make_job(1)], at=1002.0)
    assert scene.look() is fresh
    scene.others.has = make_snapshot([make_job(2)], at=1010.0)
    assert set(scene.look().jobs) == {2}


def test_without_them_slurm_is_asked():
    scene = Scene(None)
    assert set(scene.look().jobs) == {7} and scene.others.asked == 1
    scene.clock.at += 11.0
    scene.look()
    assert scene.slurm.asked == 2 and scene.others.asked == 2


def test_while_they_say_that_slurm_is_down_it_is_left_in_peace():
    scene = Scene(SlurmUnavailable("away", again_in=20.0))
    assert not scene.look().usable and scene.slurm.asked == 0
    scene.clock.at += 10.0
    assert not scene.look().usable and scene.others.asked == 1
    scene.clock.at += 11.0
    scene.others.has = make_snapshot(at=1020.0)
    assert scene.look().usable and scene.others.asked == 2


def test_whoever_waits_for_a_look_is_not_told_to_look_all_the_time():
    scene = Scene(make_snapshot(at=990.0))
    scene.look()
    scene.observer.want()
    assert scene.observer.next_look() == 1005.0


def config(**slurm):
    return config_of({"slurm": slurm})


def test_where_it_is_asked_for(tmp_path):
    usual = shared_look(config(), "c")
    assert usual is not None and usual.path == Path(VIEW_SOCKET) and usual.cluster == "c"
    assert shared_look(config(view="off"), "c") is None
    assert shared_look(config(backend="mock"), "c") is None
    named = shared_look(config(backend="mock", view=str(tmp_path / "s")), "c")
    assert named is not None and named.path == tmp_path / "s"
    with pytest.raises(ConfigError, match=r"slurm.view.*auto, off, or the absolute path"):
        file = tmp_path / "c.yaml"
        file.write_text("slurm: {view: there}\n")
        load(file)


def test_how_long_nodes_take_to_wake_is_asked_for_once_and_only_where_any_sleeps():
    class Sleepy(Direct):
        sites = 0
        state = "IDLE"

        async def nodes(self):
            return [Node("n1", self.state, 2, True)]

        async def site(self):
            self.sites += 1
            return SimpleNamespace(wakes_in=600.0)

    async def run():
        clock, slurm = ManualClock(1000.0), Sleepy()
        observer = Observer(slurm, clock, min_interval=1.0, stale_after=60.0)
        found = []
        for state in ("IDLE", "IDLE+POWERED_DOWN", "IDLE+POWERING_UP"):
            slurm.state = state
            found.append(((await observer.look()).wakes_in, slurm.sites))
            clock.at += 5.0
        return found

    assert asyncio.run(run()) == [(60.0, 0), (600.0, 1), (600.0, 1)]

"""Bags beside what users have today: the baselines, the bound, and what the chapter says of them."""

import pytest

from penstock.api import JobSpec
from penstock_lab.mock.controller import Controller
from penstock_lab.mock.speedup import Work
from penstock_lab.papers import select_fair, select_rivals
from penstock_lab.papers.select_fair import ANYWHERE, BOUND, FAST, LEAST, OURS, Bagged, Protocol
from penstock_lab.papers.select_fair_chapter import fair
from penstock_lab.papers.select_world import RESOURCES, World


@pytest.fixture
def world():
    """All four machines without a job."""
    return World(dict.fromkeys(RESOURCES, 1e-9), 0.001, 1, user="user0", max_array=1025)


def fill(world, name, seconds, nodes=None, limit=86400.0):
    target = RESOURCES[name]
    spec = JobSpec("other", "#!/bin/sh\n", nodes or target.nodes, limit)
    Controller(world.engines[name]).submit("other", spec, Work(seconds))
    world.engines[name].advance(world.clock.now() + target.overhead)
    world.clock.advance_to(world.engines[name].now)


def test_load_is_what_runs_and_waits(world):
    assert select_rivals.load(world.engines["comet"]) == 0.0
    fill(world, "comet", 1000.0, 100)
    fill(world, "comet", 1000.0, 400)
    assert select_rivals.load(world.engines["comet"]) == pytest.approx(500 / 400)
    assert select_rivals.least_loaded(world, ["comet", "bridges"]) == "bridges"


def test_m_goes_where_slurm_says_that_it_starts_first(world):
    fill(world, "bridges", 100.0, limit=7200.0)
    fill(world, "comet", 5000.0, limit=3600.0)
    assert select_rivals.earliest(world, 64, ["bridges", "comet"]) == "comet"  # by the limits, which it knows
    assert select_rivals.earliest(world, 64, ["osg", "supermic"]) == "osg"  # the first of equals


def test_p_starts_where_there_is_room_first_and_runs_nothing_twice(world):
    fill(world, "bridges", 400.0)
    fill(world, "comet", 800.0)
    sent = select_rivals.sent(world, 64, ["bridges", "comet"])
    assert sent.shares == {"bridges": 3 * 28} and 380 < sent.times.waiting < 420
    assert not any(job.state.running for job in world.engines["comet"].jobs.values() if job.name == "bench.bag")


def test_p_over_machines_that_each_have_room_for_a_part(world):
    fill(world, "bridges", 9000.0, 248)
    fill(world, "comet", 9000.0, 399)
    sent = select_rivals.sent(world, 100, ["bridges", "comet"])
    assert sent.shares["bridges"] >= 2 * 28 and sent.shares["comet"] >= 24
    assert 100 <= sum(sent.shares.values()) < 100 + 28


def test_the_bound_takes_every_node_as_its_job_really_ends(world):
    free = select_rivals.bound(world, 64)
    assert free == pytest.approx(RESOURCES["supermic"].seconds + 3.0)
    for name in RESOURCES:
        fill(world, name, 2000.0)
    assert free < select_rivals.bound(world, 64) <= 2000.0 + free


def test_ours_from_the_same_instant_is_not_under_the_bound():
    world = select_fair.fair_world(0.3, 0.3, 1)
    world.clock.advance_to(0.2 * 86400.0)
    told = {name: way() for name, way in select_fair.ways(world, 64, seed=1, number=0).items() if name in (BOUND, OURS)}
    assert told[OURS]["ttc"] > 0.95 * told[BOUND]["ttc"] and sum(told[OURS]["shares"].values()) == 64


def test_the_chapter_judges_by_pairs_and_takes_up_its_file(tmp_path, monkeypatch):
    protocol = Protocol(levels=(0.85,), sizes=(64,), seeds=1, instants=4)
    ways = {BOUND: 90.0, LEAST: 100.0, LEAST + FAST: 98.0, ANYWHERE: 120.0, ANYWHERE + FAST: 101.0, OURS: 99.0}

    def instants(protocol, level, seed, done, at_once):
        for n in range(protocol.instants):
            if (level, seed, n, 64) not in done:
                ttc = {way: seconds + n for way, seconds in ways.items()}
                yield Bagged(level, seed, n, 64, ttc, {OURS: 2}, {OURS: {"osg": 64}})

    monkeypatch.setattr(select_fair, "_instants", instants)
    chapter = fair(protocol, tmp_path, print)
    judged = {g.what: g.reached for g in chapter.goals}
    assert judged["ours over least loaded, upper end of the interval"]
    assert not judged["ours over least loaded, fast machines, upper end of the interval"]
    assert judged["ours over -p (the bound: 0.753)"]
    assert not judged["ours over -p, fast machines (the bound: 0.893)"]
    assert chapter.tables[0].rows[0][:2] == ["64", LEAST] and len(chapter.rows) == 4
    monkeypatch.setattr(select_fair, "_instants", lambda *_: iter(()))
    assert fair(protocol, tmp_path, print).rows == chapter.rows

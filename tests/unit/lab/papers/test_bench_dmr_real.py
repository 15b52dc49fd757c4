"""penstock bench dmr --part real: what of it needs no Slurm."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from dmr import wire
from penstock.api import Allocation, JobSpec, JobState
from penstock.errors import UserError
from penstock_lab.cli.bench import dmr
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.mock.model import ClusterConfig, Scheduler
from penstock_lab.papers.dmr import compressed, programs, real
from penstock_lab.papers.dmr.accounts import Told, complete, outcome, periods
from penstock_lab.papers.dmr.application import COST
from penstock_lab.papers.dmr.drive import SITE, Site, drive
from penstock_lab.papers.dmr.models import models, narrow
from penstock_lab.papers.dmr.probe import Latencies, waits
from penstock_lab.papers.dmr.standin import Log, Order, play
from penstock_lab.papers.dmr.workload import Version, workload

BY = 20.0
LATENCIES = Latencies(cycle=1.0, launch=0.3, clear=0.4, query=0.05, merge=0.2, shrink=0.1)


# -- the stand-in


class World:
    """A clock that sleeping moves, and an agent that says what it is told to."""

    def __init__(self, silent: int = 0):
        self.now, self.said, self.silent = 1000.0, [], silent
        self.grant: tuple[str, ...] = ()

    def clock(self):
        return self.now

    def sleep(self, seconds):
        assert seconds >= 0
        self.now += seconds

    def request(self, request, *, urgent=False):
        self.said.append((request, urgent))
        if isinstance(request, wire.Check) and self.grant:
            nodes, self.grant = self.grant, ()
            return wire.CheckReply(action="shrink", size=len(nodes), epoch=request.epoch + 1, nodes=nodes)
        if isinstance(request, wire.Finished) and self.silent:
            self.silent -= 1
            return None
        if isinstance(request, wire.Check):
            return None
        return wire.Done()


JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-8]"}


def order():
    entry = compressed.compress(workload(3, Version(share=1.0)), BY)[0]
    model = replace(models()["cg"], application=entry.model.application, alone=models()["cg"].alone / BY)
    return Order(model, 2, compressed.cost(BY), "x.json")


def test_an_order_and_a_log_survive_the_way():
    assert Order.read(order().text()) == order()
    world = World()
    log = play(order(), JOB, world.request, world.clock, world.sleep)
    assert Log.read(log.text()) == log


def test_a_stand_in_takes_its_models_time_and_asks_for_its_own_job():
    world = World()
    log = play(order(), JOB, world.request, world.clock, world.sleep)
    alone = models()["cg"].seconds(8) / BY
    checks = [r for r, _ in world.said if isinstance(r, wire.Check)]
    assert log.ended - log.began == pytest.approx(alone + len(checks) * COST.check / BY)
    assert {r.job for r in checks} == {7} and checks[0].nodes == tuple(f"n{i}" for i in range(1, 9))
    assert log.unheard == len(checks), "an agent that is away means no action"


def test_what_a_stand_in_has_done_is_said_until_it_is_heard():
    world = World(silent=2)
    world.grant = ("n1", "n2")
    log = play(order(), JOB, world.request, world.clock, world.sleep)
    done = [urgent for r, urgent in world.said if isinstance(r, wire.Finished)]
    assert done == [True, True, True]
    assert [a.kind for a in log.actions].count("shrink") == 1
    assert log.ended - log.began > models()["cg"].seconds(8) / BY


# -- accounting

SACCT = """5|COMPLETED|32|1000|1031
6|RESIZING|32|1031|1040
6|RESIZING|16|1040|1050
6|COMPLETED|8|1050|1071
9|RESIZING|4|1045|1046
"""
TOLD = {
    5: Told("cg-0", False, 999.0, 1000.5, 1030.6),
    6: Told("cg-1", True, 999.5, 1031.4, 1071.2),
}


def test_a_resized_job_is_accounted_for_by_its_sizes():
    found = outcome(TOLD, periods(SACCT))
    first, second = found.ran
    assert (first.waiting, first.execution) == pytest.approx((1.5, 30.1))
    assert first.node_seconds == 32 * 31 and second.node_seconds == 32 * 9 + 16 * 10 + 8 * 21
    assert second.submit == 0.5 and second.malleable
    assert [p.nodes for p in found.curve] == [32, 32, 16, 8, 0], "a resizer's nodes are not counted"
    assert found.curve[-1].ended == 2 and found.curve[1].running == 1
    assert found.node_seconds == sum(r.node_seconds for r in found.ran)


def test_a_job_that_failed_is_named():
    with pytest.raises(ValueError, match=r"cg-1 did not complete: .*TIMEOUT"):
        outcome(TOLD, periods(SACCT.replace("6|COMPLETED", "6|TIMEOUT")))
    with pytest.raises(ValueError, match="cg-0 did not complete: it never began"):
        outcome(TOLD, periods("5|PENDING|32|Unknown|Unknown\n" + SACCT.partition("\n")[2]))


def test_accounting_that_lags_is_waited_for():
    assert complete(periods(SACCT), TOLD)
    assert not complete(periods(SACCT.replace("6|COMPLETED|8|1050|1071\n", "")), TOLD)
    assert not complete(periods(SACCT.replace("5|COMPLETED|32|1000|1031", "5|RUNNING|32|1000|Unknown")), TOLD)


def test_latencies_come_from_jobs_that_wait_and_follow_each_other():
    singles = [Told(f"single-{n}", False, 10.0 * n, 10.0 * n + wait, 0.0) for n, wait in enumerate((0.3, 0.8, 1.3))]
    links = [Told(f"link-{n}", False, 99.0, 100.0 + 3 * n, 101.75 + 3 * n) for n in range(3)]
    blocker = Told("blocker", False, 99.0, 99.5, 200.0)
    assert waits([*singles, blocker, *links]) == pytest.approx((1.0, 0.3, 1.25 - 0.8))


# -- the simulator with latencies


def test_a_workload_is_compressed_in_time_and_in_nodes():
    before = workload(9, Version(moldable=True, share=1.0))
    after = compressed.compress(before, BY, of=4)
    for old, new in zip(before, after, strict=True):
        assert new.submit == old.submit / BY and new.spec.time_limit == old.spec.time_limit / BY
        assert new.spec.nodes == old.spec.nodes // 4 and (new.spec.min_nodes or 1) >= 1
        app = new.model.application
        assert new.model.seconds(app.maximum) == pytest.approx(old.model.seconds(4 * app.maximum) / BY)
        assert app.minimum <= app.preferred <= app.maximum
    assert compressed.cost(BY).resize(8, 16) == pytest.approx(COST.resize(8, 16) / BY)


def site(**more):
    config = ClusterConfig(nodes=32, scheduler=Scheduler.REPLAN, cycle=1.0)
    return Site(config, compressed.settings(BY), **more)


def test_latencies_of_slurm_lie_between_jobs_and_not_in_them():
    entries = [replace(e, submit=0.25) for e in compressed.compress(workload(6, Version()), BY) if e.spec.nodes == 32]
    quick = asyncio.run(drive(entries, site=site()))
    slow = asyncio.run(drive(entries, site=site(launch=0.3, clear=0.4, boot=9.0, leave=9.0)))
    for before, after in zip(quick.ran, slow.ran, strict=True):
        assert after.execution == pytest.approx(before.execution), "a rigid job has no boot"
        assert after.node_seconds == pytest.approx(before.node_seconds + 0.3 * 32)
    times = sorted((r.start, r.end) for r in slow.ran)
    assert times[0][0] == pytest.approx(1.0 + 0.3), "the scheduler looks once a second"
    free = times[0][1] + 0.4
    assert times[1][0] == pytest.approx(np.floor(free) + 1 + 0.3), "and sees that nodes are free"


def test_a_malleable_program_begins_and_ends_inside_its_script():
    entries = [e for e in compressed.compress(workload(4, Version(share=1.0)), BY) if e.spec.nodes == 32][:1]
    quick = asyncio.run(drive(entries, "noop", site=site()))
    slow = asyncio.run(drive(entries, "noop", site=site(boot=0.5, leave=0.25, clear=2.0)))
    assert slow.ran[0].execution == pytest.approx(quick.ran[0].execution + 0.75)
    assert asyncio.run(drive(entries, "noop", site=SITE)).ran[0].start == pytest.approx(3.0), "as the tables have it"


def test_the_scheduler_looks_in_cycles_except_for_allocations():
    def job(name, nodes, seconds):
        return JobSpec(name, f"#!/bin/sh\nsleep {seconds}\n", nodes, 600.0)

    backend = virtual_cluster(ClusterConfig(nodes=4, cycle=2.0))
    clock = backend.clock
    clock.advance_to(0.5)
    first = asyncio.run(backend.submit(job("a", 4, 10)))
    clock.advance_to(1.9)
    assert backend.engine.job(first).state is JobState.PENDING
    clock.advance_to(2.0)
    assert backend.engine.job(first).start == 2.0
    second = asyncio.run(backend.submit(job("b", 4, 1)))
    third = asyncio.run(backend.submit(job("c", 2, 1)))
    clock.advance_to(40.0)
    assert backend.engine.job(second).start == 14.0
    assert backend.engine.job(third).start == 16.0
    assert clock.next_event() == pytest.approx(12.0 + 300.0), "nobody looks where nothing has changed"
    assert asyncio.run(backend.allocate(Allocation("d", 2, 60.0), 1.0)) > third, "which is granted at once or never"


def test_a_look_takes_its_time():
    backend = virtual_cluster(ClusterConfig(nodes=4, query_latency=0.25))
    asyncio.run(backend.jobs())
    asyncio.run(backend.nodes())
    assert backend.clock.now() == 0.5


# -- judged and shown


@pytest.fixture(scope="module")
def compared():
    found = []
    for version in ("fixed", "flexible"):
        entries = compressed.compress(workload(8, compressed.VERSIONS[version]), BY)
        one, other = (asyncio.run(drive(entries, "throughput", site=site(clear=c))) for c in (0.1, 3.0))
        found.append(compressed.Compared(version, one, [other, other], (0.5, 1.5), 0.2, 0.1, 0))
    return found


def test_figures_and_goals_tell_how_far_the_simulator_is_off(compared):
    found = {(g.where, g.what.split()[1].rstrip(":")): g for g in compressed.goals(compared, 32)}
    assert len(found) == 10 and not found["fixed", "waiting"].reached and found["fixed", "execution"].reached
    rows = compressed.rows(compared, 32, BY)
    assert [r["source"] for r in rows] == ["real", "simulated"] * 2
    assert rows[0]["completion_s"] == pytest.approx(rows[0]["waiting_s"] + rows[0]["execution_s"])
    assert 0 < rows[0]["utilisation"] <= 1


def measured(version, other=0.0):
    results = {"jacobi-0": np.ones(3), "cg-1": np.ones(3) + other, "flexible_sleep-2": None}
    told = {5: replace(TOLD[5], name="jacobi-0"), 6: replace(TOLD[6], name="cg-1")}
    return programs.Measured(version, outcome(told, periods(SACCT)), (1.0, 2.0), results)


def test_results_of_mpi_programs_are_compared():
    assert programs.same_results(measured("fixed"), measured("flexible", 1e-12)) == {
        "jacobi": 1,
        "cg": 1,
        "flexible_sleep": 1,
    }
    assert programs.same_results(measured("fixed"), measured("flexible", 1e-8))["cg"] == 0


def test_the_chapter_shows_where_every_parameter_comes_from(compared):
    made = real.chapter(None, LATENCIES, compared, [measured("fixed"), measured("flexible")])
    cells = [row for table in made.tables if table.title.startswith("Parameters") for row in table.rows]
    assert ["scheduler's cycle", "1.000"] in [row[:2] for row in cells] and all(row[2] for row in cells)
    assert any(row[0] == "agent.interval" and row[1] == "0.5" for row in cells)
    assert len(made.rows) == 6 and len(made.goals) == 10
    json.dumps(made.rows)


def test_mpi_jobs_are_the_same_in_both_versions():
    fixed, flexible = programs.jobs_of(24, False), programs.jobs_of(24, True)
    assert [(j.at, j.name, j.nodes) for j in fixed] == [(j.at, j.name, j.nodes) for j in flexible]
    assert all("unset DMR_AGENT" in j.command for j in fixed)
    names = [j.name.rpartition("-")[0] for j in fixed]
    assert {names.count(p.name) for p in programs.PROGRAMS} == {6}
    cg = programs.PROGRAMS[0]
    assert (cg.maximum, cg.preferred) == (4, 1)
    assert cg.serial + cg.parallel / 4 == pytest.approx(20.0)
    assert cg.serial + cg.parallel == pytest.approx(20.0 * models()["cg"].seconds(8) / models()["cg"].seconds(32))


def test_a_narrow_model_is_as_fast_as_the_wide_one():
    wide, narrowed = models()["nbody"], narrow(models()["nbody"], 4)
    assert narrowed.seconds(4) == pytest.approx(wide.seconds(16))
    assert (narrowed.application.minimum, narrowed.application.maximum) == (1, 4)


def test_without_root_the_part_says_so(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = CliRunner().invoke(dmr, ["--part", "real"])
    assert isinstance(result.exception, UserError) and "root" in str(result.exception)

"""What is asked of Slurm is counted by feature and owner, kept by the hour, and told by the report."""

from __future__ import annotations

import asyncio
import json

from factories import ManualClock

from penstock.core.asked import AskedCounter, asked_in
from penstock.report.period import asked
from penstock.slurm.meter import LOOKS, Meter, Purpose, asking_for
from penstock.state.store import Store
from penstock_lab.testing import make_snapshot

HOUR = 3600.0


def flush(counter):
    assert asyncio.run(counter.reconcile(make_snapshot([]))) == []


def test_what_is_asked_within_is_for_that_also_by_tasks_that_it_starts():
    meter = Meter()

    async def act(feature, owner):
        with asking_for(feature, owner):
            meter.begun("squeue")
            await asyncio.gather(asyncio.sleep(0), asyncio.ensure_future(later()))
        meter.begun("squeue")

    async def later():
        meter.begun("scancel")

    async def both():
        await asyncio.gather(act("workflows", 1), act("malleable", 2))

    asyncio.run(both())
    assert meter.purposes == {Purpose("workflows", 1): 2, Purpose("malleable", 2): 2, Purpose(): 2}
    assert meter.requests == {"squeue": 4, "scancel": 2}


def test_counts_are_kept_by_the_hour_over_restarts_and_forgotten_after_five_weeks(tmp_path):
    store, clock, meter = Store(tmp_path / "s.db"), ManualClock(100 * HOUR), Meter()
    counter = AskedCounter(store, clock, meter)
    meter.begun("squeue")
    flush(counter)
    meter.begun("squeue")
    flush(counter)  # too soon
    assert asked_in(store, 0, clock.at) == (1, {Purpose(): 1})
    clock.at += 200
    with asking_for("workflows", 7):
        meter.begun("scancel")
    flush(counter)
    # Another agent over the same state.
    meter = Meter()
    counter = AskedCounter(store, clock, meter)
    clock.at += HOUR
    with asking_for("workflows", 7):
        meter.begun("scancel")
    flush(counter)
    assert asked_in(store, 100 * HOUR, clock.at) == (2, {Purpose(): 2, Purpose("workflows", 7): 2})
    assert asked_in(store, 101 * HOUR, clock.at) == (1, {Purpose("workflows", 7): 1})
    clock.at += 36 * 24 * HOUR
    meter.begun("squeue")
    flush(counter)
    assert asked_in(store, 0, clock.at) == (1, {Purpose(): 1})


def test_many_users_take_no_more_room_than_a_thousand(tmp_path):
    store, clock, meter = Store(tmp_path / "s.db"), ManualClock(100 * HOUR), Meter()
    for uid in range(3000):
        with asking_for("workflows", uid):
            meter.begun("squeue")
    flush(AskedCounter(store, clock, meter))
    hours, counts = asked_in(store, 0, clock.at)
    assert hours == 1 and counts.total() == 3000 and counts[Purpose("workflows")] == 2000


def test_the_report_says_how_often_an_hour_for_what_and_for_whom():
    store = Store(":memory:")
    assert asked(store, 0, HOUR) == []
    hours = [{LOOKS: {"": 100}, "workflows": {"0": 20}}, {LOOKS: {"": 140}, "malleable": {"0": 4, "99999": 6}}]
    for hour, counts in enumerate(hours):
        store.facts.remember(f"asked.{hour:010d}", json.dumps(counts))
    store.facts.remember("asked.0000000002", "{broken")
    found = {figure.name: figure.value for figure in asked(store, 0, 1.5 * HOUR)}
    assert found == {
        "slurm_requests": 135,
        "slurm_requests_looks": 120,
        "slurm_requests_workflows": 10,
        "slurm_requests_malleable": 5,
        "slurm_requests_user_0": 12,
        "slurm_requests_user_99999": 3,
    }
    titles = [figure.title for figure in asked(store, 0, 1.5 * HOUR)]
    assert "of these for jobs of root" in titles and "of these for jobs of 99999" in titles
    assert {f.value for f in asked(store, 2 * HOUR, 3 * HOUR)} == {0}

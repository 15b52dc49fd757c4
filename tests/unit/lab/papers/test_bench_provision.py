"""The simulated clusters behind `penstock bench provision`: nobody is lost, and best effort is what the queue gives."""

from __future__ import annotations

import math
import random
import statistics
from functools import partial

import pytest

from penstock.future.plan import make_plan
from penstock_lab.papers import provision, provision_front, provision_practice
from penstock_lab.papers.provision_against import FIGURES, Against
from penstock_lab.papers.provision_greedy import against_best_effort
from penstock_lab.papers.provision_machine import Machine, best_effort_on, chain_on
from penstock_lab.papers.provision_policies import AggressiveMachine, prices_by_policy
from penstock_lab.papers.provision_practice import PlannedMachine
from penstock_lab.papers.provision_prices import answers, duplicated, first_days, sell
from penstock_lab.papers.provision_sites import among_sites, over_sites
from penstock_lab.papers.provision_var import both_ways
from penstock_lab.papers.provision_world import World, a_workflow, best_effort, with_second_copy
from penstock_lab.sim.replay import replay
from penstock_lab.sim.trace import Trace
from penstock_planning.plan.dag import one_site
from penstock_planning.plan.orders import free_plans
from penstock_planning.plan.pricing import PaperPricing, quote


def some_jobs(count=300, seed=4):
    rng = random.Random(seed)
    return sorted((rng.randint(0, 20_000), rng.randint(1, 900), rng.randint(1, 8)) for _ in range(count))


def test_figure_2_keeps_the_machine_like_conservative_backfilling():
    """Starts may differ a little, for the table keeps processors apart; the work and the ends nearly agree."""
    jobs = some_jobs()
    world = World(8, jobs)
    counts = []
    for submit, _, _ in jobs:
        world.to(submit)
        counts.append(len(world.advertised()))
    trace = Trace.of((i, s, r, p, r) for i, (s, r, p) in enumerate(jobs))
    starts = replay(trace, 8, "conservative")
    ours = max(world.ends)
    theirs = max(start + run for start, (_, run, _) in zip(starts, jobs, strict=True))
    assert abs(ours - theirs) < 0.1 * theirs
    assert max(counts) > 2


def test_best_effort_alone_and_among_others():
    dag = one_site([("a", 8, 10, ()), ("b", 8, 10, ("a",))])
    empty = World(8, [(0, 1, 1)])
    assert best_effort(empty.copy(), dag, 100) == 20
    busy = World(8, [(0, 1, 1), (105, 50, 8)])
    assert best_effort(busy, dag, 100) == 70  # the other comes while the first task runs, and is ahead of the second


def test_a_second_copy_comes_a_week_later():
    jobs = some_jobs(100)
    more = with_second_copy(jobs, 0.5, 1)
    assert 120 < len(more) < 180 and more == sorted(more)
    assert with_second_copy(jobs, 0, 1) == jobs


def test_the_machine_on_pinned_nodes_is_conservative_backfilling():
    jobs = some_jobs()
    machine = Machine(8, jobs)
    machine.to(30_000)
    trace = Trace.of((i, s, r, p, r) for i, (s, r, p) in enumerate(jobs))
    starts = replay(trace, 8, "conservative")
    mean = sum(start - submit for start, (submit, _, _) in zip(starts, jobs, strict=True)) / len(jobs)
    assert abs(machine.mean_wait() - mean) < 0.15 * mean


def test_who_buys_a_slot_in_the_way_delays_the_others_by_what_the_price_says():
    machine = Machine(4, [(0, 10, 4), (0, 5, 2), (0, 5, 2)])
    machine.to(0)
    before = machine.mean_wait()
    slot = answers(make_plan(machine.queue()), 4, 10, 0.0)[-1]
    assert (slot.start, slot.f) == (10, 40)  # two jobs of two processors wait ten seconds longer
    machine.buy(slot)
    assert machine.mean_wait() - before == 20 / 3
    free = answers(make_plan(machine.queue()), 4, 10, 1.0)[-1]
    assert (free.start, free.f) == (25, 0)


def test_prices_fall_to_nothing_when_only_price_counts_and_slots_come_first_when_only_time_does():
    jobs = some_jobs(80)
    at_once, cheap, between = (sell(jobs, 8, 0.2, alpha, 1) for alpha in (0.0, 1.0, 0.5))
    assert cheap.price == 0 and cheap.free == 1 < len(cheap.bought)
    assert at_once.price > between.price > 0 and at_once.wait < between.wait < cheap.wait
    assert any(f for _, f in between.offers) and not at_once.offers
    assert sell(jobs, 8, 0.2, 0.5, 1) == between
    assert sell(jobs, 8, 1.1, 0.0, 1).price == 0  # nobody is left who could be delayed


def test_more_load_is_the_same_jobs_again():
    jobs = some_jobs(100)
    more = duplicated(jobs, 0.4, 1)
    assert 125 < len(more) < 155 and set(more) == set(jobs)
    assert first_days([(0, 1, 1), (86399, 1, 1), (86400, 1, 1)], 1) == [(0, 1, 1), (86399, 1, 1)]


def test_workflows_that_buy_their_slots_end_earlier_and_pay_only_for_that():
    jobs = some_jobs(90)
    flow = partial(a_workflow, 12, 3, 3, 8)
    (found,) = against_best_effort(Machine(8, jobs), [(flow, (0.0, 1.0))], [2000.0, 8000.0])
    fast, slow = (Against.of(found[alpha]) for alpha in (0.0, 1.0))
    assert fast.span.value < slow.span.value < 1.5 and fast.cost.value > slow.cost.value == 1


def test_best_effort_on_pinned_nodes():
    dag = one_site([("a", 8, 10, ()), ("b", 8, 10, ("a",))])
    machine = Machine(8, [(0, 1, 1), (105, 50, 8)])
    machine.to(100)
    assert best_effort_on(machine.copy(), dag) == 70
    assert not machine.queue().waiting


def test_a_machine_that_skips_what_is_long_past_sees_the_same_present():
    jobs = some_jobs(100)
    jobs += [(submit + 40 * 86400, run, procs) for submit, run, procs in jobs]
    whole, short = Machine(8, jobs), Machine(8, jobs)
    whole.to(40 * 86400 + 5000)
    short.near(40 * 86400 + 5000)
    assert [w.procs for w in whole.queue().waiting] == [w.procs for w in short.queue().waiting]
    assert make_plan(whole.queue()).starts == make_plan(short.queue()).starts != ()


def test_both_kinds_of_reservation_at_once_never_cost_more_and_fail_only_together():
    machine, found = Machine(8, some_jobs(100)), []
    for when in range(3000, 15_000, 3000):
        machine.near(when)
        found += [both_ways(machine, procs, 600, notice) for procs in (2, 4) for notice in (300, 1800)]
    assert any(o.virtual is None for o in found) and any(o.virtual for o in found) and any(o.priced for o in found)
    for o in found:
        assert (o.combined is None) == (o.virtual is None and o.priced is None)
        assert o.priced is None or o.combined <= o.priced
        assert o.virtual is None or o.virtual <= o.most


def test_a_virtual_reservation_pays_for_idling():
    machine = Machine(4, [(0, 1, 1)])
    machine.to(100)
    machine.seen = [(100.0, 2, 0.0)] * 20
    outcome = both_ways(machine, 2, 100, 300)
    # All instants promise the same, so the first is taken, and the job begins at once: 300 s too early.
    assert outcome.virtual == outcome.most == 3 and outcome.priced == 0 == outcome.combined


def test_who_ends_before_the_limit_moves_the_others_up_in_their_order():
    """Two hold the machine for 100 s and need 40 and 10; the third wants all of it, the fourth a half for 30 s."""
    jobs = [(0, 40, 2, 100), (0, 10, 2, 100), (1, 5, 4, 5), (2, 30, 2, 30)]
    machine = Machine(4, jobs)
    machine.to(5)
    assert make_plan(machine.queue()).starts == (100, 105)
    machine.to(10)
    assert make_plan(machine.queue()).starts == (100,)  # the fourth runs, from 10 to 40
    machine.to(41)
    assert not machine.queue().waiting and machine.seen == [(100, 2, 0), (100, 2, 0), (30, 2, 8), (5, 4, 39)]


def test_inexact_estimates_give_what_the_replay_of_the_log_gives():
    rng = random.Random(2)
    jobs = [(submit, run, procs, run * rng.randint(1, 5)) for submit, run, procs in some_jobs(120)]
    machine = Machine(8, jobs)
    machine.to(90_000)
    starts = replay(Trace.of((i, s, r, p, e) for i, (s, r, p, e) in enumerate(jobs)), 8, "conservative", "batch")
    mean = sum(start - job[0] for start, job in zip(starts, jobs, strict=True)) / len(jobs)
    assert not machine.queue().waiting
    assert abs(machine.mean_wait() - mean) < 0.1 * mean


def test_aggressive_backfilling_is_that_of_the_replay_of_the_log():
    jobs = some_jobs(120)
    machine = AggressiveMachine(8, jobs)
    machine.to(90_000)
    starts = replay(Trace.of((i, s, r, p, r) for i, (s, r, p) in enumerate(jobs)), 8, "easy", "batch")
    mean = sum(start - job[0] for start, job in zip(starts, jobs, strict=True)) / len(jobs)
    assert abs(machine.mean_wait() - mean) < 0.1 * mean  # nodes are pinned here, and only counted there


def test_a_slot_in_the_way_delays_others_under_aggressive_backfilling_by_what_it_costs():
    machine = AggressiveMachine(4, [(0, 10, 4), (0, 5, 2), (0, 5, 2)])
    machine.to(0)
    before, slot = machine.mean_wait(), quote(machine.plan(), 4, 10, 10, PaperPricing())
    assert slot.f == 40
    machine.buy(slot)
    assert machine.mean_wait() - before == 20 / 3
    machine.to(60)
    assert machine.mean_wait() - before == 20 / 3 and not machine.plan().queue.waiting


def test_the_same_jobs_buy_under_both_kinds_of_backfilling():
    conservative, aggressive = prices_by_policy(some_jobs(80), 8, 0.2, 1)
    assert len(conservative.bought) == len(aggressive.bought) > 5
    assert conservative.others_wait > 0 < aggressive.others_wait != conservative.others_wait


def test_best_effort_among_sites_goes_where_the_fewest_jobs_are_and_waits_for_the_data():
    """Site 0 has two jobs at 100, site 1 one: a goes to 1; then there is none there, and b needs no transfer."""
    dag = over_sites(one_site([("a", 2, 10, ()), ("b", 2, 10, ("a",))]), 2, 7)
    quiet = [World(2, [(100, 50, 1), (100, 50, 1)]), World(2, [(100, 3, 1)])]
    assert among_sites(quiet, dag, 100) == 23
    # Three come to site 1 while a runs there: b goes to site 0, and its data take 7 s.
    busy = [World(2, [(100, 5, 1), (100, 5, 1)]), World(2, [(100, 3, 1), (105, 9, 1), (105, 9, 1), (105, 9, 1)])]
    assert among_sites(busy, dag, 100) == 13 + 7 + 10


LIMITED = [(0, 100, 2, 1000), (0, 900, 2, 1000), (10, 50, 4, 400), (20, 300, 1, 300), (900, 10, 4, 1000)]
"""(submission, run time, processors, limit): four processors are full at once, and everybody but one ends early."""


def test_best_effort_and_a_chain_go_by_when_jobs_really_end():
    dag = one_site([("a", 2, 60, ()), ("b", 2, 60, ("a",))])
    machine = PlannedMachine(4, LIMITED)
    machine.to(30)
    # The first job ends at 100, and the one of one processor takes its place until 400; its users' limits say 1400.
    assert best_effort_on(machine.copy(), dag) == 400 + 120 - 30
    assert chain_on(machine.copy(), dag) == 400 + 120 - 30


def test_a_chain_keeps_its_place_and_best_effort_does_not():
    dag = one_site([("a", 4, 100, ()), ("b", 4, 100, ("a",))])
    jobs = [(0, 500, 4, 500), (510, 1000, 4, 1000)]
    machine = PlannedMachine(4, jobs)
    machine.to(10)
    assert chain_on(machine.copy(), dag) == 500 + 200 - 10
    assert best_effort_on(machine.copy(), dag) == 500 + 100 + 1000 + 100 - 10


def test_slots_move_up_when_others_end_early_and_nobody_is_delayed_by_it():
    dag = one_site([("a", 2, 60, ()), ("b", 2, 60, ("a",))])
    machine = PlannedMachine(4, LIMITED)
    machine.to(30)
    plan = min(free_plans(dag, machine.free(), now=30), key=lambda plan: plan.makespan)
    assert plan.makespan == 1400 + 120 - 30, "behind the job that waits for all four until the limits are over"
    kept = machine.copy()
    kept.hold(dag, plan, math.inf)
    assert kept.finish() == 1520
    moved = machine.copy()
    moved.hold(dag, plan, 10.0)
    moved.to(899)
    assert [p.start for p in moved._placed if p.start > moved.now] == [1000], "as without a plan"
    assert moved.finish() == 400 + 120


@pytest.mark.long
def test_the_parts_of_plans_on_free_slots(monkeypatch):
    jobs = [(60 * i, 900 + 37 * i % 1200, 1 + i * 7 % 40, 3600) for i in range(200)]
    for module in (provision_front, provision_practice):
        monkeypatch.setattr(module, "traces", list)
    monkeypatch.setattr(provision_front, "read_jobs", lambda logs, site: [job[:3] for job in jobs])
    monkeypatch.setattr(provision_practice, "read_limited_jobs", lambda logs, site: jobs)
    monkeypatch.setattr(provision_front, "_SIZES", {"CTC": (3,), "SDSC": (1,)})
    monkeypatch.setattr(provision_front, "_COUNTS", (36,))
    monkeypatch.setattr(provision_practice, "_TASKS", 25)
    chapter = provision_front.fronts(None, lambda text: None, 2)
    assert all(row["floor"] <= row["makespan"] <= row["heft"] + 1e-9 for row in chapter.rows)
    assert [goal.at_most for goal in chapter.goals] == [0.87, 0.82]
    chapter = provision_practice.practice(None, lambda text: None, 2)
    ways = {(row["site"], row["procs"], row["way"]): row["makespan"] for row in chapter.rows}
    assert len(ways) == 16 and len(chapter.goals) == 4
    assert all(ways[site, width, "at_once"] <= ways[site, width, "kept"] for site, width, _ in ways)


def test_a_slot_is_released_when_its_job_ends_and_those_who_wait_are_moved_up():
    for run, start, left in ((10, 10, 0), (None, 100, 1), (200, 100, 1)):
        machine = Machine(4, [])
        machine.buy(quote(make_plan(machine.queue()), 4, 100, 0, PaperPricing()), run)
        twin = machine.copy()
        job = machine.submit(4, 50)
        assert machine.start_of(job) == 100, "until then nobody knows"
        machine.to(20)
        assert machine.start_of(job) == start
        assert sum(claim.id.startswith("slot") for claim in machine.queue().claims) == left
        assert twin.next_event() == (10 if run == 10 else math.inf), "each has releases of its own"


def test_who_releases_slots_delays_others_less_and_pays_for_it_by_limits_all_the_same():
    jobs = [(at, run, procs, 3 * run) for at, run, procs in some_jobs(150)]
    released, kept = (sell(jobs, 8, 0.3, 0.0, 0, released=way) for way in (True, False))
    assert released.waits < kept.waits and len(released.bought) == len(kept.bought)
    exact = [(at, run, procs) for at, run, procs, _ in jobs]
    same = [sell(exact, 8, 0.3, 0.0, 0, released=way) for way in (True, False)]
    assert same[0] == same[1], "nothing is left of a slot that is as long as its job"


def test_rows_of_trade_offs_have_interval_median_and_floor():
    def dag_of(run):
        return a_workflow(9, 3, 2, 8, run)

    found = provision._compare(some_jobs(), 8, dag_of, 4, (0.0, 1.0))
    against = provision._against(found, 0.0)
    assert against.span.low <= against.span.value <= against.span.high
    assert 0 < against.floor <= min(1.0, against.span.value) and against.cost.low >= 1 - 1e-9
    assert against.row()["median"] == statistics.median(r["makespan_0"] / r["best_effort"] for r in found)
    assert len(against.cells()) == len(FIGURES)

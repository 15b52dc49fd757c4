"""What must hold of every plan, price and front: against planning everything anew, slowly."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.future.bits import BitProfile
from penstock.future.plan import Claim, ClusterQueue, PendingJob, make_plan
from penstock_planning.plan.dag import best_effort_cost, one_site, ranks
from penstock_planning.plan.front import Evaluation
from penstock_planning.plan.greedy import SlotSite, as_market, buy, by_deadline, greedy
from penstock_planning.plan.heft import Scheduler
from penstock_planning.plan.moga import MogaSettings, moga
from penstock_planning.plan.pricing import PaperPricing, plain_price, quote, quote_all
from penstock_planning.plan.situation import Situation
from penstock_planning.plan.slots import Slot, cost, default_horizon, free_slots
from penstock_planning.plan.table import SlotTable
from penstock_planning.plan.var import WaitSample, when_to_submit
from penstock_planning.plan.workflows import METHODS, plan_workflow

SIZE = 6
ALL = (1 << SIZE) - 1
PRICING = PaperPricing()
relaxed = settings(deadline=None, max_examples=60)


@st.composite
def queues(draw, policy=None, restricted=True):
    """Running jobs and reservations that do not overlap, and pending jobs, some of them for some of the nodes only."""
    profile, claims = BitProfile(ALL, 0), []
    for i, (nodes, start, length) in enumerate(
        draw(st.lists(st.tuples(st.integers(1, ALL), st.integers(0, 9), st.integers(1, 9)), max_size=4))
    ):
        if profile.common(start, start + length, nodes) == nodes:
            profile.block(nodes, start, start + length)
            claims.append(Claim(f"r{i}", nodes, start, start + length))
    waiting = []
    for i, (procs, length, some, after) in enumerate(
        draw(
            st.lists(
                st.tuples(st.integers(1, SIZE), st.integers(1, 7), st.integers(1, ALL), st.sampled_from([0, 0, 0, 5])),
                max_size=12,
            )
        )
    ):
        within = some if restricted and i % 3 == 2 else ALL
        waiting.append(PendingJob(f"j{i}", procs, length, within, procs, after if restricted else -math.inf))
    chosen = policy or draw(st.sampled_from(["conservative", "aggressive"]))
    return ClusterQueue(SIZE, 0, tuple(claims), tuple(waiting), chosen)


def slow_starts(queue, *more):
    """Conservative backfilling, looked for from the beginning for every job; `more` is taken, too."""
    profile = queue.taken()
    for nodes, start, end in more:
        profile.block(nodes, start, end)
    out = []
    for job in queue.waiting:
        found = profile.earliest(job.procs, job.duration, max(queue.now, job.after), job.within)
        out.append(math.inf if found is None else found[0])
        if found is not None:
            profile.block(found[1], found[0], found[0] + job.duration)
    return tuple(out)


@relaxed
@given(queues("conservative"))
def test_the_plan_is_conservative_backfilling(queue):
    assert make_plan(queue).starts == slow_starts(queue)


@relaxed
@given(queues("conservative"), st.integers(1, ALL), st.integers(0, 20), st.integers(1, 9))
def test_planning_again_only_what_changes_is_exact(queue, nodes, start, length):
    assert make_plan(queue).starts_beside(nodes, start, start + length) == slow_starts(
        queue, (nodes, start, start + length)
    )


@relaxed
@given(queues())
def test_jobs_do_not_share_nodes_and_keep_their_sets(queue):
    plan, profile = make_plan(queue), queue.taken()
    for job, start, nodes in zip(queue.waiting, plan.starts, plan.nodes, strict=True):
        if start == math.inf:
            assert (job.within & ALL).bit_count() < job.procs
            continue
        assert start >= max(queue.now, job.after)
        assert nodes.bit_count() == job.procs
        assert nodes & ~job.within == 0
        assert profile.common(start, start + job.duration, nodes) == nodes
        profile.block(nodes, start, start + job.duration)
    assert (profile.times, profile.free) == (plan.profile.times, plan.profile.free)


@relaxed
@given(queues("aggressive", restricted=False))
def test_aggressive_backfilling_never_delays_the_first(queue):
    if queue.waiting:
        alone = make_plan(replace(queue, waiting=queue.waiting[:1])).starts[0]
        assert make_plan(queue).starts[0] == alone


@relaxed
@given(queues())
def test_slots_and_tasks_fill_the_machine(queue):
    plan = make_plan(queue)
    horizon = default_horizon(0, plan.last_finish, hour=0.1)
    slots = free_slots(plan.profile, horizon, PRICING)
    used = sum(c.nodes.bit_count() * (c.end - c.start) for c in queue.claims)
    used += sum(j.procs * j.duration for j, s in zip(queue.waiting, plan.starts, strict=True) if s < math.inf)
    assert math.isclose(sum(s.procs * s.duration for s in slots) + used, SIZE * horizon)
    profile = plan.profile.copy()
    for slot in slots:
        assert slot.nodes.bit_count() == slot.procs
        end = math.inf if slot.extensible else slot.end
        assert profile.common(slot.start, end, slot.nodes) == slot.nodes
        profile.block(slot.nodes, slot.start, end)
        assert cost(slot, slot.procs, slot.start, slot.duration) == slot.procs * slot.duration


@relaxed
@given(queues(), st.integers(1, SIZE), st.integers(1, 6))
def test_prices(queue, procs, length):
    plan = make_plan(queue)
    quotes = quote_all(plan, procs, length, PRICING)
    assert all(q.f >= 0 for q in quotes)
    assert quotes[-1].f == 0
    taken = queue.taken()
    for q in quotes:
        if q.feasible:
            assert taken.common(q.start, q.start + length, q.nodes) == q.nodes
            assert q.f == sum(q.delays[j.id] * j.procs for j in queue.waiting if j.id in q.delays)


@relaxed
@given(queues("conservative"), st.integers(1, SIZE), st.integers(1, 6))
def test_what_is_free_in_the_plan_costs_nothing_more(queue, procs, length):
    plan = make_plan(queue)
    for slot in free_slots(plan.profile, 30, PRICING):
        if slot.procs >= procs and slot.duration >= length:
            assert quote(plan, procs, length, slot.start, PRICING).f == 0


@relaxed
@given(queues(), st.integers(1, SIZE), st.integers(1, 6))
def test_names_do_not_matter_and_reservations_are_never_delayed(queue, procs, length):
    renamed = replace(queue, waiting=tuple(replace(j, id=f"x{j.id}") for j in queue.waiting))
    prices = [q.f for q in quote_all(make_plan(queue), procs, length, PRICING)]
    assert prices == [q.f for q in quote_all(make_plan(renamed), procs, length, PRICING)]
    only = quote_all(make_plan(replace(queue, waiting=())), procs, length, PRICING)
    assert {q.f for q in only} <= {0, math.inf}


@st.composite
def workflows(draw):
    tasks = []
    for i in range(draw(st.integers(1, 6))):
        parents = draw(st.sets(st.integers(0, i - 1), max_size=2)) if i else set()
        tasks.append((f"t{i}", draw(st.integers(1, 3)), draw(st.integers(1, 4)), [f"t{p}" for p in sorted(parents)]))
    return one_site(tasks)


@relaxed
@given(queues(restricted=False), workflows())
def test_the_greedy_plan(queue, dag):
    free = greedy(dag, (SlotSite("here", queue, PRICING),), 1, 0)
    assert free.cost == best_effort_cost(dag)
    fast = greedy(dag, (SlotSite("here", queue, PRICING),), 0, 0)
    assert fast.cost >= best_effort_cost(dag)
    ends = {b.task: b.end for b in fast.bought}
    assert all(b.quote.start >= max((ends[e.parent] for e in dag.into(b.task)), default=0) for b in fast.bought)


@relaxed
@given(queues("conservative"), workflows(), st.integers(0, 3))
def test_plans_on_slots(queue, dag, seed):
    slots = free_slots(make_plan(queue).profile, 60, PRICING)
    evaluate = Evaluation(Scheduler(dag, slots))
    points = moga(evaluate, seed, MogaSettings(population=8, iterations=2, start=((True,) * len(slots),)))
    assert points
    for i, p in enumerate(points):
        assert not any(q.dominates(p) for q in points)
        schedule = evaluate.schedule(p.genome)
        assert schedule.cost == p.cost >= best_effort_cost(dag)
        ends = {t.task: t.end for t in schedule.placed}
        for t in schedule.placed:
            assert t.start >= max((ends[e.parent] for e in dag.into(t.task)), default=0)
        assert i == 0 or points[i - 1].makespan > p.makespan


class Nights:
    """Half the price from the tenth unit of time on."""

    name, penalty = "nights", 0.1

    def unit(self, start: float, duration: float) -> float:
        return 1.0 if start < 10 else 0.5

    def shape(self, endless: bool) -> tuple[bool, bool]:
        return endless, endless

    def weight(self, procs: int, qos: str, account: str) -> float:
        return float(procs)


CLAIMED = ClusterQueue(SIZE, 0, (Claim("r0", 1, 1, 10),))
"""Nobody waits, and what begins when that ends costs less: a slot at another time is cheaper."""


@relaxed
@example(CLAIMED, one_site([("t0", 1, 1, []), ("t1", 1, 1, [])]), 0, Nights())
@given(queues("conservative"), workflows(), st.integers(0, 3), st.sampled_from([PRICING, Nights()]))
def test_no_plan_of_any_method_beats_one_of_the_front(queue, dag, seed, pricing):
    situation = Situation(queue, tuple(f"n{i}" for i in range(SIZE)), pricing)
    found = plan_workflow(situation, dag, seed=seed)
    assert found.queue_alone is not None and not found.notes
    assert [(p.cost, p.makespan) for p in found.front] == sorted((p.cost, p.makespan) for p in found.front)
    others = [(found.queue_alone.cost, found.queue_alone.makespan)]
    for method in METHODS:
        for alpha in (i / 10 for i in range(11)) if method == "greedy" else (0.5,):
            others += [p[:2] for p in plan_workflow(situation, dag, method, alpha, seed=seed).front]
    for cost_, makespan in others:
        for p in found.front:
            assert not (cost_ <= p.cost and makespan <= p.makespan and (cost_ < p.cost or makespan < p.makespan))


@relaxed
@given(queues("conservative"), workflows(), st.floats(0, 1), st.sampled_from([PRICING, Nights()]))
def test_a_plan_costs_what_the_ledger_books_for_its_slots(queue, dag, alpha, pricing):
    found = plan_workflow(Situation(queue, tuple("abcdef"), pricing), dag, alpha=alpha)
    placed, prices = found.schedule.placed, found.prices or (0.0,) * len(dag.tasks)
    assert sorted(p.task for p in placed) == list(range(len(dag.tasks)))
    booked, taken, ends = 0.0, queue.taken(), {p.task: p.end for p in placed}
    for p, f in zip(placed, prices, strict=True):
        procs, length = dag.tasks[p.task].procs, p.end - p.start
        assert p.nodes.bit_count() == procs and length == dag.tasks[p.task].durations[0]
        assert p.start >= max((ends[e.parent] for e in dag.into(p.task)), default=0)
        assert taken.common(p.start, p.end, p.nodes) == p.nodes, "two have the same node, or somebody runs there"
        taken.block(p.nodes, p.start, p.end)
        booked += plain_price(pricing, procs, p.start, length) + f
    assert math.isclose(booked, found.schedule.cost, rel_tol=1e-12)
    assert found.schedule.makespan == max(ends.values())


def test_what_is_too_much_work_is_said():
    queue = ClusterQueue(SIZE, 0, (), tuple(PendingJob(f"j{i}", 1, 2, ALL, 1) for i in range(1000)))
    dag = one_site([(f"t{i}", 1, 1, ()) for i in range(8)])
    found = plan_workflow(Situation(queue, tuple("abcdef"), PRICING), dag)
    assert found.notes == (
        "Slots that others wait for were not looked at: 8 stages and 1000 waiting jobs are many: "
        "--method greedy buys one plan.",
    )


@relaxed
@given(queues("conservative"), workflows(), st.integers(0, 30))
def test_the_cheapest_plan_for_a_deadline_keeps_it_where_the_fastest_slots_do(queue, dag, deadline):
    market = as_market(SlotSite("here", queue, PRICING))
    found = buy(dag, (market,), by_deadline(dag, deadline), 0)
    if max(float(rank) for rank in ranks(dag)) > deadline:
        assert found.makespan > deadline
    free = plan_workflow(Situation(queue, tuple("abcdef"), PRICING), dag, "best-effort").schedule
    if found.makespan <= deadline < free.makespan:
        assert found.cost >= best_effort_cost(dag)


@relaxed
@given(queues("conservative"), workflows(), st.lists(st.integers(0, 2**12 - 1), max_size=12))
def test_plans_that_are_not_scheduled_again_have_the_same_values(queue, dag, plans):
    slots = free_slots(make_plan(queue).profile, 60, PRICING)[:12]
    scheduler = Scheduler(dag, slots)
    evaluate = Evaluation(scheduler)
    for bits in plans:
        genome = tuple(bool(bits >> i & 1) for i in range(len(slots)))
        found = scheduler.run([i for i, taken in enumerate(genome) if taken])
        assert evaluate(genome)[:2] == (found.cost, found.makespan)


@relaxed
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), max_size=10))
def test_figure_2_keeps_every_processor_once(tasks):
    table = SlotTable([Slot(0, 4, 10, divisible=True, extensible=True)])
    busy = []
    for procs, duration in tasks:
        start = table.put(procs, duration)
        assert start is not None
        busy.append((start, start + duration, procs))
    for time in {t for start, end, _ in busy for t in (start, end)}:
        used = sum(n for start, end, n in busy if start <= time < end)
        assert used + sum(p.procs for p in table.pieces if p.start <= time < p.end) == 4


@st.composite
def bushes(draw):
    """Workflows with many equal tasks, behind one another's or all behind the same."""
    rows, before = [("root", 1, draw(st.integers(1, 5)), [])], ["root"]
    for level in range(draw(st.integers(1, 3))):
        procs, length = draw(st.integers(1, 3)), draw(st.integers(1, 6))
        parents = draw(st.sampled_from(["one each", "all the same", "any"]))
        names = [f"{level}.{i}" for i in range(draw(st.integers(1, 40)))]
        for i, name in enumerate(names):
            match parents:
                case "one each":
                    after = [before[i % len(before)]]
                case "all the same":
                    after = before[:2]
                case _:
                    after = draw(st.lists(st.sampled_from(before), unique=True, max_size=3))
            rows.append((name, procs, length, after))
        before = names
    return one_site(rows)


@relaxed
@given(bushes(), st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9), st.integers(1, 20)), max_size=8))
def test_a_search_that_goes_on_from_the_last_one_finds_what_one_from_the_beginning_does(dag, pieces):
    slots = [Slot(start, procs, length, divisible=True) for start, procs, length in pieces]
    slots.append(Slot(20, 4, 10, extensible=True, divisible=True))
    found = Scheduler(dag, slots).run(range(len(slots)))
    find = SlotTable.find
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SlotTable, "find", lambda self, procs, length, after, first=0: find(self, procs, length, after))
        assert Scheduler(dag, slots).run(range(len(slots))) == found


PAST = st.lists(
    st.tuples(st.sampled_from([0.5, 1, 3, 7.7, 10, 20, 40]), st.integers(1, 5), st.floats(0, 60)), max_size=40
)


@relaxed
@given(PAST, st.integers(1, 4), st.floats(0, 3), st.floats(0, 50), st.floats(0.5, 20), st.sampled_from([0.3, 1, 2.5]))
def test_a_submission_time_is_the_best_of_all_steps(past, nodes, now, notice, duration, step):
    start = now + notice
    best, steps = (0.0, None), 0
    while (at := now + steps * step) < start:
        run_time = duration + (start - at)
        like = [w for limit, n, w in past if run_time / 2 <= limit <= run_time * 2 and nodes / 2 <= n <= nodes * 2]
        like = [w for _, _, w in past] if len(like) < 10 else like
        chance = sum(wait <= start - at for wait in like) / (len(like) + 1)
        best, steps = (chance, at) if chance > best[0] else best, steps + 1
    found = when_to_submit(now, start, duration, WaitSample(past, nodes, start), step)
    assert best == ((0.0, None) if found is None else (found.probability, found.at))


def test_few_submission_times_are_looked_at_however_far_the_start_is(monkeypatch):
    looked = []
    chance = WaitSample.__call__
    monkeypatch.setattr(WaitSample, "__call__", lambda self, at, run: looked.append(at) or chance(self, at, run))
    week = 7 * 86400.0
    past = [(limit, 1, 100.0 * i) for i in range(500) for limit in (3600.0, 86400.0)]
    assert when_to_submit(0.0, week, 3600.0, WaitSample(past, 1, week)) is not None
    assert len(looked) < 20

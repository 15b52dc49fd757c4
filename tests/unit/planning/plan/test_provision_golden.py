"""The worked examples of Singh 2008 (golden cases G1 to G10), recomputed by hand or by enumeration."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest

from penstock.errors import Infeasible
from penstock.future.plan import Claim, ClusterQueue, PendingJob, make_plan
from penstock_planning.plan import dag as dags
from penstock_planning.plan.front import Evaluation, check_limits, exact, hypervolume, trade_off
from penstock_planning.plan.greedy import SlotSite, greedy
from penstock_planning.plan.heft import Scheduler
from penstock_planning.plan.moga import MogaSettings, assign_fitness, moga
from penstock_planning.plan.orders import free_plans
from penstock_planning.plan.pricing import PaperPricing, Quote, choose, quote_all
from penstock_planning.plan.slots import Slot, cost, free_slots
from penstock_planning.plan.table import SlotTable
from penstock_planning.plan.var import bound, combine, idle_cost, when_to_submit

ALL = 0b11111
PRICING = PaperPricing()


def waiting(name: str, procs: int, duration: float, within: int = ALL) -> PendingJob:
    return PendingJob(name, procs, duration, within, float(procs))


FIG1 = (waiting("A", 2, 3), waiting("B", 4, 1), waiting("C", 1, 2), waiting("D", 3, 2))
FIG21 = ClusterQueue(
    5,
    0,
    (Claim("A", 0b00001, 0, 2), Claim("B", 0b11100, 0, 3), Claim("R", 0b00100, 4, 7)),
    (waiting("C", 2, 4), waiting("D", 2, 5)),
)


def shapes(slots):
    return {(s.start, s.procs, s.duration, s.extensible) for s in slots}


class TestFigure1:
    """G1."""

    def test_starts_and_slots(self):
        plan = make_plan(ClusterQueue(5, 0, (), FIG1))
        assert plan.starts == (0, 3, 0, 4)
        slots = free_slots(plan.profile, 8, PRICING)
        assert shapes(slots) == {(0, 1, 8, True), (0, 1, 3, False), (2, 1, 1, False), (4, 1, 4, True), (6, 3, 2, True)}
        assert all(s.divisible == s.extensible and (s.c, s.f, s.penalty) == (1, 0, 0.1) for s in slots)
        assert sum(s.procs * s.duration for s in slots) == 22

    def test_an_arriving_task_goes_to_s1_and_s3(self):
        queue = ClusterQueue(5, 0, (), (*FIG1, waiting("X", 2, 2)))
        assert make_plan(queue).starts == (0, 3, 0, 4, 0)

    def test_a_ends_early(self):
        plan = make_plan(ClusterQueue(5, 1, (Claim("C", 0b00100, 0, 2),), (FIG1[1], FIG1[3])))
        # B and D move forward, so the two processors of A are not left over as in the text, which keeps their times.
        assert plan.starts == (1, 2)
        kept = (Claim("C", 0b00100, 0, 2), Claim("B", 0b01111, 3, 4), Claim("D", 0b00111, 4, 6))
        profile = ClusterQueue(5, 0, kept).taken()
        profile.block(0b00011, 0, 1)
        assert [(t, f.bit_count()) for t, f in zip(profile.times, profile.free, strict=True)] == [
            (0, 2), (1, 4), (2, 5), (3, 1), (4, 2), (6, 5),
        ]  # fmt: skip

    def test_a_ends_early_behind_bought_slots(self):
        bought = (Claim("S1", 0b10000, 0, 8), Claim("S3", 0b01000, 0, 3))
        assert make_plan(ClusterQueue(5, 2, bought, (FIG1[1], FIG1[3]))).starts[0] == 3
        assert make_plan(ClusterQueue(5, 2, (), (FIG1[1], FIG1[3]))).starts[0] == 2

    def test_figure_2_by_itself_gives_the_same_starts_and_other_slots(self):
        table = SlotTable([Slot(0, 5, 8, divisible=True, extensible=True)])
        assert [table.put(job.procs, job.duration) for job in FIG1] == [0, 3, 0, 4]
        assert (0, math.inf) not in {(p.start, p.end) for p in table.pieces}
        assert 5 <= len(table.pieces) <= 6

    def test_figure_2_is_not_the_earliest_possible_but_joined_pieces_help(self):
        table = SlotTable([Slot(0, 3, 8, divisible=True, extensible=True)])
        starts = [table.put(n, d) for n, d in ((1, 1), (1, 1), (2, 2), (1, 6))]
        assert starts == [0, 0, 1, 0]  # as counting would; 1 for the last one with the figure's own left-overs

    def test_cost_of_a_task_on_s1_and_s3(self):
        s1, s3 = Slot(0, 1, 8, divisible=True, extensible=True), Slot(0, 1, 3)
        assert cost(s1, 1, 0, 2) + cost(s3, 1, 0, 3) == 5
        assert Scheduler(dags.one_site([("X", 2, 2, ())]), [s1, s3]).run([0, 1]).cost == 5


class TestTable1:
    """G2."""

    def slot(self, divisible, extensible):
        return Slot(2, 4, 3, 2, 5, divisible, extensible)

    def test_costs(self):
        assert cost(self.slot(False, False), 4, 2, 3) == 29
        assert cost(self.slot(False, True), 4, 2, 5) == 45
        assert cost(self.slot(True, False), 2, 3, 2) == 13
        assert cost(self.slot(True, True), 3, 4, 6) == 41

    @pytest.mark.parametrize(
        ("shape", "part"),
        [
            ((False, False), (3, 2, 3)),
            ((False, False), (4, 3, 3)),
            ((False, False), (4, 2, 2)),
            ((False, True), (4, 2, 2)),
            ((False, True), (3, 2, 5)),
            ((True, False), (2, 3, 3)),
            ((True, True), (5, 4, 6)),
            ((True, True), (3, 1, 6)),
            ((True, True), (0, 4, 6)),
            ((True, True), (3, 4, 0)),
        ],
    )
    def test_what_cannot_be_had(self, shape, part):
        with pytest.raises(Infeasible):
            cost(self.slot(*shape), *part)


class TestTable3:
    """G3."""

    def test_prices_and_delays(self):
        plan = make_plan(FIG21)
        assert plan.starts == (2, 3)
        quotes = quote_all(plan, 2, 3, PRICING)
        assert [q.start for q in quotes] == [0, 2, 3, 4, 6, 7, 8]
        assert [q.f for q in quotes] == [math.inf, 6, 8, 10, 0, 0, 0]
        assert [dict(q.delays) for q in quotes[1:4]] == [{"C": 1, "D": 2}, {"C": 1, "D": 3}, {"C": 1, "D": 4}]

    def test_counts_of_processors_cannot_give_the_table(self):
        """The same numbers on an instance without pinning: the sum alone is what it tests."""
        claims = (Claim("A", 0b00111, 0, 1), Claim("B", 0b01000, 0, 2), Claim("R", 0b00001, 3, 5))
        plan = make_plan(ClusterQueue(5, 0, claims, (waiting("C", 2, 5), waiting("D", 2, 3))))
        assert all(q.f >= 0 for q in quote_all(plan, 2, 3, PRICING))

    def test_from_an_own_instant(self):
        quotes = quote_all(make_plan(FIG21), 2, 3, PRICING, after=3.5)
        assert [(q.start, q.f) for q in quotes] == [(3.5, 9), (4, 10), (6, 0), (7, 0), (8, 0)]

    def test_an_own_instant_that_is_taken_is_left_out(self):
        assert quote_all(make_plan(FIG21), 2, 3, PRICING, after=1)[0].start == 2

    @pytest.mark.parametrize(("alpha", "start"), [(0, 2), (0.25, 2), (0.5, 2), (0.53, 6), (0.75, 6), (1, 6)])
    def test_choice(self, alpha, start):
        assert choose(quote_all(make_plan(FIG21), 2, 3, PRICING), alpha).start == start

    def test_break_even_and_degenerate_choices(self):
        quotes = quote_all(make_plan(FIG21), 2, 3, PRICING)
        edge = float(Fraction(10, 19))
        assert choose(quotes, edge - 1e-9).start == 2
        assert choose(quotes, edge + 1e-9).start == 6
        assert choose(quotes[:1], 0.5) is None
        assert choose([Quote(4, 1, 1, 1, 3.0), Quote(2, 1, 1, 1, 3.0)], 1).start == 2

    def test_the_dilemma_of_figure_20(self):
        plan = make_plan(ClusterQueue(5, 0, (), FIG1[:3]))
        quotes = quote_all(plan, 3, 2, PRICING)
        assert (quotes[0].start, quotes[0].f, dict(quotes[0].delays)) == (0, 2, {"C": 2})
        assert quotes[0].total == 8


DIAMOND = dags.one_site([("T1", 1, 1, ()), ("T2", 2, 1, ("T1",)), ("T3", 1, 2, ("T1",)), ("T4", 2, 1, ("T2", "T3"))])


def figure_1_slots(c5: float = 1.0):
    def ext(*args):
        return Slot(*args, divisible=True, extensible=True)

    return [ext(0, 1, 8), Slot(2, 1, 1), Slot(0, 1, 3), ext(4, 1, 4), ext(6, 3, 2, c5)]


CASES = [(1.0, [(7, 6), (8, 5)]), (0.5, [(3.5, 10), (4, 9), (5, 8), (7, 6), (8, 5)])]


class TestParetoFront:
    """G4."""

    def front(self, points):
        return [(p.cost, p.makespan) for p in points]

    def test_ranks(self):
        assert dags.ranks(DIAMOND) == [4, 2, 3, 1]
        assert dags.rank_order(DIAMOND) == [0, 2, 1, 3]
        assert dags.best_effort_cost(DIAMOND) == 7

    @pytest.mark.parametrize(("c5", "front"), CASES)
    def test_all_plans(self, c5, front):
        evaluate = Evaluation(Scheduler(DIAMOND, figure_1_slots(c5)))
        assert self.front(exact(evaluate)) == front
        feasible = [g for g in product((False, True), repeat=5) if evaluate(g).makespan < math.inf]
        assert len(feasible) == 20
        assert all(evaluate(g).cost >= (7 if c5 == 1 else 3.5) for g in feasible)

    @pytest.mark.parametrize(("c5", "front"), CASES)
    def test_the_order_of_slots_of_equal_start_does_not_matter(self, c5, front):
        a, b, c, d, e = figure_1_slots(c5)
        assert self.front(exact(Evaluation(Scheduler(DIAMOND, [c, a, b, d, e])))) == front

    @pytest.mark.parametrize(("c5", "front"), CASES)
    def test_the_search_finds_it_with_every_seed(self, c5, front):
        for seed in range(20):
            evaluate = Evaluation(Scheduler(DIAMOND, figure_1_slots(c5)))
            assert self.front(moga(evaluate, seed)) == front, seed

    def test_slots_in_part_give_the_fastest_plan_at_the_least_cost(self):
        first, *others = free_plans(DIAMOND, figure_1_slots())
        assert (first.cost, first.makespan) == (7, 5)
        assert all(plan.cost == 7 and plan.makespan >= 5 for plan in others)

    @pytest.mark.parametrize(
        ("alpha", "point"), [(0, (8, 5)), (0.25, (8, 5)), (0.5, (4, 9)), (0.75, (3.5, 10)), (1, (3.5, 10))]
    )
    def test_choice(self, alpha, point):
        points = exact(Evaluation(Scheduler(DIAMOND, figure_1_slots(0.5))))
        assert self.front([trade_off(points, alpha)]) == [point]

    def test_a_tie_goes_to_the_cheaper(self):
        points = exact(Evaluation(Scheduler(DIAMOND, figure_1_slots())))
        assert self.front([trade_off(points, 0.5)]) == [(7, 6)]

    def test_limits(self):
        points = exact(Evaluation(Scheduler(DIAMOND, figure_1_slots(0.5))))
        assert self.front(check_limits(points, deadline=8, budget=7)) == [(5, 8), (7, 6)]
        with pytest.raises(Infeasible, match="the fastest takes 5"):
            check_limits(points, deadline=4)
        with pytest.raises(Infeasible, match="keeps the deadline costs 3 or less: the cheapest costs 5"):
            check_limits(points, deadline=8, budget=3)
        with pytest.raises(Infeasible, match="does not fit on these slots"):
            check_limits([])

    def test_hypervolume(self):
        points = exact(Evaluation(Scheduler(DIAMOND, figure_1_slots())))
        assert hypervolume(points, 10, 10) == 3 * 4 + 2 * 1


class TestFitness:
    """G5."""

    def test_a_crowded_population(self):
        found = assign_fitness([0, 0.1, 10, 5, 6, 10], [10, 9.9, 0, 8, 9, 10], 0.041)
        assert found.rank.tolist() == [1, 1, 1, 1, 2, 6]
        assert found.raw.tolist() == [4.5, 4.5, 4.5, 4.5, 2, 1]
        assert found.niche == pytest.approx([1.655070, 1.655070, 1, 1, 1, 1], abs=1e-6)
        assert found.shared == pytest.approx([2.718918, 2.718918, 4.5, 4.5, 2, 1], abs=1e-6)
        assert found.scaled == pytest.approx([3.389741, 3.389741, 5.610259, 5.610259, 2, 1], abs=1e-6)
        assert found.probability == pytest.approx(
            [0.161416, 0.161416, 0.267155, 0.267155, 0.095238, 0.047619], abs=1e-6
        )
        assert found.raw.sum() == found.scaled.sum() == 21

    def test_the_layout_of_figure_9(self):
        found = assign_fitness([2, 4, 8, 5, 9], [10, 5, 2, 9, 6], 0.8)
        assert found.rank.tolist() == [1, 1, 1, 2, 3]
        assert found.raw.tolist() == [4, 4, 4, 2, 1]
        assert found.niche[:3] == pytest.approx([1.140987, 1.286628, 1.145640], abs=1e-6)

    def test_infeasible_plans_are_last_and_spoil_nothing(self):
        found = assign_fitness([0, 1, math.inf, math.inf], [1, 0, math.inf, math.inf], 0.041)
        assert found.rank.tolist() == [1, 1, 3, 3]
        assert found.niche.tolist() == [1, 1, 1, 1]
        assert assign_fitness([math.inf] * 2, [math.inf] * 2, 0.041).probability.tolist() == [0.5, 0.5]


TOPCUOGLU = {  # task: run times on three machines; edges with their data
    1: (14, 16, 9), 2: (13, 19, 18), 3: (11, 13, 19), 4: (13, 8, 17), 5: (12, 13, 10),
    6: (13, 16, 9), 7: (7, 15, 11), 8: (5, 11, 14), 9: (18, 12, 20), 10: (21, 7, 16),
}  # fmt: skip
LINKS = {
    (1, 2): 18, (1, 3): 12, (1, 4): 9, (1, 5): 11, (1, 6): 14, (2, 8): 19, (2, 9): 16, (3, 7): 23,
    (4, 8): 27, (4, 9): 23, (5, 9): 13, (6, 8): 15, (7, 10): 17, (8, 10): 11, (9, 10): 13,
}  # fmt: skip


class TestHeft:
    """G6."""

    def dag(self):
        def link(c):
            return tuple(tuple(0 if a == b else c for b in range(3)) for a in range(3))

        tasks = tuple(dags.DagTask(str(i), 1, times) for i, times in TOPCUOGLU.items())
        return dags.Dag(tasks, tuple(dags.Edge(a - 1, b - 1, link(c)) for (a, b), c in LINKS.items()))

    def test_ranks(self):
        expected = [108, 77, 80, 80, 69, 63.333, 42.667, 35.667, 44.333, 14.667]
        assert [float(r) for r in dags.ranks(self.dag())] == pytest.approx(expected, abs=1e-3)
        assert [i + 1 for i in dags.rank_order(self.dag())] == [1, 3, 4, 2, 5, 6, 9, 7, 8, 10]

    @pytest.mark.parametrize(("earliest", "makespan"), [("finish", 80), ("start", 102)])
    def test_makespan(self, earliest, makespan):
        slots = [Slot(0, 1, 10, divisible=True, extensible=True)] * 3
        scheduler = Scheduler(self.dag(), slots, sites=(0, 1, 2), earliest=earliest)
        assert scheduler.run((0, 1, 2)).makespan == makespan


def cybershake():
    tasks = [("xyz", 1, 1, ()), ("pre", 1, 300, ("xyz",)), ("cvm", 288, 2100, ("xyz",))]
    tasks += [(name, 288, 86400, ("pre", "cvm")) for name in ("pvml_chk1", "pmvl_chk2")]
    tasks += [(f"synth{i}", 1, 519, ("pvml_chk1", "pmvl_chk2")) for i in range(4017)]
    tasks += [(f"peak{i}", 1, 1, (f"synth{i}",)) for i in range(4017)]
    return dags.one_site(tasks)


class TestCyberShake:
    """G7."""

    def test_cost_and_makespan(self):
        dag = cybershake()
        assert len(dag.tasks) == 8039
        assert dags.best_effort_cost(dag) == 52460341
        assert max(dags.ranks(dag)) == 89021
        found = Scheduler(dag, [Slot(0, 430, 1e6, divisible=True, extensible=True)]).run([0])
        assert found.cost == 52460341
        # Ten rounds of the small tasks; the last ones fill the gaps of the tenth but for a second.
        assert 1 + 2100 + 2 * 86400 + 10 * 519 < found.makespan <= 180101

    def test_transfer(self):
        link = dags.Edge(0, 1, ((0, 1000 / 10 + 150), (250, 0)))
        assert link.mean() == link.time(0, 1) == 250
        assert link.time(1, 1) == 0


class TestVirtualReservation:
    """G8 and G9; minutes and hours."""

    def test_figure_36(self):
        def short(at, run_time):
            assert run_time == 60 + 240 - at
            return 0.772 if at in (110, 170) else 0.5

        found = when_to_submit(0, 240, 60, short, step=10)
        assert (found.at, found.run_time) == (110, 190)
        assert found.probability == 0.772
        found = when_to_submit(0, 240, 240, lambda at, _: 0.747 - at / 1000, step=10)
        assert (found.at, found.run_time) == (0, 480)

    def test_no_chance_at_all(self):
        assert when_to_submit(0, 240, 60, lambda at, run: 0.0) is None

    def test_bounds(self):
        assert bound(240, 110, 60) == pytest.approx(13 / 6)
        assert [bound(s, 0, 1) for s in (1, 4, 8)] == [1, 4, 8]
        assert [bound(s, 0, 4) for s in (1, 4, 8)] == [0.25, 1, 2]
        assert idle_cost(32, 240, 200) == 1280

    @pytest.mark.parametrize(
        ("nodes", "start", "f", "began", "use", "price"),
        [
            (32, 4, 0, 1, "AR", 0),
            (32, 4, math.inf, 2, "VAR", 64),
            (32, 4, math.inf, None, "FAIL", 0),
            (32, 4, 100, None, "AR", 100),
            (32, 4, 100, 2, "VAR", 74),
            (32, 4, 70, 2, "AR", 70),
            (9, 10, 100, 0, "VAR", 100),
            (9, 10, 99, 0, "AR", 99),
            (32, 4, 100, 4, "VAR", 10),
            (32, 4, 71.2, 2, "VAR", 71.12),
            (32, 4, 71.1, 2, "AR", 71.1),
        ],
    )
    def test_figure_45(self, nodes, start, f, began, use, price):
        found = combine(nodes, start, f, 0.1, began)
        assert found.use == use
        assert found.cost == pytest.approx(price)
        assert found.cost <= f


class TestGreedy:
    """G10."""

    @pytest.mark.parametrize(
        ("alpha", "makespan", "price"), [(0, 7, 30), (0.25, 8, 22), (0.5, 11, 12), (0.75, 11, 12), (1, 11, 12)]
    )
    def test_two_sites(self, alpha, makespan, price):
        r2 = ClusterQueue(4, 0, (Claim("E", 0b1111, 0, 5),), (waiting("F", 2, 3, 0b1111),))
        dag = dags.Dag(
            (dags.DagTask("T1", 2, (3, 4)), dags.DagTask("T2", 1, (2, 2)), dags.DagTask("T3", 2, (2, 3))),
            (dags.Edge(0, 1, ((0, 1), (1, 0))), dags.Edge(0, 2, ((0, 2), (2, 0)))),
        )
        assert dags.ranks(dag) == [8, 2, Fraction(5, 2)]
        found = greedy(dag, (SlotSite("R1", FIG21, PRICING), SlotSite("R2", r2, PRICING)), alpha, 0)
        assert (found.makespan, found.cost) == (makespan, price)

    def test_no_site_is_wide_enough(self):
        with pytest.raises(Infeasible, match="task T: no site has 6 processors"):
            greedy(dags.one_site([("T", 6, 1, ())]), (SlotSite("R1", FIG21, PRICING),), 0, 0)


def test_settings_of_the_paper():
    assert MogaSettings() == MogaSettings(population=100, iterations=10, sigma=0.041)

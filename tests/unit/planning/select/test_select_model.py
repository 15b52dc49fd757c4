"""The model of resource selection, by the worked examples of the paper (golden cases G11 to G15)."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.values.units import parse_amount, parse_rate
from penstock_planning.select.accuracy import amount_of, epsilon, over, p2a, ranked_right
from penstock_planning.select.buckets import Waited, mean_wait, processor_bucket, time_bucket
from penstock_planning.select.catalogue import Catalogue
from penstock_planning.select.consumables import (
    Capability,
    Consumable,
    Metric,
    Parallel,
    Requirement,
    Resource,
    Task,
    aggregate,
)
from penstock_planning.select.correction import Corrections
from penstock_planning.select.cost import cost, run_time
from penstock_planning.select.matchmaking import nearest, res_select, satisfy_req, satisfy_task, unmet
from penstock_planning.select.speedup import Amdahl, SpeedupTable
from penstock_planning.select.values import value_of
from penstock_planning.select.workload import times_of

X86 = {"isa": ["x86"]}


def task(*requirements, **more):
    return Task("md", (tuple(requirements),), **more)


def cycles(amount, form=None):
    return Requirement(Consumable.of("compute", form), amount)


def clock(name, rate, form=None, **more):
    return Resource(name, (Capability(Consumable.of("compute", form or X86), rate),), **more)


# -- G14: the algorithms ----------------------------------------------------------------------------------------------

G14 = cycles(3e12, {"isa": ["x86"], "simd": ["sse4.1", "avx2"]})
A = Capability(Consumable.of("compute", {"isa": ["x86"], "simd": ["avx2", "avx512"]}), 2.8e9)
B = Capability(Consumable.of("compute", {"isa": ["x86"]}), 2.8e9)
C = Capability(Consumable.of("compute", {"isa": ["arm"], "simd": ["sse4.1"]}), 2.8e9)
D = Capability(Consumable.of("io", {"isa": ["x86"], "simd": ["avx2"]}), 2.8e9)
E = Capability(Consumable.of("compute", {"isa": ["x86", "arm"], "simd": ["sse4.1"]}), 2.5e9)


@pytest.mark.parametrize(("cap", "fits"), [(A, True), (B, False), (C, False), (D, False), (E, True)], ids="ABCDE")
def test_algorithm_1(cap, fits):
    assert satisfy_req(G14, cap) is fits
    assert satisfy_task(Resource("r", (cap,)), task(G14)) is fits
    assert bool(unmet(task(G14), Resource("r", (cap,)))) is not fits


def test_the_costs_of_those_that_fit():
    assert cost(task(G14), Resource("a", (A,))) == pytest.approx(1071.43, abs=0.005)
    assert cost(task(G14), Resource("e", (E,))) == 1200.0
    assert cost(task(G14), Resource("b", (B,))) == math.inf


def test_an_empty_form_is_met_by_every_consumable_of_the_type():
    assert all(satisfy_req(cycles(1), cap) for cap in (A, B, C, E))
    assert not satisfy_req(cycles(1), D)


def test_algorithm_2_needs_a_capability_for_every_requirement():
    both = task(cycles(1e9), Requirement(Consumable.of("io"), 5.0))
    assert not satisfy_task(Resource("r", (A,)), both)
    assert satisfy_task(Resource("r", (A, D)), both)
    assert unmet(both, Resource("r", (A,))) == ["offers no io"]


def test_algorithm_3_takes_the_first_of_equals_and_nothing_at_minus_infinity():
    assert res_select("abc", [3.0, 5.0, 5.0], lambda x: x) == "b"
    assert res_select("abc", [2.0, 1.0, 1.0], lambda x: -x) == "b"
    assert res_select("ab", [math.inf, math.inf], lambda x: -x) is None
    assert res_select([], [], lambda x: 0.0) is None


def test_equation_1_adds_amounts_by_consumable():
    io = Requirement(Consumable.of("io"), 1.0)
    found = aggregate(((cycles(2.0), io), (cycles(3.0),)))
    assert [(r.consumable.type, r.amount) for r in found] == [("compute", 5.0), ("io", 1.0)]


def test_what_is_held_is_added_within_an_instruction_and_the_largest_counts():
    def memory(amount):
        return Requirement(Consumable.of("memory"), amount, held=True)

    (found,) = aggregate(((memory(2.0), memory(3.0)), (memory(4.0),)))
    assert found.amount == 5.0 and found.held
    small = Resource("s", (Capability(Consumable.of("memory"), capacity=4.0),))
    large = Resource("l", (Capability(Consumable.of("memory"), capacity=5.0),))
    needy = Task("t", ((memory(2.0), memory(3.0)), (memory(4.0),)))
    assert unmet(needy, small) == ["memory: has 4, 5 at once are required"]
    assert satisfy_task(large, needy)


def test_equation_2_sums_over_what_matches_and_takes_the_best_of_several():
    two = Resource(
        "r",
        (
            Capability(Consumable.of("compute", {"isa": "x86", "simd": "avx2"}), 2e9),
            Capability(Consumable.of("compute", {"isa": "x86", "simd": "sse4.1"}), 1e9),
            Capability(Consumable.of("io"), 100.0),
        ),
    )
    wanted = task(G14, Requirement(Consumable.of("io"), 500.0))
    assert cost(wanted, two) == 3e12 / 2e9 + 5.0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (2, 2.0, True),
        ("4.1", "4.1.0", True),
        ("4.1", "4.10", False),
        ("v4.1", "4.1", True),
        ("SSE4.1", "sse4.1", True),
        (True, 1, False),
        ("true", True, False),
        ("2", 2, False),
        (4.1, "4.1", False),
    ],
)
def test_values_are_equal_only_within_their_type(one, other, same):
    offered = Capability(Consumable.of("compute", {"x": one}), 1.0)
    assert satisfy_req(cycles(1, {"x": other}), offered) is same


@pytest.mark.parametrize(
    ("wanted", "offered", "fits"),
    [
        (">=2.17", "2.17", True),
        (">=2.17", "2.5", False),
        (">=2.17", "10.0", True),
        ("> 8", 16, True),
        ("<8", 8, False),
        (">=2.17", 3, False),
        ("!=arm", "x86", True),
        ("!=arm", "ARM", False),
    ],
)
def test_a_requirement_may_compare(wanted, offered, fits):
    assert satisfy_req(cycles(1, {"x": wanted}), Capability(Consumable.of("compute", {"x": offered}), 1.0)) is fits


@pytest.mark.parametrize("bad", [math.nan, math.inf, "", "  ", ">=abc"])
def test_what_is_no_value(bad):
    with pytest.raises(ValueError):
        value_of(bad)


def test_why_a_value_does_not_fit():
    (why,) = unmet(task(cycles(1, {"glibc": "2.17"})), clock("r", 1.0, {"glibc": 2.17}))
    assert why == "compute: glibc is 2.17 (a number, not a version), not 2.17"
    (why,) = unmet(task(G14), Resource("b", (B,)))
    assert why == "compute: does not say its simd, avx2|sse4.1 is required"


def test_the_nearest_consumable():
    everyone = [Resource("far", (D,)), Resource("near", (E,))]
    assert nearest(Consumable.of("compute", {"isa": "riscv", "simd": "sse4.1"}), everyone) == (E.consumable, "near")
    assert nearest(Consumable.of("compute"), []) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: cycles(0.0),
        lambda: cycles(-1.0),
        lambda: cycles(math.inf),
        lambda: Capability(Consumable.of("io"), -1.0),
        lambda: Capability(Consumable.of("io")),
        lambda: Consumable.of("compute", {"isa": []}),
        lambda: Resource("r", (A, A)),
        lambda: clock("r", 1.0, charge=-1.0),
        lambda: Parallel(0),
    ],
)
def test_what_cannot_be(make):
    with pytest.raises(ValueError):
        make()


# -- beyond the paper ------------------------------------------------------------------------------------------------


def test_money_and_energy():
    md = task(cycles(3.6e12), parallel=Parallel(2))
    res = clock("r", 1e9, charge=0.5, watts=10.0)
    assert cost(md, res, Metric.MONEY) == pytest.approx(1.0)  # one hour on two cores at half a unit
    assert cost(md, res, Metric.ENERGY) == pytest.approx(72_000.0)
    assert cost(md, clock("r", 1e9), Metric.MONEY) == math.inf
    priced = Resource("r", (Capability(Consumable.of("compute", X86), 1e9, rates={Metric.MONEY: 1.2e12}),), charge=9.0)
    assert cost(md, priced, Metric.MONEY) == pytest.approx(3.0)  # Eq. 2 with the rate for money


def test_parallel_tasks_get_faster_where_they_compute():
    io = Requirement(Consumable.of("io"), 100.0)
    res = Resource("r", (Capability(Consumable.of("compute"), 1e9), Capability(Consumable.of("io"), 1.0)))
    half = task(cycles(1e12), io, parallel=Parallel(4, Amdahl(0.5)))
    assert cost(half, res) == 1100.0
    assert run_time(half, res) == pytest.approx(1000 * (0.5 + 0.5 / 4) + 100)
    measured = task(cycles(1e12), io, parallel=Parallel(3, SpeedupTable(((1, 1.0), (2, 1.6), (4, 2.4)))))
    assert run_time(measured, res) == pytest.approx(1000 / 2.0 + 100)


def test_corrections_learn_the_22_per_cent_of_one_resource():
    learned = Corrections()
    for _ in range(20):
        for name in ("supermic", "comet", "bridges"):
            learned.observe("md", name, 100.0, 40.0)
        learned.observe("md", "osg", 100.0, 40.0 * 1.22)
    assert learned.factor("md", "osg") / learned.factor("md", "comet") == pytest.approx(1.22, rel=0.01)
    assert learned.factor("md", "nowhere") == pytest.approx((0.4 * 1.22**0.25) ** 0.8)
    assert learned.factor("another", "osg") == 1.0
    assert Corrections.from_state(learned.to_state()) == learned
    learned.observe("md", "osg", 0.0, 5.0)
    assert learned.count("md", "osg") == 20
    for _ in range(200):
        learned.observe("md", "osg", 100.0, 80.0)
    assert learned.factor("md", "osg") == pytest.approx(0.8, rel=0.05)
    with pytest.raises(ValueError):
        Corrections.from_state({"version": 3})
    with pytest.raises(ValueError):
        Corrections.from_state({"version": 1, "tasks": {"md": {"osg": [1.0]}}})


def test_the_scatter_of_run_times_is_learned():
    learned = Corrections()
    assert learned.scatter("md", "osg") is None
    for actual in (80.0, 100.0, 125.0):
        learned.observe("md", "osg", 100.0, actual)
        learned.observe("md", "comet", 100.0, 40.0)
    assert learned.scatter("md", "osg") == pytest.approx(math.log(1.25))
    assert learned.scatter("md", "comet") == pytest.approx(0.0)
    assert 0 < learned.scatter("md", "nowhere") < learned.scatter("md", "osg"), "that of all"
    assert Corrections.from_state(learned.to_state()) == learned
    assert learned.factor("md", "comet") == pytest.approx(0.4), "what does not scatter is not drawn to the others"
    assert 0.9 < learned.factor("md", "osg") < 1.0
    for squares in (-1.0, math.inf):
        with pytest.raises(ValueError, match="squares"):
            Corrections.from_state({"version": 2, "tasks": {"md": {"osg": [1.0, 2.0, squares, 1.0]}}})


def test_corrections_of_the_last_release_are_read():
    old = Corrections.from_state({"version": 1, "tasks": {"md": {"osg": [3 * math.log(0.8), 3.0]}}})
    assert old.factor("md", "osg") == pytest.approx(0.8 ** (3.5 / 4)) and old.scatter("md", "osg") is None
    for _ in range(60):
        old.observe("md", "osg", 100.0, 80.0)
    assert old.scatter("md", "osg") == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "value"),
    [("3e12", 3e12), (5, 5.0), ("3 Tcycles", 3e12), ("20 GB", 20e9), ("512 MiB", 512 * 2**20), ("1.5kops", 1500.0)],
)
def test_amounts(text, value):
    assert parse_amount(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("2.8 GHz", 2.8e9), ("500 MB/s", 5e8), ("9.7 Tflop/s", 9.7e12), ("1/s", 1)]
)
def test_rates(text, value):
    assert parse_rate(text) == pytest.approx(value)


@pytest.mark.parametrize("bad", ["3 parsecs", "GB", "-1", 0, "0", True, None, [1], "1 GB/s", "nan", 1e999, "3 MiHz"])
def test_what_is_no_amount(bad):
    with pytest.raises(ValueError, match="must be"):
        parse_amount(bad)


# -- G13: Table I ------------------------------------------------------------------------------------------------------

TABLE_1 = {
    "bridges": (2.30e9, 3.30e9, 2.732e9),
    "comet": (2.50e9, 3.30e9, 2.888e9),
    "supermic": (2.80e9, 3.60e9, 3.589e9),
    "osg": (2.50e9, 3.09e9, 2.930e9),
}


def ranking(column, osg=1.0):
    md = task(cycles(1e12, X86))
    found = {n: run_time(md, clock(n, c[column], correction=osg if n == "osg" else 1.0)) for n, c in TABLE_1.items()}
    return sorted(found, key=lambda name: (round(found[name], 9), name)), found


def test_table_1_ranks():
    order, found = ranking(0)
    assert order == ["supermic", "comet", "osg", "bridges"] and found["comet"] == found["osg"]
    order, found = ranking(0, osg=1.22)
    assert order == ["supermic", "comet", "bridges", "osg"]
    assert [found[n] / 1e3 for n in order] == pytest.approx([1 / 2.8, 0.4, 0.43478, 0.488], abs=1e-5)
    order, found = ranking(1)
    assert order == ["supermic", "bridges", "comet", "osg"] and found["bridges"] == found["comet"]
    assert ranking(2)[0] == ["supermic", "osg", "comet", "bridges"]


def test_ranking_by_base_clock_is_right_and_by_maximum_is_not():
    actual = {"supermic": 4865.31, "comet": 4989.84, "bridges": 5355.23}
    by = [{n: 1 / TABLE_1[n][column] for n in actual} for column in (0, 1)]
    assert ranked_right(by[0], actual) == 1.0
    assert ranked_right(by[1], actual) == pytest.approx(2 / 3)
    assert math.isnan(ranked_right({"a": 1.0}, {"a": 1.0}))


def test_the_identity_of_the_errors_by_base_and_maximum_clock():
    for name, ratio in (("bridges", 1.4348), ("comet", 1.32), ("supermic", 1.2857), ("osg", 1.236)):
        base, largest, _ = TABLE_1[name]
        assert largest / base == pytest.approx(ratio, abs=1e-4)
    assert pytest.approx(1.108, abs=5e-4) == (1 + 1.71) / 1.2857 - 1


def test_equations_3_to_6():
    amount = amount_of(1e12, 2.2)
    assert amount == pytest.approx(2.2e12)
    ratio = p2a(amount, 1e12)
    assert ratio == pytest.approx(2.2)
    assert epsilon(ratio, 2.15) == pytest.approx(2.27, abs=0.005)
    assert over(271.0, 100.0) == pytest.approx(171.0)


# -- G11: the time to completion of a workload -------------------------------------------------------------------------

ROWS = [
    (52.034899950027466, 312.04789996147156, 313.2890000343323, 10694.771399974823),
    (113.38730001449585, 9679.889600038528, 9680.20290017128, 14715.867200136185),
    (81.61330008506775, 1419.1933000087738, 1419.3303000926971, 6309.996500015259),
    (65.7596001625061, 172.15269994735718, 172.2688000202179, 5753.815900087357),
    (52.034899950027466, 829.1108000278473, 881.2146000862122, 14359.881400108337),
    (52.034899950027466, 275.8622000217438, 278.8680000305176, 16366.972599983215),
    (52.034899950027466, 276.18409991264343, 279.13240003585815, 16538.864700078964),
]


def test_g11():
    times = times_of([((a, b), (c, d)) for a, b, c, d in ROWS])
    assert times.waiting == pytest.approx(120.23390007019043, abs=1e-9)
    assert times.execution == pytest.approx(16366.595900058746, abs=1e-9)
    assert times.total == pytest.approx(16486.829800128937, abs=1e-9)


def test_waits_after_the_last_execution_do_not_count():
    times = times_of([((0.0, 5.0), (5.0, 10.0)), ((0.0, 99.0), (0.0, 0.0))])
    assert (times.waiting, times.execution) == (5.0, 5.0)
    assert times_of([]).total == 0.0


# -- G12: the claim ----------------------------------------------------------------------------------------------------


def test_g12():
    pairs = [(20644.08, 5239.12), (15257.11, 4995.64), (25509.85, 5053.44), (51190.75, 7810.34), (34506.64, 6989.03)]
    assert [-over(m, r) for r, m in pairs] == pytest.approx([74.62, 67.26, 80.19, 84.74, 79.75], abs=0.005)


# -- G15: XDMoD's buckets ----------------------------------------------------------------------------------------------


def test_g15_buckets():
    assert [time_bucket(s) for s in (0, 1, 29, 30, 1799, 1800, 3600, 18000, 36000, 64799, 64800, 1e6)] == [
        "0-1s", "1-30s", "1-30s", "30s-30min", "30s-30min", "30-60min", "1-5hr", "5-10hr", "10-18hr", "10-18hr",
        "18+hr", "18+hr",
    ]  # fmt: skip
    assert [processor_bucket(n) for n in (1, 2, 3, 4, 5, 64, 65, 256, 512, 1024, 1025, 2048, 4096, 4097)] == [
        "1", "2", "3-4", "3-4", "5-8", "33-64", "65-128", "129-256", "257-512", "513-1024", "1k-2k", "1k-2k", "2k-4k",
        ">4k",
    ]  # fmt: skip


def test_g15_rule():
    day, now = 86400.0, 100 * 86400.0
    jobs = [
        Waited("m", "q", 1799.0, 60, 100.0, now - day),
        Waited("m", "q", 60.0, 33, 300.0, now - 7 * day),
        Waited("m", "q", 1800.0, 60, 9000.0, now - day),  # another range of wall times
        Waited("m", "q", 60.0, 60, 9000.0, now - 8 * day),  # too old
        Waited("m", "other", 60.0, 60, 9000.0, now - day),
        Waited("n", "q", 60.0, 60, 50.0, now - day),
    ]
    assert mean_wait(jobs, "m", "q", 900.0, 64, now) == 200.0
    assert mean_wait(jobs, "m", "q", 900.0, 512, now) == pytest.approx((100 + 300 + 9000) / 3)
    assert mean_wait(jobs, "n", "q", 900.0, 64, now) == 50.0
    assert mean_wait(jobs, "n", "none", 900.0, 64, now) is None


# -- many at once --------------------------------------------------------------------------------------------------

values = st.sampled_from(["x86", "arm", "4.1", "4.10", 2, 3, True])
wants = st.one_of(values, st.sampled_from([">=4.2", "<3", "!=arm"]))


def consumables(value):
    forms = st.dictionaries(st.sampled_from("ab"), st.lists(value, min_size=1, max_size=2), max_size=2)
    return st.builds(Consumable.of, st.sampled_from(["compute", "io", "memory"]), forms)


@st.composite
def capabilities(draw):
    consumable, amount = draw(consumables(values)), draw(st.integers(1, 9))
    return Capability(consumable, capacity=amount) if draw(st.booleans()) else Capability(consumable, amount)


resources = st.builds(
    lambda name, caps, correction: Resource(name, tuple(caps), correction=correction),
    st.sampled_from("abc"),
    st.lists(capabilities(), max_size=5, unique_by=lambda c: (c.consumable, c.held)),
    st.sampled_from([0.5, 1.0, 1.22]),
)
tasks = st.builds(
    lambda reqs, cores: Task("t", (tuple(reqs),), Parallel(cores, Amdahl(0.1))),
    st.lists(st.builds(Requirement, consumables(wants), st.integers(1, 9).map(float), st.booleans()), max_size=3),
    st.integers(1, 4),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(resources, max_size=5), st.lists(tasks, max_size=3))
def test_a_catalogue_says_what_the_algorithms_say(offered, wanted):
    catalogue = Catalogue(offered)
    for one in wanted:
        found = catalogue.run_times(one).tolist()
        assert found == pytest.approx([run_time(one, res) for res in offered])
        assert [math.isfinite(x) for x in found] == [satisfy_task(res, one) for res in offered]
        missing = [
            r for r in one.requirements if not any(satisfy_req(r, c) for res in offered for c in res.capabilities)
        ]
        assert catalogue.nowhere(one) == missing
        viable = [res for res in offered if satisfy_task(res, one)]
        best = res_select(viable, [run_time(one, res) for res in viable], lambda seconds: -seconds)
        (chosen,) = catalogue.select([one])
        if best is None:
            assert chosen is None
        else:
            assert chosen is not None and run_time(one, chosen) == pytest.approx(run_time(one, best))


def test_a_catalogue_adds_waits():
    catalogue = Catalogue([clock("fast", 2e9), clock("free", 1e9)])
    md = task(cycles(1e11))
    assert [r.name for r in catalogue.select([md])] == ["fast"]
    assert [r.name for r in catalogue.select([md], np.array([100.0, 0.0]))] == ["free"]

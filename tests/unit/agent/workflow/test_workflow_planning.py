"""Into which jobs `packed` and `auto` cut workflows, what that costs, and strategies from elsewhere."""

from __future__ import annotations

import itertools
import re
from importlib.metadata import EntryPoint

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api import Reason, SiteConfig
from penstock.core import extensions
from penstock.errors import ConfigError, UserError
from penstock.waits.learners.geometry import key_of
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.run.runner import Runner
from penstock.workflow.strategies.cuts import levels, place_units
from penstock.workflow.strategies.registry import known_strategies, strategy_named
from penstock.workflow.strategy import Due, Outlook, Plan, Rules, Tie, singles


def chain(*stages):
    """Stages of (nodes, run time), one after the other; the limit is twice the run time."""
    return Workflow(
        "c", tuple(Stage(f"s{i}", n, 2 * t, t, "x", (f"s{i - 1}",) if i else ()) for i, (n, t) in enumerate(stages))
    )


def outlook(wait=lambda _geometry: 0.0, **more):
    return Outlook(wait, "batch", "", **more)


def planned(flow, strategy, **more):
    plan = strategy_named(strategy).plan(flow, outlook(**more))
    return plan, place_units(flow, plan.cut)


# -- packed ------------------------------------------------------------------------------------------------------------


def price(units, out):
    """Of a chain of jobs, worked out the long way."""
    waits = [out.wait(out.geometry(unit.nodes, unit.time_limit, unit.asks.partition)) for unit in units]
    core_hours = out.cores * sum(unit.nodes * unit.run_time for unit in units) / 3600.0
    return sum(waits) + sum(unit.run_time for unit in units) + out.core_hour_weight * core_hours


@given(
    st.lists(st.tuples(st.integers(1, 16), st.sampled_from([60, 600, 3000])), min_size=1, max_size=6),
    st.sampled_from([0.0, 1.0, 60.0, 3600.0]),
    st.lists(st.sampled_from([0.0, 10.0, 500.0, 4000.0]), min_size=5, max_size=5),
    st.sampled_from([None, 6000.0, 9000.0]),
)
def test_packed_finds_the_best_cut_of_a_chain(stages, weight, waits, most):
    """Against all 2^(n-1) cuts, with waits that differ from geometry to geometry."""
    flow = chain(*stages)
    out = outlook(
        lambda g: waits[(g.nodes.bit_length() + sum(map(ord, key_of(g)))) % 5], core_hour_weight=weight, cores=4.0,
        max_time=most,
    )  # fmt: skip
    prices = []
    for marks in itertools.product((False, True), repeat=len(stages) - 1):
        groups = [[flow.order[0]]]
        for stage, begins in zip(flow.order[1:], marks, strict=True):
            groups.append([stage]) if begins else groups[-1].append(stage)
        if most is not None and any(len(g) > 1 and sum(s.time_limit for s in g) > most for g in groups):
            continue
        cut = tuple((g[0].name if len(g) == 1 else f"g{g[0].name}", tuple(s.name for s in g)) for g in groups)
        prices.append(price(place_units(flow, cut), out))
    found = place_units(flow, strategy_named("packed").plan(flow, out).cut)
    assert price(found, out) == pytest.approx(min(prices))
    assert all(most is None or u.time_limit <= most or len(flow.stages) == len(found) for u in found)


def test_its_two_ends():
    flow = chain((1, 600), (16, 600), (1, 600))
    _, free = planned(flow, "packed", wait=lambda _g: 100.0)
    assert [(u.name, u.nodes, u.run_time) for u in free] == [("part1", 16, 1800)], "core-hours cost nothing: Big-Job"
    _, dear = planned(flow, "packed", wait=lambda _g: 100.0, core_hour_weight=1e6)
    assert dear == flow.order, "waits cost nothing in comparison: Per-Stage"
    flow = chain((1, 600), (16, 600), (16, 600))
    _, between = planned(flow, "packed", wait=lambda _g: 100.0, core_hour_weight=60.0)
    assert [(u.name, u.nodes) for u in between] == [("s0", 1), ("part2", 16)], "the second wait costs, nodes do not"


@pytest.mark.parametrize("stages", [100, pytest.param(400, marks=pytest.mark.long)])
def test_a_long_chain_is_packed_in_reasonable_time(stages):
    flow = chain(*[(1 + i % 7, 60) for i in range(stages)])
    asked = []
    plan, units = planned(flow, "packed", wait=lambda g: asked.append(g) or 30.0, core_hour_weight=5.0)
    assert 1 <= len(units) < stages and len(asked) < 60 and plan.reasons[0].code == "packed-cut"


def test_levels_of_a_graph_stay_side_by_side_where_they_are_alone():
    flow = Workflow(
        "w",
        (
            Stage("part1", 1, 60, 30, "x"),
            Stage("b", 1, 60, 30, "x", ("part1",)),
            Stage("c", 1, 60, 30, "x", ("part1",)),
            Stage("d", 1, 60, 30, "x", ("b", "c")),
            Stage("e", 1, 60, 30, "x", ("d",)),
        ),
    )
    assert [[s.name for s in level] for level in levels(flow)] == [["part1"], ["b", "c"], ["d"], ["e"]]
    _, units = planned(flow, "packed", wait=lambda g: 5.0 if g.time_limit < 100 else 20.0)
    assert [u.name for u in units][:3] == ["part1", "b", "c"]
    _, units = planned(flow, "packed", wait=lambda _g: 1000.0)
    assert [u.name for u in units] == ["part1_"], "a stage has the name already"
    run = Runner(accrues=False).start(1, flow, "packed", 0.0, partition="batch", plan=planned(flow, "packed")[0])
    assert all(set(s.after) <= set(range(i)) for i, s in enumerate(run.stages))


def site(enforced=frozenset()):
    words = frozenset[str]()
    return SiteConfig(
        (24, 11), "c", "select/cons_tres", words, words, "priority/multifactor", words, 300.0, enforced=enforced
    )


# -- auto --------------------------------------------------------------------------------------------------------------

RULES = {
    "default": Rules(weight_age=1000, whole_nodes=True),
    "accrue-always": Rules(accrues=True, weight_age=1000, whole_nodes=True),
    "basic": Rules(accrues=True, basic=True, whole_nodes=True),
    "shared nodes": Rules(weight_age=1000),
    "no age": Rules(weight_age=0, whole_nodes=True, max_accrue=2),
    "allowed": Rules(weight_age=1000, no_early_age=None),
    "allowed, whole nodes": Rules(weight_age=1000, whole_nodes=True, no_early_age=None),
    "allowed, but no age": Rules(weight_age=0, no_early_age=None),
    "allowed, but they age": Rules(accrues=True, weight_age=1000, no_early_age=None),
}


@pytest.mark.parametrize(
    ("rules", "chosen", "codes"),
    [
        ("default", "handover", ["auto-no-accrual", "auto-handover"]),
        ("accrue-always", "handover", ["auto-accrues", "auto-handover"]),
        ("basic", "handover", ["auto-basic", "auto-handover"]),
        ("shared nodes", "eager", ["auto-no-accrual", "auto-eager"]),
        ("no age", "handover", ["auto-no-accrual", "auto-no-age", "auto-accrue-limit", "auto-handover"]),
        ("allowed", "seed", ["auto-no-accrual", "auto-ages", "auto-seed"]),
        ("allowed, whole nodes", "handover", ["auto-no-accrual", "auto-ages", "auto-handover"]),
        ("allowed, but no age", "eager", ["auto-no-accrual", "auto-no-age", "auto-eager"]),
        ("allowed, but they age", "eager", ["auto-accrues", "auto-eager"]),
    ],
)
def test_auto_goes_by_the_rules_of_the_site(rules, chosen, codes):
    flow = chain((4, 600), (1, 60))
    plan, units = planned(flow, "auto", wait=lambda _g: 100.0, rules=RULES[rules], cores=10.0)
    assert (plan.by, units) == (chosen, flow.order)
    told = {reason.code: reason.text for reason in plan.reasons}
    assert list(told) == codes, "and no makespan: what `try` draws is all that is foretold"
    assert not re.search(r"\d s\b|makespan", " ".join(told.values()))
    run = Runner(accrues=False).start(1, flow, "auto", 0.0, partition="batch", plan=plan)
    assert (run.strategy, run.acting) == ("auto", chosen)
    assert run.levels_ahead == 2, "all that there are"


@pytest.mark.parametrize(("stages", "accrues", "ahead"), [(50, False, 50), (51, False, 2), (51, True, 8)])
def test_a_small_workflow_is_in_the_queue_as_a_whole(stages, accrues, ahead):
    flow = chain(*[(1, 60)] * stages)
    for strategy in ("eager", "handover", "auto"):
        assert planned(flow, strategy, rules=Rules(accrues=accrues, weight_age=1))[0].levels_ahead == ahead


def test_seed_is_refused_where_it_is_not_allowed_or_does_not_work():
    flow = chain((1, 60), (1, 60))
    for rules, why in (
        (Rules(), "an administrator has not allowed it"),
        (Rules.of(site(enforced=frozenset({"limits"})), age_while_dependent=True), "limits are enforced"),
    ):
        with pytest.raises(UserError, match=f"seed cannot be used here: {why}"):
            planned(flow, "seed", rules=rules)
    assert Rules.of(site(enforced=frozenset({"associations"})), age_while_dependent=True).may_age
    assert not Rules.of(site(), age_while_dependent=False).may_age


def test_auto_has_nothing_to_submit_ahead_without_parents():
    plan, _ = planned(Workflow("w", (Stage("a", 1, 60, 30, "x"), Stage("b", 1, 60, 30, "x"))), "auto")
    assert plan.by == "perstage" and plan.reasons[0].code == "auto-nothing-ahead"


# -- strategies from elsewhere -----------------------------------------------------------------------------------------


class Midnight:
    """waits for midnight"""

    name, ahead, tie = "midnight", False, Tie.NONE

    def plan(self, workflow, outlook):
        return Plan(singles(workflow.order))

    def due(self, run, i, now):
        return Due(86_400.0, Reason("midnight", "at midnight"))


@pytest.fixture
def plugins(monkeypatch):
    def install(**found):
        points = [EntryPoint(n, value, "penstock.strategies") for n, value in found.items()]
        monkeypatch.setattr(extensions, "entry_points", lambda group: points)

    return install


def test_a_strategy_of_a_plug_in_is_found_by_its_name(plugins):
    plugins(midnight=f"{__name__}:Midnight", broken="nowhere.at.all:X")
    assert known_strategies()[-2:] == ("broken", "midnight")
    run = Runner(accrues=False).start(1, chain((1, 60)), "midnight", 0.0, partition="batch")
    assert run.acting == "midnight" and strategy_named("midnight").due(run, 0, 0.0).at == 86_400.0
    with pytest.raises(ConfigError, match="the strategy 'broken' cannot be loaded"):
        strategy_named("broken")


def test_a_cut_that_leaves_out_a_stage_is_refused():
    flow = chain((1, 60), (1, 60))
    with pytest.raises(UserError, match="every stage once"):
        place_units(flow, (("s0", ("s0",)),))
    with pytest.raises(UserError, match="stands before one"):
        place_units(flow, (("s1", ("s1",)), ("s0", ("s0",))))

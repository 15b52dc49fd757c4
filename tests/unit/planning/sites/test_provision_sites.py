"""Plans over several sites: clocks, units, links, the session between sites, and that more sites are never worse."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Infeasible, UserError
from penstock.future.plan import Claim, ClusterQueue, PendingJob
from penstock.values.durations import duration_text
from penstock_planning.plan.dag import Dag
from penstock_planning.plan.front import Evaluation, exact
from penstock_planning.plan.greedy import SlotSite, greedy
from penstock_planning.plan.heft import Scheduler
from penstock_planning.plan.pricing import PaperPricing
from penstock_planning.plan.queuefile import parse_queue
from penstock_planning.plan.session import Session
from penstock_planning.plan.sites import (
    Hello,
    OfferedSite,
    TaskRow,
    best_effort_among,
    moves,
    offset,
    on_one_clock,
    over,
    plan_among,
)
from penstock_planning.plan.situation import Situation
from penstock_planning.plan.slots import Slot
from penstock_planning.plan.transfers import REMEMBERED, Measured, NetworkLink, between, correction

BUSY = (
    '{"procs": 4, "jobs": [{"id": "A", "procs": 3, "duration": 10, "state": "running"}, '
    '{"id": "P", "procs": 4, "duration": 5, "state": "pending"}]}'
)
EMPTY = '{"procs": 4, "jobs": [{"id": "B", "procs": 2, "duration": 3, "state": "running"}]}'
LINKS = {("near", "far"): NetworkLink(100, 1), ("far", "near"): NetworkLink(100, 1)}


def offered(name, queue, **more):
    return OfferedSite(name, Hello.parse(json.loads(json.dumps(Session(parse_queue(queue), False).hello()))), **more)


def test_transfers_take_what_was_measured_in_the_middle():
    link = NetworkLink(bandwidth=10e9 / 8, latency=150)
    assert link.time(1000e9 / 8) == 250  # section 4.9: 1000 Gb at 10 Gbps with 150 s
    assert link.time(0) == 0
    assert correction([]) == 1
    one = [Measured(100, 200)]
    assert correction(one) == 2
    assert correction([*one, Measured(100, 10_000), Measured(10, 30)]) == 3  # a storm does not count more than a breeze
    assert correction([Measured(1, 9)] * 50 + [Measured(1, 2)] * REMEMBERED) == 2  # what was once is forgotten
    assert correction([Measured(0, 5), Measured(5, 0)]) == 1
    assert between(["a", "b"], {("a", "b"): NetworkLink(10, 1), ("b", "a"): NetworkLink(5)}, {("a", "b"): 2.0}, 20) == (
        (0, 6),
        (4, 0),
    )


@pytest.mark.parametrize(
    ("asked", "answered", "there", "ahead"),
    [(100, 104, 102, 0), (100, 104, 99.5, 0), (100, 104, 3702, 3600), (100, 104, 50, -52), (100.2, 100.8, 100, 0)],
)
def test_a_clock_is_wrong_only_if_it_cannot_be_right(asked, answered, there, ahead):
    assert offset(asked, answered, there) == ahead


def test_slots_come_to_our_clock_and_unit():
    site = offered("far", EMPTY, price=2.0)
    assert [(s.start, s.end, s.procs, s.c) for s in site.slots(0)] == [(0, 4, 2, 2), (3, 4, 2, 2)]
    live = replace(site, hello=replace(site.hello, live=True))
    now, (first, second) = on_one_clock([live, replace(site, name="file")], 1000)
    assert now == 1000
    # the cluster's clock says 0 where ours says 1000, which was found out when it was asked; the file has none
    assert second.ahead == -1000 and [s.start for s in second.slots(now)] == [1000, 1003]
    late = replace(live, ahead=-1000.0)
    assert [(s.start, s.end) for s in late.slots(1002)] == [(1002, 1004), (1003, 1004)]
    assert [s.start for s in late.slots(2000)] == [2000, 2000]  # they are there for ever
    assert first.ahead == 0
    assert on_one_clock([site], 1000)[0] == 0


def test_how_long_a_task_takes_where():
    site = offered("far", EMPTY, speed=1.5)
    assert site.duration(2, 10) == pytest.approx(20 / 3)
    live = replace(site, hello=replace(site.hello, live=True, longest=6))
    assert live.duration(2, 9) == 6 and live.duration(2, 8) == 6  # whole seconds
    assert live.duration(2, 10) == math.inf and live.duration(5, 1) == math.inf


def test_what_cannot_be_planned_is_said():
    sites = [offered("near", BUSY), offered("far", EMPTY)]
    with pytest.raises(Infeasible, match=r"task a: none of near, far ever gives a job 5 nodes \(at most 4\)"):
        over([TaskRow("a", 5, 1)], sites, {}, {})
    rows = [TaskRow("a", 1, 1), TaskRow("b", 1, 1, ["a"], [100])]
    with pytest.raises(UserError, match="links: there is none between near and far"):
        over(rows, sites, {}, {})
    assert over(rows, sites[:1], {}, {}).edges[0].times == ()
    assert over([rows[0], replace(rows[1], inputs=())], sites, {}, {}).edges[0].time(0, 1) == 0
    assert over(rows, sites, LINKS, {("near", "far"): 3.0}).edges[0].times == ((0, 6), (2, 0))


def test_data_are_moved_if_that_pays():
    # Two processors are free near until 4, all four far from 5 on.
    near = '{"procs": 2, "jobs": [{"id": "R", "procs": 2, "duration": 50, "state": "reserved", "start": 4}]}'
    rows = [TaskRow("a", 2, 4), TaskRow("b", 4, 6, ["a"], [200])]
    far = '{"procs": 4, "jobs": [{"id": "B", "procs": 4, "duration": 5, "state": "running"}]}'
    sites = [offered("near", near), offered("far", far)]
    dag = over(rows, sites, LINKS, {})
    found = plan_among(dag, sites, 0, "moga", alpha=0)
    assert [(p.site, p.start, p.end) for p in found.schedule.placed] == [(0, 0, 4), (1, 7, 13)]
    assert [(m.source, m.target, m.start, m.end) for m in moves(dag, found.schedule)] == [(0, 1, 4, 7)]
    # over a link that is a hundred times as slow it is not worth it
    slow = over(rows, sites, LINKS, {("near", "far"): 100.0})
    stays = plan_among(slow, sites, 0, "moga", alpha=0)
    assert {p.site for p in stays.schedule.placed} == {1} and moves(slow, stays.schedule) == []
    with pytest.raises(Infeasible, match="the fastest takes 13"):
        plan_among(dag, sites, 0, "moga", deadline=12)
    with pytest.raises(Infeasible, match=r"costs 1 or less: the cheapest costs [0-9]+$"):
        plan_among(dag, sites, 0, "moga", budget=1, show=duration_text)


def test_best_effort_goes_to_the_site_with_the_fewest_jobs():
    sites = [offered("near", BUSY), offered("far", EMPTY)]
    dag = over([TaskRow("a", 1, 2), TaskRow("b", 1, 2), TaskRow("c", 1, 2, ["a"], [100])], sites, LINKS, {})
    found = {dag.tasks[p.task].name: (p.site, p.start, p.end) for p in best_effort_among(dag, sites, 0).placed}
    # two jobs near, one far: a goes far, then both have two, and the first of equals is taken; c finds one less far
    assert found == {"a": (1, 0, 2), "b": (0, 0, 2), "c": (1, 2, 4)}
    assert plan_among(dag, sites, 0, "best-effort").schedule.makespan == 4


def test_the_session_prices_what_was_taken():
    session = Session(parse_queue(BUSY), False)
    ask = {"quote": {"procs": 1, "duration": 4, "after": 0}}
    first = session.answer(ask)["quotes"][0]
    assert first == {"start": 0, "c": 1, "f": 0, "nodes": "8"}
    assert session.answer({"take": {"name": "a", "start": 0, "duration": 4, "nodes": "8"}}) == {"taken": 1}
    assert session.answer(ask)["quotes"][0]["start"] > 0
    assert session.answer({"forget": True}) == {"taken": 0}
    assert session.answer(ask)["quotes"][0] == first
    assert session.answer({"quote": {"procs": 5, "duration": 4, "after": 0}}) == {"quotes": []}


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (None, "must be an object"),
        ({"quote": {"procs": 0, "duration": 1, "after": 0}}, "procs: must be a number of at least 1"),
        ({"quote": {"procs": 1, "duration": 0, "after": 0}}, "duration: must be above 0"),
        ({"quote": {"procs": 1, "duration": 1}}, "after: must be a number"),
        ({"take": {"start": 0, "duration": 1, "nodes": "10"}}, "nodes: must be some of those"),
        ({"take": {"start": 0, "duration": 1, "nodes": "x"}}, "hexadecimal"),
        ({"forget": False}, "must be an object"),
    ],
)
def test_a_session_says_what_it_cannot_answer(question, why):
    assert why in Session(parse_queue(BUSY), False).answer(question)["error"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"session": 2}, "version 2"),
        ({"now": "noon"}, "now: must be a number"),
        ({"names": "n1"}, "names: must be a list"),
        ({"slots": [{"start": 0}]}, r"slots\[0\].procs: must be a number"),
        ({"slots": [3]}, r"slots\[0\]: must be an object"),
        ({"ends": [math.inf]}, "ends: must be a number"),
        ({"within": -1}, "within: must be a set of nodes"),
    ],
)
def test_a_site_that_says_nonsense_is_not_believed(change, why):
    with pytest.raises(UserError, match=why):
        Hello.parse({**Session(parse_queue(BUSY), False).hello(), **change})


def test_decimals_of_a_file_are_exact_in_a_session():
    session = Session(
        parse_queue('{"procs": 1, "jobs": [{"id": "A", "procs": 1, "duration": 0.3, "state": "running"}]}'), False
    )
    assert session.hello()["slots"][0]["start"] == 0.3
    assert session.answer({"quote": {"procs": 1, "duration": 0.1, "after": 0.3}})["quotes"][0]["start"] == 0.3


def a_slot(start, procs, length, endless):
    return Slot(start, procs, length, 1, 0, endless, endless, nodes=7 >> 3 - procs)


SLOT = st.builds(a_slot, st.integers(0, 6), st.integers(1, 3), st.integers(1, 8), st.booleans())
SITES = st.lists(st.lists(SLOT, min_size=1, max_size=3), min_size=2, max_size=3)
TASK = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(0, 7), st.integers(0, 400))
TASKS = st.lists(TASK, min_size=1, max_size=4)


@settings(deadline=None, max_examples=60)
@given(SITES, TASKS)
def test_more_sites_never_make_the_fastest_plan_slower(slots, tasks):
    """Exactly searched, the fastest plan over all sites is no slower than the fastest on any one of them."""
    names = [f"s{i}" for i in range(len(slots))]
    sites = [
        OfferedSite(name, Hello(False, 0, None, ("a", "b", "c"), 7, 3, math.inf, (), tuple(some)))
        for name, some in zip(names, slots, strict=True)
    ]
    links = {(a, b): NetworkLink(100, 1) for a in names for b in names if a != b}
    rows = []
    for i, (procs, length, parents, size) in enumerate(tasks):
        after = [f"t{j}" for j in range(i) if parents >> j & 1]
        rows.append(TaskRow(f"t{i}", procs, length, after, [float(size)] * len(after)))
    alone = [_fastest(over(rows, [site], {}, {}), site.slots(0)) for site in sites]
    dag = over(rows, sites, links, {})
    try:
        found = plan_among(dag, sites, 0, "moga", alpha=0).schedule
    except Infeasible:
        assert min(alone) == math.inf
        return
    assert found.makespan <= min(alone)
    at = {p.task: p for p in found.placed}
    for edge in dag.edges:  # nobody begins before its data have come
        assert at[edge.child].start >= at[edge.parent].end + edge.time(at[edge.parent].site, at[edge.child].site)


def _fastest(dag: Dag, slots: list[Slot]) -> float:
    points = exact(Evaluation(Scheduler(dag, slots)))
    return min((p.makespan for p in points), default=math.inf)


def test_greedy_leaves_out_the_site_where_a_task_cannot_run():
    queue = ClusterQueue(4, 0, (Claim("A", 0b1, 0, 5),), (PendingJob("P", 4, 5, 0b1111, 4.0),))
    sites = [
        SlotSite("R1", queue, PaperPricing()),
        SlotSite("R2", ClusterQueue(4, 0, (Claim("B", 0b1111, 0, 50),)), PaperPricing()),
    ]
    dag = over([TaskRow("a", 2, 4)], [offered("R1", BUSY), offered("R2", EMPTY)], {}, {})
    tied = Dag((replace(dag.tasks[0], durations=(math.inf, 4.0)),), ())
    assert greedy(dag, sites, 0, 0).bought[0].site == 0
    assert greedy(tied, sites, 0, 0).bought[0].site == 1
    assert Situation(queue, ("a", "b", "c", "d"), PaperPricing()).plan().starts == (5,)

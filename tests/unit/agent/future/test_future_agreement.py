"""One picture of the queue: whoever reads it gives each job that waits the same start, by name and by number.

The queues are what three releases of Slurm wrote (tests/fixtures/slurm), one of 10,000 jobs that Slurm wrote, one of
as many that is made, for 400 nodes, and one with all that a queue can hold. Where a plan that counts nodes differs
from one that names them, the reason is a test here.
"""

from __future__ import annotations

import gzip
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api import Node, Partition, Reservation, SiteConfig, Snapshot
from penstock.future.cluster import YEAR, Cluster, Unknown
from penstock.future.counted import Counted
from penstock.future.drawn import OwnJob
from penstock.future.leftover import Leftover
from penstock.future.profile import place
from penstock.future.queue import DEPTH, QueuePlan, waiting
from penstock.future.turns import Turns, believed
from penstock.slurm import records
from penstock.waits.learners.queue_view import NewJob, Past, look
from penstock.waits.learners.queue_watch import _Picture
from penstock.waits.learners.run_times import RunTimes
from penstock_dashboard.planned import look_ahead
from penstock_lab.testing import NODES, make_job, make_snapshot
from penstock_planning.broker.partitions import candidates
from penstock_planning.broker.site import SiteFile
from penstock_planning.broker.starts import Further, planned
from penstock_planning.plan.live import from_snapshot
from penstock_planning.plan.pricing import PaperPricing
from places import FIXTURES

NOW, TURN = 10_000.0, 90.0
RELEASES = sorted((FIXTURES / "slurm").glob("*.*/"))
DEEP = FIXTURES / "slurm" / "deep"
NOTHING = Past(0.0, 0.0, 0.0, 0, 0)


# -- the queues --------------------------------------------------------------------------------------------------------


def recorded(folder):
    """What Slurm wrote into that folder, as one look."""

    def read(name):
        plain = folder / name
        return plain.read_text() if plain.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes()).decode()

    rows = records.split_rows(read("squeue_jobs.txt"), records.JOB_FIELDS, "@00c0ffee00c0ffee@")
    jobs = [records.job_from_row(row, lambda _: 600.0) for row in rows]
    text = read("reservations.txt")
    reservations = records.lines_of(text, "ReservationName", "No reservations in the system")
    nodes = [records.node_from_line(line) for line in read("nodes.txt").splitlines()]
    partitions = [records.partition_from_line(line) for line in read("partitions.txt").splitlines()]
    return Snapshot(
        max(job.start for job in jobs if job.running) + 5.0,
        {job.id: job for job in jobs},
        {node.name: node for node in nodes},
        {partition.name: partition for partition in partitions},
        reservations=tuple(map(records.reservation_from_line, reservations)),
    )


def everything():
    """Eight nodes with all that a queue can hold."""
    jobs = [
        make_job(1, "n1", "n2", end=NOW + 500),
        make_job(2, "n3", end=NOW - 5),  # should have ended
        make_job(3, "n4", end=None, time_limit=None),
        make_job(11, num_nodes=4, time_limit=300.0, priority=900),
        make_job(12, num_nodes=2, time_limit=None, priority=890),  # as long as the partition lets it
        make_job(13, num_nodes=4, time_limit=100.0, eligible=NOW + 2000, reason="BeginTime", priority=880),
        make_job(14, num_nodes=1, time_limit=50.0, priority=0, reason="JobHeldUser", eligible=None),
        make_job(15, num_nodes=1, time_limit=60.0, tasks=3, array_job=15, priority=870),
        make_job(16, num_nodes=1, time_limit=60.0, reason="QOSMaxJobsPerUserLimit", priority=860),
        make_job(17, num_nodes=1, time_limit=60.0, reason="Licenses", start=NOW + 700, priority=850),
        make_job(18, num_nodes=1, time_limit=60.0, reservation="mine", priority=840),
        make_job(19, num_nodes=5, min_nodes=3, time_limit=200.0, priority=830),
        make_job(20, num_nodes=9, time_limit=200.0, priority=820),  # never
        make_job(21, num_nodes=1, time_limit=90.0, priority=810),
        make_job(22, num_nodes=1, time_limit=10.0, priority=800, start=NOW + 800),
    ]
    seen = make_snapshot(jobs, at=NOW)
    held = Reservation("r", NOW + 4000, NOW + 5000, ("n7", "n8"), frozenset(), frozenset(), frozenset(), False)
    batch = replace(seen.partitions["batch"], max_time=86400.0)
    nodes = {name: replace(node, idle_since=0.0) for name, node in seen.nodes.items()}
    return replace(seen, partitions={"batch": batch}, nodes=nodes, reservations=(held,))


def deep(count=10_000, size=400):
    """So many jobs that wait for a full machine, in the manner of a log: many narrow and short ones, few wide ones."""
    nodes = tuple(f"n{i:04}" for i in range(size))
    jobs, at, number = [], 0, 0
    while at < size:
        width = min(1 << number * 7 % 6, size - at)
        jobs.append(make_job(1 + number, *nodes[at : at + width], end=NOW + 60.0 * (1 + number * 37 % 700)))
        at, number = at + width, number + 1
    for i in range(count):
        width, limit = 1 << i * 11 % 9, 600.0 * (1 + i * 29 % 71)
        jobs.append(
            make_job(1000 + i, num_nodes=width, time_limit=limit, priority=count + 1000 - i, submit=float(i % 97))
        )
    partition = Partition("batch", nodes, True, True, None, 600.0, None)
    every = {name: Node(name, "IDLE", 2, True, ("batch",), idle_since=0.0) for name in nodes}
    return Snapshot(NOW, {job.id: job for job in jobs}, every, {"batch": partition})


QUEUES = {
    **{folder.name: (lambda folder=folder: recorded(folder)) for folder in RELEASES},
    "recorded deep": lambda: recorded(DEEP),
    "all": everything,
    "deep": deep,
}


@pytest.fixture(params=QUEUES, scope="module")
def seen(request):
    return QUEUES[request.param]()


# -- the readers -------------------------------------------------------------------------------------------------------


def by_slots(snapshot):
    """The starts that slots, quotes, holds and plans of workflows go by, of a job's first task."""
    partition = next(p for p in snapshot.partitions.values() if p.default)
    plan = from_snapshot(snapshot, partition, PaperPricing).plan()
    found = {}
    for job, start in zip(plan.queue.waiting, plan.starts, strict=True):
        found.setdefault(int(job.id.split("_")[0]), start)
    return found


def by_dashboard(snapshot):
    found = {}
    for job in look_ahead(snapshot).jobs:
        found.setdefault(int(job.name.split("_")[0]), job.start)
    return found


def by_policies(snapshot, partition):
    jobs = waiting(believed(snapshot), partition)[:DEPTH]
    starts = QueuePlan(believed(snapshot), partition).forecast(jobs, [])
    return {job.id: start for job, start in zip(jobs, starts, strict=True)}


def by_leftover(snapshot, partition):
    """The starts that a growing job may not move; Slurm is taken to have had its turn."""
    seen = believed(snapshot)
    found = Leftover(seen, Turns(seen, 0.0)).starts(make_job(0, "elsewhere", partition=partition))
    return {job.id: found.get(job.id, math.inf) for job in waiting(seen, partition)[:DEPTH]}


def by_waits(snapshot, partition):
    """What an estimate of a wait would have said of each job in the queue, had it been the last one in it."""
    queue, found = _Picture(snapshot, RunTimes()).queue(partition), {}
    cluster = Cluster.of(believed(snapshot), Unknown(endless=YEAR))
    entries = list(cluster.queue(cluster.nodes_of(partition), tasks=100))
    for i, job in enumerate(queue.waiting[:DEPTH]):
        number = entries[i].job.id
        if number not in found and job.after <= queue.now:
            ahead = replace(queue, waiting=queue.waiting[:i])
            view = look(ahead, NewJob(job.nodes, job.limit, job.group, job.user), NOTHING)
            found[number] = math.inf if view.planned is None else queue.now + view.planned
    return found


def by_selection(snapshot, partition):
    """What `penstock bags` would expect of each job in the queue, were it the bag's, and ran to its limit."""
    part = snapshot.partitions[partition]
    site = SiteConfig((24, 11), "c", "select/linear", frozenset(), frozenset(), "priority/basic", frozenset(), 300.0)
    (candidate,) = candidates(site, [part], snapshot.nodes, snapshot.reservations, SiteFile(), fallback=2e9)
    cluster, found = Cluster.of(believed(snapshot), Unknown(endless=YEAR)), {}
    for entry in list(cluster.queue(cluster.nodes_of(partition), tasks=1))[:DEPTH]:
        own = {entry.job.array_job or entry.job.id}
        starts = planned(snapshot, candidate, Further(OwnJob(1, 60.0, entry.duration), 1, own)).own
        found[entry.job.id] = int(snapshot.taken_at) + starts[min(own)][0] if starts else math.inf
    return found


def same(one, other):
    """Of the jobs that both know; counts are in whole seconds."""
    both = one.keys() & other.keys()
    assert both
    assert {n: one[n] for n in both} == {n: pytest.approx(other[n], abs=1.001) for n in both}
    return both


# -- they agree --------------------------------------------------------------------------------------------------------


def test_who_reads_names_gives_each_job_the_same_start(seen):
    slots = by_slots(seen)
    same(slots, by_dashboard(seen))
    assert len(same(slots, by_policies(seen, "batch"))) == min(DEPTH, len(slots))
    same(slots, by_leftover(seen, "batch"))


@pytest.mark.parametrize("name", [name for name in QUEUES if name != "deep"])
def test_who_counts_gives_each_job_the_same_start_as_who_names(name):
    seen = QUEUES[name]()
    slots = by_slots(seen)
    same(slots, by_waits(seen, "batch"))
    same(slots, by_selection(seen, "batch"))


def test_who_counts_agrees_with_who_counts(seen):
    same(by_waits(seen, "batch"), by_selection(seen, "batch"))


def test_what_each_rule_makes_of_a_queue_that_has_everything():
    starts = by_slots(everything())
    assert starts == {
        11: NOW,  # n5 to n8
        12: NOW + 300,  # for a day, as long as its partition lets it: n3 and n5; n7 and n8 will be reserved before
        13: NOW + 2000,  # its begin time
        15: NOW + 60,  # n3, whose job should have ended and is about to
        17: NOW + 700,  # it lacks a licence, and Slurm says when it has it
        19: NOW + 300,  # the fewest nodes that it takes
        20: math.inf,  # there is no ninth node
        21: NOW + 500,  # n3 is free for 60 s before, until the tasks of 15 and job 12 leave it no more
        22: NOW + 800,  # Slurm says so, though n5 to n8 are idle: it asks for something that they have not
    }
    cluster = Cluster.of(everything())
    assert cluster.left_out == 3, "held, over a limit of which nobody knows the end, for a reservation"
    after = {entry.job.id: entry.after for entry in cluster.waiting}
    assert after[13] == NOW + 2000 and after[17] == NOW + 700 and after[11] == NOW


# -- where they differ -------------------------------------------------------------------------------------------------


def first_difference(snapshot, depth=DEPTH):
    """The first job that starts elsewhen if nodes are counted, and whether that is because they are not the same ones:
    enough are free at every instant of its run, and too few throughout it. None: there is no such job."""
    cluster = Cluster.of(believed(snapshot))
    names = cluster.free()
    numbers = Counted.of(names, cluster.bits.all)
    for entry in cluster.queue(places=depth):
        before = names.copy()
        named, counted = place(names, entry.ask, cluster.now), place(numbers, entry.ask, cluster.now)
        if counted is None:
            assert named is None
        elif named is None or abs(named[0] - counted[0]) >= 1.001:
            begin, end = counted[0], counted[0] + entry.duration
            times = [begin, *(t for t in before.times if begin < t < end)]
            enough = all(before.common(t, t, entry.within).bit_count() >= entry.nodes for t in times)
            return entry.job.id, enough and before.common(begin, end, entry.within).bit_count() < entry.nodes
    return None


def test_counts_are_early_where_enough_nodes_are_free_and_not_the_same_ones():
    # n1 is free until +100, n2 from +100 on: never both, and always one.
    part = Reservation("r", NOW + 100, NOW + 200, ("n1",), frozenset(), frozenset(), frozenset(), False)
    jobs = [make_job(1, "n2", end=NOW + 100), make_job(2, num_nodes=1, time_limit=200.0)]
    seen = replace(make_snapshot(jobs, at=NOW, nodes=("n1", "n2")), reservations=(part,))
    assert by_slots(seen) == {2: NOW + 100}
    assert by_waits(seen, "batch") == {2: NOW}
    assert first_difference(seen) == (2, True)


def test_in_a_deep_queue_the_first_difference_has_that_reason():
    found = first_difference(deep())
    assert found is not None and found[1]
    for folder in (*RELEASES, DEEP):
        assert first_difference(recorded(folder)) is None


def test_a_job_behind_one_without_any_limit_never_starts_by_name_and_is_counted_for_a_year():
    jobs = [make_job(1, *NODES, end=None, time_limit=None), make_job(2, num_nodes=1)]
    seen = make_snapshot(jobs, at=NOW)
    assert by_slots(seen) == by_policies(seen, "batch") == {2: math.inf}
    assert by_waits(seen, "batch") == by_selection(seen, "batch") == {2: NOW + YEAR}


def test_a_job_in_two_partitions_is_counted_in_both_and_named_in_one():
    seen = make_snapshot([make_job(1, num_nodes=2, partition="a,b"), make_job(2, num_nodes=2, partition="b")], at=NOW)
    parts = {
        n: Partition(n, nodes, True, n == "b", None, 600.0, None) for n, nodes in (("a", NODES[:2]), ("b", NODES[2:4]))
    }
    nodes = {n: seen.nodes[n] for n in NODES[:4]}
    seen = replace(seen, partitions=parts, nodes=nodes)
    assert by_slots(seen) == {1: NOW, 2: NOW}, "the first has n1 and n2"
    assert by_waits(seen, "b") == {1: NOW, 2: NOW + 3600}, "of b's two nodes"


# -- whatever the queue ------------------------------------------------------------------------------------------------

running = st.lists(st.tuples(st.integers(1, 3), st.one_of(st.none(), st.integers(-60, 5000))), max_size=5)
queues = st.lists(
    st.tuples(
        st.integers(1, 9),
        st.one_of(st.none(), st.integers(1, 5000)),
        st.sampled_from(["Resources", "Priority", "BeginTime", "Licenses", "AssocGrpCpuLimit"]),
        st.one_of(st.none(), st.integers(0, 4000)),
        st.integers(1, 3),
    ),
    max_size=8,
)


@settings(deadline=None)
@given(running, queues)
def test_readers_agree_whatever_the_queue(busy, queue):
    jobs, at = [], 0
    for number, (width, end) in enumerate(busy):
        if mine := NODES[at : at + width]:
            jobs.append(make_job(1 + number, *mine, end=None if end is None else NOW + end))
            at += width
    for number, (width, limit, reason, later, tasks) in enumerate(queue):
        eligible = NOW + later if reason == "BeginTime" and later else 0.0
        start = NOW + later if reason != "BeginTime" and later else None
        more = {"reason": reason, "eligible": eligible, "start": start, "tasks": tasks, "priority": 900 - number}
        jobs.append(make_job(100 + number, num_nodes=width, time_limit=limit, **more))
    seen = make_snapshot(jobs, at=NOW)
    batch = replace(seen.partitions["batch"], max_time=20_000.0)
    nodes = {name: replace(node, idle_since=0.0) for name, node in seen.nodes.items()}
    seen = replace(seen, partitions={"batch": batch}, nodes=nodes)
    slots = by_slots(seen)
    assert slots == by_policies(seen, "batch") == by_leftover(seen, "batch")
    found = first_difference(seen)
    assert found is None or found[1]

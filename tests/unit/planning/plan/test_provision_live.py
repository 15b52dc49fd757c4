"""A snapshot as something to plan on: nodes that are down or reserved, partitions, arrays, GRES, billing; instants."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from penstock.api import Job, JobState, Node, Partition, Reservation, Snapshot
from penstock.errors import Infeasible, UserError
from penstock.slurm.states import parse_node_state
from penstock.values.instants import parse_instant
from penstock.workflow.files.formats import parse_workflow
from penstock_planning.commands.flows import Flows, FlowStage
from penstock_planning.commands.planning import LiveSource, Where
from penstock_planning.plan.live import Needs, check_size, from_snapshot, node_price, partition_of
from penstock_planning.plan.pricing import PaperPricing, quote_all

NOW = 1000.0


def job(number, state=JobState.RUNNING, nodes=(), **more):
    base = {
        "uid": 1, "user": "u", "account": "a", "partition": "p", "qos": "normal", "reason": "", "submit": 0.0,
        "eligible": 0.0, "start": 0.0, "end": 4600.0, "time_limit": 600.0, "num_nodes": len(nodes) or 1,
        "num_cpus": 2, "priority": 10,
    }  # fmt: skip
    return Job(id=number, state=state, nodes=tuple(nodes), **{**base, **more})


def pending(number, count, **more):
    return job(number, JobState.PENDING, num_nodes=count, start=None, end=None, **more)


def snapshot(jobs=(), reservations=(), **states):
    nodes = {}
    for i in range(1, 5):
        name = f"n{i}"
        state = states.get(name, "IDLE")
        gres = "gpu:a100:2(S:0-1)" if i > 2 else ""
        features = ("big",) if i == 4 else ()
        usable = parse_node_state(state).usable
        nodes[name] = Node(name, state, 4, usable, ("p",), memory=1024.0 * i, gres=gres, features=features)
    weights = {"CPU": 2.0, "Mem": 1.0, "GRES/gpu": 3.0}
    parts = {
        "p": Partition("p", ("n1", "n2", "n3", "n4"), True, True, 7200.0, None, None),
        "q": Partition("q", ("n4",), True, False, None, None, 1, billing=weights),
    }
    return Snapshot(NOW, {j.id: j for j in jobs}, nodes, parts, reservations=tuple(reservations))


def planned(snap, name="p", **more):
    return from_snapshot(snap, snap.partitions[name], PaperPricing, **more)


def reservation(start, end, *nodes, active=False):
    return Reservation("r", start, end, nodes, frozenset({"u"}), frozenset(), frozenset(), active)


def test_running_jobs_end_at_their_limit_and_a_minute_later_at_the_latest():
    found = planned(snapshot([job(1, nodes=["n1"]), job(2, nodes=["n2"], end=900.0), job(3, nodes=["n3"], end=None)]))
    assert {c.id: (c.nodes, c.end) for c in found.queue.claims} == {
        "1": (1, 4600.0), "2": (2, 1060.0), "3": (4, math.inf)
    }  # fmt: skip


def test_nodes_that_are_down_stay_so_and_reserved_ones_come_back():
    held = reservation(500.0, 2000.0, "n3", "n4", active=True)
    found = planned(snapshot(reservations=[held], n2="DOWN+DRAIN", n3="IDLE+RESERVED", n4="IDLE+DRAIN+RESERVED"))
    claims = {c.id: (c.nodes, c.end) for c in found.queue.claims}
    assert claims == {"down": (0b1010, math.inf), "reservation r": (0b1100, 2000.0)}
    assert "2 nodes down or drained" in found.notes[0]


def test_a_node_that_is_being_cleared_is_not_down():
    found = planned(snapshot(n1="IDLE+COMPLETING", n2="MIXED+COMPLETING"))
    assert {c.id: (c.nodes, c.end) for c in found.queue.claims} == {"clearing": (0b11, NOW + 60)} and not found.notes


def test_a_cluster_whose_idle_nodes_are_all_suspended_is_free_for_jobs_to_come():
    asleep = dict.fromkeys(("n1", "n2", "n3", "n4"), "IDLE+CLOUD+POWERED_DOWN")
    found = planned(snapshot(**asleep))
    assert not [note for note in found.notes if "down or drained" in note]
    assert all(claim.end < NOW + 600 for claim in found.queue.claims)


def test_a_node_that_is_asleep_is_free_once_it_is_awake():
    asleep = {"n1": "IDLE+CLOUD+POWERED_DOWN", "n2": "IDLE+NOT_RESPONDING+POWERING_UP"}
    found = planned(replace(snapshot(**asleep), wakes_in=600.0))
    assert {c.id: (c.nodes, c.end) for c in found.queue.claims} == {"waking": (0b11, NOW + 600)}
    (note,) = found.notes
    assert note.startswith("2 nodes asleep: ") and "10m later at most" in note
    reserved = reservation(500.0, 2000.0, "n1", active=True)
    assert "down" not in {c.id for c in planned(snapshot([], [reserved], n1="IDLE+POWERED_DOWN+RESERVED")).queue.claims}


def test_a_job_that_asked_for_a_later_start_takes_nothing_before_it():
    """sbatch -b now+1hour -N4 on an idle cluster: all of it is free for an hour."""
    later = pending(1, 4, time_limit=7200.0, eligible=NOW + 3600, reason="BeginTime")
    found = planned(snapshot([later, pending(2, 4, time_limit=600.0, eligible=4.1e9)]))
    assert found.plan().starts == (NOW + 3600,)
    assert found.plan().profile.common(NOW, NOW + 3600, 0b1111) == 0b1111
    assert "1 pending job left out of the plan" in found.notes[0], "one is put off for ever"


def test_the_queue_in_its_order():
    jobs = [
        pending(1, 1, priority=5),
        pending(2, 2, priority=9, time_limit=None),
        pending(3, 1, partition="q,p", priority=7, tasks=3),
        pending(4, 1, priority=0),
        pending(5, 1, eligible=None),
        pending(6, 1, reservation="r"),
    ]
    found = planned(snapshot(jobs))
    assert [(w.id, w.procs, w.duration) for w in found.queue.waiting] == [
        ("2", 2, 7200.0), ("3_0", 1, 600.0), ("3_1", 1, 600.0), ("3_2", 1, 600.0), ("1", 1, 600.0),
    ]  # fmt: skip
    assert "3 pending jobs left out of the plan" in found.notes[-1]
    assert found.queue.waiting[0].weight == pytest.approx(2 / 3600)  # two processors, a service unit an hour each


def test_what_a_node_must_have():
    snap = snapshot()
    assert planned(snap, needs=Needs(gres="gpu:2")).within == 0b1100
    assert planned(snap, needs=Needs(gres="gpu:a100:1", features=frozenset({"big"}))).within == 0b1000
    assert planned(snap, needs=Needs(memory=2000)).within == 0b1110
    with pytest.raises(Infeasible, match="no node of partition p has"):
        planned(snap, needs=Needs(gres="gpu:3"))
    gpus = planned(snap, needs=Needs(gres="gpu:1"))
    assert {q.nodes for q in quote_all(gpus.plan(), 2, 60, PaperPricing(), within=gpus.within)} == {0b1100}


def test_gres():
    lustre = Node("n1", "IDLE", 4, True, gres="VramPerGpu:no_consume:48G,bandwidth:lustre:4G")
    assert Needs(gres="VramPerGpu:24G").met_by(lustre) and not Needs(gres="VramPerGpu:49G").met_by(lustre)
    assert Needs(gres="bandwidth:lustre:4G").met_by(lustre) and not Needs(gres="bandwidth:nfs:1").met_by(lustre)
    with pytest.raises(UserError, match=r"--gres: must be such as .* not 'a:b:c:1'"):
        Needs(gres="a:b:c:1").met_by(lustre)


def test_prices_by_billing_weights():
    snap = snapshot()
    assert node_price(snap.partitions["p"], snap.nodes.values()) == pytest.approx(4 / 3600)
    assert node_price(snap.partitions["q"], [snap.nodes["n4"]]) == pytest.approx((8 + 4 + 6) / 3600)


def test_what_can_never_be_had():
    snap = snapshot()
    with pytest.raises(Infeasible, match="2 nodes can never be had in q: at most 1"):
        check_size(planned(snap, "q"), snap.partitions["q"], 2, 60)
    with pytest.raises(Infeasible, match="p runs nothing for longer"):
        check_size(planned(snap), snap.partitions["p"], 2, 7201)
    with pytest.raises(UserError, match="no partition 'x'"):
        partition_of(snap, "x")
    assert partition_of(snap, None).name == "p"


def test_what_is_reserved_beyond_a_stages_end_does_not_count_as_its_limit():
    text = "name: f\nstages:\n  - {name: a, nodes: 2, time: 2h, run: x}\n"
    flow = parse_workflow(text.encode())
    flows = Flows((flow,), (FlowStage(0, flow.stages[0], "a", (), None, None),), (flow,))
    source = LiveSource(snapshot(), Where(None, "p", Needs()), PaperPricing, {}, flows.durations(60.0))
    assert flows.dag(source).tasks[0].durations == (7260.0,), "the partition runs nothing for longer than 7200 s"
    source = LiveSource(snapshot(), Where(None, "q", Needs()), PaperPricing, {}, flows.durations(60.0))
    with pytest.raises(Infeasible, match="2 nodes can never be had in q"):
        flows.dag(source)


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_instants(berlin):
    now = datetime(2026, 3, 28, 12, 0, tzinfo=UTC).timestamp()
    assert parse_instant("now", now, "--at") == now
    assert parse_instant("now+90m", now, "--at") == now + 5400
    assert parse_instant("@12.5", now, "--at") == 12.5
    assert parse_instant("12:30", now, "--at") == datetime(2026, 3, 29, 10, 30, tzinfo=UTC).timestamp()
    assert parse_instant("14:30:05", now, "--at") == datetime(2026, 3, 28, 13, 30, 5, tzinfo=UTC).timestamp()
    assert parse_instant("2026-03-29T02:30+01:00", now, "--at") == datetime(2026, 3, 29, 1, 30, tzinfo=UTC).timestamp()
    with pytest.raises(UserError, match="--at: the clocks skip 2026-03-29 02:30"):
        parse_instant("2026-03-29T02:30", now, "--at")
    with pytest.raises(UserError, match="--at: the clocks show 2026-10-25 02:30 twice"):
        parse_instant("2026-10-25T02:30", now, "--at")
    for wrong in ("", "soon", "now+", "25:00", "@x", "99999-01-01", "now-1h", "@nan", "@inf", "@1e18", "@-1"):
        with pytest.raises(UserError, match="--at must be now"):
            parse_instant(wrong, now, "--at")

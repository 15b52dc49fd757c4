"""The queue of a cluster as it is planned for the nodes of a partition, without any price."""

from __future__ import annotations

import math

import pytest

from penstock.errors import Infeasible
from penstock.future.partition import queue_for
from penstock.future.plan import make_plan
from penstock_lab.testing import NODES, make_job, make_snapshot

NOW = 1000.0


def test_who_waits_starts_when_enough_nodes_are_free_and_no_delay_costs_anything():
    running = make_job(1, *NODES[:6], end=NOW + 600.0)
    snapshot = make_snapshot([running, make_job(2, num_nodes=8, time_limit=300.0)], at=NOW)
    known = queue_for(snapshot, snapshot.partitions["batch"])
    plan = make_plan(known.queue)
    assert known.names == tuple(sorted(snapshot.nodes))
    assert known.within.bit_count() == len(NODES)
    assert list(plan.starts) == [NOW + 600.0]
    assert [job.weight for job in known.queue.waiting] == [0.0]
    assert all(claim.end < math.inf for claim in known.queue.claims)


def test_nodes_that_do_not_suit_are_not_asked_about():
    snapshot = make_snapshot(at=NOW)
    known = queue_for(snapshot, snapshot.partitions["batch"], suits=lambda node: node.name == NODES[0])
    assert known.within.bit_count() == 1
    with pytest.raises(Infeasible, match="no node of partition batch"):
        queue_for(snapshot, snapshot.partitions["batch"], suits=lambda _node: False)

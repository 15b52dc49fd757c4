"""Jobs that somebody thinks of submitting: what of a description is one, which fits, and what would start sooner."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api import Geometry, Partition, Snapshot
from penstock.errors import UserError
from penstock.waits.learners.hours import FEW, by_hour
from penstock.waits.learners.wishes import FIELDS, changes, geometry_of_wish, is_sooner, misfit
from penstock_lab.testing import NODES, make_snapshot

HOUR = 3600.0


def cluster(**partitions: Partition) -> Snapshot:
    """Batch with eight nodes of two CPUs, and these partitions."""
    found = make_snapshot()
    return replace(found, partitions={**found.partitions, **partitions})


def partition(name: str, nodes: int = 4, **changes: object) -> Partition:
    return replace(Partition(name, NODES[:nodes], True, False, None, None, None), **changes)


def test_what_is_not_said_is_slurms_default_and_an_hour():
    assert geometry_of_wish({}, cluster()) == Geometry("batch", "", 1, HOUR)


@pytest.mark.parametrize(("cpus", "nodes"), [(1, 1), (2, 1), (3, 2), (16, 8)])
def test_cpus_need_so_many_nodes_of_the_partition(cpus, nodes):
    assert geometry_of_wish({"cpus": cpus}, cluster()).nodes == nodes


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (7, "a job must be a mapping of account, cpus"),
        ({"node": 3}, "'node': a job has no such field (fields: account, cpus"),
        ({"nodes": 0}, "nodes: must be a whole number from 1"),
        ({"nodes": True}, "nodes: must be a whole number"),
        ({"cpus": "4"}, "cpus: must be a whole number"),
        ({"time_limit": "1h"}, "time_limit: must be a number of seconds"),
        ({"time_limit": float("nan")}, "time_limit: must be"),
        ({"memory": -1}, "memory: must be a number of MB"),
        ({"partition": ["batch"]}, "partition: must be a text"),
        ({"qos": "a\nb"}, "qos: must be a text"),
    ],
)
def test_what_is_no_job_is_refused_with_what_would_be_one(wish, said):
    with pytest.raises(UserError) as refused:
        geometry_of_wish(wish, cluster())
    assert said in str(refused.value)


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers(), max_size=2)


@given(st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), values, max_size=5) | values)
def test_any_description_is_a_job_or_refused(wish):
    try:
        found = geometry_of_wish(wish, cluster())
    except UserError as refused:
        assert str(refused).isprintable()
        return
    assert found.nodes >= 1 and 0 < found.time_limit <= 1e9
    misfit(found, cluster())


def test_what_no_partition_starts_is_said():
    site = cluster(debug=partition("debug", 2, max_time=1800.0))
    job = geometry_of_wish({"partition": "debug", "time_limit": HOUR}, site)
    assert misfit(job, site) == "time_limit: partition debug gives a job 30m at most"
    assert misfit(replace(job, nodes=3, time_limit=60.0), site) == "nodes: partition debug gives a job 2 at most, not 3"
    assert "there is no 'gpu' (partitions: batch, debug)" in str(misfit(replace(job, partition="gpu"), site))
    assert misfit(replace(job, partition="debug,batch"), site) is None, "one of both does"


def test_a_change_is_less_time_or_another_open_partition_that_has_room():
    site = cluster(
        debug=partition("debug", 2, max_time=HOUR),
        theirs=partition("theirs", accounts=frozenset({"them"})),
        down=partition("down", up=False),
        small=partition("small", 1),
        wide=partition("wide", 4),
    )
    found = changes(Geometry("batch", "", 2, 2 * HOUR), site)
    assert [g.time_limit for g in found if g.partition == "batch"] == [3600.0, 1800.0, 900.0, 600.0]
    assert [g.partition for g in found if g.partition != "batch"] == ["wide"], "debug is too short, small too small"
    assert {g.partition for g in changes(Geometry("batch", "", 2, 2 * HOUR, gres="gpu:1"), site)} == {"batch"}


@pytest.mark.parametrize(("wait", "changed", "sooner"), [(3600, 60, True), (3600, 2000, False), (400, 150, False)])
def test_a_change_is_worth_it_if_it_saves_half_and_some_minutes(wait, changed, sooner):
    assert is_sooner(wait, changed) is sooner


def test_hours_of_the_day_by_the_clock_of_who_asks():
    waits = [(9.5 * HOUR, 100.0)] * (FEW - 1) + [(9.9 * HOUR, 300.0)] + [(23.5 * HOUR, 5.0)] * (FEW - 1)
    rows = by_hour(waits, 2 * HOUR)
    assert [row["jobs"] for row in rows] == [0, FEW - 1, *[0] * 9, FEW, *[0] * 12]
    assert rows[11]["p50"] == 100.0 and 100.0 < rows[11]["p95"] <= 300.0
    assert rows[1]["p50"] is None, "so few tell of single people"

"""Classes of geometries: their edges, their keys, and who is like whom."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api import Geometry
from penstock.waits.learners.geometry import classify, distance, key_of, neighbours, parse

ONE = Geometry("batch", "normal", 4, 3600, account="physics", cluster="c1")
texts = st.text(max_size=8)
geometries = st.builds(
    Geometry,
    partition=texts,
    qos=texts,
    nodes=st.integers(1, 5000),
    time_limit=st.floats(1, 1e7),
    account=texts,
    user=texts,
    cluster=texts,
    share=st.none() | st.floats(0, 1),
    gres=st.sampled_from(["", "gpu", "gpu:2", "gpu:a100:4", "gpu:a100:4,lustre:1"]),
    memory=st.none() | st.floats(1, 1e7),
    features=texts,
)


@pytest.mark.parametrize(("nodes", "size"), [(1, 0), (2, 1), (3, 1), (4, 2), (7, 2), (8, 3), (1024, 10)])
def test_sizes_double(nodes, size):
    assert classify(replace(ONE, nodes=nodes)).size == size


@pytest.mark.parametrize(("limit", "number"), [(1, 0), (900, 0), (901, 1), (1800, 1), (86_400, 7), (1e9, 12)])
def test_limits_double_from_a_quarter_of_an_hour(limit, number):
    assert classify(replace(ONE, time_limit=limit)).limit == number


@pytest.mark.parametrize(("share", "band"), [(None, -1), (0.0, 0), (0.24, 0), (0.25, 1), (0.5, 2), (0.99, 3), (1.0, 3)])
def test_fair_shares_fall_into_bands(share, band):
    assert classify(replace(ONE, share=share)).band == band


@pytest.mark.parametrize(
    ("gres", "kind", "count"),
    [("", "", -1), ("gpu", "gpu", 0), ("gpu:2", "gpu", 1), ("gpu:a100", "gpu:a100", 0), ("b:1,a:x:3", "a:x,b", 2)],
)
def test_gres_by_type_and_count(gres, kind, count):
    found = classify(replace(ONE, gres=gres))
    assert (found.gres, found.gres_count) == (kind, count)


@pytest.mark.parametrize(("memory", "number"), [(None, -1), (512, 0), (1024, 0), (2047, 0), (2048, 1), (65_536, 6)])
def test_memory_doubles_from_a_gigabyte(memory, number):
    assert classify(replace(ONE, memory=memory)).memory == number


@given(geometries)
def test_a_key_is_read_back(geometry):
    found = classify(geometry)
    assert parse(found.key) == found
    assert "\n" not in found.key
    assert distance(found, found) == 0


@given(geometries, geometries)
def test_distances_are_symmetric_and_tell_classes_apart(one, other):
    a, b = classify(one), classify(other)
    assert distance(a, b) == distance(b, a) >= 0
    assert (distance(a, b) == 0) == (a == b)
    assert (a.key == b.key) == (a == b)


@pytest.mark.parametrize("text", ["", "batch/normal/n4/t2", "a/b/c/d/e/x/0/0//0/0/", "a/b/c/d/e/1/1/1/g/1/1/f/more"])
def test_other_texts_are_no_keys(text):
    assert parse(text) is None


def test_the_order_of_likeness():
    """The same but for its limit, its size, its account, its QOS; another partition or cluster is none of ours."""
    others = [
        replace(ONE, time_limit=7200),
        replace(ONE, nodes=8),
        replace(ONE, nodes=8, account="biology"),
        replace(ONE, qos="long"),
        replace(ONE, partition="gpu", gres="gpu:1"),
        replace(ONE, cluster="c2"),
        replace(ONE, nodes=4096),
    ]
    keys = [key_of(g) for g in others]
    found = neighbours(classify(ONE), [*reversed(keys), "nonsense"], 10)
    assert [key for _, key in found] == keys[:4]
    assert math.isinf(distance(classify(ONE), classify(others[5])))
    assert neighbours(classify(ONE), [*keys, key_of(ONE)], 2)[0] == (0.0, key_of(ONE))


def test_a_default_may_be_the_one_that_is_named():
    unnamed, named, other = (classify(replace(ONE, qos=q)) for q in ("", "normal", "long"))
    assert distance(unnamed, named) < distance(other, named)

"""The availability profile against a naive model, and backfilling against its promises."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from named_profile import Profile, Slot

from penstock.future.planner import Ask, Backfill

NAMES = ("a", "b", "c", "d")
HORIZON = 24

claims = st.lists(
    st.tuples(st.sets(st.sampled_from(NAMES), min_size=1), st.integers(0, HORIZON - 1), st.integers(1, 8)), max_size=8
)


def build(wanted):
    """A profile and the same thing as a set of (node, second) pairs that are taken; clashing claims are left out."""
    profile, taken = Profile(NAMES), set()
    for nodes, begin, length in wanted:
        cells = {(n, t) for n in nodes for t in range(begin, begin + length)}
        if cells & taken:
            with pytest.raises(ValueError, match="not all free"):
                profile.claim(nodes, begin, begin + length)
        else:
            profile.claim(nodes, begin, begin + length)
            taken |= cells
    return profile, taken


def free(taken, begin, end):
    return tuple(n for n in NAMES if not any((n, t) in taken for t in range(begin, max(end, begin + 1))))


@given(claims, st.integers(0, HORIZON), st.integers(0, 9))
def test_free_during_agrees_with_the_naive_model(wanted, begin, length):
    profile, taken = build(wanted)
    assert profile.free_during(begin, begin + length) == free(taken, begin, begin + length)


@given(claims, st.integers(1, 4), st.integers(0, 9), st.integers(0, HORIZON), st.sets(st.sampled_from(NAMES)))
def test_earliest_is_free_and_nothing_is_earlier(wanted, count, length, after, within):
    profile, taken = build(wanted)
    slot = profile.earliest(count, length, after, within)

    def fits(t):
        return len([n for n in free(taken, t, t + length) if n in within]) >= count

    if slot is None:
        assert len(within) < count
        return
    assert len(slot.nodes) == count
    assert slot.end - slot.start == length
    assert set(slot.nodes) <= set(free(taken, int(slot.start), int(slot.end))) & within
    assert slot.start >= after
    assert not any(fits(t) for t in range(after, int(slot.start)))


@given(claims)
def test_segments_tile_the_time_line_and_giving_back_undoes_a_claim(wanted):
    profile, taken = build(wanted)
    segments = list(profile.segments())
    assert segments[0].start == 0
    assert segments[-1].end == math.inf
    for left, right in itertools.pairwise(segments):
        assert left.end == right.start
        assert left.nodes != right.nodes
    for node, second in taken:
        profile.give_back([node], second, second + 1)
    assert list(profile.segments()) == [Slot(0, math.inf, NAMES)]


def test_pinned_nodes_make_a_job_wait_although_enough_nodes_are_free_at_every_instant():
    profile = Profile(("a", "b"))
    profile.claim(["a"], 0, 10)
    profile.claim(["b"], 10, 20)
    assert profile.earliest(1, 10) == Slot(0, 10, ("b",))
    assert profile.earliest(1, 11) == Slot(10, 21, ("a",))


def test_a_node_that_is_not_known_or_named_twice_is_an_error():
    with pytest.raises(KeyError):
        Profile(NAMES).claim(["z"], 0)
    with pytest.raises(ValueError, match="twice"):
        Profile(("a", "a"))


def test_claims_and_searches_before_the_beginning_count_from_it():
    profile = Profile(NAMES, start=100)
    profile.claim(["a"], 0, 110)
    assert profile.free_at(100) == ("b", "c", "d")
    assert profile.earliest(4, 5, after=0) == Slot(110, 115, NAMES)


def test_unlimited_jobs_are_waited_for_in_vain():
    profile = Profile(("a", "b"))
    profile.claim(["a"], 0)
    assert profile.earliest(2, 1) is None
    assert profile.earliest(1, math.inf) == Slot(0, math.inf, ("b",))


def plan(profile, *asks, protect=1):
    """From when on and where each of (number, nodes, seconds, out of, queue) runs, where it was given a place."""
    planner = Backfill(protect)
    planner.renew(profile.bits, (), 0)
    made = [
        Ask(n, nodes, seconds, profile.numbering.mask(within), *queue) for n, nodes, seconds, within, *queue in asks
    ]
    places = (planner.place(ask, 0) for ask in made)
    return {p.id: Slot(p.start, p.end, profile.numbering.named(p.nodes)) for p in places if p is not None}


def test_easy_fills_the_hole_before_the_reservation_and_not_more():
    profile = Profile(NAMES)
    profile.claim(["a", "b"], 0, 100)
    placed = plan(
        profile,
        (1, 4, 50, NAMES),  # must wait for a and b
        (2, 1, 100, NAMES),  # fits exactly
        (3, 1, 101, NAMES),  # a second too long
        (4, 1, 10, NAMES),
    )
    assert placed == {1: Slot(100, 150, NAMES), 2: Slot(0, 100, ("c",)), 4: Slot(0, 10, ("d",))}


def test_each_queue_has_a_reservation_of_its_own():
    profile = Profile(NAMES)
    profile.claim(NAMES, 0, 10)
    west, east = ("a", "b"), ("c", "d")
    placed = plan(profile, (1, 2, 5, west, "west"), (2, 2, 5, east, "east"))
    assert placed == {1: Slot(10, 15, west), 2: Slot(10, 15, east)}


def test_a_request_that_can_never_run_blocks_nobody():
    profile = Profile(NAMES)
    profile.claim(["a"], 0)
    assert plan(profile, (1, 4, 5, NAMES), (2, 3, 5, NAMES)) == {2: Slot(0, 5, ("b", "c", "d"))}


def test_with_unlimited_reservations_it_is_conservative():
    profile = Profile(("a",))
    placed = plan(profile, *((i, 1, 10, ("a",)) for i in (1, 2, 3)), protect=math.inf)
    assert [slot.start for slot in placed.values()] == [0, 10, 20]

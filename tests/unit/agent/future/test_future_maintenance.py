"""When a job can begin that must not run into a maintenance."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from penstock.api import Reservation
from penstock.future.maintenance import earliest

NODES = ("n1", "n2", "n3", "n4")


def maintenance(start, end, nodes=NODES, name="m", flags=("MAINT", "SPEC_NODES")):
    return Reservation(name, start, end, tuple(nodes), frozenset({"root"}), frozenset(), frozenset(flags), False)


def test_a_job_that_ends_in_time_begins_now_and_a_longer_one_after_it():
    ahead = [maintenance(1000, 2000)]
    assert earliest(ahead, NODES, 4, 900, 100) == (100, None)
    assert earliest(ahead, NODES, 4, 901, 100) == (2000, ahead[0])
    assert earliest(ahead, NODES, 1, 10, 1500) == (2000, ahead[0]), "while it lasts"
    assert earliest(ahead, NODES, 4, 9999, 2000) == (2000, None), "when it is over"


def test_nodes_that_are_left_out_serve_small_jobs():
    ahead = [maintenance(1000, 2000, ("n1", "n2", "other"))]
    assert earliest(ahead, NODES, 2, 9999, 0) == (0, None)
    assert earliest(ahead, NODES, 3, 9999, 0) == (2000, ahead[0])
    assert earliest(ahead, ("n3", "n4"), 2, 9999, 0) == (0, None)


def test_a_job_too_long_for_the_gap_between_two_waits_for_both():
    first, second = maintenance(1000, 2000), maintenance(2500, 3000, name="n")
    assert earliest([second, first], NODES, 1, 500, 900) == (2000, first)
    assert earliest([second, first], NODES, 1, 501, 900) == (3000, second)


def test_other_reservations_are_not_maintenance_and_one_without_end_is_told():
    assert earliest([maintenance(50, 9999, flags=("FLEX",))], NODES, 4, 100, 0) == (0, None)
    begin, why = earliest([maintenance(50, math.inf)], NODES, 4, 100, 0)
    assert math.isinf(begin) and why is not None


def test_a_job_wider_than_the_partition_is_for_others_to_refuse():
    assert earliest([maintenance(50, 90)], NODES, 5, 100, 0) == (0, None)


spans = st.tuples(st.integers(0, 500), st.integers(1, 300), st.sets(st.sampled_from(NODES), min_size=1))


@given(st.lists(spans, max_size=5), st.integers(1, 4), st.integers(1, 400), st.integers(0, 600))
def test_the_nodes_are_free_all_the_time_and_never_earlier(found, count, duration, now):
    ahead = [maintenance(s, s + d, sorted(n), f"m{i}") for i, (s, d, n) in enumerate(found)]
    begin, why = earliest(ahead, NODES, count, duration, now)

    def free(at):
        hit = {n for r in ahead if r.start < at + duration and at < r.end for n in r.nodes}
        return 4 - len(hit) >= count

    assert begin >= now and free(begin) and (why is None) == (begin == now)
    assert not any(free(t) for t in range(now, int(begin)))

"""Who may stay at a door: never more than the bounds, and who has proven to be somebody always."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.ipc.gate import ConnectionBounds, ConnectionEntry, Gate

BOUNDS = st.builds(
    ConnectionBounds,
    most=st.integers(1, 12),
    of_peer=st.integers(1, 8),
    anonymous=st.integers(1, 8),
    anonymous_of_peer=st.integers(1, 5),
)
EVENTS = st.lists(
    st.tuples(st.sampled_from(["enter", "prove", "leave"]), st.integers(0, 40), st.sampled_from("abc")), max_size=80
)


@given(BOUNDS, EVENTS)
def test_the_bounds_hold_and_nobody_who_has_proven_anything_is_turned_out(bounds, events):
    gate, there, proven = Gate(bounds), {}, set()
    for place, (what, number, peer) in enumerate(events):
        if what == "enter":
            entry = gate.enter(place, peer)
            if entry.leaves is not None:
                assert entry.leaves not in proven
                del there[entry.leaves]
            if entry.welcome:
                there[place] = peer
            else:
                full = len(there) >= bounds.most or Counter(there.values())[peer] >= bounds.of_peer
                assert full, "who is sent away finds it full of others, who have proven themselves"
                assert entry.leaves is None
        elif there:
            key = sorted(there)[number % len(there)]
            if what == "prove":
                gate.prove(key)
                proven.add(key)
            else:
                gate.leave(key)
                del there[key]
                proven.discard(key)
        anonymous = {key: peer for key, peer in there.items() if key not in proven}
        assert len(gate) == len(there) <= bounds.most
        assert gate.anonymous == len(anonymous) <= bounds.anonymous
        assert all(count <= bounds.of_peer for count in Counter(there.values()).values())
        assert all(count <= bounds.anonymous_of_peer for count in Counter(anonymous.values()).values())
    assert sum(gate._of_peer.values()) == len(gate)
    assert sum(gate._anonymous_of.values()) == gate.anonymous


def test_one_host_does_not_push_out_the_first_steps_of_another():
    gate = Gate(ConnectionBounds(most=10, of_peer=9, anonymous=10, anonymous_of_peer=9))
    assert gate.enter("friend", "b") == ConnectionEntry(True)
    turned_out = [gate.enter(n, "a").leaves for n in range(30)]
    assert turned_out == [*[None] * 9, *range(21)]
    gate.prove("friend")
    assert gate.enter("other friend", "c").leaves == 21
    assert gate.enter("another", "c").leaves == 22


def test_who_has_proven_nothing_makes_room_and_else_nobody():
    gate = Gate(ConnectionBounds(most=2, of_peer=2, anonymous=2, anonymous_of_peer=2))
    gate.enter(1, "a")
    gate.enter(2, "b")
    gate.prove(1)
    assert gate.yields() == 2
    assert gate.enter(3, "c") == ConnectionEntry(True, 2)
    gate.prove(3)
    assert gate.yields() is None
    assert gate.enter(4, "d") == ConnectionEntry(False)
    gate.leave(1)
    gate.leave(1)
    assert gate.enter(5, "d") == ConnectionEntry(True)

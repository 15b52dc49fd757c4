"""Which connections stay at a door: never more than the bounds, and those that are busy always."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.host.gate import ConnectionBounds, ConnectionEntry, Gate, bounds_for

BOUNDS = st.builds(
    ConnectionBounds,
    most=st.integers(1, 12),
    of_peer=st.integers(1, 8),
    anonymous=st.integers(1, 8),
    anonymous_of_peer=st.integers(1, 5),
)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["enter", "enter", "prove", "rest", "leave"]), st.integers(0, 40), st.sampled_from("abc")
    ),
    max_size=80,
)


@given(BOUNDS, EVENTS, st.sampled_from([(), ("a",), ("a", "b")]))
def test_the_bounds_hold_and_what_is_busy_is_turned_out_for_first_peers_alone(bounds, events, first):
    gate, there, states = Gate(bounds, first), {}, {}
    for place, (what, number, peer) in enumerate(events):
        if what == "enter":
            counts = Counter(there.values())
            entry = gate.enter(place, peer)
            if entry.leaves is not None:
                gone = there.pop(entry.leaves)
                assert states.pop(entry.leaves) != "busy" or (peer in first and gone not in first)
                assert gone not in first or peer in first, "peers that come first give way to each other alone"
                assert peer in first or gone == peer or counts[gone] > counts[peer]
            if entry.welcome:
                there[place], states[place] = peer, "anonymous"
            else:
                assert entry.leaves is None
                full = len(there) >= bounds.most or counts[peer] >= bounds.of_peer
                assert full or sum(state == "anonymous" for state in states.values()) >= bounds.anonymous
                own = [states[key] for key, other in there.items() if other == peer]
                assert "busy" in own or not own or peer in first
                if peer in first:
                    assert all(other in first and states[key] == "busy" for key, other in there.items())
        elif there:
            key = sorted(there)[number % len(there)]
            if what == "prove":
                assert gate.prove(key) is None
                states[key] = "busy"
            elif what == "rest":
                gate.rest(key)
                states[key] = "anonymous" if states[key] == "anonymous" else "resting"
            else:
                gate.leave(key)
                del there[key], states[key]
        anonymous = {key: peer for key, peer in there.items() if states[key] == "anonymous"}
        assert len(gate) == len(there) <= bounds.most
        assert gate.anonymous == len(anonymous)
        assert gate.anonymous <= bounds.anonymous or first
        assert all(count <= bounds.of_peer for peer, count in Counter(there.values()).items() if peer not in first)
        assert all(
            count <= bounds.anonymous_of_peer
            for peer, count in Counter(anonymous.values()).items()
            if peer not in first
        )
    assert sum(gate._of_peer.values()) == len(gate)
    assert sum(gate._anonymous_of.values()) == gate.anonymous


def test_one_peer_has_a_quarter_at_most():
    assert [bounds_for(most).of_peer for most in (1, 4, 16, 4096)] == [1, 1, 4, 1024]
    assert bounds_for(4096, 64, 1024) == ConnectionBounds(4096, 64, 1024, 64)
    assert bounds_for(40, 64, 1024) == ConnectionBounds(40, 10, 40, 10)


def test_a_connection_counts_for_the_account_that_it_has_proven():
    gate = Gate(ConnectionBounds(most=20, of_peer=3, anonymous=20, anonymous_of_peer=3))
    for number in range(3):
        gate.enter(number, "this host")
        assert gate.prove(number, "uid 7") is None
        gate.rest(number)
    gate.enter(3, "this host")
    assert gate.prove(3, "uid 7") == 0, "what has rested longest makes room"
    for number in (1, 2):
        gate.prove(number)
    gate.enter(4, "this host")
    assert gate.prove(4, "uid 7") == 4, "all of this account are busy"
    assert gate.prove(4, "uid 7") is None
    assert len(gate) == 3


def test_one_host_does_not_push_out_the_first_steps_of_another():
    gate = Gate(ConnectionBounds(most=10, of_peer=9, anonymous=10, anonymous_of_peer=9))
    assert gate.enter("friend", "b") == ConnectionEntry(True)
    turned_out = [gate.enter(n, "a").leaves for n in range(30)]
    assert turned_out == [*[None] * 9, *range(21)]
    gate.prove("friend")
    assert gate.enter("other friend", "c").leaves == 21
    assert gate.enter("another", "c").leaves == 22


def test_what_the_door_waits_for_makes_room_and_else_nothing_does():
    gate = Gate(ConnectionBounds(most=2, of_peer=2, anonymous=2, anonymous_of_peer=2), {"root"})
    gate.enter(1, "a")
    gate.enter(2, "b")
    gate.prove(1)
    assert gate.yields() == 2
    assert gate.enter(3, "c") == ConnectionEntry(True, 2)
    gate.prove(3)
    assert gate.yields(resting=True) is None
    assert gate.enter(4, "d") == ConnectionEntry(False)
    gate.rest(3)
    assert (gate.yields(), gate.yields(resting=True)) == (None, 3)
    assert gate.enter(4, "d") == ConnectionEntry(True, 3)
    gate.prove(4)
    assert gate.enter(5, "root") == ConnectionEntry(True, 1)
    assert gate.enter(6, "root") == ConnectionEntry(True, 4)
    assert gate.enter(7, "d") == ConnectionEntry(False)
    gate.leave(5)
    gate.leave(5)
    assert gate.enter(7, "d") == ConnectionEntry(True)


def test_a_peer_does_not_push_out_one_that_has_less():
    gate = Gate(ConnectionBounds(most=4, of_peer=3, anonymous=4, anonymous_of_peer=3))
    for number in range(3):
        gate.enter(number, "many")
        gate.prove(number)
        gate.rest(number)
    gate.enter("one", "few")
    assert gate.enter(3, "many") == ConnectionEntry(True, 0)


def test_a_peer_does_not_push_out_the_first_steps_of_one_that_has_as_many():
    gate = Gate(ConnectionBounds(most=2, of_peer=2, anonymous=2, anonymous_of_peer=2))
    gate.enter("its own", "a")
    gate.prove("its own")
    gate.rest("its own")
    gate.enter("friend", "b")
    assert gate.enter("another", "a") == ConnectionEntry(True, "its own")


def test_of_two_peers_in_their_first_steps_the_one_with_more_connections_makes_room():
    gate = Gate(ConnectionBounds(most=3, of_peer=3, anonymous=3, anonymous_of_peer=3))
    gate.enter("friend", "b")
    gate.enter("at rest", "a")
    gate.prove("at rest")
    gate.rest("at rest")
    gate.enter("new", "a")
    assert gate.enter("newcomer", "c") == ConnectionEntry(True, "new")


def test_without_any_room_a_peer_that_comes_first_gives_way_as_well():
    gate = Gate(ConnectionBounds(most=4, of_peer=2, anonymous=4, anonymous_of_peer=2), {"root"})
    gate.enter(1, "root")
    assert (gate.yields(), gate.spares()) == (None, 1)
    gate.enter(2, "a")
    assert gate.spares() == 2
    gate.prove(1)
    gate.prove(2)
    gate.rest(2)
    assert gate.spares() is None, "it has proven whose it is, and the door is not full"

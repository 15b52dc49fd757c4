"""Who stays, who is started, who is which rank: by example and for any sequence of resizes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dmr.worlds import changes


def test_growth_keeps_everybody_and_starts_a_world_for_each_added_node() -> None:
    found = changes(["0"] * 4, ["n1", "n1", "n2", "n2"], ["n1", "n2", "n3", "n4"], 2, merge=True)
    assert found.stay == (0, 1, 2, 3)
    assert found.starts == (("n3",), ("n4",))
    assert found.new == (0, 1, 2, 3, 4, 5, 6, 7)


def test_nodes_that_leave_together_are_one_world() -> None:
    nodes = [f"n{i}" for i in range(1, 9)]
    found = changes(["0", "0"], ["n1", "n2"], nodes, 1, merge=True, factor=2)
    assert found.starts == (("n3", "n4"), ("n5", "n6", "n7", "n8"))
    assert found.new == tuple(range(8))
    assert changes(["0"], ["n1"], nodes[:6], 1, merge=True, factor=4).starts == (tuple(nodes[1:6]),), "6 is no multiple"
    held = changes(["0"], ["n1"], nodes[:4], 1, merge=True, jobs=dict.fromkeys(nodes[1:4], 9))
    assert held.starts == (("n2", "n3", "n4"),), "a companion is given back whole"
    # And they do leave: from eight to four nobody is started, and nobody else goes.
    worlds = ["0", "0", "1", "1", "2", "2", "2", "2"]
    back = changes(worlds, nodes, nodes[:4], 1, merge=True, factor=2)
    assert (back.stay, back.starts, back.new) == ((0, 1, 2, 3), (), (0, 1, 2, 3))


def test_a_world_that_loses_a_node_is_replaced_on_the_others() -> None:
    found = changes(["0", "0", "1", "2"], ["n1", "n2", "n3", "n4"], ["n1", "n4"], 1, merge=True)
    assert found.stay == (3,)
    assert found.starts == (("n1",),)
    assert found.new == (4, 3)


def test_only_whole_added_worlds_leave() -> None:
    found = changes(["0", "0", "1", "2"], ["n1", "n2", "n3", "n4"], ["n1", "n2", "n4"], 1, merge=True)
    assert (found.stay, found.starts, found.new) == ((0, 1, 3), (), (0, 1, 3))


def test_another_number_of_ranks_per_node_replaces_all() -> None:
    found = changes(["0", "0"], ["n1", "n1"], ["n1"], 1, merge=True)
    assert (found.stay, found.starts, found.new) == ((), (("n1",),), (2,))


def test_unknown_nodes_are_nowhere() -> None:
    assert changes(["0", "0"], ["", ""], ["n1", "n2"], 1, merge=True).stay == ()


def test_replacing_takes_one_world_for_each_job_that_holds_nodes() -> None:
    one = changes(["0", "0"], ["n1", "n2"], ["n1", "n2", "n3"], 1, merge=False)
    assert (one.stay, one.starts, one.new) == ((), (("n1", "n2", "n3"),), (2, 3, 4))
    two = changes(["0"], ["n1"], ["n5", "n1", "n6"], 1, merge=False, jobs={"n5": 9, "n6": 9})
    assert (two.starts, two.new) == ((("n1",), ("n5", "n6")), (2, 1, 3))


NODES = [f"n{i}" for i in range(6)]


@settings(max_examples=200)
@given(
    per_node=st.integers(1, 3),
    first=st.integers(1, 4),
    targets=st.lists(st.tuples(st.permutations(NODES), st.integers(1, 6), st.booleans()), max_size=6),
)
def test_any_sequence_of_resizes(per_node: int, first: int, targets: list) -> None:
    places = [node for node in NODES[:first] for _ in range(per_node)]
    worlds, count = ["0"] * len(places), 0
    for order, length, merge in targets:
        nodes = order[:length]
        found = changes(worlds, places, nodes, per_node, merge=merge)
        everyone = list(zip(worlds, places, strict=True))
        for start in found.starts:
            count += 1
            everyone += [(str(count), node) for node in start for _ in range(per_node)]
        assert len(set(found.new)) == len(found.new) == per_node * length
        assert set(found.stay) == {rank for rank in found.new if rank < len(places)}
        # A world stays or leaves as a whole.
        assert {worlds[r] for r in found.stay}.isdisjoint(worlds[r] for r in set(range(len(places))) - set(found.stay))
        if merge:
            assert all(len(start) == 1 for start in found.starts)
            whole = {w for w in worlds if {p for v, p in zip(worlds, places, strict=True) if v == w} <= set(nodes)}
            assert {worlds[r] for r in found.stay} == whole
        else:
            assert found.stay == ()
        worlds, places = ([everyone[r][i] for r in found.new] for i in (0, 1))
        assert places == [node for node in nodes for _ in range(per_node)]

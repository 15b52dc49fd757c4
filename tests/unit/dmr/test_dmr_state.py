from __future__ import annotations

import functools
from enum import IntEnum

import numpy as np
import pytest

from dmr.distributions import Block, Block2D, Cyclic, Distribution, Explicit, Keyed, Replicated
from dmr.redistribute import Moved, Part
from dmr.state import DEALT, STEP, State, differing


def moved(step: int = 5, **values: object) -> Moved:
    kinds = {name: Block() if isinstance(value, np.ndarray) else Replicated() for name, value in values.items()}
    return Moved({STEP: step, **values}, {STEP: Replicated(), **kinds})


def test_a_function_makes_the_first_value_only_where_nothing_is_inherited() -> None:
    calls = []
    first, later = State(), State()
    first.register("x", lambda: calls.append(1) or "made", None)
    assert first["x"] == "made"
    assert later.adopt(moved(x="inherited")) == 5
    later.register("x", lambda: calls.append(2), None)
    assert later["x"] == "inherited" and calls == [1]


def test_what_is_inherited_is_there_before_it_is_registered_and_moves_on_without() -> None:
    state = State()
    state.adopt(moved(x="inherited"))
    assert state["x"] == "inherited"
    assert state.parts(6) == {"x": Part("inherited", Replicated(), None), STEP: Part(6, Replicated(), None)}


def test_a_value_goes_on_as_it_was_registered() -> None:
    """Where it is now is known from the move; an irregular cut is the program's, and is asked anew each time."""
    cut = Explicit([0, 1], cut=lambda n, size: [range(n)] * size)
    state = State()
    state.adopt(moved(x=np.zeros(2)))
    state.register("x", None, cut)
    assert state.held("x") == Block()
    assert state.parts(0)["x"].becomes is cut
    state.adopt(moved(x=np.ones(3)))
    assert state.parts(0)["x"].becomes is cut and state["x"].tolist() == [1.0, 1.0, 1.0]


def test_in_a_process_that_stays_too() -> None:
    state = State()
    state.register("x", np.zeros(2), Cyclic())
    assert state.parts(0)["x"].becomes is None
    state.adopt(moved(x=np.ones(3)))
    assert (state.held("x"), state.parts(0)["x"].becomes) == (Block(), Cyclic())


def dealt(state: State, name: str, value: object, distribution: Distribution | None, held: Distribution) -> None:
    state.dealt(name, Moved({name: value}, {name: held}), distribution)


def test_what_is_said_while_the_program_runs_counts_from_then_on() -> None:
    state, old = State(), np.zeros(4)
    state.register("x", old, Block())
    assert state.anew("x", Cyclic(), 2) == Part(old, Block(), Cyclic())
    dealt(state, "x", np.ones(3), Cyclic(), Cyclic())
    assert state["x"].tolist() == [1, 1, 1] and state.held("x") == Cyclic() and not old.flags.writeable
    assert state.parts(0)[DEALT].value == {"x": Cyclic()}
    # In a new process, whose text still says what was true at first.
    later = State()
    later.adopt(Moved({STEP: 1, DEALT: {"x": Cyclic()}, "x": old}, {"x": Cyclic()}))
    later.register("x", None, Block())
    assert later.parts(1)["x"].becomes == state.parts(1)["x"].becomes == Cyclic()
    assert later.parts(1)[DEALT].value == {"x": Cyclic()} and not later.marks()


def test_a_new_process_gives_the_function_that_did_not_travel() -> None:
    cut = Explicit(cut=lambda n, size: [range(n)] * size)
    later = State()
    later.adopt(Moved({STEP: 1, DEALT: {"x": Explicit()}, "x": np.zeros(1)}, {"x": Explicit([0])}))
    later.register("x", None, cut)
    assert later.parts(1)["x"].becomes is cut


def test_what_is_said_of_one_array_is_not_said_of_the_next() -> None:
    state = State()
    state.register("x", np.zeros(2), Block())
    dealt(state, "x", np.ones(2), Explicit([0, 3]), Explicit([0, 3]))
    assert state.held("x").mine is not None and state.parts(0)["x"].becomes == Explicit()
    assert state.anew("x", None, 2).becomes == Explicit()


def test_records_go_to_their_owners_again_as_it_was_said_at_first() -> None:
    kind = Keyed(lambda keys, size: keys % size)
    state = State()
    state.register("x", np.zeros(2, int), kind)
    assert state.anew("x", None, 2).becomes is kind and not state.parts(0).keys() & {DEALT}
    dealt(state, "x", np.ones(2, int), None, Keyed())
    assert state.held("x") == Keyed() and state.anew("x", None, 2).becomes == kind
    assert state.strayed() == []
    even = Keyed().after((2,), 1, Block(), 1).on(0)
    dealt(state, "x", np.ones(2, int), None, even)
    assert state.strayed() == ["x"]


@pytest.mark.parametrize(
    ("name", "distribution", "message"),
    [
        ("y", Block(), "'y' is not registered; registered: x"),
        (["x"], Block(), r"\['x'\] is not registered"),
        ("x", "rows", "x: 'rows' is not a distribution"),
        ("x", Block2D((2, 2)), "x: the grid 2 x 2 is not one of 6 ranks"),
    ],
)
def test_what_cannot_be_dealt_anew(name: str, distribution: Distribution, message: str) -> None:
    state = State()
    state.register("x", np.zeros(2), Block())
    with pytest.raises(ValueError, match=message):
        state.anew(name, distribution, 6)


def test_the_old_block_of_a_process_that_stays_is_not_written_any_more() -> None:
    state, old = State(), np.zeros(2)
    state.register("x", old, Block())
    state.adopt(moved(x=np.ones(3)))
    with pytest.raises(ValueError, match="read-only"):
        old += 1.0
    state["x"] += 1.0


def test_mistakes_are_told() -> None:
    state = State()
    state.register("x", 1, None)
    for name, text in (("x", "registered already"), ("", "a name is text"), ("dmr.x", "a name is text"), (3, "a name")):
        with pytest.raises(ValueError, match=text):
            state.register(name, 2, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is not a distribution"):
        state.register("y", 2, "block")  # type: ignore[arg-type]
    with pytest.raises(KeyError, match="'y' is not registered; registered: x"):
        state["y"]
    with pytest.raises(KeyError):
        state["y"] = 3


class Text(str):
    def __reduce__(self) -> str:
        raise NotImplementedError("no")


def long(beyond: int, value: float) -> np.ndarray:
    """A long double, and what is in its bytes where it needs fewer than it has."""
    array = np.full(np.longdouble().nbytes, beyond, "u1").view(np.longdouble)
    array[:] = value
    return array


def padded(between: int, value: float) -> np.ndarray:
    """An array with bytes between its fields that belong to none."""
    kind = np.dtype([("a", "u1"), ("b", "f8"), ("pair", [("c", "u1"), ("d", "i4", 2)], 2)], align=True)
    array = np.full(3 * kind.itemsize, between, "u1").view(kind)
    array["a"], array["b"] = 7, value
    array["pair"]["c"], array["pair"]["d"] = 8, 9
    return array


@pytest.mark.parametrize(
    ("here", "there", "same"),
    [
        (1.5, 1.5, True),
        (1.5, 1.5000000000000002, False),
        (0.0, -0.0, False),
        (1, 1.0, False),
        ("a", "b", False),
        (None, None, True),
        (np.float32(1), np.float32(2), False),
        (np.arange(3), np.arange(3), True),
        (np.arange(3), np.arange(3.0), False),
        (np.zeros((2, 3)), np.zeros((3, 2)), False),
        (np.asfortranarray(np.ones((2, 3))), np.ones((2, 3)), True),
        ([1], [2], True),  # cannot be judged by its bytes
        ({"a"}, {"b"}, True),
        (None, {"a": 1}, False),
        ({"a": 1}, None, False),
        (np.arange(3), [0, 1, 2], False),
        (np.arange(3), np.arange(3).astype(object), False),
        (Text("a"), "a", True),  # equal for all we know
        ("a", Text("a"), True),
        (long(0, 1), long(255, 1), True),
        (long(0, 1), long(0, 2), False),
        (long(0, 1), np.nextafter(long(0, 1), long(0, 2)), False),
        (long(0, 1)[0], long(255, 1)[0], True),
        (padded(0, 1), padded(255, 1), True),
        (padded(0, 1), padded(0, 2), False),
        (padded(0, 1)[["a", "b"]], padded(0, 1)[["a", "pair"]], False),
        (padded(0, 1)[0], padded(255, 1)[0], True),
        (padded(0, 1)[0], padded(0, 2)[0], False),
    ],
)
def test_values_that_must_be_the_same_everywhere(here: object, there: object, same: bool) -> None:
    marks = []
    for value in (here, there, here):
        state = State()
        state.register("t", value, None)
        state.register("dealt", value, Replicated())  # said to be as it is: not looked at
        marks.append(state.marks())
    problem = differing(marks)
    assert problem == "" if same else problem.startswith("t differs between ranks 0 and 1; register it with")


def test_what_only_resembles_a_plain_value_is_not_looked_at() -> None:
    """Its pickle may raise anything; whether it can move turns out when it is moved."""

    class Phase(IntEnum):  # cannot be pickled, being local
        FIRST = 1

    state = State()
    state.register("phase", Phase.FIRST, None)
    state.register("text", Text("a"), None)
    assert set(state.marks().values()) == {""}
    state.register("record", np.array([(lambda: None,)], [("f", "O")])[0], None)
    assert state.marks()["record"]


def test_names_that_differ_are_left_to_the_move() -> None:
    """It says which rank does not have them."""
    assert differing([{}, {"late": "x"}]) == differing([{"late": "x"}, {}]) == ""


class Model:
    """What is called for its result, and not to be made: np.poly1d and models of several libraries are such."""

    def __call__(self, x: float = 0.0) -> float:
        raise AssertionError

    def first(self) -> str:
        return "made"


def test_functions_are_called_and_other_callable_objects_are_values() -> None:
    state, values = State(), (Model(), np.poly1d([1, 2]))
    for i, value in enumerate(values):
        state.register(f"value {i}", value, None)
        assert state[f"value {i}"] is value
    made = {
        "method": (Model().first, "made"),
        "partial": (functools.partial(sum, [1, 2]), 3),
        "kept": (functools.cache(lambda: 4), 4),
        "built in": ("text".upper, "TEXT"),
        "class": (dict, {}),
    }
    for name, (function, expected) in made.items():
        state.register(name, function, None)
        assert state[name] == expected

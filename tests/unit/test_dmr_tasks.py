from __future__ import annotations

import pickle

import pytest

from dmr import tasks


def work(*arguments: object) -> object:
    return arguments


def test_the_memory_of_arrays_is_not_copied() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(1000.0)
    task = tasks.packed(work, (array, array[5:7], "text"), 3)
    assert task.onto == 3 and len(task.head) < 1000
    assert [len(buffer) for buffer in task.buffers] == [8000, 16]
    array[0] = 7.0  # seen by what is sent
    function, (first, second, text) = pickle.loads(task.head, buffers=[bytearray(b) for b in task.buffers])
    assert function is work and first[0] == 7.0 and second.tolist() == [5.0, 6.0] and text == "text"


@pytest.mark.parametrize("arguments", [(lambda: None,), (open,)])
def test_what_does_not_pickle_is_named(arguments: tuple) -> None:
    function = arguments[0] if arguments[0] is not open else work
    given = () if function is not work else ((x for x in ()),)
    with pytest.raises(ValueError, match="cannot hand"):
        tasks.packed(function, given, 0)


def test_who_sends_to_whom() -> None:
    assert tasks.assignment([[0, 1], [2]], 3) == [0, 0, 1]
    assert tasks.assignment([[], [1, 0]], 2) == [1, 1]


@pytest.mark.parametrize(
    ("onto", "size", "text"),
    [
        ([[0], [0]], 2, "new rank 0 gets two tasks, from ranks 0 and 1"),
        ([[0], []], 2, "new rank 1 of 2 gets no task"),
        ([[0], [2]], 2, "rank 1 hands a task to rank 2 of 2 new ones"),
        ([[-1]], 1, "rank -1 of 1"),
    ],
)
def test_each_new_rank_has_exactly_one_task(onto: list[list[int]], size: int, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        tasks.assignment(onto, size)

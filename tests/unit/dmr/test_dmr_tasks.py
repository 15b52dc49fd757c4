from __future__ import annotations

import pytest

from dmr import plan, tasks
from dmr.distributions import Block
from dmr.tasks import Task


def work(*arguments: object) -> object:
    return arguments


def test_a_call_that_can_be_named_can_be_handed_on() -> None:
    numpy = pytest.importorskip("numpy")
    assert tasks.objection(Task(0, work, (numpy.arange(10.0), "text"))) == ""


@pytest.mark.parametrize(
    "task", [Task(0, lambda: None, ()), Task(0, work, ((x for x in ()),))], ids=["function", "argument"]
)
def test_what_does_not_pickle_is_named(task: Task) -> None:
    assert tasks.objection(task).startswith(f"cannot hand {task.function.__qualname__!r} on: ")


@pytest.mark.parametrize(
    ("onto", "size", "text"),
    [
        ([[0, 1], [2]], 3, ""),
        ([[], [1, 0]], 2, ""),
        ([[0], [0]], 2, "new rank 0 gets two calls, from ranks 0 and 1"),
        ([[0], []], 2, "new rank 1 of 2 gets no call: use handler.mapping"),
        ([[0], [2]], 2, "rank 1 hands a call to rank 2 of 2 new ones"),
        ([[-1]], 1, "rank 0 hands a call to rank -1 of 1 new ones"),
    ],
)
def test_each_new_rank_has_exactly_one_call(onto: list[list[int]], size: int, text: str) -> None:
    assert tasks.problem(onto, size) == text


def test_each_call_is_at_the_place_of_its_new_rank() -> None:
    part = tasks.as_part([Task(2, work, ("c",)), Task(0, work, ("a",))])
    assert part.value == [(work, ("c",)), (work, ("a",))]
    assert list(plan.indices(part.distribution.mine)) == [2, 0]
    assert part.becomes == Block()

from __future__ import annotations

import pytest

from dmr.pickles import objection


class OneWay:
    """A pickle calls it with one argument, as that of many an exception does (which some libraries mend for all)."""

    def __init__(self, one: int, other: int) -> None:
        self.sum = one + other

    def __reduce__(self) -> tuple[type[OneWay], tuple[int]]:
        return OneWay, (self.sum,)


class Refusing:
    def __reduce__(self) -> str:
        raise NotImplementedError("not me")


def deep() -> list[object]:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": [1, 2]}, ""),
        ([OneWay(1, 2)], "x: pickles, but cannot be made again from its pickle: TypeError: "),
        (lambda: None, "x: does not pickle: "),
        (Refusing(), "x: does not pickle: NotImplementedError: not me"),
        (deep(), "x: does not pickle: RecursionError: "),
    ],
)
def test_what_does_not_survive_is_told(value: object, why: str) -> None:
    assert objection("x", value).startswith(why) and bool(objection("x", value)) == bool(why)

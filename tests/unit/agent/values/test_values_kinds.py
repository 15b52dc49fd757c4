"""Values of a dataclass that are not of the kinds of its fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest

from penstock.values.kinds import of_their_kinds


class Colour(StrEnum):
    """A kind that is not looked into."""

    RED = "red"


@dataclass(frozen=True)
class Inner:
    """A part."""

    name: str
    at: float | None = None


@dataclass(frozen=True)
class Outer:
    """A document."""

    number: int = 1
    parts: tuple[Inner, ...] = ()
    pair: tuple[int, str] = (1, "x")
    counts: Mapping[str, int] = field(default_factory=dict)
    colour: Colour = Colour.RED
    anything: Any = None
    sure: bool = True


def test_what_is_of_its_kind_passes():
    of_their_kinds(Outer())
    of_their_kinds(Outer(parts=(Inner("a"), Inner("b", 1))))  # a whole number is a number of seconds
    of_their_kinds(Outer(parts=[Inner("a", 1.5)], pair=[2, "y"], counts={"a": 1}, anything=[{}]))


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"number": "1"}, "number is str, not int"),
        ({"number": True}, "number is bool, not int"),
        ({"number": 1.5}, "number is float, not int"),
        ({"number": None}, "number is NoneType, not int"),
        ({"parts": (Inner("a", "x"),)}, r"parts\[0\].at is str, not float"),
        ({"parts": (Inner(["a"]),)}, r"parts\[0\].name is list, not str"),
        ({"parts": ({},)}, r"parts\[0\] is no Inner"),
        ({"parts": "ab"}, "parts is str, not several values"),
        ({"parts": 5}, "parts is int, not several values"),
        ({"pair": (1,)}, "pair has 1 values, not 2"),
        ({"pair": (1, 2)}, r"pair\[1\] is int, not str"),
        ({"counts": [1]}, "counts is no map"),
        ({"counts": {"a": "b"}}, r"counts\['a'\] is str, not int"),
        ({"sure": 1}, "sure is int, not bool"),
    ],
)
def test_what_is_not_is_named(wrong, where):
    with pytest.raises(TypeError, match=where):
        of_their_kinds(Outer(**wrong))

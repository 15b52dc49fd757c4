"""Documents as models: every mistake is one line that names the key and what would be right."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import Field

from penstock.errors import UserError
from penstock.values.models import Amount, Duration, Entry, Listed, Name, VariableName, Words, number, read_as, whole


class Part(Entry):
    name: Name
    size: Annotated[int, whole(1, 5)] = 1
    amount: Amount | None = None


class Whole(Entry):
    parts: Annotated[list[Part], Field(max_length=2)] = Field(default_factory=list)
    times: Annotated[list[Duration], Listed] = Field(default_factory=list)
    words: Words = Field(default_factory=list)
    share: Annotated[float, number(above=True)] | None = None
    mode: Literal["fast", "slow"] = "fast"
    variables: dict[VariableName, Annotated[int, whole(0, 1)]] = Field(default_factory=dict)


def test_what_is_right_is_read_and_what_is_empty_is_not_there():
    found = read_as(Whole, {"parts": [{"name": 7, "amount": "2 kB"}], "times": "1h", "mode": None, "share": 2})
    assert found.parts == [Part(name="7", amount=2000.0)] and found.parts[0].size == 1
    assert (found.times, found.mode, found.share) == ([3600.0], "fast", 2.0)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (3, "must be a map with the keys parts, times, words, share, mode, variables, not 3"),
        ({"part": []}, "unknown key 'part': did you mean 'parts'?"),
        ({1: []}, "unknown key 1: known are parts, times"),
        ({"parts": 3}, "parts: must be a list, not 3"),
        ({"parts": [{"name": "a"}] * 3}, "parts: must be at most 2, not 3"),
        ({"parts": [{"name": "a"}, {}]}, "parts[1]: the key 'name' is missing"),
        ({"parts": [{"name": None}]}, "parts[0]: the key 'name' is missing"),
        ({"parts": [{"name": "a", "sise": 1}]}, "parts[0]: unknown key 'sise': did you mean 'size'?"),
        ({"parts": [{"name": "a", "size": True}]}, "parts[0].size: must be a whole number from 1 to 5, not true"),
        ({"parts": [{"name": "a", "amount": "2 x"}]}, "parts[0].amount: unknown unit 'x': must be a number such as"),
        ({"times": "soon"}, "times: must be a duration such as 90 (seconds)"),
        ({"times": {}}, "times: must be a duration such as 90 (seconds)"),
        ({"times": [1, "soon"]}, "times[1]: must be a duration"),
        ({"words": ["a", 1]}, "words: must be a list of words such as [rsync, -a], 1 is no text (quote it)"),
        ({"share": 0}, "share: must be a number above 0, not 0"),
        ({"share": float("inf")}, "share: must be a number above 0, not inf"),
        ({"mode": "idle"}, "mode: must be fast or slow, not 'idle'"),
        ({"variables": {"a-b": 1}}, "variables: must be the name of a variable, not 'a-b'"),
        ({"variables": {"a": 2}}, "variables.a: must be a whole number from 0 to 1, not 2"),
        ({"variables": []}, "variables: must be a map, not a list"),
    ],
)
def test_what_is_wrong_is_named(value, said):
    with pytest.raises(UserError) as caught:
        read_as(Whole, value)
    assert str(caught.value).startswith(said)
    with pytest.raises(UserError) as caught:
        read_as(Whole, value, "file[0]")
    assert str(caught.value).startswith("file[0]")
    assert said in str(caught.value)

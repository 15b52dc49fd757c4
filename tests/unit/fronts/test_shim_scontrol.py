"""One job's record out of a text in which users may have written what they like."""

from __future__ import annotations

import pytest

from penstock_fronts import scontrol
from penstock_fronts.rows import Table
from penstock_fronts.site import Asker, ShimSite
from penstock_fronts.words import Through

SITE = ShimSite("c", (24, 11, 5))


def row(number: int, name: str = "a b") -> dict[str, str]:
    return {"A": str(number), "i": str(number), "j": name, "u": "ann", "U": "7"}


def record(number: int, name: str = "a b", comment: str = "x") -> str:
    return f"JobId={number} JobName={name}\n   UserId=ann(7) GroupId=ann(7)\n   Comment={comment}\n\n"


def said(words: str, text: str, *rows: dict[str, str]) -> str:
    asked = scontrol.read(words.split(), {}, SITE)
    return scontrol.answer(asked, text, Table({}, rows), Asker(7)).out


def test_a_record_and_all_of_them():
    text = record(1) + record(2, "JobId=3 UserId=x") + record(3)
    rows = row(1), row(2, "JobId=3 UserId=x"), row(3)
    assert said("show job 2", text, *rows) == record(2, "JobId=3 UserId=x")
    assert said("show job 3", text, *rows) == record(3)
    assert said("show job", text, *rows) == text


def test_line_feeds_in_the_next_record_are_its_own_affair():
    assert said("show job 1", record(1) + record(2, comment="x\ny"), row(1), row(2)) == record(1)


def test_a_line():
    text = "".join(record(n).replace("\n   ", " ").replace("\n\n", "\n") for n in (1, 2))
    assert said("-o show job=1", text, row(1), row(2)) == text[: len(text) // 2]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (record(1, comment="x\nelse"), [row(1)]),
        (record(1, comment="x\n\n" + record(2)) + record(3), [row(1), row(3)]),
        (record(1, comment="x\n\n" + record(2)) + record(2), [row(1), row(2)]),
        (record(1), []),
        (record(1, "other"), [row(1)]),
        (record(1), [row(1) | {"i": "1_4"}]),
    ],
)
def test_what_squeue_does_not_bear_out_goes_through(text, rows):
    with pytest.raises(Through):
        said("show job 1", text, *rows)


@pytest.mark.parametrize(
    "words",
    ["show node", "show job 1 2", "show job x", "-d show job 1", "update job 1", "show step 1", "", "show job 0"],
)
def test_what_is_not_served(words):
    with pytest.raises(Through):
        scontrol.read(words.split(), {}, SITE)

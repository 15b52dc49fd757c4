"""Moments, as a real sbatch and sacct of 22.05 take them."""

from __future__ import annotations

import contextlib
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.slurm.moments import parse_moment
from penstock.slurm.parse import ParseError

NOW = datetime(2026, 11, 25, 11, 50, 3).timestamp()


def read(text: str, *, past: bool = False) -> str:
    return datetime.fromtimestamp(parse_moment(text, NOW + 0.7, past=past)).isoformat()


@pytest.mark.parametrize(
    ("text", "coming", "gone"),
    [
        ("now", "2026-11-25T11:50:03", None),
        ("now-2days", "2026-11-23T11:50:03", None),
        ("now + 1 Hour", "2026-11-25T12:50:03", None),
        ("now+90", "2026-11-25T11:51:33", None),
        ("today", "2026-11-25T00:00:00", None),
        ("tomorrow", "2026-11-26T00:00:00", None),
        ("today-noon", "2026-11-25T12:00:00", None),
        ("midnight", "2026-11-26T00:00:00", "2026-11-25T00:00:00"),
        ("noon", "2026-11-25T12:00:00", None),
        ("fika", "2026-11-25T15:00:00", None),
        ("teatime", "2026-11-25T16:00:00", None),
        ("11:50", "2026-11-26T11:50:00", "2026-11-25T11:50:00"),
        ("1:05", "2026-11-26T01:05:00", "2026-11-25T01:05:00"),
        ("23:59:58", "2026-11-25T23:59:58", None),
        ("0:30pm", "2026-11-25T12:30:00", None),
        ("12:30am", "2026-11-26T00:30:00", "2026-11-25T00:30:00"),
        ("0131", "2027-01-31T00:00:00", "2026-01-31T00:00:00"),
        ("12/01", "2026-12-01T00:00:00", "2025-12-01T00:00:00"),
        ("11/30", "2026-11-30T00:00:00", None),
        ("02/30", "2027-03-02T00:00:00", "2026-03-02T00:00:00"),
        ("01.31.25-04:05", "2025-01-31T04:05:00", None),
        ("013127", "2027-01-31T00:00:00", None),
        ("2027-02-30", "2027-03-02T00:00:00", None),
        ("2027-02-03T04:05", "2027-02-03T04:05:00", None),
        ("2027-02-03T04:05:06", "2027-02-03T04:05:06", None),
    ],
)
def test_what_is_meant(text, coming, gone):
    assert read(text) == coming
    assert read(text, past=True) == (gone or coming)


@pytest.mark.parametrize(
    "text",
    [
        "bogus",
        "25:00",
        "0pm",
        "13:00pm",
        "now+1h",
        "now+1hourx",
        "01/31/2027",
        "TODAY",
        "2027-1-3",
        "1:5",
        "1",
        "0/3",
        "1232",
    ],
)
def test_what_is_no_moment(text):
    with pytest.raises(ParseError):
        read(text)


def test_seconds_since_1970_and_nothing_at_all():
    assert parse_moment("uts1900000000", NOW, past=True) == 1900000000
    assert parse_moment("", NOW, past=True) == parse_moment("T", NOW, past=True) == 0


@given(st.text(alphabet="0123456789:-/.T+ nowtdayminghfk", max_size=24), st.booleans())
def test_any_text_is_a_moment_or_none(text, past):
    with contextlib.suppress(ParseError):
        assert parse_moment(text, NOW, past=past) >= -(2**36)


@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)), st.booleans())
def test_a_whole_date_is_itself(at, past):
    assert parse_moment(f"{at:%Y-%m-%dT%H:%M:%S}", NOW, past=past) == at.replace(microsecond=0).timestamp()

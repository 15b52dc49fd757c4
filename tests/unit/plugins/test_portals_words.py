"""How portals say waits, and what they understand of what people write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.slurm.minutes import minutes_of
from penstock_portals.query import FIELDS, BadQuery, job_of, pairs_of
from penstock_portals.words import age_text, duration, limit_seconds, limit_text, megabytes, wait_text

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


@pytest.mark.parametrize(
    ("p50", "p95", "text"),
    [
        (None, None, "not known"),
        (1.0, 20.0, "starts at once"),
        (30.0, 50 * MINUTE, "mostly at once (up to 1 h)"),
        (9 * MINUTE, 55 * MINUTE, "about 10 min (up to 1 h)"),
        (9 * MINUTE, 10 * MINUTE, "about 10 min"),
        (100.0, 200.0, "about 2 min"),
        (7 * HOUR, 30 * HOUR, "about 6 h (up to 2 days)"),
        (4 * DAY, 1e12, "about 4 days (up to years)"),
        (float("inf"), float("inf"), "no start in sight"),
    ],
)
def test_a_wait_in_words(p50, p95, text):
    assert wait_text(p50, p95) == text


@given(st.floats(0, 1e10))
def test_up_to_is_never_less_than_it_is(seconds):
    units = {"min": MINUTE, "h": HOUR, "day": DAY, "days": DAY}
    said = duration(seconds, up=True)
    if said != "years":
        number, unit = said.split()
        assert int(number) * units[unit] >= seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30m", 1800), ("4h", 14400), ("1d12h", 129600), ("90", 5400), ("1 h 30 min", 5400), ("0:10:00", 600), ("0", None)]
    + [(text, None) for text in ("", "soon", "h", "4x", "-1", "1:2:3:4", "٣", "9" * 50, "1e3", "4h5")],
)  # fmt: skip
def test_a_time_limit_as_people_write_it(text, seconds):
    assert limit_seconds(text) == seconds


@given(st.text("0123456789:-dhm ", max_size=12))
def test_what_sbatch_takes_is_understood_as_by_sbatch(text):
    minutes = minutes_of(text.strip())
    if minutes is not None and 0 < minutes * 60 <= 5 * 366 * DAY:
        assert limit_seconds(text) == pytest.approx(minutes * 60)


@pytest.mark.parametrize(("text", "mb"), [("512", 512), ("4G", 4096), ("1.5G", None), ("2TB", 2097152), ("0", None)])
def test_memory(text, mb):
    assert megabytes(text) == mb


def test_limits_in_words():
    assert [limit_text(s) for s in (900, 3600, 5400, DAY, 2 * DAY)] == ["15 min", "1 h", "90 min", "24 h", "2 days"]


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({"age": None}, "Nothing is known yet"),
        ({"age": 5, "stale_after": 30}, "From a look at the queue less than a minute ago."),
        ({"age": 300, "stale_after": 600}, "From a look at the queue 5 min ago."),
        ({"age": 3600, "stale_after": 600}, "Not up to date: the queue was last seen 1 h ago."),
        ({"age": 5, "stale_after": 30, "problems": ["slurm: no"]}, "Slurm does not answer."),
    ],
)
def test_from_when_it_is_is_said(told, text):
    assert text in age_text(told)


def test_a_question_is_a_job():
    query = "partition=gpu&nodes=2&time=4h&memory=8G&gres=gpu%3A1&cpus="
    assert job_of(pairs_of(query)) == {
        "partition": "gpu",
        "nodes": 2,
        "time_limit": 14400,
        "memory": 8192,
        "gres": "gpu:1",
    }
    assert job_of(pairs_of("hours=1.5")) == {"time_limit": 5400}
    assert job_of(pairs_of("")) == {}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("node=2", "'node': there is no such field (fields: account, cpus"),
        ("nodes=two", "nodes: must be a whole number of 1 or more, such as 2"),
        ("nodes=0", "nodes: must be"),
        ("nodes=1&nodes=2", "nodes: is given twice"),
        ("time=soon", "time: must be a time limit such as 30m, 4h"),
        ("time=1h&hours=2", "give one of both"),
        ("hours=-1", "hours: must be a number of hours above 0"),
        ("memory=much", "memory: must be memory of each node such as 8G"),
        ("partition=%ff", "cannot be read"),
        ("partition=" + "x" * 3000, "longer than 2000 characters"),
        ("&".join(f"a{n}=1" for n in range(60)), "cannot be read"),
    ],
)
def test_a_bad_question_is_refused_with_what_would_be_right(query, said):
    with pytest.raises(BadQuery) as refused:
        job_of(pairs_of(query))
    assert said in str(refused.value)


@given(st.text(max_size=80) | st.lists(st.tuples(st.sampled_from(FIELDS), st.text(max_size=9))).map(
    lambda pairs: "&".join(f"{name}={value}" for name, value in pairs)))  # fmt: skip
def test_any_question_is_a_job_or_refused(query):
    try:
        job = job_of(pairs_of(query))
    except BadQuery as refused:
        assert str(refused)
        return
    assert job.get("nodes", 1) >= 1 and job.get("time_limit", 1) > 0

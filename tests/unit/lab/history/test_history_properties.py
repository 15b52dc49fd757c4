"""Any jobs come back from a dump as they were, and any bytes are a history, a report that adds up, or one line."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
from dumps import NOON, dump, heading, imported, record
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock_lab.history.machine import busiest
from penstock_lab.history.records import Broken, records_of
from penstock_lab.history.rows import NEVER, Report
from penstock_lab.history.times import Times

# Bytes that are no UTF-8, too, as they are read.
LETTERS = st.characters(codec="utf-8", exclude_characters="@") | st.integers(0xDC80, 0xDCFF).map(chr)
TEXTS = st.text(LETTERS, max_size=12)
PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="@\n\r"), max_size=8)


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, object]:
    submit = NOON + draw(st.integers(0, 10**6))
    waited, ran = draw(st.integers(0, 10**5)), draw(st.integers(0, 10**5))
    started = draw(st.booleans())
    return {
        "JobIDRaw": draw(st.integers(1, 40)), "User": draw(PLAIN), "Account": draw(PLAIN), "QOS": draw(PLAIN),
        "State": draw(st.sampled_from(("COMPLETED", "FAILED", "TIMEOUT") if started else ("CANCELLED by 7",))),
        "Submit": submit, "Eligible": submit, "Start": submit + waited if started else "Unknown",
        "End": submit + waited + (ran if started else 0), "ElapsedRaw": ran if started else 0,
        "NNodes": draw(st.integers(1, 9)), "JobName": draw(TEXTS),
    }  # fmt: skip


def added_up(report: Report) -> bool:
    left = sum(each.count for each in report.left.values())
    return report.read == report.kept + left + sum(report.joined.values())


@settings(max_examples=60, deadline=None)
@given(st.lists(jobs(), min_size=1, max_size=12))
def test_jobs_come_back_as_they_were(told):
    with tempfile.TemporaryDirectory() as folder:
        found, report = imported(Path(folder), dump(*(record(**cells) for cells in told)))
        assert added_up(report)
        runs = {(each["JobIDRaw"], each["Submit"], each["Start"]): each for each in reversed(told)}
        assert found.jobs == len(runs)
        columns = {name: found.column(name).tolist() for name in ("id", "submit", "start", "end", "user", "name")}
        users = found.names("user")
        assert columns["submit"] == sorted(columns["submit"])
        names: dict[int, object] = {}
        for at in range(found.jobs):
            submit, start = columns["submit"][at], columns["start"][at]
            cells = runs[columns["id"][at], submit, "Unknown" if start == NEVER else submit + start]
            assert users[columns["user"][at]] == cells["User"] and submit + columns["end"][at] == cells["End"]
            assert names.setdefault(columns["name"][at], cells["JobName"]) == cells["JobName"]


@st.composite
def resized(draw: st.DrawFn) -> tuple[dict[str, int], list[dict[str, object]]]:
    """A job that is resized and requeued at will: what is to be found of it by its runs, and its rows."""
    number, whole = draw(st.integers(1, 5)) * 2, draw(st.booleans())  # 24.11 has all sizes start with the run
    submit, runs, rows = NOON + draw(st.integers(0, 10**6)), {}, []
    for _ in range(draw(st.integers(1, 3))):
        start = at = submit + draw(st.integers(0, 10**5))
        first, sizes = submit, draw(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9)), min_size=1, max_size=4))
        for place, (lasts, nodes) in enumerate(sizes):
            over = place == len(sizes) - 1
            rows.append(
                {
                    "JobIDRaw": number, "Submit": submit if place == 0 else at, "Eligible": submit,
                    "Start": start if whole or place == 0 else at, "End": at + lasts, "NNodes": nodes,
                    "State": "REQUEUED" if over else "RESIZING",
                }
            )  # fmt: skip
            at += lasts
        runs[number, first] = (start - first, at - first, sizes[0][1])
        submit = at
    rows[-1]["State"] = "COMPLETED"
    return runs, rows


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_rows_of_resized_jobs_are_the_same_jobs_in_any_order(data):
    told = data.draw(st.lists(resized(), min_size=1, max_size=3, unique_by=lambda one: one[1][0]["JobIDRaw"]))
    others = data.draw(st.lists(jobs(), max_size=4, unique_by=lambda cells: cells["JobIDRaw"]))
    others = [cells | {"JobIDRaw": 2 * int(str(cells["JobIDRaw"])) + 1} for cells in others]
    rows = data.draw(st.permutations([*(row for _, rows in told for row in rows), *others]))
    with tempfile.TemporaryDirectory() as folder:
        found, report = imported(Path(folder), dump(*(record(**cells) for cells in rows)))
        columns = [found.column(name).tolist() for name in ("id", "submit", "start", "end", "nodes")]
    assert added_up(report) and not report.left
    runs = {(job, submit): (start, end, nodes) for job, submit, start, end, nodes in zip(*columns, strict=True)}
    assert {key: run for key, run in runs.items() if key[0] % 2 == 0} == {
        k: v for one, _ in told for k, v in one.items()
    }
    assert found.jobs == len(runs)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(list("07|@+.\nTZ-: ")), max_size=90).map("".join)))
@example("|" * 18 + "\n")
@example("7|" * 40)
def test_any_bytes_under_a_heading_are_a_report_that_adds_up_or_one_line(rest):
    text = rest if isinstance(rest, bytes) else rest.encode()
    with tempfile.TemporaryDirectory() as folder:
        try:
            _, report = imported(Path(folder), heading("|").encode() + text, skip_bad=True)
        except UserError as error:
            assert str(error).isprintable()
            assert [path.name for path in Path(folder).iterdir()] == ["jobs.txt"]
        else:
            assert added_up(report)


@given(st.lists(st.binary(max_size=30)), st.binary(max_size=40))
def test_every_line_under_a_heading_is_told_once(lines, first):
    """No line is lost between a record that was put together and the one behind it."""
    source = [first, b"JobIDRaw|State|JobName\n", *(line.replace(b"\n", b" ") + b"\n" for line in lines)]
    found = list(records_of(enumerate(source, 1)))
    places = [each.line for each in found]
    assert places == sorted(set(places))
    full = [n for n, line in enumerate(source, 1) if n > 2 and line.count(b"|") > 2]
    broken = {each.line for each in found if isinstance(each, Broken)}
    assert set(full) <= broken or not found or isinstance(found[0], Broken)


BERLIN = ZoneInfo("Europe/Berlin")
BACK = int(datetime(2025, 10, 26, 1, tzinfo=UTC).timestamp())  # 3:00 becomes 2:00


@given(st.lists(st.integers(-9000, 9000), min_size=4, max_size=4))
def test_local_times_around_the_end_of_summer_time_make_sense(delays):
    """Where both hours make sense the first is taken; never one that contradicts the order or how long the job ran."""
    truth = sorted(BACK + delay for delay in delays)
    texts = [datetime.fromtimestamp(at, BERLIN).strftime("%Y-%m-%dT%H:%M:%S") for at in truth]
    times = Times(BERLIN)
    found = [times.read(text) for text in texts]
    if times.doubtful:
        found = times.settle(texts, truth[3] - truth[2])
    known = [at for at in found if at is not None]
    assert known == sorted(known) and len(known) == 4
    assert known[3] - known[2] == truth[3] - truth[2]
    assert all(at in (true, true - 3600, true + 3600) for at, true in zip(known, truth, strict=True))
    sure = [i for i, at in enumerate(truth) if not -3600 <= at - BACK < 3600]
    assert all(known[i] == truth[i] for i in sure)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50), st.integers(1, 9)), max_size=20))
def test_the_busiest_moment_is_what_a_look_at_each_second_finds(runs):
    begun, ran, held = (np.array([run[i] for run in runs], np.int64) for i in range(3))
    most = max((sum(h for b, r, h in runs if b <= now < b + r) for now in range(101)), default=0)
    assert busiest(begun, begun + ran, held) == most

"""The plain predictors are told only what was known, and say what a loop over the log says."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api import JobState
from penstock.values.waits import Observation
from penstock.waits.learners.history import Median
from penstock.waits.learners.run_times import RunTimes
from penstock_lab.backtest import plain
from penstock_lab.backtest.past import Past, dense, median_and_bound
from penstock_lab.backtest.plain import Jobs, judged, runs_of, waits_of
from penstock_lab.backtest.score import Score, verdict
from penstock_lab.history.history import History
from penstock_lab.history.pseudonyms import Names
from penstock_lab.history.rows import NEVER, Report, Row
from penstock_lab.history.store import Spill


def history(folder: Path, rows: list[Row]) -> History:
    report = Report(str)
    with Spill(folder, Names(None, b"k"), report) as spill:
        for place, row in enumerate(rows):
            spill.add(row, place)
        spill.finish(folder / "h", {"source": ["swf"], "cluster": "", "anonymous": False}, None)
    return History(folder / "h")


@st.composite
def logs(draw: st.DrawFn) -> list[Row]:
    rows = []
    for number in range(draw(st.integers(1, 25))):
        submit = draw(st.integers(0, 60))
        start = submit + draw(st.integers(0, 30))
        end = start + draw(st.integers(0, 40))
        user, name = draw(st.sampled_from("ab")), draw(st.sampled_from("xy"))
        limit, cpus = draw(st.integers(1, 50)), draw(st.integers(1, 3))
        state = JobState.COMPLETED
        rows.append(Row(number, submit, submit, start, end, limit, 1, cpus, 0, user, "", "p", "q", name, state, 0))
    return sorted(rows, key=lambda row: row.submit)


def predicted(jobs: Jobs, predict) -> list[float]:
    return predict(slice(0, len(jobs)))[0].tolist()


def jobs_of(rows: list[Row]) -> Jobs:
    columns = (
        [r.submit for r in rows],
        [r.end for r in rows],
        [r.end - r.start for r in rows],
        [r.limit for r in rows],
    )
    kinds = (np.int64, np.int64, np.int32, np.int32)
    return Jobs(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))


@settings(max_examples=80, deadline=None)
@given(logs())
def test_run_times_are_what_a_loop_says_that_knows_no_end_before_it_came(rows):
    jobs = jobs_of(rows)
    users = np.array([ord(row.user) - 97 for row in rows], np.int32)
    two = predicted(jobs, plain._last_runs(jobs, users, 2))
    one = predicted(jobs, plain._last_runs(jobs, users, 1))
    mean = predicted(jobs, plain._mean_run(jobs))
    kinds = dense(users, np.array([row.name == "x" for row in rows], np.int32))
    similar, bound = plain._similar(jobs, kinds, users)(slice(0, len(rows)))
    for at, row in enumerate(rows):
        runs = RunTimes()
        over = sorted((r for r in rows if r.end < row.submit), key=lambda r: r.end)
        for other in over:
            runs.add(other.user, other.end - other.start)
        assert two[at] == runs.expect(row.user, row.limit)
        own = [r.end - r.start for r in over if r.user == row.user]
        assert one[at] == (max(min(own[-1], row.limit), 1) if own else row.limit)
        assert mean[at] == pytest.approx(np.mean([r.end - r.start for r in over]) if over else row.limit)
        like = [r.end - r.start for r in over if (r.user, r.name) == (row.user, row.name)]
        if like:
            assert similar[at] == max(min(math.floor(median(like)), row.limit), 1)
        assert bound[at] == row.limit if len(like) < 19 else bound[at] <= row.limit


@settings(max_examples=60, deadline=None)
@given(logs())
def test_waits_are_what_the_learner_says(rows):
    jobs = jobs_of(rows)
    jobs = Jobs(jobs.asked, np.array([r.start for r in rows]), np.array([r.start - r.submit for r in rows]), jobs.limit)
    group = np.array([row.cpus for row in rows], np.int32)
    said = predicted(jobs, plain._windows(jobs, group, 11))
    for at, row in enumerate(rows):
        learner = Median()
        begun = sorted((r for r in rows if r.start < row.submit), key=lambda r: r.start)
        own = [r.start - r.submit for r in begun if r.cpus == row.cpus]
        for wait in own[-11:]:
            learner.update(Observation(float(wait)), None, np.random.default_rng(0))
        if len(own) % 2 or not own:  # of an even number the learner has the mean of the middle two by their logarithms
            assert said[at] == (learner.seconds if own else begun[-1].start - begun[-1].submit if begun else 500.0)
        else:
            assert said[at] == (median(own) if len(own) < 11 else learner.seconds)


@given(st.lists(st.lists(st.integers(0, 99), max_size=30), min_size=1, max_size=5), st.floats(0.5, 0.99))
def test_medians_and_bounds_of_rows(rows, share):
    table = np.array([row + [math.nan] * (30 - len(row)) for row in rows], float)
    medians, bounds = median_and_bound(table, share)
    for row, middle, bound in zip(rows, medians, bounds, strict=True):
        place = math.ceil(share * (len(row) + 1) - 1e-9)
        assert (middle == median(row)) if row else math.isnan(middle)
        assert bound == sorted(row)[place - 1] if row and place <= len(row) else math.isnan(bound)


def test_a_bound_of_values_that_are_alike_covers_what_it_is_meant_to():
    rng = np.random.default_rng(1)
    came = rng.exponential(100, 20_000)
    known = np.arange(20_000) * 2
    past = Past(np.zeros(20_000, np.int32), known + 1, came)
    rows = past.newest(*past.before(np.zeros(20_000, np.int32), known), 60)
    _, bound = median_and_bound(rows, 0.95)
    assert (came[100:] <= bound[100:]).mean() == pytest.approx(0.95, abs=0.01)


def test_groups_are_numbers_for_what_is_equal_in_all_columns():
    assert dense(np.array([3, 3, 1, 3]), np.array([0, 7, 7, 0])).tolist() == [1, 2, 0, 1]
    with pytest.raises(ValueError, match="too many groups"):
        dense(*[np.array([2**31 - 1])] * 3)


def score_of(stretches, predicted, came, bound=None) -> Score:
    score = Score(max(stretches) + 1)
    columns = [None if column is None else np.array(column, float) for column in (predicted, came, bound)]
    score.add(np.array(stretches), *columns)
    return score


def test_the_figures_of_a_score():
    score = score_of([0, 0, 1, 1], [10, 20, 600, 60], [0, 20, 60, 600], [5, math.nan, 60, 60])
    assert score.mean().value == (10 + 0 + 540 + 540) / 4
    assert score.log10().value == pytest.approx(0.5)
    assert score.coverage().value == pytest.approx(2 / 3) and score.bounded.sum() == 3
    assert score.median().value == pytest.approx(10, rel=0.03)
    assert score_of([0], [1], [2]).coverage() is None
    half = score_of([0, 1], [5, 270], [0, 0])
    whole = score_of([0, 1], [10, 540], [0, 0])
    assert half.over(whole) == (0.5, 0.5, 0.5)


def test_an_error_beyond_all_bins_and_none_at_all_have_medians():
    assert score_of([0], [1e12], [0]).median().value > 9e9
    assert score_of([0], [7], [7]).median().value == 0.0


def test_rows_of_a_history(tmp_path):
    rows = []
    for i in range(400):
        limit = 3600 if i % 2 else 7200
        start = 1000 * i + i % 7
        rows.append(
            Row(
                i, 1000 * i, 1000 * i, start, start + 300, limit, 1, 1, 0, "a", "", "p", "q", "n", JobState.COMPLETED, 0
            )
        )
    rows.append(Row(400, 9, 9, NEVER, 50, 60, 1, 1, 0, "a", "", "p", "q", "n", JobState.CANCELLED, 0))
    rows.append(Row(401, 9, 9, 10, 5000, 60, 1, 1, 0, "a", "", "other", "q", "n", JobState.REQUEUED, 8))
    found = history(tmp_path, rows)
    runs = {row.predictor: row for row in runs_of(found)}
    assert list(runs) == ["limit", "mean", "last", "last-two", "similar"]
    assert all(row.jobs == 400 and row.plain == "limit" for row in runs.values())
    assert runs["last-two"].mean.value < 20 < runs["limit"].mean.value
    assert runs["similar"].coverage.value == 1.0
    assert verdict(list(runs.values())).startswith("run times: by mean error nearest was ")
    waits = {row.predictor: row for row in waits_of(found, 0)}
    assert list(waits) == ["last", "mean", "median", "recent"]
    assert waits["last"].jobs == 400 and waits["recent"].median.value <= 3.1
    assert list(runs_of(found, 1)) == []
    assert [row.jobs for row in waits_of(found, 1)] == [1] * 4


def test_a_log_without_limits_has_no_such_predictor():
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            Row(i, 10 * i, 10 * i, 10 * i, 10 * i + 5, 0, 1, 1, 0, "a", "", "p", "q", "n", JobState.COMPLETED, 0)
            for i in range(60)
        ]
        found = list(runs_of(history(Path(folder), rows)))
    assert [row.predictor for row in found] == ["mean", "last", "last-two", "similar"]
    assert found[1].plain == "mean" and found[1].median.value == 0.0


def test_chunks_make_no_difference(monkeypatch):
    rng = np.random.default_rng(3)
    submit = np.sort(rng.integers(0, 10_000, 500))
    jobs = Jobs(submit, submit + 50, rng.integers(1, 99, 500).astype(np.int32), np.full(500, 90, np.int32))
    user = rng.integers(0, 9, 500)
    whole = judged(jobs, plain._last_runs(jobs, user, 2)).mean()
    monkeypatch.setattr(plain, "_CHUNK", 7)
    assert judged(jobs, plain._last_runs(jobs, user, 2)).mean() == pytest.approx(whole)

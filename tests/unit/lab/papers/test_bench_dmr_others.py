"""penstock bench dmr --part others and others-logs: what of them needs no Slurm."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from penstock.errors import UserError
from penstock_lab.cli.bench import dmr
from penstock_lab.papers.dmr import chapters, others, others_logs
from penstock_lab.papers.dmr.others import Arm, Pair


def arm(starts, first, *sizes):
    resizes = [{"kind": "expand", "outcome": "completed", "old_size": a, "new_size": b} for a, b in sizes]
    return Arm(dict(enumerate(starts)), dict(enumerate(first)), dict(enumerate(first)), resizes)


def test_a_promise_has_slipped_by_what_it_slipped_more_than_without_resizes():
    pair = Pair(1, arm([0.0, 65.0, 150.0], [0.0, 60.0, 120.0], (1, 2), (2, 4)), arm([0.0, 62.0, 125.0], [0.0, 60.0]))
    assert pair.moved() == [0.0, 3.0]  # the third was promised nothing in one of the two
    assert pair.delays() == [0.0, 3.0, 25.0]
    assert (pair.malleable.grown, pair.kept.grown) == (3, 0)
    assert pair.kept.late(2) == 0.0


def test_both_runs_of_a_pair_have_the_same_submissions():
    assert others.submissions(3) == others.submissions(3) != others.submissions(4)
    assert set(others.submissions(3)) == {1, 2} and len(others.submissions(3)) == others.JOBS


def test_the_chapter_judges_the_worst_promise_by_slurms_period(monkeypatch):
    good = Pair(1, arm([0.0, 65.0], [0.0, 60.0], (1, 2)), arm([0.0, 62.0], [0.0, 60.0]))
    bad = Pair(2, arm([0.0, 96.0], [0.0, 60.0]), arm([0.0, 60.0], [0.0, 60.0]))
    for pairs, reached in (([good], True), ([good, bad], False)):
        monkeypatch.setattr(others, "measure", lambda tell, pairs=pairs: pairs)
        chapter = chapters.others_on_slurm(None, lambda text: None)
        assert [goal.reached for goal in chapter.goals] == [reached, reached]
        assert [row["pair"] for row in chapter.rows] == [p.seed for p in pairs]
    assert chapter.goals[0].value == chapter.goals[1].value == 36.0


def log(folder):
    """200 jobs of eight processors and half an hour, one every two minutes, on a machine of 64."""
    lines = ["; MaxProcs: 64", "; MaxNodes: 64"]
    lines += [f"{n} {120 * n} 0 1800 8 -1 -1 8 3600 -1 1 1 1 1 1 1 -1 -1" for n in range(1, 201)]
    path = folder / "TEST-1.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.usefixtures("quick_and_quiet")
def test_a_window_of_a_log_is_run_twice_and_nobody_is_late_where_limits_are_run_times(tmp_path):
    found = [others_logs.one(log(tmp_path), limits, 1, 2) for limits in others_logs.LIMITS]
    exact = next(w for w in found if w.limits == "actual")
    assert exact.log == "TEST" and len(exact.delays) > 50
    assert max(exact.delays) <= others_logs.SLACK


def test_windows_are_judged_together_with_intervals():
    windows = [others_logs.Window("L", "user", n, [0.0, 100.0 * n], 4, 60.0) for n in range(10)]
    row = others_logs.judged(windows)
    assert (row.windows, row.jobs, row.grown, row.gain, row.moved) == (10, 20, 40, 60.0, 0.45)
    for value, low, high in (row.mean, row.p95):
        assert low < value < high
    assert row.mean[0] == 225.0 and row.row()["p95_s"] == row.p95[0]


def test_the_part_with_logs_says_what_it_lacks(monkeypatch):
    monkeypatch.delenv("PENSTOCK_TRACES", raising=False)
    result = CliRunner().invoke(dmr, ["--part", "others-logs"])
    assert isinstance(result.exception, UserError) and "PENSTOCK_TRACES" in str(result.exception)

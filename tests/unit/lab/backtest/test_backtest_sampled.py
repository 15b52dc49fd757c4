"""The agent's learners on stretches of a log, and the command."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest
from click.testing import CliRunner

import penstock_lab.cli.backtest
from penstock.cli import cli
from penstock.errors import UserError
from penstock_lab.backtest.sampled import Sample, _scattered, sampled_waits, stretches_of
from penstock_lab.history.history import History
from penstock_lab.whatif.windows import Length


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A made-up log that waited on a machine that is nearly full."""
    folder = tmp_path_factory.mktemp("made")
    log, waited, site = (folder / name for name in ("made.swf", "waited.swf", "site.history"))
    for words in (
        (
            "simulate",
            "model",
            "lublin",
            "--jobs",
            "400",
            "--procs",
            "64",
            "--load",
            "0.9",
            "--estimates",
            "f:3",
            "--out",
            log,
        ),
        ("simulate", "swf", log, "--procs", "64", "--out", waited),
        ("history", "import", waited, "--to", site),
    ):
        done = CliRunner().invoke(cli, [str(word) for word in words])
        assert done.exit_code == 0, done.output
    return site


def test_stretches_lie_evenly_and_apart():
    sample = Sample(3, learned=20, judged=10)
    assert stretches_of(29, sample) == []
    assert stretches_of(30, sample) == [(0, 20, 30)]
    for jobs in (90, 91, 100, 1000):
        found = stretches_of(jobs, sample)
        assert len(found) == 3 and found[0][0] >= 0 and found[-1][2] <= jobs
        assert all(one[2] <= other[0] for one, other in pairwise(found))
        assert all((judged - begin, end - judged) == (20, 10) for begin, judged, end in found)


def test_the_learners_are_judged_on_their_stretches_alone(made):
    heard = []
    rows = list(sampled_waits(History(made), Sample(3, 60, 40), tell=lambda done, of: heard.append((done, of))))
    assert heard == [(1, 3), (2, 3), (3, 3)]
    names = [row.predictor for row in rows]
    assert names == ["last", "median", "qbets", "share", "plan", "likely", "queue", "share-mix"]
    assert all(row.sampled and row.jobs == 120 and row.plain == "last" for row in rows)
    assert rows[0].ratio == (1.0, 1.0, 1.0)
    assert all(row.jobs_per_second > 0 for row in rows)
    assert list(sampled_waits(History(made), Sample(1, 400, 40))) == []


def test_no_stretch_is_begun_when_it_takes_too_long_but_two_are_walked(made):
    heard = []
    rows = list(sampled_waits(History(made), Sample(5, 40, 20, seconds=0.0), tell=lambda done, of: heard.append(done)))
    assert heard == [1, 2] and {row.jobs for row in rows} == {40}
    assert _scattered([(i, i, i) for i in range(4)]) == [(0, 0, 0), (2, 2, 2), (1, 1, 1), (3, 3, 3)]


def test_the_command_prints_tables_and_verdicts(made):
    done = CliRunner().invoke(cli, ["backtest", str(made), "--stretches", "2"])
    assert done.exit_code == 0, done.output
    assert "run times, on every job: 400 jobs" in done.output
    assert "no stretch of 2000 jobs" in done.output
    assert re.search(r"^waits: by mean error .*; by \|log10\| ", done.output, re.M)
    done = CliRunner().invoke(cli, ["backtest", str(made), "--json"])
    told = json.loads(done.stdout)
    assert {row["what"] for row in told["rows"]} == {"run time", "wait"} and len(told["verdicts"]) == 2


CHAIN = """
name: two
stages:
  - {name: first, nodes: 8, time: 2h, expect: 1h, run: ./first}
  - {name: second, nodes: 4, time: 1h, expect: 30m, run: ./second, after: first}
"""


def test_strategies_are_compared_on_the_same_queue(made, tmp_path, monkeypatch):
    monkeypatch.setattr(penstock_lab.cli.backtest, "LENGTH", Length(40, 1, 80))
    (tmp_path / "two.yaml").write_text(CHAIN)
    words = ["backtest", str(made), "--stretches=0", "--strategies=2", "--json", f"--workflow={tmp_path / 'two.yaml'}"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, (done.output, done.exception)
    rows = {row["strategy"]: row for row in json.loads(done.stdout)["strategies"]}
    assert list(rows) == ["plain chain", "auto", "perstage", "asa", "bigjob"]
    assert rows["plain chain"]["makespan_over_plain"] == 1.0 and rows["plain chain"]["worse"] == 0
    assert all(row["windows"] == 2 and row["mean_makespan"] >= 5400 for row in rows.values())
    # One job of the most nodes for the sum of the times.
    assert rows["bigjob"]["node_seconds_over_plain"] == pytest.approx(8 * 5400 / (8 * 3600 + 4 * 1800), rel=0.02)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CHAIN.replace(", after: first", ", after: []"), "stage second does not come after the one before it alone"),
        (CHAIN.replace("nodes: 8", "nodes: 65"), "stage first has 65 nodes, the machine 64"),
    ],
)
def test_a_workflow_that_cannot_be_submitted_is_refused(made, tmp_path, text, said):
    (tmp_path / "two.yaml").write_text(text)
    words = ["backtest", str(made), "--stretches=0", "--strategies=2", f"--workflow={tmp_path / 'two.yaml'}"]
    done = CliRunner().invoke(cli, words)
    assert isinstance(done.exception, UserError) and said in str(done.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workflow", "two.yaml"], "--workflow is for --strategies N"),
        (["--partition", "gpu"], "--partition must be one of "),
        (["--stretches", "many"], "--stretches must be a whole number from 0 to 1000"),
    ],
)
def test_a_wrong_option_is_said_in_a_line(made, words, said):
    done = CliRunner().invoke(cli, ["backtest", str(made), *words])
    assert isinstance(done.exception, UserError) or done.exit_code == 2
    assert said in (done.output + str(done.exception))

"""What a change would have done: windows, the two simulations, and what is said of them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from penstock.cli import cli
from penstock.errors import PenstockError, UserError
from penstock_lab.cli.whatif import _pairs, _verdict
from penstock_lab.history.history import History
from penstock_lab.mock.model import Scheduler
from penstock_lab.whatif.effects import effect_of, error_of
from penstock_lab.whatif.malleable import driven
from penstock_lab.whatif.simulate import Judged, Setup, judged, starts
from penstock_lab.whatif.windows import Arrival, Length, Site, Window, site_of, windows_of

PROCS = 64
LENGTH = Length(60, 60, 60)


def call(*words):
    return CliRunner().invoke(cli, [str(word) for word in words])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A history of a made-up log that waited on the very machine that replays it."""
    folder = tmp_path_factory.mktemp("site")
    log, waited, found = (folder / name for name in ("made.swf", "waited.swf", "site.history"))
    for words in (
        (
            "simulate",
            "model",
            "lublin",
            "--jobs=700",
            f"--procs={PROCS}",
            "--load=0.85",
            "--estimates=f:3",
            "--out",
            log,
        ),
        ("simulate", "cluster", log, f"--nodes={PROCS}", "--policy=easy", "--out", waited),
        ("history", "import", waited, "--to", found),
    ):
        done = call(*words)
        assert done.exit_code == 0, done.output
    return found


def test_a_site_that_is_simulated_as_it_was_is_reproduced(site):
    history = History(site)
    machine = site_of(history)
    assert machine == Site(PROCS, 1, True)
    now = Setup(machine.units, Scheduler.EASY)
    found = []
    for window in windows_of(history, 3, LENGTH, machine, PROCS):
        ran = starts(window, now)
        found.append(judged(window, ran, ran))
    error = error_of(found)
    assert error.jobs == 180 and error.recorded.value > 600
    assert error.median.value == 0.0 and error.mean.value < 0.02 * error.recorded.value
    assert effect_of(found).wait == (1.0, 1.0, 1.0)
    other = []
    for window in windows_of(history, 3, LENGTH, machine, PROCS):
        ran = starts(window, Setup(PROCS, Scheduler.FCFS))
        other.append(judged(window, ran, ran))
    assert error_of(other).mean.value > 10 * error.mean.value


def test_a_window_begins_with_what_it_found(site):
    history = History(site)
    for window in windows_of(history, 3, LENGTH, site_of(history), PROCS):
        kinds = [arrival.judged for arrival in window.arrivals]
        assert sum(kinds) == LENGTH.judged
        running = [arrival for arrival in window.arrivals if arrival.start is None]
        assert sum(arrival.units for arrival in running) <= PROCS
        assert all(arrival.submit == 0.0 and arrival.limit >= arrival.run >= 1 for arrival in running)
        submits = [arrival.submit for arrival in window.arrivals]
        assert submits == sorted(submits)
        begun = [start for start, _ in starts(window, Setup(PROCS))]
        assert all(start == 0.0 for start, arrival in zip(begun, window.arrivals, strict=True) if arrival.start is None)


def arrival(number, submit, eligible, run, units, limit=None):
    return Arrival(number, submit, eligible, 0.0, run, limit or run, units, True)


def test_jobs_age_while_they_may_not_start_yet_under_accrue_always_alone():
    """The first job has all; the second is submitted early and eligible late, the third the other way round."""
    jobs = (arrival(0, 0, 0, 5000, 2), arrival(1, 100, 2000, 900, 2), arrival(2, 1000, 1000, 900, 2))
    window = Window(0, jobs)
    usual = [start for start, _ in starts(window, Setup(2))]
    ageing = [start for start, _ in starts(window, Setup(2, accrue_always=True))]
    assert usual == [0, 5900, 5000] and ageing == [0, 5000, 5900]


def test_a_pass_that_looks_at_one_job_backfills_nothing():
    jobs = (arrival(0, 0, 0, 1000, 1), arrival(1, 10, 10, 500, 2), arrival(2, 20, 20, 300, 1))
    window = Window(0, jobs)
    assert [start for start, _ in starts(window, Setup(2, depth=9))] == [0, 1000, 20]
    assert [start for start, _ in starts(window, Setup(2, depth=1))][2] >= 1000


def told(now, then, recorded=None, number=0):
    return Judged(number, recorded or now, now, then, [100.0] * len(now), [50.0] * len(now), 1000.0, 900.0)


def test_the_figures_of_an_effect():
    effect = effect_of([told([100, 300], [100, 100]), told([200, 0], [100, 100])])
    assert (effect.now.value, effect.then.value, effect.longer.value) == (150, 100, -50)
    assert effect.wait.value == 400 / 600 and effect.makespan.value == 0.9
    assert effect.response.value == (400 + 200) / (600 + 400)
    assert (effect.later.value, effect.earlier.value) == (0.25, 0.5)
    error = error_of([told([10, 50], [0, 0], recorded=[40, 40])])
    assert (error.bias.value, error.mean.value, error.median.value) == (-10, 20, 20)


def test_an_effect_below_the_error_of_the_replay_is_said_to_be():
    windows = [told([500, 600], [400, 480], recorded=[0, 0], number=n) for n in range(3)]
    assert "is greater than this effect (110s)" in _verdict(effect_of(windows), error_of(windows))
    exact = [told([500, 600], [400, 480], number=n) for n in range(3)]
    assert _verdict(effect_of(exact), error_of(exact)).startswith("The effect is greater than the replay's own error")
    same = [told([500, 600], [500, 600], number=n) for n in range(3)]
    assert _verdict(effect_of(same), error_of(same)) == "The mean wait changes no more than by chance."


def test_malleable_jobs_run_under_the_agent():
    """A job alone on eight nodes grows; kept, it runs as long as it is said to."""
    jobs = (arrival(0, 0, 0, 7200, 2, 14400), arrival(1, 30, 30, 120, 1, 600))
    window = Window(0, jobs)
    kept, grown = driven(window, Setup(8), 0.0), driven(window, Setup(8), 1.0)
    assert kept is not None and grown is not None
    assert kept[0][1] - kept[0][0] == pytest.approx(7200)
    assert grown[0][1] - grown[0][0] < 6000
    assert grown[1][0] < 200


def test_a_window_in_which_a_job_is_cut_off_is_left_out():
    short = arrival(0, 0, 0, 7200, 2, 600)
    assert driven(Window(0, (short,)), Setup(8), 0.0) is None
    window = Window(0, (arrival(1, 0, 0, 60, 1, 600),))
    ran = driven(window, Setup(8), 0.0)
    assert len(_pairs([window, window], [ran, ran], [ran, None])) == 1
    with pytest.raises(PenstockError, match="in no window"):
        _pairs([window], [ran], [None])


@pytest.mark.parametrize(("words", "better"), [(["--nodes", "96"], True), (["--nodes", "60"], False)])
def test_more_nodes_and_fewer(site, words, better):
    done = call("whatif", site, "--windows=3", "--judged=60", "--processes=1", "--json", *words)
    assert done.exit_code == 0, done.output
    effect = json.loads(done.stdout)["effect"]
    assert (effect["wait"]["value"] < 1.0) == better


def test_what_the_command_prints(site):
    done = call("whatif", site, "--windows=2", "--judged=30", "--processes=1", "--backfill-depth=1", "--accrue-always")
    lines = done.output.splitlines()
    assert lines[0].startswith("as it is   easy, depth 500, 64 nodes; 60 jobs in 2 windows")
    assert lines[1].startswith("replay     mean wait ")
    assert (
        next(line for line in lines if line.startswith("change")) == "change     a backfill depth of 1, ACCRUE_ALWAYS"
    )
    alone = call("whatif", site, "--windows=2", "--judged=30", "--processes=1")
    assert alone.output.splitlines() == lines[:3]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--malleable", "2"], "--malleable must be a number above 0, at most 1"),
        (["--nodes", "none"], "--nodes must be a whole number"),
        (["--policy", "lifo"], "--policy must be one of fcfs, easy, conservative, replan"),
        (["--judged", "5000"], "a window needs 12500: judge fewer (--judged)"),
        (["--accrue-always", "--accrues-now"], "is no change with --accrues-now"),
        (["--partition", "gpu"], "--partition must be one of"),
    ],
)
def test_a_wrong_option_is_said_in_a_line(site, words, said):
    done = call("whatif", site, *words)
    assert isinstance(done.exception, UserError)
    assert said in str(done.exception)

"""Evidence in pairs: forks of one simulated queue, the plain chain, and what is said of many windows."""

from __future__ import annotations

import itertools
import os
import signal
from array import array
from dataclasses import replace

import numpy as np
import pytest

from penstock.api import JobSpec
from penstock.errors import UserError
from penstock.workflow.model import Stage, Workflow
from penstock_lab.intervals import mean_of, ratio_of_means, resampled
from penstock_lab.mock.controller import Controller
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.model import ClusterConfig
from penstock_lab.mock.speedup import Work
from penstock_lab.paired import chapter, windows
from penstock_lab.paired.forks import in_forks
from penstock_lab.paired.table import BEST, NOBODY, regret, rows
from penstock_lab.paired.ways import Outcome, contiguous_cuts, plain, seconds_of, seeded, under_agent
from penstock_lab.paired.windows import ALONE, MERGED, PLAIN, SEEDED, Case, Window
from penstock_lab.papers.report import Chapter, Goal
from penstock_lab.papers.site import log_background
from penstock_lab.sim.trace import Trace


def chain(*nodes, seconds=100.0):
    made = []
    for number, each in enumerate(nodes, 1):
        after = (made[-1].name,) if made else ()
        made.append(Stage(f"s{number}", each, 200.0, 100.0, f"bench-stage {seconds}", after))
    return Workflow("chain", tuple(made))


def busy(others=(), *, nodes=4, **more):
    """A queue of others' jobs of (nodes, seconds), all submitted now."""
    config = ClusterConfig(nodes=nodes, batch_delay=3.0, **more)
    engine = Engine(config, 1000.0, duration=seconds_of)
    for wide, seconds in others:
        spec = JobSpec("other", "#!/bin/sh\n", wide, seconds)
        Controller(engine).submit("bob", spec, Work(seconds))
    engine.advance(1010.0)
    return engine


# -- forks -------------------------------------------------------------------------------------------------------------


def test_each_fork_goes_on_from_the_same_instant_and_leaves_the_process_as_it_was():
    engine = busy([(4, 500.0)])
    found = in_forks({n: lambda: plain(engine, chain(2, 4)).told() for n in range(3)}, at_once=2)
    assert found[0] == found[1] == found[2]
    assert engine.now == 1010.0 and len(engine.jobs) == 1
    assert Outcome.read(found[0]) == plain(engine, chain(2, 4))
    assert len(engine.jobs) == 3


def test_what_a_fork_returns_may_be_larger_than_a_pipe_holds():
    assert in_forks({n: lambda n=n: [n] * 300_000 for n in (1, 2)}) == {n: [n] * 300_000 for n in (1, 2)}


def test_a_fork_that_fails_is_told_with_its_own_words():
    def fails():
        raise ValueError("so it is")

    with pytest.raises(RuntimeError, match="so it is"):
        in_forks({"fine": lambda: 1, "not": fails})
    with pytest.raises(RuntimeError, match="gone: the fork was killed"):
        in_forks({"gone": lambda: os.kill(os.getpid(), signal.SIGKILL)})


# -- ways --------------------------------------------------------------------------------------------------------------


def test_a_plain_chain_on_an_idle_cluster_waits_for_the_scheduler_only():
    outcome = plain(busy(), chain(2, 4, 1))
    assert outcome == Outcome(303.0, (3.0, 0.0, 0.0), 700.0, by="plain")
    assert outcome.later == 0.0


def test_a_chain_that_ages_from_its_submission_passes_who_came_after_it():
    # The whole machine is taken for 600 s; others that come while the first stage runs ask for all of it as well.
    def crowd(engine):
        engine.call_at(1100.0, lambda: Controller(engine).submit("bob", JobSpec("o", "#!/bin/sh\n", 4, 900), Work(900)))
        return engine

    late, early = plain(crowd(busy([(4, 600.0)])), chain(4, 4)), seeded(crowd(busy([(4, 600.0)])), chain(4, 4))
    assert late.waits[0] == early.waits[0] > 0
    assert late.later == 900.0 and early.later == 0.0
    always = plain(crowd(busy([(4, 600.0)], accrue_always=True)), chain(4, 4))
    assert always == replace(early, by="plain"), "which is what ACCRUE_ALWAYS gives to all"


def test_merged_stages_hold_the_most_nodes_of_any_and_take_all_their_times():
    cuts = list(contiguous_cuts(chain(1, 2, 3)))
    assert [len(cut) for cut in cuts] == [3, 2, 2, 1]
    assert [plain(busy(), chain(1, 2, 3), cut).node_seconds for cut in cuts] == [600.0, 700.0, 700.0, 900.0]


def test_the_agent_runs_the_same_chain_in_the_queue_as_it_is():
    outcome = under_agent(busy([(4, 500.0)]), chain(2, 4), "perstage", {})
    assert outcome.by == "perstage" and outcome.node_seconds == 600.0
    assert outcome.waits[0] > 480.0 and 0.0 < outcome.later <= 20.0


def test_a_job_that_fails_ends_the_comparison():
    with pytest.raises(RuntimeError, match="s1, job 1: TIMEOUT"):
        plain(busy(), chain(1, 1, seconds=300.0))


# -- windows -----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_windows_are_the_same_whatever_was_done_before(monkeypatch):
    monkeypatch.setattr(windows, "AGENT", ("perstage",))
    monkeypatch.setattr(windows, "AUTO", {"auto, cons_tres, ageing allowed": (True, True)})
    monkeypatch.setattr(windows, "_FIRST", 3600.0)
    monkeypatch.setattr(windows, "_TAIL", 86400.0)
    case = Case("hpc2n", "default", 1)
    first, second, third = windows.run(case, 3)
    assert [w.workflow for w in (first, second, third)] == ["montage-56", "blast-56", "statistics-56"]
    assert [s.nodes for s in windows.chain(case, 3).stages] == [14] * 4, "four equal stages come next"
    assert list(windows.run(case, 3, frozenset({0, 1}))) == [third]
    assert set(second.outcomes) == {PLAIN, SEEDED, ALONE, MERGED + "2", "perstage", "auto, cons_tres, ageing allowed"}
    assert {w.outcomes["auto, cons_tres, ageing allowed"].by for w in (first, second, third)} == {"seed"}
    assert len([name for name in first.outcomes if name.startswith(MERGED)]) == 13, "montage: one or two jobs, or free"
    assert len([name for name in third.outcomes if name.startswith(MERGED)]) == 7


def a_window(number=0, rule="default", machine="hpc2n", **makespans):
    outcomes = {
        name.replace("_", " "): Outcome(value, (10.0, 20.0), 100.0)
        for name, value in {"plain chain": 100.0, **makespans}.items()
    }
    outcomes[ALONE] = Outcome(40.0, (5.0,), 10.0)
    outcomes.setdefault("auto", Outcome(100.0, (10.0, 20.0), 100.0))
    return Window(Case(machine, rule, 1), number, "blast-28", outcomes)


def test_a_file_of_windows_is_taken_up_and_a_line_that_was_cut_off_measured_again(tmp_path, monkeypatch):
    made = []

    def run(case, count, done):
        for number in range(count):
            if number not in done:
                made.append(number)
                yield a_window(number)

    monkeypatch.setattr(chapter, "run", run)
    path, protocol = tmp_path / "pairs.jsonl", chapter.Protocol(3, 1, ("hpc2n",), ("default",))
    found = chapter.measure(protocol, path, lambda text: None)
    whole = path.read_text()
    assert made == [0, 1, 2] and windows.read(path) == found
    path.write_text(whole[:-20])
    assert chapter.measure(protocol, path, lambda text: None) == found
    assert made == [0, 1, 2, 2] and path.read_text() == whole
    path.write_text("{}\n" + whole)
    with pytest.raises(UserError, match="line 1: not a window"):
        windows.read(path)


# -- what they say -----------------------------------------------------------------------------------------------------


def test_ratios_are_of_means_and_the_best_merge_is_chosen_window_by_window():
    found = [a_window(0, merged_2=80.0, auto=90.0), a_window(1, merged_2=300.0, auto=130.0)]
    by_way = {row.way: row for row in rows(found)}
    assert by_way["auto"].makespan.value == pytest.approx(1.1) and by_way["auto"].median == pytest.approx(1.1)
    assert by_way["auto"].makespan.low == 0.9 and by_way["auto"].makespan.high == 1.3
    assert by_way[BEST].makespan.value == pytest.approx(0.9)
    assert by_way[NOBODY].makespan.value == pytest.approx((5 + 100 - 30) / 100)
    assert regret(found, "auto").value == pytest.approx(220 / 180)


def test_rules_are_judged_by_themselves():
    found = [a_window(0, "default"), a_window(0, "basic", auto=200.0)]
    assert [(r.rule, r.makespan.value) for r in rows(found) if r.way == "auto"] == [("default", 1.0), ("basic", 2.0)]


def test_an_interval_covers_its_mean_about_19_times_in_20():
    rng, hits = np.random.default_rng(3), 0
    for _ in range(100):
        values = rng.exponential(1.0, 40)
        low, high = ratio_of_means(list(values), [1.0] * 40)[1:]
        hits += low <= 1.0 <= high
    assert 85 <= hits <= 99


def test_without_waits_in_either_the_ratio_is_one():
    assert ratio_of_means([0.0, 0.0], [0.0, 0.0]).value == 1.0
    assert resampled(3, lambda draw: 7.0) == (7.0, 7.0, 7.0)
    with pytest.raises(ValueError, match="not 1 and 2"):
        ratio_of_means([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(0.8, 1.0, "yes"), (0.9, 1.3, "not decided"), (1.05, 1.3, "NO"), (None, None, "NO")]
)
def test_a_goal_is_reached_or_missed_by_its_whole_interval(low, high, verdict):
    goal = Goal("w", "x", 1.02, 1.0, low, high)
    assert (goal.verdict, goal.reached) == (verdict, verdict == "yes")
    assert Goal("w", "x", 1.0, 1.0).verdict == "yes"
    said = Chapter("x", "X", "", [], [], [goal]).all_tables[0].rows[0]
    assert said[-1] == verdict


def test_a_measured_goal_in_words():
    assert Goal("w", "x", 1.1, 1.0, 0.9, 1.3).measured == "1.100 (0.900 to 1.300)"
    assert len(list(itertools.islice(contiguous_cuts(chain(1)), 2))) == 1


# -- logs and goals ----------------------------------------------------------------------------------------------------


def test_a_log_begins_elsewhere_for_each_seed_and_keeps_its_limits():
    columns = (range(6), (0, 10, 20, 3600, 3610, 90_000), [5] * 6, (1, 2, 3, 1, 2, 3), [60] * 6)
    trace = Trace(*(array("q", column) for column in columns))
    found = list(log_background(trace, 3600.0, 1.0, seed=2))
    told = [(a.submit, a.seconds, a.spec.nodes, a.spec.time_limit) for a in found]
    assert told == [(0.0, 5.0, 1, 60.0), (10.0, 5.0, 2, 60.0)], "what comes a day later is left out"


def test_the_goals_are_judged_for_each_kind_of_site():
    ratios = {"auto, linear": 99.0, "auto, cons_tres": 104.0, "auto, linear, ageing allowed": 70.0}
    found = [
        replace(w, outcomes={**w.outcomes, **{n: Outcome(v, (10.0, 5.0), 100.0) for n, v in ratios.items()}})
        for w in (a_window(n) for n in range(3))
    ]
    last = {"auto, cons_tres, ageing allowed": Outcome(100.0, (1.0, 2.0), 100.0)}
    with_all = [replace(w, outcomes={**w.outcomes, **last}) for w in found]
    reached = {(g.where, g.what): g.reached for g in chapter._goals(with_all)}
    assert reached["default", "makespan of auto, linear, over the plain chain's, upper end"]
    assert not reached["default", "makespan of auto, cons_tres, over the plain chain's, upper end"]
    assert reached["default", "makespan of auto, linear, ageing allowed, over the plain chain's"]
    assert not reached["default", "makespan of auto, cons_tres, ageing allowed, over the plain chain's"]


# -- intervals ---------------------------------------------------------------------------------------------------------


def test_what_hangs_together_is_resampled_together():
    alone = mean_of([0.0, 1.0] * 200)
    assert alone.value == 0.5 and 0.44 < alone.low < 0.47 and 0.53 < alone.high < 0.56
    stretches = mean_of([0.0] * 200 + [1.0] * 200, blocks=4)
    assert stretches.value == 0.5 and stretches.low == 0.0 and stretches.high == 1.0
    assert mean_of([3.0] * 7, blocks=50) == (3.0, 3.0, 3.0)
    assert alone.told(".1f") == "0.5 (0.5 to 0.5)"

"""Cuts of a workflow compared in the same drawn futures: which is safe, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api import Partition
from penstock.core.pace import at_once
from penstock.errors import UserError
from penstock.future.cluster import Cluster
from penstock.future.past import PastJob, QueuePast
from penstock.future.replay import HORIZON
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.strategies.cuts import place_units, singles
from penstock.workflow.strategy import Rules
from penstock.workflow.submit import forecast
from penstock.workflow.submit.forecast import (
    CutComparison,
    CutForecast,
    better_cut,
    compare,
    cuts_of,
    told_change,
    told_time,
)
from penstock_lab.testing import make_job, make_snapshot

HALF = QueuePast(tuple(i / 100 for i in range(1, 101)))


def chain(*nodes, limit=600.0, run=300.0, **more):
    stages = [Stage(f"s{i}", n, limit, run, "true", (f"s{i - 1}",) if i else (), **more) for i, n in enumerate(nodes)]
    return Workflow("flow", tuple(stages))


def sizes(cuts):
    return [tuple(len(stages) for _, stages in cut) for cut in cuts]


def busy(waiting=20, nodes=4):
    """Eight nodes, all taken, and a queue."""
    jobs = [make_job(1, *(f"n{i}" for i in range(1, 9)), start=-100.0, end=900.0, time_limit=1000.0)]
    jobs += [make_job(10 + i, num_nodes=nodes, time_limit=1000.0, priority=100 - i) for i in range(waiting)]
    return Cluster.of(make_snapshot(jobs))


def more_come(rate=6, nodes=4):
    """The past of a queue to which somebody comes all the time."""
    jobs = [
        PastJob(h * 3600.0 + i * 3600.0 / rate, nodes, 1000.0, "batch", None) for h in range(24) for i in range(rate)
    ]
    return replace(HALF, jobs=tuple(jobs), hours=tuple(range(24)))


# -- the cuts ----------------------------------------------------------------------------------------------------------


def test_only_neighbours_of_equal_width_share_a_job():
    assert sizes(cuts_of(chain(2, 2, 2), None)) == [(1, 1, 1), (3,), (1, 2), (2, 1)]
    assert sizes(cuts_of(chain(2, 2, 1, 1), None)) == [(1, 1, 1, 1), (2, 2), (1, 1, 2), (2, 1, 1)]
    assert sizes(cuts_of(chain(1, 2, 3), None)) == [(1, 1, 1)]
    assert sizes(cuts_of(chain(1), None)) == [(1,)]


def test_no_job_is_longer_than_the_partition_allows():
    assert sizes(cuts_of(chain(2, 2, 2), 1200.0)) == [(1, 1, 1), (1, 2), (2, 1)]
    assert sizes(cuts_of(chain(2, 2, 2), 1199.0)) == [(1, 1, 1)]


def test_there_are_sixteen_cuts_at_most_and_every_one_is_a_cut():
    workflow = chain(*[2] * 9)
    cuts = cuts_of(workflow, None)
    assert len(cuts) == 16 and cuts[0] == singles(workflow.order) and sizes(cuts)[1] == (9,)
    assert len({sizes([cut])[0] for cut in cuts}) == 16
    for cut in cuts:
        place_units(workflow, cut)
        assert [name for _, stages in cut for name in stages] == [stage.name for stage in workflow.order]


def test_a_workflow_that_is_no_chain_has_the_plain_one_alone():
    a, b = Stage("a", 1, 60.0, 60.0, "true"), Stage("b", 1, 60.0, 60.0, "true")
    both = Workflow("w", (a, b, Stage("c", 1, 60.0, 60.0, "true", ("a", "b"))))
    assert sizes(cuts_of(both, None)) == [(1, 1, 1)]


# -- the comparison ----------------------------------------------------------------------------------------------------


def test_on_an_idle_cluster_there_is_no_gain_and_it_says_so():
    found = at_once(compare(chain(2, 2), Cluster.of(make_snapshot()), HALF, Rules()))
    assert found.safe is found.plain and found.plain.range == (600.0, 600.0, 600.0)
    assert found.line.startswith("on this queue now: your chain 10m, no gain seen: Penstock the same, because no cut")
    assert found.notes[0] == "how long others run was learned from 100 ended jobs"
    assert at_once(better_cut(chain(2, 2), Cluster.of(make_snapshot()), HALF, Rules())) is None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(30.0, 3000.0), min_size=2, max_size=4),
    st.floats(1.7e9, 1.9e9),
    st.integers(0, 2),
)
def test_on_an_idle_cluster_nothing_is_merged_whatever_the_stages_and_the_hour(runs, now, spare):
    stages = [
        Stage(f"s{i}", 2 if i < len(runs) - spare else 1, 3600.0, run, "true", (f"s{i - 1}",) if i else ())
        for i, run in enumerate(runs)
    ]
    idle = Cluster.of(replace(make_snapshot(), taken_at=now))
    found = at_once(compare(Workflow("flow", tuple(stages)), idle, HALF, Rules()))
    assert found.safe is found.plain and not found.told()["gain"]


def test_where_every_stage_waits_again_one_job_is_shorter_beyond_doubt():
    found = at_once(compare(chain(4, 4, 4), busy(), more_come(), Rules()))
    assert [len(jobs) for jobs in (found.plain.cut, found.safe.cut)] == [3, 1]
    mean, low, high = found.safe.less(found.plain)
    assert low < mean < high < 0
    assert "Penstock" in found.line and "one job for s0 and s1 and s2 saves 2 waits" in found.line
    assert found.futures >= 100 and any("24 watched hours" in note for note in found.notes)
    better = at_once(better_cut(chain(4, 4, 4), busy(), more_come(), Rules()))
    assert better.cut == found.safe.cut and better.reasons[0].code == "forecast-cut" and better.gain == -mean


def test_where_a_stage_keeps_its_place_by_its_submission_the_chain_waits_less():
    allowed = Rules(weight_age=1000, no_early_age=None)
    rules = (Rules(), Rules(basic=True, accrues=True), Rules(accrues=True), Rules(weight_age=0), allowed)
    later, *kept = (at_once(compare(chain(4, 4, 4), busy(), more_come(), r)).plain.range[0] for r in rules)
    assert len(set(kept)) == 1 and kept[0] < later
    assert at_once(compare(chain(4, 4, 4), busy(), more_come(), Rules(weight_age=1000))).plain.range[0] == later


def test_a_long_job_that_finds_no_hole_is_not_taken():
    """Four of eight nodes are free for 2000 s, until a job of all eight begins: two stages have room there, but their
    limits, all three together, do not."""
    jobs = [make_job(1, "n1", "n2", "n3", "n4", start=-100.0, end=2000.0, time_limit=2100.0)]
    jobs += [make_job(2, num_nodes=8, time_limit=50_000.0)]
    past = QueuePast(tuple([1.0] * 50))
    found = at_once(compare(chain(4, 4, 4, limit=900.0, run=600.0), Cluster.of(make_snapshot(jobs)), past, Rules()))
    assert [set(f.makespans) for f in found.forecasts] == [{52_600.0}, {53_800.0}, {53_200.0}, {52_600.0}]
    assert found.safe is found.plain


def test_the_same_look_gives_the_same_answer_and_another_one_other_draws():
    one, two = (at_once(compare(chain(4, 4), busy(), more_come(), Rules())).told() for _ in range(2))
    assert one == two
    later = Cluster.of(replace(busy().snapshot, taken_at=1.0))
    assert at_once(compare(chain(4, 4), later, more_come(), Rules())).told()["cuts"] != one["cuts"]


def test_stages_run_as_their_file_says_or_for_a_share_of_their_limits():
    idle = Cluster.of(make_snapshot())
    known = at_once(compare(chain(1, 1, took=(100.0, 200.0)), idle, HALF, Rules()))
    assert set(known.plain.makespans) == {200.0, 300.0, 400.0}
    guessed = at_once(compare(chain(1, 1, run=600.0, guessed=True), idle, HALF, Rules()))
    assert 0 < guessed.plain.range[1] < guessed.plain.range[2] < 1200.0
    own = at_once(compare(chain(1, 1, run=600.0, guessed=True), idle, replace(HALF, own=(0.25,) * 50), Rules()))
    assert set(own.plain.makespans) == {300.0}
    mine = at_once(compare(chain(1), idle, QueuePast((0.25,) * 50, own=(0.25,) * 40), Rules()))
    assert mine.notes[0] == "how long others run was learned from 50 ended jobs, 40 of them your own"


def test_a_deep_queue_gets_fewer_cuts_and_futures_and_one_too_deep_none():
    workflow = chain(4, 4, 4, 4)
    whole = at_once(compare(workflow, busy(), more_come(), Rules()))
    work = [sum(compare_work(workflow, limit)) for limit in (forecast.WORK, 2_000)]
    assert work[1] < 3_000 < work[0]
    few = at_once(compare(workflow, busy(), more_come(), Rules(), work=2_000))
    assert len(whole.forecasts) == 8 > len(few.forecasts) >= 2 and 0 < few.futures < whole.futures
    none = at_once(compare(workflow, busy(), more_come(), Rules(), work=50))
    assert none.futures == 0 and none.safe is none.plain and none.told()["cuts"] == []
    assert (
        none.line
        == "on this queue now: no forecast, because the queue is too long to be played through (20 jobs in it)"
    )
    assert at_once(better_cut(workflow, busy(), more_come(), Rules(), work=50)) is None


def compare_work(workflow, work):
    yield from compare(workflow, busy(), more_come(), Rules(), work=work)


def test_it_gives_way_all_the_time():
    assert max(compare_work(chain(4, 4, 4, 4), forecast.WORK)) < 1000


def test_a_chain_that_never_ends_is_said_to():
    found = at_once(compare(chain(8, 8), Cluster.of(make_snapshot(down=["n1"])), HALF, Rules()))
    assert set(found.plain.makespans) == {HORIZON} and found.safe is found.plain
    assert "your chain does not end, because not all of its stages start within 30d" in found.line


def test_a_workflow_that_its_partition_never_runs_is_refused():
    small = make_snapshot()
    small = replace(small, partitions={"batch": Partition("batch", tuple(small.nodes), True, True, 500.0, None, None)})
    with pytest.raises(UserError, match=r"stages\[0\].time: must be at most 8m20s"):
        at_once(compare(chain(1, 1), Cluster.of(small), HALF, Rules()))


# -- what is safe ------------------------------------------------------------------------------------------------------


def judged(*rows, hours=None, futures=40, later=0.0):
    cuts = [tuple((f"j{i}", (f"s{i}",)) for i in range(3 - n)) for n in range(len(rows))]
    hours = hours or [1.0] * len(rows)
    forecasts = [
        CutForecast(cut, np.resize(np.array(row, dtype=float), futures), np.full(futures, used), later)
        for cut, row, used in zip(cuts, rows, hours, strict=True)
    ]
    return CutComparison("w", "batch", tuple(forecasts), None, QueuePast())


def test_a_longer_job_must_gain_more_than_it_starts_later():
    sure = judged([100.0], [90.0], later=9.0)
    assert sure.safe is not sure.plain
    late = judged([100.0], [90.0], later=10.0)
    assert late.safe is late.plain and late.because.endswith("in Slurm's plan of now its longer limit starts 10s later")
    assert judged([100.0], [90.0], later=np.inf).because.endswith("its longer limit starts never")


def test_hardly_any_future_may_be_worse():
    some = judged([1000.0], [500.0] * 36 + [1011.0] * 4)
    assert some.safe is some.plain and some.because.endswith("in the mean of 40 drawn futures, but longer in 4 of them")
    few = judged([1000.0], [500.0] * 38 + [1011.0] * 2)
    assert few.safe is not few.plain


def test_a_gain_that_is_not_worth_a_word_merges_nothing():
    for less in (4.8e-7, 0.4, 10.0):
        none = judged([1000.0], [1000.0 - less])
        assert none.safe is none.plain
        assert none.because == "no cut into fewer jobs was more than 1% shorter in the mean of 40 drawn futures"
    sure = judged([1000.0], [989.0])
    assert sure.safe is not sure.plain


def test_a_loss_must_be_excluded():
    assert judged([100.0, 200.0], [90.0, 190.0]).safe.cut != judged([100.0], [90.0]).plain.cut
    unsure = judged([100.0, 200.0], [140.0, 150.0])
    assert unsure.safe is unsure.plain and "no cut into fewer jobs" not in unsure.because
    assert "a loss cannot be excluded (95 % interval: " in unsure.because
    # of two, the one of the least mean
    both = judged([100.0], [90.0], [80.0])
    assert both.safe is both.forecasts[2]


def test_core_hours_must_not_grow_and_few_futures_prove_nothing():
    dear = judged([100.0], [50.0], hours=[1.0, 1.02])
    assert dear.safe is dear.plain
    few = judged([100.0], [50.0], futures=11)
    assert few.safe is few.plain and "too few to conclude anything" in few.because


def test_times_for_people():
    assert [told_time(s) for s in (59.6, 601.0, 7290.0, 36_100.0, 90_000.0)] == ["1m", "10m", "2h2m", "10h", "1d1h"]
    assert (told_change(-61.0), told_change(0.0), told_change(61.0)) == ("1m1s shorter", "0s longer", "1m1s longer")

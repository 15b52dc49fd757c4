"""What the core lets a policy do: which way jobs grow on a site, when a resize is not worth it or would kill the job,
and what an application announced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.api import Job, JobState, Offer, Partition, SiteConfig, Snapshot
from penstock.future.speeds import Memory, Speeds, measured_by
from penstock.resize.running import announce
from penstock.resize.running.bounds import ResizeBounds, bounded
from penstock.resize.running.machine import MalleableJob
from penstock.resize.running.ways import choose, needs_gres
from penstock.resize.running.words import Announcement, Companion, Deadlines, Way
from penstock.values.merging import shrinks

LIMITS = Deadlines(grant=40)
SITE = SiteConfig(
    version=(24, 11, 5),
    cluster="c",
    select_type="select/linear",
    scheduler_parameters=frozenset({"permit_job_expansion"}),
    prolog_flags=frozenset(),
    priority_type="priority/multifactor",
    priority_flags=frozenset(),
    min_job_age=300,
)


def job(size: int = 4, end: float | None = 3600.0, host: str = "n1", user: str = "alice") -> Job:
    return Job(
        id=7,
        uid=1000,
        user=user,
        account="",
        partition="batch",
        qos="normal",
        state=JobState.RUNNING,
        reason="None",
        submit=0,
        eligible=0,
        start=0,
        end=end,
        time_limit=end,
        num_nodes=size,
        num_cpus=size,
        nodes=tuple(f"n{i + 1}" for i in range(size)),
        priority=1,
        batch_host=host,
    )


def malleable(size: int = 4, **more) -> MalleableJob:
    here = job(size)
    offer = Offer(job=7, size=size, **{"minimum": 1, "maximum": 8, "factor": 2, "nodes": here.nodes, **more})
    return MalleableJob.registered(here, offer, 0)


def bounds(now: float = 100.0, **more) -> ResizeBounds:
    partition = Partition("batch", (), True, True, more.pop("max_time", None), None, None)
    return ResizeBounds(
        now, more.pop("cost", 20.0), more.pop("extends", False), more.pop("shrinks", True), partition, **more
    )


def measured(**seconds: float) -> Speeds:
    """`measured(on1=0.25, on4=0.25)`: seconds of a step by size, the present one last."""
    found = Speeds()
    for name, each in seconds.items():
        found.saw(Offer(job=7, size=int(name.removeprefix("on")), minimum=1, maximum=8, step_seconds=each))
    return found


def codes(verdict) -> list[str]:
    return [r.code for r in verdict.reasons]


# -- which way ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preference", "site", "app", "way"),
    [
        ("auto", {}, {}, Way.MERGE),
        ("auto", {}, {"companion": True}, Way.COMPANION),
        ("auto", {"prolog_flags": frozenset({"CONTAIN"})}, {"companion": True}, Way.COMPANION),
        ("auto", {"prolog_flags": frozenset({"CONTAIN"})}, {}, None),
        ("auto", {"prolog_flags": frozenset({"X11"})}, {"companion": True}, Way.COMPANION),
        ("auto", {"scheduler_parameters": frozenset()}, {"companion": True}, Way.COMPANION),
        (
            "auto",
            {"scheduler_parameters": frozenset({"permit_job_expansion", "disable_job_shrink"})},
            {"companion": True},
            Way.COMPANION,
        ),
        ("auto", {"select_type": "select/cons_tres"}, {}, Way.MERGE),
        ("companion", {}, {"companion": True}, Way.COMPANION),
        ("companion", {}, {}, None),
        ("merge", {}, {"companion": True}, Way.MERGE),
        ("merge", {"prolog_flags": frozenset({"CONTAIN"})}, {"companion": True}, None),
    ],
)
def test_the_way_follows_the_site_the_application_and_the_configuration(preference, site, app, way):
    choice = choose(preference, replace(SITE, **site), malleable(**app).offer, job(), "alice", gres=False)
    assert choice.way is way
    assert choice.reason.code == {Way.MERGE: "by-merge", Way.COMPANION: "by-companion", None: "no-expansion"}[way]


def test_a_job_with_gres_cannot_be_merged_into_under_cons_tres():
    tres = replace(SITE, select_type="select/cons_tres")
    assert needs_gres(tres) and not needs_gres(SITE)
    assert not needs_gres(replace(tres, prolog_flags=frozenset({"CONTAIN"}))), "it is no question then"
    assert choose("auto", tres, malleable().offer, job(), "alice", gres=True).way is None
    assert choose("auto", tres, malleable(companion=True).offer, job(), "alice", gres=True).way is Way.COMPANION
    assert choose("auto", SITE, malleable().offer, job(), "alice", gres=True).way is Way.MERGE


def test_a_companion_of_another_user_is_of_no_use():
    contain = replace(SITE, prolog_flags=frozenset({"CONTAIN"}))
    choice = choose("auto", contain, malleable(companion=True).offer, job(), "operator", gres=False)
    assert choice.way is None and "is of no use to alice" in choice.reason.text


# -- what the time limit allows ----------------------------------------------------------------------------------------


def test_a_size_that_cannot_be_reached_is_no_size():
    assert codes(bounded(malleable(), job(), 3, bounds())) == ["unreachable"]
    assert bounded(malleable(), job(), 4, bounds()).reasons == ()


@pytest.mark.parametrize("size", [2, 8])
def test_a_job_about_to_end_is_left_alone(size):
    assert codes(bounded(malleable(), job(), size, bounds(now=3585.0))) == ["too-late"]
    soon = malleable(steps_left=19, step_seconds=1.0)
    assert codes(bounded(soon, job(), size, bounds())) == ["too-late"], "its work ends before its limit"
    assert bounded(malleable(steps_left=30, step_seconds=1.0), job(), size, bounds()).size == size
    assert bounded(malleable(), job(end=None), size, bounds(now=1e9)).size == size


def test_no_shrink_below_the_size_at_which_the_remaining_steps_fit():
    # 3500 s remain. 1574 s of work take 3148 s on half the nodes, with 10 % margin 3498 s, and the resize 2 s.
    fits = malleable(steps_left=1574, step_seconds=1.0)
    assert bounded(fits, job(), 2, bounds(cost=2.0)).size == 2
    longer = malleable(steps_left=1576, step_seconds=1.0)
    refused = bounded(longer, job(), 2, bounds(cost=2.0))
    assert refused.size == 4 and codes(refused) == ["no-time"]
    assert bounded(longer, job(), 8, bounds(cost=2.0)).size == 8


def test_how_long_the_steps_would_take_there_goes_by_what_was_measured():
    """685 steps of 0.25 s: nearly three minutes on one as on four, where perfect scaling has twelve."""
    me = malleable(steps_left=685, step_seconds=0.25)
    at = {"now": 3100.0, "cost": 20.0}
    assert codes(bounded(me, job(), 1, bounds(**at))) == ["no-time"]
    assert bounded(me, job(), 1, bounds(**at, speeds=measured(on1=0.25, on4=0.25))).size == 1
    assert bounded(me, job(), 2, bounds(**at, speeds=measured(on1=0.25, on4=0.25))).size == 2
    slow = bounded(me, job(), 1, bounds(**at, speeds=measured(on1=0.75, on4=0.25)))
    assert codes(slow) == ["no-time"] and "would take 591 s" in slow.reasons[0].text
    # Quicker on fewer than it is now may have been chance.
    assert codes(bounded(me, job(), 1, bounds(now=3420.0, speeds=measured(on1=0.01, on4=0.25)))) == ["no-time"]


def test_the_policy_that_learns_says_what_was_measured():
    class Policy:
        memory = Memory()

    me, running = malleable(), job()
    assert measured_by(object(), running) is None and measured_by(Policy(), running) is None
    for number, (size, seconds) in enumerate(((1, 0.25), (4, 0.25))):
        shown = Snapshot(100.0 + number, {7: running}, {}, {})
        Policy.memory.of(replace(me.offer, size=size, step_seconds=seconds), shown)
        assert (measured_by(Policy(), running) is None) == (size == 1)
    found = measured_by(Policy(), running)
    assert found is not None and found.at(1) == found.at(4) == 0.25
    assert measured_by(Policy(), replace(running, start=50.0)) is None, "another job of that number"


def test_an_operator_extends_the_limit_instead_as_far_as_the_partition_goes():
    longer = malleable(steps_left=1600, step_seconds=1.0)
    extended = bounded(longer, job(), 2, bounds(extends=True, cost=0.0))
    # 100 s have passed, 3200 s / 0.9 are needed: 3656 s, in whole minutes.
    assert (extended.size, extended.extend, codes(extended)) == (2, 3660.0, ["limit-extended"])
    assert bounded(longer, job(), 2, bounds(extends=True, cost=0.0, max_time=3600.0)).size == 4


def test_without_progress_the_size_it_started_with_is_always_allowed():
    me = replace(malleable(8), start_size=4)
    assert bounded(me, job(8), 4, bounds(now=3000.0)).size == 4
    assert codes(bounded(me, job(8), 2, bounds(now=3000.0))) == ["no-time"]


def test_back_to_the_size_it_started_with_it_may_whatever_its_steps_would_take_there():
    me = replace(malleable(8, steps_left=3000, step_seconds=1.0), start_size=4)
    assert bounded(me, job(8), 4, bounds(now=100.0)).size == 4
    assert codes(bounded(me, job(8), 2, bounds(now=100.0))) == ["no-time"]
    longer = bounded(me, job(8), 4, bounds(extends=True, cost=0.0))
    assert longer.size == 4 and codes(longer) == ["limit-extended"]
    assert bounded(me, job(8), 4, bounds(extends=True, cost=0.0, max_time=3600.0)).size == 4


def test_without_progress_a_shrink_that_could_double_the_run_time_past_the_limit_is_refused():
    assert bounded(malleable(), job(), 2, bounds(now=1000.0)).size == 2
    assert codes(bounded(malleable(), job(), 2, bounds(now=1200.0))) == ["no-time"]


def test_a_shrink_that_the_application_asks_for_is_its_own_business():
    asks = malleable(steps_left=1576, step_seconds=1.0, maximum=2, minimum=2)
    assert bounded(asks, job(), 2, bounds(cost=2.0)).reasons == ()
    assert bounded(malleable(maximum=2), job(), 2, bounds(now=1200.0)).size == 2


# -- who can leave -----------------------------------------------------------------------------------------------------


def test_no_shrink_off_the_batch_host():
    assert codes(bounded(malleable(), job(host="n3"), 2, bounds())) == ["batch-host"]
    assert bounded(malleable(), job(host="n2"), 2, bounds()).size == 2
    assert bounded(malleable(), job(host=""), 2, bounds()).size == 2


def test_whole_companions_leave_and_more_than_was_wanted_rather_than_none():
    held = Companion("x", 9, ("n5", "n6", "n7", "n8"), 0.0)
    me = replace(malleable(8, method="merge"), companions=(held,))
    assert bounded(me, job(4), 4, bounds()).size == 4
    me = replace(me, companions=(replace(held, nodes=("n3", "n4", "n5", "n6", "n7", "n8")),))
    more = bounded(me, job(2), 4, bounds())
    assert more.size == 2 and codes(more) == ["whole-companions", "whole"]


def test_where_jobs_cannot_shrink_only_companions_leave():
    held = Companion("x", 9, ("n5", "n6", "n7", "n8"), 0.0)
    me = replace(malleable(8), companions=(held,))
    assert bounded(me, job(4), 4, bounds(shrinks=False)).size == 4
    assert codes(bounded(me, job(4), 2, bounds(shrinks=False))) == ["no-shrink"]
    site = replace(SITE, scheduler_parameters=frozenset({"disable_job_shrink"}))
    assert shrinks(SITE) and not shrinks(site)


# -- what was announced ------------------------------------------------------------------------------------------------


def announced(size: int, at: float) -> MalleableJob:
    return replace(malleable(), announced=Announcement(size, at))


def test_nodes_are_asked_for_their_wait_ahead_and_waited_for_until_they_are_wanted():
    me = announced(8, 1000.0)
    assert announce.missing(me) == 4
    assert announce.due(me, 300.0, LIMITS, 690.0) is None
    due = announce.due(me, 300.0, LIMITS, 710.0)
    assert due is not None and (due.verdict.size, due.patience) == (8, 290.0 + 40.0)
    assert announce.due(malleable(), 300.0, LIMITS, 710.0) is None


def test_a_smaller_size_is_due_when_its_phase_begins():
    me = announced(2, 1000.0)
    assert announce.missing(me) == 0
    assert announce.due(me, 300.0, LIMITS, 990.0) is None
    due = announce.due(me, 300.0, LIMITS, 1001.0)
    assert due is not None and due.verdict.size == 2


@pytest.mark.parametrize(("size", "nearest"), [(8, 8), (7, 4), (100, 8), (1, 1), (3, 4), (4, 4)])
def test_an_announced_size_is_the_nearest_that_can_be_reached(size, nearest):
    assert announce.nearest(announced(size, 0.0)) == nearest


def test_an_announcement_that_passes_unused_expires():
    me = announced(8, 1000.0)
    assert announce.expired(me, LIMITS, 1039.0) is None
    assert "could not be reached in time" in (announce.expired(me, LIMITS, 1041.0) or "")
    assert "has the announced size" in (announce.expired(announced(4, 1000.0), LIMITS, 10.0) or "")
    assert announce.expired(malleable(), LIMITS, 1e9) is None

"""The resize machine: these facts give this state and these instructions. No clock, no socket."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api import Job, JobState, Offer, Reason, ResizeVerdict, Step
from penstock.resize.running.decider import due_back
from penstock.resize.running.machine import MalleableJob
from penstock.resize.running.words import (
    Allocate,
    AskSteps,
    CancelResizer,
    Companion,
    Confirm,
    Deadlines,
    Extend,
    LookAt,
    Merge,
    ResizePhase,
    ResizeTerms,
    Shrink,
    Way,
)

LIMITS = Deadlines(grant=40, accept=60, cooldown=10, settle=5)


def job(*nodes: str) -> Job:
    return Job(
        id=7,
        uid=1000,
        user="alice",
        account="",
        partition="batch",
        qos="normal",
        state=JobState.RUNNING,
        reason="None",
        submit=0,
        eligible=0,
        start=0,
        end=3600,
        time_limit=3600,
        num_nodes=len(nodes),
        num_cpus=len(nodes),
        nodes=nodes,
        priority=1,
    )


def registered(size: int = 2) -> MalleableJob:
    nodes = tuple(f"n{i + 1}" for i in range(size))
    offer = Offer(job=7, size=size, minimum=1, maximum=8, factor=2, nodes=nodes)
    return MalleableJob.registered(job(*nodes), offer, 0)


def verdict(size: int, beneficiary: int | None = None) -> ResizeVerdict:
    return ResizeVerdict(size, (Reason("test", "because"),), beneficiary)


def offered() -> MalleableJob:
    me = registered().decided(verdict(4), job("n1", "n2"), "penstock-7-x", LIMITS, 100)
    me = me.granted(8, 101)
    return me.merged(job("n1", "n2", "n5", "n6"), 102)


def test_growing_goes_through_grant_merge_offer_accept_and_done():
    me = registered().decided(verdict(4), job("n1", "n2"), "penstock-7-x", LIMITS, 100)
    assert me.phase is ResizePhase.ALLOCATING and me.epoch == 1
    me, todo = me.advance(job("n1", "n2"), LIMITS, 100)
    assert todo == (Allocate(7, "penstock-7-x", 2, 3500),)
    me = me.granted(8, 101)
    me, todo = me.advance(job("n1", "n2"), LIMITS, 101)
    assert todo == (Merge(8, 7),)
    me = me.merged(job("n1", "n2", "n5", "n6"), 102)
    assert me.reply() == ("expand", 4, ("n1", "n2", "n5", "n6"), 0)
    accepted = me.accepted(1, 103)
    assert accepted is not None and accepted.phase is ResizePhase.RESIZING
    assert accepted.reply()[0] == "none"
    finished = accepted.done(1, {"spawn": 0.3}, 104)
    assert finished.phase is ResizePhase.IDLE
    assert finished.offer.size == 4 and finished.nodes == ("n1", "n2", "n5", "n6")
    assert finished.marks["app_spawn"] == 0.3 and finished.resizer_name == ""


def test_how_long_a_step_took_on_the_old_size_says_nothing_of_the_new_one():
    # Else what is left to do looks half as long after a shrink, and another one seems to fit into the time limit.
    me = registered(4)
    me = me.checked(replace(me.offer, steps_left=100, step_seconds=10.0), 0, 99.0)
    leaving = me.decided(verdict(2), job("n1", "n2", "n3", "n4"), "x", LIMITS, 100).accepted(1, 101)
    assert leaving is not None
    after = leaving.done(1, {}, 103).offer
    assert (after.size, after.steps_left, after.step_seconds) == (2, 100, None)


def test_a_shrink_is_told_to_slurm_only_after_the_step_is_gone():
    me = registered(4).decided(verdict(2, beneficiary=9), job("n1", "n2", "n3", "n4"), "x", LIMITS, 100)
    assert me.phase is ResizePhase.PROPOSED and me.reply() == ("shrink", 2, ("n1", "n2"), 0)
    assert me.advance(job("n1", "n2", "n3", "n4"), LIMITS, 101)[1] == ()
    leaving = me.accepted(1, 101)
    assert leaving is not None
    assert leaving.advance(job("n1", "n2", "n3", "n4"), LIMITS, 102)[1] == ()
    releasing = leaving.done(1, {}, 103)
    assert releasing.advance(job("n1", "n2", "n3", "n4"), LIMITS, 103)[1] == (AskSteps((7,)),)
    old = Step(7, "0", ("n1", "n2", "n3", "n4"))
    new = Step(7, "1", ("n1", "n2"))
    batch = Step(7, "batch", ("n1",))
    extern = Step(7, "extern", ("n1", "n2", "n3", "n4"))
    assert releasing.steps_seen({7: [old, new, batch]}, LIMITS, 104) == (releasing, ())
    assert releasing.steps_seen({}, LIMITS, 104) == (releasing, ()), "nobody looked"
    assert releasing.steps_seen({7: [new, batch, extern]}, LIMITS, 104)[1] == (Shrink(7, ("n1", "n2")),)
    assert releasing.shrunk(104).phase is ResizePhase.IDLE


def test_an_offer_whose_new_processes_are_being_started_has_the_time_of_a_resize():
    nodes = job("n1", "n2", "n5", "n6")
    me = offered().checked(registered().offer, 0, 110, starting=1)
    assert me.reply()[0] == "expand", "it still stands"
    assert me.checked(me.offer, 0, 150, starting=1).marks == me.marks, "the first word of it counts"
    for asked, starting in ((0, 0), (0, 7)):
        assert offered().checked(registered().offer, asked, 110, starting=starting).marks == offered().marks
    assert me.advance(nodes, LIMITS, 102 + 61) == (me, ())
    assert me.advance(nodes, LIMITS, 110 + LIMITS.resize + 1)[0].phase is ResizePhase.GIVING_BACK
    taken = me.accepted(1, 300)
    assert taken is not None and taken.phase is ResizePhase.RESIZING
    shrink = registered(4).decided(verdict(2), job("n1", "n2", "n3", "n4"), "x", LIMITS, 100)
    leaving = shrink.checked(shrink.offer, 0, 101, starting=1)
    assert shrink.advance(job("n1", "n2", "n3", "n4"), LIMITS, 170)[0].phase is ResizePhase.IDLE
    assert leaving.advance(job("n1", "n2", "n3", "n4"), LIMITS, 170)[0].phase is ResizePhase.PROPOSED
    # The policy may think better of it, and Penstock may be switched off.
    assert leaving.decided(verdict(4), job("n1", "n2", "n3", "n4"), "x", LIMITS, 171).phase is ResizePhase.IDLE
    assert me.withdrawn("off", 111).reply()[0] == "none"
    again = leaving._idle(172, "").decided(verdict(2), job("n1", "n2", "n3", "n4"), "y", LIMITS, 190)
    assert again.phase is ResizePhase.PROPOSED and "starting" not in again.marks


def test_an_offer_that_is_not_taken_up_goes_back():
    me, todo = offered().advance(job("n1", "n2", "n5", "n6"), LIMITS, 102 + 61)
    assert me.phase is ResizePhase.GIVING_BACK and todo == (Shrink(7, ("n1", "n2")),)
    assert me.accepted(1, 164) is None
    idle = me.shrunk(165)
    assert idle.phase is ResizePhase.IDLE and idle.offer.size == 2


def test_a_refusal_gives_the_nodes_back():
    me = offered().accepted(1, 103)
    assert me is not None
    me = me.refused(1, "spawn failed", 104)
    assert me.advance(job("n1", "n2", "n5", "n6"), LIMITS, 104)[1] == (Shrink(7, ("n1", "n2")),)


def test_a_failed_grant_is_cleaned_up_until_nothing_can_surface():
    me = registered().decided(verdict(4), job("n1", "n2"), "name", LIMITS, 100).grant_failed("timed out", 110)
    assert me.advance(job("n1", "n2"), LIMITS, 110)[1] == (CancelResizer(7, "name"),)
    assert me.gone("name", job("n1", "n2"), LIMITS, 112).phase is ResizePhase.CLEANING
    assert me.gone("name", job("n1", "n2"), LIMITS, 116).phase is ResizePhase.IDLE
    late = me.gone("name", job("n1", "n2", "n3", "n4"), LIMITS, 116)
    assert late.phase is ResizePhase.GIVING_BACK, "it was merged after all: the nodes must not stay unused"


def test_lost_messages_are_inferred_from_the_next_check():
    me = offered().accepted(1, 103)
    assert me is not None
    new = replace(me.offer, size=4, nodes=me.target_nodes)
    assert me.checked(new, 1, 110).phase is ResizePhase.IDLE, "the message done was lost"
    assert me.checked(me.offer, 0, 110).phase is ResizePhase.GIVING_BACK, "it goes on with its old size"


@pytest.mark.parametrize("epoch", [0, 2, 99])
def test_a_message_of_another_epoch_changes_nothing(epoch: int):
    me = offered()
    assert me.accepted(epoch, 103) is None
    assert me.refused(epoch, "old", 103) is me
    taken = me.accepted(1, 103)
    assert taken is not None and taken.done(epoch, {}, 104) is taken


def test_accept_and_done_can_be_repeated():
    me = offered().accepted(1, 103)
    assert me is not None and me.accepted(1, 104) is me
    done = me.done(1, {}, 105)
    assert done.done(1, {}, 106) is done


def test_a_check_that_was_sent_before_the_accept_and_comes_late_changes_nothing():
    me = offered().accepted(1, 103, sent=103.0)
    assert me is not None
    assert me.checked(me.offer, 0, 104, sent=102.0) is me
    assert me.checked(me.offer, 0, 104, sent=103.5).phase is ResizePhase.GIVING_BACK


def test_a_proposal_that_nobody_answers_is_dropped():
    me = registered(4).decided(verdict(2), job("n1", "n2", "n3", "n4"), "x", LIMITS, 100)
    assert me.advance(job("n1", "n2", "n3", "n4"), LIMITS, 161)[0].phase is ResizePhase.IDLE


def test_an_application_that_vanishes_in_a_resize_is_looked_after():
    me = offered().accepted(1, 103)
    assert me is not None
    assert me.advance(job("n1", "n2", "n5", "n6"), LIMITS, 110)[1] == ()
    assert me.advance(job("n1", "n2", "n5", "n6"), LIMITS, 103 + 601)[1] == (AskSteps((7,)),)


def test_a_proposal_is_withdrawn_when_no_longer_wanted():
    me = registered(4).decided(verdict(2), job("n1", "n2", "n3", "n4"), "x", LIMITS, 100)
    assert me.decided(verdict(4), job("n1", "n2", "n3", "n4"), "y", LIMITS, 101).phase is ResizePhase.IDLE


def test_cooldown_keeps_the_next_resize_away():
    me = replace(registered(), since=95.0)
    assert me.decided(verdict(4), job("n1", "n2"), "x", LIMITS, 100) is me
    assert me.decided(verdict(4), job("n1", "n2"), "x", LIMITS, 106).phase is ResizePhase.ALLOCATING
    asking = replace(me, offer=replace(me.offer, minimum=4))
    assert asking.decided(verdict(4), job("n1", "n2"), "x", LIMITS, 100).phase is ResizePhase.ALLOCATING


def failing(times: int) -> MalleableJob:
    """Refused so many growths in a row, the last of them at 1000."""
    me = registered()
    for again in range(times):
        me = me.decided(verdict(4), job("n1", "n2"), "x", replace(LIMITS, cooldown=0, regrow=0), 1000 - times + again)
        me = me.granted(8, 1000).merged(job("n1", "n2", "n5", "n6"), 1000).refused(me.epoch, "no memory", 1000)
        me = me.shrunk(1000)
    return me


def test_growths_that_fail_are_tried_again_ever_later_and_shrinks_as_before():
    two = job("n1", "n2")
    for times, rest in ((1, 20), (2, 40), (3, 80), (15, 3600)):
        me = failing(times)
        assert me.decided(verdict(4), two, "x", LIMITS, 1000 + rest - 1) is me
        assert me.offer_now(LIMITS, 1000 + rest - 1).maximum == me.offer.size
        assert me.decided(verdict(4), two, "x", LIMITS, 1000 + rest).phase is ResizePhase.ALLOCATING
        assert me.offer_now(LIMITS, 1000 + rest).maximum == 8
        assert me.decided(verdict(1), two, "x", LIMITS, 1011).phase is ResizePhase.PROPOSED


def test_a_growth_that_works_another_maximum_or_a_wish_ends_the_longer_rest():
    me = failing(5)
    smaller = me.checked(replace(me.offer, maximum=4), me.epoch, 1011)
    assert smaller.decided(verdict(4), job("n1", "n2"), "x", LIMITS, 1011).phase is ResizePhase.ALLOCATING
    asking = replace(me, offer=replace(me.offer, minimum=4))
    assert asking.decided(verdict(4), job("n1", "n2"), "x", LIMITS, 1011).phase is ResizePhase.ALLOCATING
    me = me.decided(verdict(4), job("n1", "n2"), "x", LIMITS, 2000).granted(8, 2000)
    accepted = me.merged(job("n1", "n2", "n5", "n6"), 2000).accepted(me.epoch, 2000)
    assert accepted is not None and accepted.done(me.epoch, {}, 2001).failures == 0


def test_no_growth_right_after_nodes_went_back():
    me = registered(4).decided(verdict(2), job("n1", "n2", "n3", "n4"), "x", LIMITS, 100).accepted(1, 101)
    assert me is not None
    me = me.done(1, {}, 102).shrunk(103)
    eager = replace(LIMITS, cooldown=0)
    assert me.decided(verdict(4), job("n1", "n2"), "y", eager, 106) is me
    assert me.decided(verdict(4), job("n1", "n2"), "y", eager, 108.5).phase is ResizePhase.ALLOCATING


def test_a_job_with_nodes_beside_its_ranks_is_left_alone():
    me = registered(2).decided(verdict(4), job("n1", "n2", "n3"), "x", LIMITS, 100)
    assert me.phase is ResizePhase.IDLE and "all of the job's nodes" in me.note


def test_an_application_ahead_of_the_store_is_believed():
    ahead = Offer(job=7, size=4, minimum=1, maximum=8, nodes=("n1", "n2", "n3", "n4"))
    asking = registered().decided(verdict(4), job("n1", "n2"), "name", LIMITS, 5).checked(ahead, 5, 10)
    assert asking.phase is ResizePhase.CLEANING and asking.resizer_name == "name", "the resizer must not be forgotten"
    me = registered().checked(ahead, 5, 10)
    assert me.epoch == 5 and me.nodes == ("n1", "n2", "n3", "n4")


def offered_companion() -> MalleableJob:
    me = registered()
    me = replace(me, offer=replace(me.offer, companion=True, method="merge"))
    me = me.decided(verdict(4), job("n1", "n2"), "penstock-7-x", LIMITS, 100, ResizeTerms(Way.COMPANION))
    return me.granted(8, 101).joined(replace(job("n5", "n6"), id=8), 102)


def grown(**marks: float) -> MalleableJob:
    """Two nodes of its own, two that job 8 holds, and two that job 9 holds."""
    me = offered_companion().accepted(1, 103)
    assert me is not None
    me = replace(me.done(1, {}, 104), since=0.0)
    me = me.decided(verdict(6), job("n1", "n2"), "penstock-7-y", LIMITS, 120, ResizeTerms(Way.COMPANION))
    accepted = me.granted(9, 121).joined(replace(job("n7", "n8"), id=9), 122).accepted(2, 123)
    assert accepted is not None
    return replace(accepted.done(2, {}, 124), since=0.0)


def test_growing_by_a_companion_goes_through_grant_look_offer_accept_and_done():
    me = registered().decided(verdict(4), job("n1", "n2"), "penstock-7-x", LIMITS, 100, ResizeTerms(Way.COMPANION))
    assert me.advance(job("n1", "n2"), LIMITS, 100)[1] == (Allocate(7, "penstock-7-x", 2, 3500, Way.COMPANION),)
    me = me.granted(8, 101)
    assert me.phase is ResizePhase.JOINING and me.advance(job("n1", "n2"), LIMITS, 101)[1] == (LookAt(8),)
    me = offered_companion()
    assert me.reply() == ("expand", 4, ("n1", "n2", "n5", "n6"), 8)
    me = me.accepted(1, 103)
    assert me is not None
    me = me.done(1, {}, 104)
    assert me.companions == (Companion("penstock-7-x", 8, ("n5", "n6"), 102),)
    assert me.own == ("n1", "n2") and me.nodes == ("n1", "n2", "n5", "n6") and me.phase is ResizePhase.IDLE
    assert grown().nodes == ("n1", "n2", "n5", "n6", "n7", "n8") and len(grown().companions) == 2


def test_a_companion_with_other_nodes_than_were_asked_for_or_that_has_ended_is_given_back():
    me = registered().decided(verdict(4), job("n1", "n2"), "x", LIMITS, 100, ResizeTerms(Way.COMPANION)).granted(8, 101)
    ended = replace(job("n5", "n6"), id=8, state=JobState.CANCELLED)
    for seen in (None, ended, job("n5"), job("n2", "n5")):
        assert me.joined(seen, 102).advance(job("n1", "n2"), LIMITS, 102)[1] == (CancelResizer(7, "x"),)


def test_nodes_of_a_companion_that_boot_are_waited_for_but_not_for_ever():
    me = registered().decided(verdict(4), job("n1", "n2"), "x", LIMITS, 100, ResizeTerms(Way.COMPANION)).granted(8, 101)
    boots = replace(job("n5", "n6"), id=8, state=JobState.CONFIGURING)
    assert me.joined(boots, 102) is me and me.advance(job("n1", "n2"), LIMITS, 102)[1] == (LookAt(8),)
    assert me.advance(job("n1", "n2"), LIMITS, 162)[1] == (CancelResizer(7, "x"),)


@pytest.mark.parametrize("accepted", [False, True])
def test_a_companion_that_is_refused_is_cancelled(accepted: bool):
    me = offered_companion()
    me = (me.accepted(1, 103) or me) if accepted else me
    me = me.refused(1, "cannot connect", 104)
    assert me.advance(job("n1", "n2"), LIMITS, 104)[1] == (CancelResizer(7, "penstock-7-x"),)
    me = me.gone("penstock-7-x", job("n1", "n2"), LIMITS, 110)
    assert me.phase is ResizePhase.IDLE and not me.companions and me.nodes == ("n1", "n2")


def test_a_shrink_gives_back_whole_companions_when_their_steps_are_gone():
    me = grown()
    assert [count for count in range(1, 7) if me.splits(count)] == [1, 2, 4, 6]
    me = me.decided(verdict(2), job("n1", "n2"), "z", LIMITS, 200).accepted(3, 201)
    assert me is not None
    me = me.done(3, {}, 202)
    assert me.phase is ResizePhase.RELEASING and me.own == ("n1", "n2")
    assert me.advance(job("n1", "n2"), LIMITS, 202)[1] == (AskSteps((8, 9)),)
    busy, extern = [Step(8, "0", ("n5", "n6"))], [Step(9, "extern", ("n7", "n8"))]
    assert me.steps_seen({8: busy, 9: extern}, LIMITS, 203)[1] == (CancelResizer(7, "penstock-7-y"),)
    me = me.gone("penstock-7-y", job("n1", "n2"), LIMITS, 203)
    assert [c.job for c in me.companions] == [8]
    assert me.steps_seen({8: busy}, LIMITS, 204)[1] == ()
    late = LIMITS.resize + 203
    assert me.steps_seen({8: busy}, LIMITS, late)[1] == (CancelResizer(7, "penstock-7-x"),), "it has confirmed"
    me = me.gone("penstock-7-x", job("n1", "n2"), LIMITS, 205).advance(job("n1", "n2"), LIMITS, 205)[0]
    assert me.phase is ResizePhase.IDLE and me.nodes == ("n1", "n2") and "released" in me.marks


def test_a_shrink_past_the_companions_takes_the_jobs_own_nodes_last():
    me = grown()
    me = replace(me, offer=replace(me.offer, method="replace"))
    me = me.decided(verdict(1), job("n1", "n2"), "z", LIMITS, 200).accepted(3, 201)
    assert me is not None
    me = me.done(3, {}, 202)
    for name in ("penstock-7-x", "penstock-7-y"):
        me = me.gone(name, job("n1", "n2"), LIMITS, 203)
    assert me.advance(job("n1", "n2"), LIMITS, 203)[1] == (AskSteps((7,)),)
    assert me.steps_seen({7: []}, LIMITS, 203)[1] == (Shrink(7, ("n1",)),)


def test_a_companion_that_ends_by_itself_leaves_a_job_that_is_left_alone_until_it_says_where_it_runs():
    me = grown().lost([9], 200)
    assert me.nodes == ("n1", "n2", "n5", "n6") and [c.job for c in me.companions] == [8] and "ended" in me.note
    assert me.decided(verdict(8), job("n1", "n2"), "z", LIMITS, 201).phase is ResizePhase.IDLE
    me = me.checked(replace(me.offer, size=4, nodes=("n1", "n2", "n5", "n6")), 2, 202)
    assert me.decided(verdict(8), job("n1", "n2"), "z", LIMITS, 203).phase is ResizePhase.ALLOCATING


def test_a_companion_that_ends_in_its_resize_ends_the_resize():
    me = offered_companion().accepted(1, 103)
    assert me is not None
    for state in (offered_companion(), me):
        lost = state.lost([8], 104)
        assert lost.phase is ResizePhase.CLEANING and lost.done(1, {}, 105) is lost


def test_a_program_that_does_not_use_a_companion_gives_it_back():
    me = grown()
    second = replace(me.offer, size=2, nodes=("n1", "n2"))  # another one, started by the same script
    me = me.checked(second, 0, 300)
    assert me.phase is ResizePhase.RELEASING and me.advance(job("n1", "n2"), LIMITS, 300)[1] == (AskSteps((8, 9)),)
    for name in ("penstock-7-x", "penstock-7-y"):
        me = me.gone(name, job("n1", "n2"), LIMITS, 301)
    assert me.advance(job("n1", "n2", "n3"), LIMITS, 302) == (me.advance(job("n1", "n2"), LIMITS, 302)[0], ())
    assert me.advance(job("n1", "n2", "n3"), LIMITS, 302)[0].phase is ResizePhase.IDLE, "no node of its own is touched"


def test_a_limit_is_raised_only_when_the_nodes_have_gone():
    """Not when the shrink was accepted, nor on its word that it is done: D1 of issue 21."""
    four, two = job("n1", "n2", "n3", "n4"), job("n1", "n2")
    me = registered(4).decided(verdict(2), four, "x", LIMITS, 100, ResizeTerms(extend=7200.0))
    assert me.advance(four, LIMITS, 100)[1] == ()
    taken = me.accepted(1, 101)
    assert taken is not None and taken.advance(four, LIMITS, 101)[1] == ()
    refused = taken.refused(1, "no", 102)
    assert (refused.phase, refused.owed, refused.extend) == (ResizePhase.IDLE, 0, 0) and refused.advance(
        four, LIMITS, 103
    )[1] == ()
    claims = taken.done(1, {}, 103)
    assert claims.advance(four, LIMITS, 103)[1] == (AskSteps((7,)),)
    assert claims.refused(1, "no", 104).advance(four, LIMITS, 104)[1] == (AskSteps((7,)),)
    gone = claims.shrunk(105)
    assert gone.phase is ResizePhase.IDLE and gone.advance(two, LIMITS, 106)[1] == (Extend(7, 7200.0, 2),)
    assert MalleableJob.from_dict(gone.to_dict()) == gone
    assert gone.kept("no").advance(two, LIMITS, 107)[1] == ()


def test_a_raised_limit_is_looked_at_once_more_and_no_resize_begins_before():
    two = job("n1", "n2")
    me = registered(4).decided(verdict(2), job("n1", "n2", "n3", "n4"), "x", LIMITS, 100, ResizeTerms(extend=7200.0))
    me = (me.accepted(1, 101) or me).done(1, {}, 102).shrunk(103)
    assert me.decided(verdict(4), two, "y", LIMITS, 9000) is me
    raised = me.raising(600.0).raising(7200.0).extended()
    assert raised.advance(two, LIMITS, 104)[1] == (Confirm(7, 600.0, 2),), "what it was before is remembered"
    assert MalleableJob.from_dict(raised.to_dict()) == raised
    assert raised.decided(verdict(4), two, "y", LIMITS, 9000) is raised
    kept = raised.kept()
    assert kept.advance(two, LIMITS, 105)[1] == () and kept.decided(verdict(4), two, "y", LIMITS, 9000) is not kept


def test_what_0_1_0_owed_before_the_shrink_is_needed_and_not_owed():
    me = registered(4).decided(verdict(2), job("n1", "n2", "n3", "n4"), "x", LIMITS, 100, ResizeTerms(extend=7200.0))
    taken = me.accepted(1, 101)
    assert taken is not None
    gone = taken.done(1, {}, 102).shrunk(103)

    def of_0_1_0(state: MalleableJob, **more: object) -> MalleableJob:
        old = {k: v for k, v in state.to_dict().items() if k not in ("earned", "before", "ordered")}
        return MalleableJob.from_dict({**old, **more})

    read = of_0_1_0(taken, owed=7200.0)
    assert (read.phase, read.owed, read.extend) == (ResizePhase.LEAVING, 0.0, 7200.0)
    assert read.done(1, {}, 102).shrunk(103).owed == 7200.0
    assert read.refused(1, "no", 102).owed == 0.0
    released = of_0_1_0(gone, owed=7200.0)
    assert (released.owed, released.earned) == (7200.0, 2), "that shrink has come"
    ahead = of_0_1_0(registered(4), owed=7200.0)
    assert (ahead.owed, ahead.extend) == (0.0, 0.0), "it was idle without having given back anything"


def test_an_application_that_starts_anew_has_longer():
    me = offered().accepted(1, 103)
    assert me is not None
    me = replace(me, offer=replace(me.offer, method="restart"))
    assert me.advance(job("n1", "n2", "n5", "n6"), LIMITS, 103 + 601)[1] == ()
    assert me.advance(job("n1", "n2", "n5", "n6"), LIMITS, 103 + 3601)[1] == (AskSteps((7,)),)


def test_a_state_of_an_earlier_release_is_read():
    old = {k: v for k, v in registered().to_dict().items() if k not in ("way", "companions", "announced")}
    old["offer"] = {k: v for k, v in old["offer"].items() if k not in ("method", "companion")}
    assert MalleableJob.from_dict(old) == registered()


EVENTS = st.sampled_from(
    [
        "check",
        "new-check",
        "accept",
        "refuse",
        "done",
        "stale",
        "grow",
        "shrink",
        "stay",
        "granted",
        "grant-failed",
        "merged",
        "joined",
        "merge-failed",
        "gone",
        "lost",
        "shrunk",
        "tick",
    ]
)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(EVENTS, st.integers(0, 80)), max_size=40))
def test_no_order_of_events_loses_a_node_or_tells_slurm_of_an_unconfirmed_shrink(events):
    """Whatever comes in whatever order: nodes are asked back only when the ranks do not run there, the state survives
    its dictionary, and being idle means that nothing is on its way."""
    me, now = registered(), 0.0
    confirmed_shrink = False
    for event, wait in events:
        now += wait
        alloc = job(*me.own) if me.phase not in (ResizePhase.MERGING, ResizePhase.OFFERED) else job(*me.own, "m1", "m2")
        before = me
        match event:
            case "check":
                me = me.checked(me.offer, max(0, me.epoch - 1), now)
            case "new-check":
                size = me.target or me.offer.size
                me = me.checked(replace(me.offer, size=size, nodes=()), me.epoch, now)
            case "accept":
                me = me.accepted(me.epoch, now) or me
            case "refuse":
                me = me.refused(me.epoch, "no", now)
            case "done":
                me = me.done(me.epoch, {}, now)
            case "stale":
                me = me.done(me.epoch + 1, {}, now)
            case "grow" | "shrink" | "stay":
                way = Way.COMPANION if wait % 2 else Way.MERGE
                size = {"grow": me.offer.size * 2, "shrink": max(1, me.offer.size // 2), "stay": me.offer.size}[event]
                if me.splits(min(size, 8)) or size > me.offer.size:
                    me = me.decided(verdict(min(size, 8)), job(*me.own), f"r{now}", LIMITS, now, ResizeTerms(way=way))
            case "granted":
                me = me.granted(100 + me.epoch, now)
            case "joined":
                missing = (me.target or 0) - len(me.nodes)
                companion = job(*(f"c{me.epoch}-{i}" for i in range(missing)))
                me = me.joined(replace(companion, id=100 + me.epoch), now)
            case "lost" if me.phase is ResizePhase.IDLE and me.nodes:
                me = me.lost([c.job for c in me.companions[:1]], now)
                me = me.checked(replace(me.offer, size=len(me.nodes), nodes=me.nodes), me.epoch, now)
            case "grant-failed":
                me = me.grant_failed("no", now)
            case "merged":
                me = me.merged(job(*me.own, *(f"x{me.epoch}-{i}" for i in range(me.target))), now)
            case "merge-failed":
                me = me.merge_failed("no", now)
            case "gone":
                leaving = me.leaving if me.phase is ResizePhase.RELEASING else ()
                me = me.gone(leaving[0].name if leaving else me.resizer_name, alloc, LIMITS, now)
            case "shrunk":
                me = me.shrunk(now)
            case "tick":
                me, todo = me.advance(alloc, LIMITS, now)
                for order in todo:
                    if isinstance(order, Shrink):
                        assert set(order.keep) == set(me.own), "never a node that ranks run on"
        if before.phase is ResizePhase.LEAVING and me.phase is ResizePhase.RELEASING:
            confirmed_shrink = True
        if me.phase is ResizePhase.RELEASING:
            assert confirmed_shrink
        assert MalleableJob.from_dict(me.to_dict()) == me
        assert not me.nodes or len(me.nodes) * me.offer.per_node == me.offer.size
        if me.phase is ResizePhase.IDLE:
            assert not me.resizer_name and not me.target_nodes


def test_a_clock_set_back_ends_the_rest_between_two_resizes():
    me = replace(registered(), since=9000.0)
    assert me.offer_now(LIMITS, 9001.0).target == me.offer.size
    assert me.offer_now(LIMITS, 5000.0).target is None


def lent(until: float = 400.0) -> MalleableJob:
    """On two nodes of its own, and two that a companion holds until then."""
    me = registered().decided(
        verdict(4), job("n1", "n2"), "penstock-7-x", LIMITS, 100, ResizeTerms(Way.COMPANION, loan=300)
    )
    _, todo = me.advance(job("n1", "n2"), LIMITS, 100)
    assert todo == (Allocate(7, "penstock-7-x", 2, 300, Way.COMPANION),)
    me = me.granted(8, 101).joined(replace(job("n5", "n6"), id=8, end=until, time_limit=300), 102)
    accepted = me.accepted(1, 103)
    assert accepted is not None
    return accepted.done(1, {}, 104)


def test_nodes_that_are_lent_have_an_end():
    me = lent()
    assert me.companions == (Companion("penstock-7-x", 8, ("n5", "n6"), 102, 400.0),)
    assert MalleableJob.from_dict(me.to_dict()) == me
    without = me.to_dict()
    del without["companions"][0]["until"]  # as an earlier release has stored it
    assert MalleableJob.from_dict(without).companions[0].until is None


def test_nodes_that_were_not_lent_have_none():
    me = registered().decided(verdict(4), job("n1", "n2"), "penstock-7-x", LIMITS, 100, ResizeTerms(Way.COMPANION))
    me = me.granted(8, 101).joined(replace(job("n5", "n6"), id=8), 102)
    accepted = me.accepted(1, 103)
    assert accepted is not None and accepted.done(1, {}, 104).companions[0].until is None


def test_what_was_lent_goes_back_without_a_rest():
    me = lent()
    assert me.decided(verdict(2), job("n1", "n2"), "", LIMITS, 105) is me, "it rests from its last resize"
    back = me.decided(verdict(2), job("n1", "n2"), "", LIMITS, 105, ResizeTerms(due=True))
    assert back.phase is ResizePhase.PROPOSED and back.target_nodes == ("n1", "n2")


def test_a_loan_is_due_before_its_end():
    me = replace(lent(), offer=replace(lent().offer, leaves_within=20.0, companion=True, nodes=lent().nodes))
    assert due_back(me, 369.0) is None
    verdict = due_back(me, 371.0)
    assert verdict is not None and verdict.size == 2 and verdict.reasons[0].code == "loan-over"
    forever = replace(me, companions=(replace(me.companions[0], until=None),))
    assert due_back(forever, 5000.0) is None

"""Elastic jobs whose nodes join and leave: these events give these instructions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dmr.elastic.dialogue import Phase
from dmr.elastic.group import Group
from dmr.elastic.words import (
    PROGRAM,
    Accepted,
    AcceptResize,
    AskAgent,
    ElasticNode,
    ElasticPlan,
    Event,
    Exit,
    FinishHeard,
    FinishResize,
    HasEnded,
    Instruction,
    Join,
    KillNodes,
    Leave,
    Left,
    Notified,
    Notify,
    Offered,
    Ready,
    RefuseResize,
    RunProgram,
    Say,
    Signal,
    StopAsked,
    TimePassed,
    Wanted,
)

PLAN = ElasticPlan(minimum=1, maximum=8, start="head", join="work", grace=10.0, ready_timeout=60.0, interval=5.0)
BASE = ElasticNode("n1", 7)
N2, N3, N4 = (ElasticNode(f"n{i}", 20) for i in (2, 3, 4))
N5 = ElasticNode("n5", 21)
GROW = Offered("expand", 1, ("n1", "n2", "n3", "n4"), 20)


class World:
    """A group and its clock; `did` are its instructions without what it says to the user."""

    def __init__(self, plan: ElasticPlan = PLAN, base: Sequence[str] = ("n1",)) -> None:
        self.group = Group(plan, base, 7)
        self.now = 0.0
        self.said: list[str] = []
        self.begun = self._kept(self.group.begin(0.0))

    def _kept(self, instructions: list[Instruction]) -> list[Instruction]:
        self.said += [one.text for one in instructions if isinstance(one, Say)]
        return [one for one in instructions if not isinstance(one, Say)]

    def on(self, *events: Event, after: float = 0.0) -> list[Instruction]:
        self.now += after
        return self._kept([one for event in events for one in self.group.on(event, self.now)])

    def up(self) -> World:
        for member in self.group.base:
            self.on(Ready(member.host))
        return self

    def grown(self, offer: Offered = GROW) -> World:
        """With the offer's nodes."""
        self.up()
        self.on(TimePassed(), after=10.0)
        self.on(offer, Accepted(True), *([Notified(True)] if self.group.plan.notify else []))
        self.on(*(Ready(m.host) for m in self.group.moving))
        self.on(FinishHeard(True))
        assert self.group.phase is Phase.STEADY
        return self

    def hosts(self) -> list[str]:
        return [m.host for m in self.group.members]


def test_the_head_is_started_and_the_base_joins_first() -> None:
    world = World()
    assert world.begun == [RunProgram((BASE,), again=False), Join(BASE)]
    assert world.on(TimePassed()) == [], "nothing is asked before the base has joined"
    world.on(Ready("n1"))
    assert world.on(TimePassed()) == [AskAgent(0, ("n1",), 1, 8, 1, 1, leaves_within=20.0)]
    assert world.on(TimePassed(), after=100.0) == [], "one question at a time"
    world.on(Offered())
    assert world.on(TimePassed()) == [AskAgent(0, ("n1",), 1, 8, 1, 1, leaves_within=20.0)]


def test_without_a_preferred_size_everything_lent_is_for_whoever_waits() -> None:
    world = World(replace(PLAN, preferred=4)).up()
    (asked,) = world.on(TimePassed())
    assert isinstance(asked, AskAgent) and asked.preferred == 4
    (asked,) = World(PLAN).up().on(TimePassed())
    assert isinstance(asked, AskAgent) and asked.preferred == asked.minimum == 1


def test_what_the_program_has_use_for_bounds_the_size() -> None:
    world = World(replace(PLAN, preferred=4)).up()
    world.on(Wanted(3))
    (asked,) = world.on(TimePassed())
    assert isinstance(asked, AskAgent) and (asked.minimum, asked.maximum, asked.preferred) == (1, 3, 3)
    world = World(base=("n1", "n2")).up()
    world.on(Wanted(0))
    (asked,) = world.on(TimePassed())
    assert isinstance(asked, AskAgent) and (asked.minimum, asked.maximum) == (2, 2), "never below the job's own nodes"


def test_growth() -> None:
    world = World().up()
    world.on(TimePassed())
    assert world.on(GROW) == [AcceptResize(1)]
    assert world.on(Accepted(True), after=1.0) == [Join(N2), Join(N3), Join(N4)]
    assert world.on(Ready("n2"), Ready("n2"), Ready("n3")) == [], "joined twice counts once"
    assert world.on(Ready("n4"), after=2.0) == [FinishResize(1, ("n1", "n2", "n3", "n4"), 2.0)]
    assert world.on(FinishHeard(True)) == []
    assert world.on(TimePassed()) == [AskAgent(1, ("n1", "n2", "n3", "n4"), 1, 8, 1, 1, leaves_within=20.0)]
    assert any("grown 1 -> 4 nodes" in text for text in world.said)


def test_that_a_resize_is_done_is_told_until_it_is_heard() -> None:
    world = World().up()
    world.on(TimePassed(), GROW, Accepted(True), Ready("n2"), Ready("n3"), Ready("n4"))
    assert [type(one) for one in world.on(FinishHeard(False), FinishHeard(False))] == [FinishResize, FinishResize]
    world.on(*[FinishHeard(False)] * 5)
    (asked,) = world.on(TimePassed())  # it tells as much, by its epoch and its nodes
    assert isinstance(asked, AskAgent) and asked.epoch == 1 and len(asked.nodes) == 4


def test_shrink() -> None:
    world = World().grown()
    world.on(TimePassed(), after=10.0)
    assert world.on(Offered("shrink", 2, ("n1",)), Accepted(True)) == [AcceptResize(2), Signal((N2, N3, N4))]
    assert world.on(HasEnded("n2", 0), HasEnded("n4", 0)) == []
    assert world.on(HasEnded("n3", 143), after=3.0) == [FinishResize(2, ("n1",), 3.0)]
    world.on(FinishHeard(True))
    assert world.hosts() == ["n1"]


def test_a_leave_command_goes_before_the_signal() -> None:
    world = World(replace(PLAN, leave="drain")).grown()
    world.on(TimePassed(), after=10.0)
    assert world.on(Offered("shrink", 2, ("n1",)), Accepted(True)) == [AcceptResize(2), Leave((N2, N3, N4), 10.0)]
    assert world.on(HasEnded("n2", 0), TimePassed()) == []
    assert world.on(Left()) == [Signal((N3, N4))]
    assert world.on(HasEnded("n3", 0), HasEnded("n4", 0)) == [FinishResize(2, ("n1",), 0.0)]


@pytest.mark.parametrize("leave", ["", "drain"])
def test_who_does_not_leave_within_grace_is_ended(leave: str) -> None:
    world = World(replace(PLAN, leave=leave)).grown()
    world.on(TimePassed(), after=10.0)
    world.on(Offered("shrink", 2, ("n1",)), Accepted(True))
    assert world.on(TimePassed(), after=9.0) == []
    assert world.on(HasEnded("n2", 0), TimePassed(), after=2.0) == [KillNodes((N3, N4))]
    assert world.on(Left(), TimePassed(), after=1.0) == []
    assert world.on(HasEnded("n3", 137), HasEnded("n4", 137)) == [FinishResize(2, ("n1",), 12.0)]


def test_what_cannot_be_killed_ends_with_its_companion() -> None:
    world = World().grown()
    world.on(TimePassed(), after=10.0)
    world.on(Offered("shrink", 2, ("n1",)), Accepted(True))
    world.on(TimePassed(), after=11.0)
    assert [type(one) for one in world.on(TimePassed(), after=20.0)] == [FinishResize]
    world.on(FinishHeard(True))
    assert world.hosts() == ["n1"] and world.on(HasEnded("n3", 137)) == []


def test_join_fails_on_one_of_three_nodes() -> None:
    world = World(replace(PLAN, leave="drain")).up()
    world.on(TimePassed(), GROW, Accepted(True), Ready("n2"))
    assert world.on(HasEnded("n3", 3)) == [Leave((N2, N4), 10.0)], "the two others are told to leave"
    assert world.on(Left()) == [Signal((N2, N4))]
    assert world.on(HasEnded("n2", 0), HasEnded("n4", 0)) == [RefuseResize(1, "join failed on n3 (exit 3)")]
    assert world.group.phase is Phase.STEADY and world.hosts() == ["n1"]


def test_join_fails_everywhere() -> None:
    world = World().up()
    world.on(TimePassed(), Offered("expand", 1, ("n1", "n5"), 21), Accepted(True))
    assert world.on(HasEnded("n5", 127)) == [RefuseResize(1, "join failed on n5 (exit 127)")]


def test_join_hangs() -> None:
    world = World().up()
    world.on(TimePassed(), GROW, Accepted(True), Ready("n2"))
    assert world.on(TimePassed(), after=59.0) == []
    assert world.on(TimePassed(), after=2.0) == [Signal((N2, N3, N4))]
    assert world.on(TimePassed(), after=11.0) == [KillNodes((N2, N3, N4))]
    refused = world.on(*(HasEnded(m.host, 137) for m in (N2, N3, N4)))
    assert refused == [RefuseResize(1, "n3, n4 not ready within 60 s")]


def test_the_agent_withdraws_a_resize_or_its_answer_is_lost() -> None:
    world = World().up()
    world.on(TimePassed())
    (accept, refuse) = world.on(GROW, Accepted(False))
    assert accept == AcceptResize(1) and isinstance(refuse, RefuseResize) and refuse.epoch == 1
    assert world.group.phase is Phase.STEADY


def test_a_notification_command_refuses_a_growth() -> None:
    world = World(replace(PLAN, notify="hear")).up()
    world.on(TimePassed())
    assert world.on(GROW, Accepted(True)) == [AcceptResize(1), Notify("grow", (N2, N3, N4))]
    assert world.on(Notified(False, "exit 1")) == [RefuseResize(1, "the notification command refused: exit 1")]
    assert world.group.phase is Phase.STEADY


def test_a_notification_command_cannot_refuse_a_shrink() -> None:
    world = World(replace(PLAN, notify="hear")).grown()
    world.on(TimePassed(), after=10.0)
    assert world.on(Offered("shrink", 2, ("n1",)), Accepted(True))[1:] == [Notify("shrink", (N2, N3, N4))]
    assert world.on(Notified(False, "exit 1")) == [Signal((N2, N3, N4))]


@pytest.mark.parametrize(
    ("offer", "why"),
    [
        (Offered("expand", 0, ("n1", "n2"), 20), "epoch 0 is over"),
        (Offered("expand", 1, ("n2", "n3"), 20), "does not keep the job's nodes"),
        (Offered("expand", 1, ("n1", "n2"), 0), "by companions only"),
        (Offered("expand", 1, tuple(f"n{i}" for i in range(1, 10)), 20), "more than the maximum of 8"),
        (Offered("shrink", 1, ("n2",)), "nodes that the job does not have"),
    ],
)
def test_offers_that_are_refused(offer: Offered, why: str) -> None:
    world = World().up()
    world.on(TimePassed())
    (refused,) = world.on(offer)
    assert isinstance(refused, RefuseResize) and why in refused.why


def test_the_bases_nodes_are_never_given_back() -> None:
    world = World(base=("n1", "n9")).grown(Offered("expand", 1, ("n1", "n9", "n5"), 21))
    world.on(TimePassed(), after=10.0)
    (refused,) = world.on(Offered("shrink", 2, ("n1",)))
    assert isinstance(refused, RefuseResize) and "never given back" in refused.why


def test_sizes_by_a_factor() -> None:
    world = World(replace(PLAN, factor=2)).up()
    world.on(TimePassed())
    (refused,) = world.on(Offered("expand", 1, ("n1", "n2", "n3"), 20))
    assert isinstance(refused, RefuseResize) and "factor 2" in refused.why


# -- what is lost ------------------------------------------------------------------------------------------------------


def test_a_companion_that_ends_is_dropped_whole() -> None:
    world = World().grown().grown(Offered("expand", 2, ("n1", "n2", "n3", "n4", "n5"), 21))
    assert world.on(HasEnded("n3", 1)) == [Signal((N2, N4))]
    assert world.on(HasEnded("n2", 143), HasEnded("n4", 143)) == []
    assert world.hosts() == ["n1", "n5"]
    (asked,) = world.on(TimePassed())
    assert isinstance(asked, AskAgent) and asked.nodes == ("n1", "n5"), "and so the agent gives it back"
    assert world.group.companions == {20, 21}, "or the job itself at its end"


def test_a_companion_that_ends_while_another_joins() -> None:
    world = World().grown()
    world.on(TimePassed(), after=10.0)
    world.on(Offered("expand", 2, ("n1", "n2", "n3", "n4", "n5"), 21), Accepted(True))
    assert world.on(HasEnded("n2", 1)) == [], "one thing after the other"
    assert [type(one) for one in world.on(Ready("n5"))] == [FinishResize]
    world.on(FinishHeard(True))
    assert world.on(TimePassed()) == [Signal((N3, N4))]


def test_a_companion_that_ends_while_it_is_to_leave() -> None:
    world = World().grown()
    world.on(TimePassed(), after=10.0)
    world.on(Offered("shrink", 2, ("n1",)), Accepted(True))
    assert [type(one) for one in world.on(*(HasEnded(m.host, 137) for m in (N2, N3, N4)))] == [FinishResize]


def test_an_offer_that_comes_while_a_node_is_lost_is_asked_for_again() -> None:
    world = World().grown()
    world.on(TimePassed(), after=10.0)
    world.on(HasEnded("n3", 1))
    assert world.on(Offered("shrink", 2, ("n1",))) == []
    world.on(HasEnded("n2", 1), HasEnded("n4", 1))
    (asked,) = world.on(TimePassed())
    assert isinstance(asked, AskAgent) and asked.nodes == ("n1",)


def test_what_ends_on_the_base_is_started_again_ever_more_rarely() -> None:
    world = World().up()
    starts: list[float] = []
    for _ in range(8):
        world.on(HasEnded("n1", 1))
        for _ in range(80):
            if Join(BASE) in world.on(TimePassed(), after=1.0):
                starts.append(world.now)
                break
    assert len(starts) == 5, "and in the end not any more"
    gaps = [b - a for a, b in itertools.pairwise(starts)]
    assert gaps == sorted(gaps) and "it is not started again" in world.said[-1]


def test_the_head_ends_and_so_does_the_job() -> None:
    world = World().grown()
    assert world.on(HasEnded(PROGRAM, 3)) == [Signal((BASE, N2, N3, N4))]
    assert world.on(*(HasEnded(f"n{i}", 0) for i in (1, 2, 3, 4))) == [Exit(3)]
    assert world.on(TimePassed()) == []


@pytest.mark.parametrize("events", [(), (GROW,), (GROW, Accepted(True)), (GROW, Accepted(True), Ready("n2"))])
def test_the_job_is_ended_in_each_phase(events: tuple[Event, ...]) -> None:
    world = World().up()
    world.on(TimePassed(), *events)
    (signalled,) = world.on(StopAsked(15))
    assert isinstance(signalled, Signal) and {PROGRAM, "n1"} <= {m.host for m in signalled.members}
    (killed,) = world.on(TimePassed(), after=11.0)
    assert isinstance(killed, KillNodes)
    assert Exit(143) in world.on(TimePassed(), after=20.0), "whatever hangs"


def test_without_a_head_the_program_on_the_base_is_the_job() -> None:
    plan = replace(PLAN, start="")
    world = World(plan, base=("n1", "n9"))
    assert world.begun == [Join(BASE), Join(ElasticNode("n9", 7))]
    world.up()
    assert world.on(HasEnded("n1", 0)) == []
    assert world.on(HasEnded("n9", 0)) == [Exit(0)]
    world = World(plan, base=("n1", "n9")).up()
    assert world.on(HasEnded("n9", 4)) == [Signal((BASE,))]
    assert world.on(HasEnded("n1", 143)) == [Exit(4)]


def test_what_the_agent_says_is_told_once() -> None:
    world = World().up()
    for _ in range(3):
        world.on(TimePassed(), Offered(reason="MaxNodes of alice is reached"), after=10.0)
    for _ in range(3):
        world.on(TimePassed(), Offered(answered=False), after=10.0)
    assert world.said == ["MaxNodes of alice is reached", "no agent answers; the job keeps its size"]


def test_whatever_comes_in_whatever_order_the_job_can_be_ended() -> None:
    """All events in all phases: no exception, the base is kept, and at the end there is an exit."""
    hosts = ["n1", "n2", "n3", "n4", "n5"]
    kinds: list[Any] = [
        TimePassed(),
        GROW,
        Offered(),
        Offered("shrink", 2, ("n1",)),
        Offered("expand", 3, ("n1", "n5"), 21),
        Accepted(True),
        Accepted(False),
        FinishHeard(True),
        FinishHeard(False),
        Notified(True),
        Notified(False),
        Left(),
        Wanted(2),
        *(Ready(h) for h in hosts),
        *(HasEnded(h, c) for h, c in itertools.product(hosts, (0, 1))),
    ]
    for seed in range(300):
        draw = random.Random(seed)
        world = World(replace(PLAN, leave=draw.choice(["", "drain"]), notify=draw.choice(["", "hear"])))
        for _ in range(60):
            world.on(draw.choice(kinds), after=draw.choice([0.0, 0.0, 1.0, 30.0]))
            assert world.hosts()[0] == "n1" and len(set(world.hosts())) == len(world.hosts())
        ended = [
            *world.on(StopAsked(15)),
            *world.on(TimePassed(), after=100.0),
            *world.on(TimePassed(), after=100.0),
        ]
        assert Exit(143) in ended


def test_who_wants_no_loans_says_so() -> None:
    """And who starts again at each size and wants them, as it may refuse to leave."""
    assert PLAN.leaves_within == 20.0 and replace(PLAN, loans=False).leaves_within is None
    starts_again = replace(PLAN, join="", again="head")
    assert starts_again.leaves_within is None and replace(starts_again, loans=True).leaves_within == 20.0

"""Elastic jobs whose program is started again with each size: these events give these instructions."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from dmr.elastic.dialogue import Phase
from dmr.elastic.resuming import Resuming
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
    KillNodes,
    Leave,
    Left,
    Notified,
    Offered,
    Ready,
    RefuseResize,
    RunProgram,
    Say,
    Signal,
    StopAsked,
    TimePassed,
)

PLAN = ElasticPlan(minimum=1, maximum=4, start="run", again="go on", checkpoint="state", grace=20.0, interval=5.0)
BASE = ElasticNode("n1", 7)
N2, N3 = ElasticNode("n2", 20), ElasticNode("n3", 20)
IT = ElasticNode(PROGRAM, 7)
GROW = Offered("expand", 1, ("n1", "n2", "n3"), 20)
SHRINK = Offered("shrink", 2, ("n1",))
SAVED = HasEnded(PROGRAM, 0, saved=True)


class World:
    def __init__(self, plan: ElasticPlan = PLAN) -> None:
        self.job = Resuming(plan, ("n1",), 7)
        self.now = 0.0
        self.said: list[str] = []
        assert self._kept(self.job.begin(0.0)) == [RunProgram((BASE,), again=False)]
        self.on(Ready(PROGRAM))

    def _kept(self, instructions: list[Instruction]) -> list[Instruction]:
        self.said += [one.text for one in instructions if isinstance(one, Say)]
        return [one for one in instructions if not isinstance(one, Say)]

    def on(self, *events: Event, after: float = 0.0) -> list[Instruction]:
        self.now += after
        return self._kept([one for event in events for one in self.job.on(event, self.now)])

    def grown(self) -> World:
        self.on(TimePassed(), after=10.0)
        self.on(GROW, Accepted(True), SAVED, Ready(PROGRAM), FinishHeard(True))
        assert self.job.phase is Phase.STEADY and self.job.members == (BASE, N2, N3)
        return self


def test_growth() -> None:
    world = World()
    (asked,) = world.on(TimePassed())
    assert isinstance(asked, AskAgent) and asked.again
    assert world.on(GROW, Accepted(True)) == [AcceptResize(1), Signal((IT,))]
    assert world.on(SAVED, after=3.0) == [RunProgram((BASE, N2, N3), again=True)]
    assert world.on(Ready(PROGRAM), after=1.0) == [FinishResize(1, ("n1", "n2", "n3"), 4.0)]


def test_shrink() -> None:
    world = World(replace(PLAN, leave="stop it")).grown()
    world.on(TimePassed(), after=10.0)
    assert world.on(SHRINK, Accepted(True)) == [AcceptResize(2), Leave((IT,), 20.0)]
    assert world.on(Left()) == [], "a command takes the place of the signal, which might end it"
    assert world.on(SAVED) == [RunProgram((BASE,), again=True)]
    assert world.on(Ready(PROGRAM)) == [FinishResize(2, ("n1",), 0.0)]


def test_a_program_that_ignores_its_signal_goes_on() -> None:
    world = World()
    world.on(TimePassed(), GROW, Accepted(True))
    assert world.on(TimePassed(), after=19.0) == []
    (refused,) = world.on(TimePassed(), after=2.0)
    assert isinstance(refused, RefuseResize) and "did not end within 20 s" in refused.why
    assert world.job.phase is Phase.STEADY and PROGRAM in world.job.alive
    assert world.on(SAVED, after=30.0) == [RunProgram((BASE,), again=True)], "it hears of it late, and is not over"
    world.on(Ready(PROGRAM))
    assert world.on(HasEnded(PROGRAM, 0, saved=True)) == [Exit(0)]


def test_a_program_that_ends_by_itself_while_it_is_to_save() -> None:
    world = World()
    world.on(TimePassed(), GROW, Accepted(True))
    assert world.on(HasEnded(PROGRAM, 0, saved=False)) == [Exit(0)]
    world = World(replace(PLAN, finished="look"))
    world.on(TimePassed(), GROW, Accepted(True))
    assert world.on(HasEnded(PROGRAM, 0, saved=True, finished=True)) == [Exit(0)]


def test_a_program_that_dies_of_the_signal_is_started_where_it_was() -> None:
    world = World()
    world.on(TimePassed(), GROW, Accepted(True))
    assert world.on(HasEnded(PROGRAM, 138, saved=False)) == [RunProgram((BASE,), again=True)]
    (refused,) = world.on(Ready(PROGRAM))
    assert isinstance(refused, RefuseResize) and "without a new checkpoint" in refused.why
    assert world.job.members == (BASE,)


def test_a_program_that_fails_on_the_new_nodes_goes_back() -> None:
    world = World()
    world.on(TimePassed(), GROW, Accepted(True), SAVED)
    assert world.on(HasEnded(PROGRAM, 1)) == [RunProgram((BASE,), again=True)]
    (refused,) = world.on(Ready(PROGRAM))
    assert isinstance(refused, RefuseResize) and "failed on the new set of nodes (exit 1)" in refused.why
    world.on(TimePassed(), GROW, Accepted(True), SAVED)
    world = World()
    world.on(TimePassed(), GROW, Accepted(True), SAVED, HasEnded(PROGRAM, 1))
    assert world.on(HasEnded(PROGRAM, 1)) == [Exit(1)], "and with the job, if it fails there too"


def test_a_program_that_fails_with_a_companion_goes_on_without() -> None:
    world = World().grown()
    assert world.on(HasEnded(PROGRAM, 9)) == [RunProgram((BASE,), again=True)]
    world.on(Ready(PROGRAM))
    (asked,) = world.on(TimePassed(), after=10.0)
    assert isinstance(asked, AskAgent) and asked.nodes == ("n1",), "and so the agent gives the companion back"
    assert world.on(HasEnded(PROGRAM, 9)) == [Exit(9)]


def test_all_companions_are_given_back_at_the_end_also_those_it_went_on_without() -> None:
    """Where no agent runs nobody else does it."""
    world = World().grown()
    world.on(TimePassed(), after=10.0)
    world.on(Offered("expand", 2, ("n1", "n2", "n3", "n4"), 21), Accepted(True), SAVED, Ready(PROGRAM))
    world.on(FinishHeard(True))
    assert world.job.companions == {20, 21}
    world.on(HasEnded(PROGRAM, 9), Ready(PROGRAM))
    assert world.job.members == (BASE,) and world.job.companions == {20, 21}


def test_the_end_by_itself_and_by_a_signal() -> None:
    assert World().on(HasEnded(PROGRAM, 5, saved=False)) == [Exit(5)]
    world = World()
    assert world.on(StopAsked(15)) == [Signal((IT,))]
    assert world.on(TimePassed(), after=21.0) == [KillNodes((IT,))]
    assert world.on(HasEnded(PROGRAM, 137)) == [Exit(143)]


def test_whatever_comes_in_whatever_order_the_job_can_be_ended() -> None:
    kinds: list[Any] = [
        TimePassed(),
        GROW,
        SHRINK,
        Offered(),
        Accepted(True),
        Accepted(False),
        FinishHeard(True),
        FinishHeard(False),
        Left(),
        Notified(True),
        Notified(False),
        Ready(PROGRAM),
        SAVED,
        HasEnded(PROGRAM, 1),
        HasEnded(PROGRAM, 1, saved=False),
    ]
    for seed in range(300):
        draw = random.Random(seed)
        world = World(replace(PLAN, leave=draw.choice(["", "stop"]), notify=draw.choice(["", "hear"])))
        for _ in range(40):
            world.on(draw.choice(kinds), after=draw.choice([0.0, 1.0, 30.0]))
            assert world.job.members[0] == BASE
        if world.job.phase is not Phase.OVER:
            assert Exit(143) in world.on(StopAsked(15)) + world.on(TimePassed(), after=100.0) + world.on(
                TimePassed(), after=100.0
            )

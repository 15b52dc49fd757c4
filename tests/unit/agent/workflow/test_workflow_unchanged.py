"""A run of which a look shows nothing new is not stepped over: that is the same as if it were, whatever happens."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

import pytest
import test_workflow_owned_properties as owned
import test_workflow_properties as own
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api import JobSpec
from penstock.core.pauses import Pause
from penstock.errors import PenstockError, UserError
from penstock.values.standing import standing
from penstock.workflow.run import controller, submissions
from penstock.workflow.run.unchanged import jobs_named, resting
from penstock.workflow.strategies.registry import known_strategies
from penstock_lab.agent_world import World, chain, virtual

pytestmark = pytest.mark.usefixtures("quick_and_quiet")


def seen_by(view, run):
    return tuple(standing(job, view.rows(job), view.records.get(job)) for job in jobs_named(run))


class Witness:
    """A runner that steps over a run even where it need not, and looks whether that came to anything."""

    def __init__(self, runner):
        self._runner, self._rest, self._run, self._said, self._at = runner, None, None, {}, 0.0
        self.spared, self.made = 0, 0

    def __getattr__(self, name):
        return getattr(self._runner, name)

    def step(self, run, view, now, predict):
        asked = []

        def predicted(geometry):
            asked.append(geometry)
            return predict(geometry)

        spared = self._run == run and self._rest is not None and self._rest.lasts(view.taken_at, now)
        spared = spared and seen_by(view, run) == self._rest.seen
        step = self._runner.step(run, view, now, predicted)
        told = {}
        for stage, reason in step.notes:
            told.setdefault(stage, []).append(reason.code)
        calm = step.run == run and not step.instructions and not step.more and told == self._said
        if spared:
            self.spared += 1
            assert calm and not asked, (now, view.taken_at, self._rest, step.notes, told, self._said)
        if self._run == step.run == run and self._at == now:  # asked twice
            return step
        self.made += 1
        calm &= self._run == run and self._at < now
        self._run, self._said, self._at = step.run, told, now
        self._rest = resting(step.run, view.taken_at, now, seen_by(view, step.run)) if calm else None
        return step


SPARED: Counter[str] = Counter()


def lived(agent, kind):
    agent.runner = witness = Witness(agent.runner)
    agent.go()
    SPARED[f"{kind} spared"] += witness.spared
    SPARED[f"{kind} made"] += witness.made


@given(st.integers(0, 2**32), st.sampled_from(known_strategies()), st.integers(1, 7), st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=300, deadline=None)
def test_no_step_that_is_spared_would_have_done_anything(seed, strategy, stages, trouble):
    lived(own.Agent(seed, strategy, stages, trouble), "own")


@given(st.integers(0, 2**32), owned.STRATEGIES, st.integers(1, 8), st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=250, deadline=None)
def test_nor_for_jobs_of_an_owners(seed, strategy, stages, trouble):
    lived(owned.Agent(seed, strategy, stages, trouble), "owned")


def test_and_many_are_spared():
    SPARED.clear()
    for seed in range(30):
        lived(own.Agent(seed, "perstage", 5, 0.0), "own")
        lived(owned.Agent(seed, "eager", 5, 0.0), "owned")
    assert SPARED["own spared"] > 0.1 * SPARED["own made"]
    assert SPARED["owned spared"] > 0.1 * SPARED["owned made"]


# -- the whole agent, twice over the same world ------------------------------------------------------------------------


class Twin:
    """A world in which every run is stepped over at each look (`spares` false), or what changed alone. What happens in
    it is drawn by its seed and the virtual clock, so that two twins part as soon as their agents do."""

    def __init__(self, folder, seed, *, spares, operator):
        self.world = World(folder, {"agent": {"interval": 5}}, operator=operator, nodes=8)
        self.rng, self.operator, self.spares = random.Random(seed), operator, spares
        self.numbers = []

    async def boot(self):
        await self.world.boot()
        if not self.spares:
            self.world.each_pass = self.forget

    async def forget(self):
        self.world.workflows.full_pass()

    async def begin(self):
        bob = self.world.engine.uid_of("bob")
        for n in range(6):
            seconds = [self.rng.choice([20, 45, 90, 200]) for _ in range(self.rng.choice([2, 3, 4]))]
            if self.operator:
                jobs = []
                for length in seconds:
                    behind = f"afterok:{jobs[-1]}" if jobs else None
                    spec = JobSpec("x", f"#!/bin/sh\nsleep {length}\n", 2, 600.0, dependency=behind, hold=bool(jobs))
                    jobs.append(await self.world.bob.submit(spec))
                stages = [
                    {"name": f"s{i}", "job": job, "after": [f"s{i - 1}"] * (i > 0), "hold": i > 0}
                    for i, job in enumerate(jobs)
                ]
                request = {"workflow": f"w{n}", "strategy": self.rng.choice(["asa", "eager"]), "stages": stages}
                self.numbers.append(await self.world.workflows.registrations.register(bob, request))
            else:
                strategy = self.rng.choice(["asa", "eager", "perstage", "seed", "packed", "handover", "asa-after"])
                flow = chain(*seconds, name=f"w{n}")
                try:
                    self.numbers.append(await self.world.submit(flow, strategy))
                except UserError:  # a strategy that this site has no use for
                    self.numbers.append(await self.world.submit(flow, "eager"))
        for _ in range(6):
            size, length = self.rng.choice([2, 4, 8]), self.rng.choice([15, 60, 150])
            await self.world.bob.submit(JobSpec("rival", f"#!/bin/sh\nsleep {length}\n", size, length + 60.0))

    async def something(self):
        """What people and the machine do."""
        kind = self.rng.choice(["hold", "release", "cancel", "requeue", "rival", "pause", "resume", "end", "restart"])
        whose = self.world.bob if self.operator else self.world.backend
        living = sorted(j.id for j in self.world.living("bob" if self.operator else "alice"))
        job, number, chance = (
            (self.rng.choice(living) if living else None),
            self.rng.choice(self.numbers),
            self.rng.random(),
        )
        told = self.world.app.executor.pause_control
        with suppress(PenstockError):
            match kind:
                case "hold" | "release" | "requeue" if job is not None:
                    await getattr(whose, kind)(job)
                case "cancel" if job is not None and chance < 0.4:
                    await whose.cancel(job)
                case "rival":
                    await self.world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 40\n", 4, 100.0))
                case "pause" if chance < 0.3:
                    told.pause(Pause(feature="workflows"))
                case "resume" if told.pauses:
                    told.resume(list(told.pauses))
                case "end" if chance < 0.2:
                    self.world.workflows.cancel(number, "its user has seen enough")
                case "restart" if chance < 0.5:
                    await self.world.restart()

    def seen(self):
        """All that is said and done so far."""
        store = self.world.store
        return {
            "now": self.world.now,
            "runs": [(n, state) for n, _uid, state in store.runs.latest()],
            "told": store.decisions.latest(0, 100_000),
            "jobs": [
                (j.id, j.name, j.state, j.spec, j.submit, j.start, j.end) for j in self.world.engine.records.values()
            ],
            "wake": self.world.workflows.next_wake(self.world.now),
        }


@pytest.mark.parametrize("operator", [False, True], ids=["own", "owned"])
@pytest.mark.parametrize("seed", range(6))
@virtual
async def test_two_agents_do_and_say_the_same_at_every_pass(tmp_path, monkeypatch, seed, operator):
    """One steps over every run at each look, the other over those of which it shows something new."""
    monkeypatch.setattr(submissions, "_token", lambda: "abc123")
    twins = [Twin(tmp_path / str(n), seed, spares=n == 1, operator=operator) for n in range(2)]
    steps = Counter[int]()
    for twin in twins:
        await twin.boot()
        await twin.begin()
    for turn in range(400):
        for n, twin in enumerate(twins):
            before = twin.world.workflows
            did = before.steps
            await twin.world.tick()
            steps[n] += before.steps - did
            if turn % 7 == 3:
                await twin.something()
        first, second = (twin.seen() for twin in twins)
        for what, told in first.items():
            assert second[what] == told, (turn, what)
    assert not twins[1].world.workflows.runs or turn, "most have ended"
    assert 0 < steps[1] < 0.8 * steps[0], steps


@virtual
async def test_now_and_then_and_after_a_start_all_are_stepped_over(tmp_path, monkeypatch):
    monkeypatch.setattr(controller, "_FULL", 120.0)
    world = World(tmp_path, nodes=8)
    await world.boot()
    for n in range(3):
        await world.submit(chain(500, 20, name=f"w{n}"), "perstage")

    async def stepped(seconds):
        passes, before, end = world.passes, world.workflows.steps, world.now + seconds
        await world.until(lambda: world.now >= end)
        return world.passes - passes, world.workflows.steps - before

    await stepped(70)
    passes, steps = await stepped(40)
    assert (steps, passes >= 8) == (0, True), "nothing changes"
    _passes, steps = await stepped(60)
    assert 3 <= steps <= 6, "twice: what moves along with the clock is seen by that"
    await world.restart()
    await world.until(lambda: world.workflows.steps)
    assert world.workflows.steps == 3

"""One user asks for all that is allowed, and the others are served as if there were nobody else."""

from __future__ import annotations

import pytest

from penstock.api import JobSpec, JobState
from penstock.errors import NotNow, UserError
from penstock.workflow.phases import RunPhase, StagePhase, Submitter
from penstock_lab.agent_world import World, virtual

pytestmark = pytest.mark.usefixtures("quick_and_quiet")

UNSEEN = 500_000_000


def flow(name, jobs, after=1, **more):
    """Stages, each after so many before it."""
    names = [f"s{i}" for i in range(len(jobs))]
    stages = [
        {"name": names[i], "job": job, "after": names[max(0, i - after) : i], "hold": True}
        for i, job in enumerate(jobs)
    ]
    return {"workflow": name, "strategy": "asa", "stages": stages, **more}


class Site:
    """An agent for all, Mallory who asks for much, and Bob who has one workflow of two jobs that Slurm knows."""

    def __init__(self, tmp_path, **limits):
        self.world = World(tmp_path, {"limits": limits}, operator=True)
        self.mallory = self.world.engine.uid_of("mallory")
        self.asked: list[tuple[float, tuple[int, ...]]] = []

    async def boot(self):
        world = self.world
        await world.boot()
        real = world.app.backend.history

        async def history(**query):
            self.asked.append((world.now, tuple(query.get("ids", ()))))
            return await real(**query)

        world.workflows._accounting._backend.history = history

    async def register(self, uid, request):
        number = await self.world.workflows.registrations.register(uid, request)
        self.world.pass_at = self.world.now
        return number

    async def bobs(self, seconds=30.0):
        spec = JobSpec("a", f"#!/bin/sh\nsleep {seconds:g}\n", 1, 600.0)
        first = await self.world.bob.submit(spec)
        held = JobSpec("b", f"#!/bin/sh\nsleep {seconds:g}\n", 1, 600.0, dependency=f"afterok:{first}", hold=True)
        return await self.register(
            self.world.engine.uid_of("bob"), flow("bobs", [first, await self.world.bob.submit(held)])
        )

    def phases(self, number):
        run = self.world.workflows.runs.get(number)
        return None if run is None else [stage.phase for stage in run.stages]


@virtual
async def test_what_a_user_may_have_is_said_when_it_is_asked_for(tmp_path):
    site = Site(tmp_path, stages_of_user=50, dependencies_of_user=100, unseen_of_user=40)
    await site.boot()
    jobs = range(UNSEEN, UNSEEN + 1000)
    for request, text in (
        (flow("w", jobs[:51]), r"these are 51 stages: at most 50 are possible \(`limits.stages_of_user`"),
        (
            flow("w", jobs[:30], 20),
            r"these are 390 dependencies: at most 100 are possible \(`limits.dependencies_of_user`",
        ),
        (flow("w", jobs[:41]), r"these are 41 jobs that Slurm has not shown yet: at most 40 .*`limits.unseen_of_user`"),
    ):
        for ask in (
            site.world.workflows.registrations.plan,
            site.world.workflows.registrations.register,
        ):
            with pytest.raises(UserError, match=text):
                await ask(site.mallory, request)
    await site.register(site.mallory, flow("v", jobs[:30], 3))
    for ask in (
        site.world.workflows.registrations.plan,
        site.world.workflows.registrations.register,
    ):
        with pytest.raises(
            NotNow, match=r"have 30 stages, and would have 60: at most 50 .* Cancel some workflows, wait"
        ) as e:
            await ask(site.mallory, flow("w", jobs[100:130], 0))
        assert e.value.exit_code == 6
        with pytest.raises(NotNow, match="have 84 dependencies, and would have 108"):
            await ask(site.mallory, flow("w", jobs[100:110], 3))
        with pytest.raises(NotNow, match="30 jobs that Slurm has not shown yet, and would have 45"):
            await ask(site.mallory, flow("w", jobs[100:115], 0))
    await site.register(site.world.engine.uid_of("bob"), flow("w", jobs[200:230], 3))


@virtual
async def test_a_pass_serves_every_user_and_nobody_more_than_the_budget(tmp_path):
    site = Site(tmp_path, work_of_user=100)
    await site.boot()
    many = [
        await site.register(site.mallory, flow(f"w{i}", range(UNSEEN + 1000 * i, UNSEEN + 1000 * i + 40)))
        for i in range(20)
    ]
    bob = await site.bobs()
    flows, served = site.world.workflows, []
    real = flows._step

    async def step(number, *rest):
        served[-1].append(number)
        return await real(number, *rest)

    flows._step = step
    looked = {}
    for _ in range(40):
        served.append([])
        await site.world.app.loop.one_pass()
        look = site.world.app.observer.last
        looked.setdefault(look.taken_at, []).append(served[-1])
        assert len([n for n in served[-1] if n != bob]) <= 2, "45 each: two are 90"
        site.world.clock.advance_to(min(flows.next_wake(site.world.now), site.world.now + 5.0))
        if len(looked) > 3:
            break
    first, second, *_ = looked.values()
    for passes in (first, second):
        assert {n for numbers in passes for n in numbers} == {*many, bob}, "all of them over each look"
        assert passes[0].index(bob) <= 1, "Bob in the first pass over it, and not at its end"
    assert len(first) == 10


@pytest.mark.long
@virtual
async def test_unseen_jobs_are_asked_for_a_bounded_number_of_times_and_given_up_with_a_reason(tmp_path, monkeypatch):
    site = Site(tmp_path, lookups=300)
    await site.boot()
    woken: list[str] = []
    monkeypatch.setattr(site.world.workflows, "_wake", woken.append)
    many = [
        await site.register(site.mallory, flow(f"w{i}", range(UNSEEN + 1000 * i, UNSEEN + 1000 * i + 900), 9))
        for i in range(2)
    ]
    bob = await site.register(site.world.engine.uid_of("bob"), flow("typo", [UNSEEN * 2]))
    await site.world.until(lambda: not site.world.workflows.runs, 3600)
    assert max(len(jobs) for _at, jobs in site.asked) == 300
    per_job = {}
    for _at, jobs in site.asked:
        for job in jobs:
            per_job[job] = per_job.get(job, 0) + 1
    assert per_job == dict.fromkeys([*range(UNSEEN, UNSEEN + 900), *range(UNSEEN + 1000, UNSEEN + 1900), UNSEEN * 2], 5)
    assert next(jobs for _at, jobs in site.asked if UNSEEN * 2 in jobs) == site.asked[0][1], (
        "Bob's with the first question"
    )
    assert all(b - a >= 0.5 for (a, _), (b, _) in zip(site.asked, site.asked[1:], strict=False))
    questions = len(site.asked)
    site.world.clock.advance(86_400)
    await site.world.app.loop.one_pass()
    assert len(site.asked) == questions, "forgotten"
    assert "accounting answered" in woken, "the last answer is acted on at once, not at the next look"
    for number in (*many, bob):
        (state,) = [s for n, _u, s in site.world.store.runs.latest(submitter=Submitter.OWNER) if n == number]
        assert (state["phase"], "asked 5 times" in state["why"]) == (RunPhase.FAILED, True)
        said = site.world.store.decisions.of(f"workflow {number}")[-1]["reasons"]
        assert "is neither in the queue nor in accounting" in said[0][1]


@virtual
async def test_ticks_count_together_how_often_accounting_was_asked(tmp_path):
    """Each is a process of its own."""
    site = Site(tmp_path)
    await site.boot()
    number = await site.register(site.mallory, flow("w", [UNSEEN]))
    asked = 0
    for _ in range(12):
        site.asked.clear()
        site.world.clock.advance(60)
        await site.world.app.loop.one_pass()
        asked += len(site.asked)
        await site.world.restart()
        site.asked = []
        await site.boot()
    assert asked == 5
    assert number not in site.world.workflows.runs


@virtual
async def test_an_answer_that_is_lost_counts_for_nothing(tmp_path):
    site = Site(tmp_path)
    await site.boot()
    number = await site.register(site.mallory, flow("w", [UNSEEN]))
    site.world.app.backend.failing = lambda method: NotNow("slurmdbd is away") if method == "history" else None
    end = site.world.now + 7200
    await site.world.until(lambda: site.world.now >= end, 8000)
    assert site.phases(number) == [StagePhase.WAITING]
    assert len(site.asked) < 200, "asked ever more rarely"
    site.world.app.backend.failing = lambda _method: None
    await site.world.until(lambda: number not in site.world.workflows.runs, 900)


@virtual
async def test_bob_is_served_as_if_there_were_nobody_else(tmp_path):
    async def times(folder, attacked):
        site = Site(folder)
        await site.boot()
        if attacked:
            for i in range(7):
                for size in (1000, 500, 250, 100):
                    try:
                        await site.register(
                            site.mallory, flow(f"w{i}", range(UNSEEN + 2000 * i, UNSEEN + 2000 * i + size), 50)
                        )
                        break
                    except NotNow:
                        continue
        number = await site.bobs()
        began, steps = site.world.now, site.world.workflows.steps
        await site.world.until(lambda: number not in site.world.workflows.runs)
        jobs = [j for j in site.world.engine.records.values() if j.user == "bob"]
        assert [j.state for j in jobs] == [JobState.COMPLETED] * 2
        return [j.start - began for j in jobs], site.world.workflows.steps - steps

    alone, _steps = await times(tmp_path / "alone", False)
    beside, _more = await times(tmp_path / "attacked", True)
    assert beside == pytest.approx(alone, abs=5.0), "one pass"


@virtual
async def test_a_pass_makes_so_many_changes_for_each_user(tmp_path):
    site = Site(tmp_path, changes_of_user=3)
    await site.boot()
    world = site.world
    spec = JobSpec("a", "#!/bin/sh\nsleep 5\n", 1, 600.0, hold=True)
    for user in ("mallory", "bob"):
        backend = world.backend.as_user(user)
        for i in range(8 if user == "mallory" else 2):
            await site.register(world.engine.uid_of(user), flow(f"w{i}", [await backend.submit(spec)]))
    released = []

    async def counted():
        done = [d for d in world.store.decisions.latest(0, 1000) if d["verb"] == "release"]
        released.append(len(done) - sum(released))

    world.each_pass = counted
    await world.until(lambda: sum(released) == 10, 60)
    assert released[:3] == [5, 3, 2], "three of Mallory's and two of Bob's at first"


@virtual
async def test_over_the_same_look_nothing_is_gone_through_twice(tmp_path):
    site = Site(tmp_path)
    await site.boot()
    for i in range(5):
        await site.register(site.mallory, flow(f"w{i}", range(UNSEEN + 10 * i, UNSEEN + 10 * i + 5)))
    site.world.app.observer.min_interval = 1000.0
    site.world.clock.advance(1.0)
    await site.world.app.loop.one_pass()
    await site.world.app.loop.one_pass()  # what accounting said
    steps = site.world.workflows.steps
    await site.world.app.loop.one_pass()
    assert site.world.workflows.steps == steps
    await site.register(
        site.mallory, flow("w0", [UNSEEN + 7], 0) | {"stages": [{"name": "x", "job": UNSEEN + 7, "after": []}]}
    )
    await site.world.app.loop.one_pass()
    assert site.world.workflows.steps == steps + 1, "one of them has changed"
    site.world.clock.advance(15.0)
    await site.world.app.loop.one_pass()
    assert site.world.workflows.steps >= steps + 6, "of all something is due"

"""A bag of tasks over two simulated clusters: submitted, followed, moved, and taken up again after anything."""

import asyncio
import itertools
from pathlib import Path

import pytest
from bag_world import START, BagWorld
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api import AccountingRecord, JobState
from penstock.errors import NotFound, NotNow, OutcomeUnknown, SlurmUnavailable, StoreError
from penstock_lab.mock.controller import Controller
from penstock_lab.testing import make_job
from penstock_planning.broker.assess import assess
from penstock_planning.broker.bags import Array, BagRun
from penstock_planning.broker.choice import Preference, choose
from penstock_planning.broker.follow import Progress, given_way, read_array, read_records, summary
from penstock_planning.broker.tasks import bag_at
from penstock_planning.select.correction import Corrections
from penstock_planning.select.ranking import Frugal
from penstock_planning.select.spread import Hysteresis


@pytest.fixture
def world(tmp_path):
    return BagWorld(tmp_path)


def test_a_bag_is_spread_run_and_learned_from(world):
    async def story():
        run, plan, problems = await world.submit(10)
        assert (not problems and plan == {"near/main": 6, "far/main": 4}) or sum(plan.values()) == 10
        assert set(plan) == {"near/main", "far/main"}
        _, done = await world.step(run.id)
        assert done.progress.running == 6 and done.progress.waiting == 4
        run, done, _ = await world.until_done(run.id)
        assert done.progress.done == 10 and done.progress.failed == 0
        jobs = await world.backend.on("near").history(name=run.arrays[0].name)
        assert all(job.state is JobState.COMPLETED for job in jobs)
        learned = world.bags.corrections()
        # 500 s on both, where 500 and 1000 were predicted.
        assert learned.factor("md", "near/main") == pytest.approx(1.0, abs=0.15)
        assert learned.factor("md", "far/main") == pytest.approx(0.5, abs=0.1)

    asyncio.run(story())


def test_tasks_move_when_another_cluster_has_become_clearly_better(world):
    async def story():
        world.block("far", 50_000.0, 60_000.0, 2)
        world.block("near", 20_000.0, 20_000.0, 4)
        run, plan, _ = await world.submit(8)
        assert set(plan) == {"near/main"}
        run, done = await world.step(run.id, Hysteresis(300.0, 0.2))
        assert not done.moves and done.progress.waiting == 8
        for engine in (world.backend.on("far").engine,):
            Controller(engine).cancel("root", 1)  # bob's job ends early: far is free
        world.backend.clock.advance(400.0)
        run, done = await world.step(run.id, Hysteresis(300.0, 0.2))
        assert done.moves and all(m.to == "far/main" for m in done.moves)
        assert done.progress.waiting == 8 and done.progress.running == 0
        moved = len(done.moves)
        assert run.arrays[0].withdrawn == list(range(8 - moved, 8))
        assert not run.unplaced and not run.arrays[0].held
        assert sum(len(a.pieces) for a in run.arrays) == 8 + moved
        run, done, _ = await world.until_done(run.id, Hysteresis(300.0, 0.2))
        assert done.progress.done == 8 and done.progress.failed == 0
        ran = [task for a in run.arrays for i in a.alive for task in a.pieces[i]]
        assert sorted(ran) == list(range(8))

    asyncio.run(story())


def test_what_was_sent_to_the_best_alone_stays_there(world):
    async def story():
        market = await world.market()
        found = await assess(market, world.bag, 8, Corrections())
        market.close()
        assert choose(world.bag, 8, found, Preference(alone=True)).jobs == {"near/main": 8}
        assert set(choose(world.bag, 8, found, Preference()).jobs) == {"near/main", "far/main"}
        assert choose(world.bag, 8, found, Preference(Frugal(), alone=True)).jobs == {}  # of which nothing is known
        world.block("near", 20_000.0, 20_000.0, 4)
        run, _, _ = await world.submit(4, {"near/main": 4})
        world.backend.clock.advance(400.0)
        _, done = await world.step(run.id, Hysteresis(0.0, 0.0), Preference(alone=True))
        assert not done.moves and done.progress.waiting == 4
        _, done = await world.step(run.id, Hysteresis(0.0, 0.0))
        assert done.moves

    asyncio.run(story())


def test_what_has_begun_stays_and_nothing_is_held_for_ever(world):
    async def story():
        world.block("near", 300.0, 300.0, 4)
        run, _, _ = await world.submit(8, {"near/main": 8})
        world.backend.clock.advance(400.0)  # four have begun by now, the others wait
        run, done = await world.step(run.id, Hysteresis(0.0, 0.0))
        assert done.progress.running >= 4
        near = world.backend.on("near")
        assert all(j.priority > 0 for j in await near.jobs() if j.pending)
        run, done, _ = await world.until_done(run.id, Hysteresis(0.0, 0.0))
        assert done.progress.done == 8

    asyncio.run(story())


@pytest.mark.parametrize("method", ["hold", "cancel", "release", "submit"])
@pytest.mark.parametrize("lost", [False, True], ids=["refused", "answer lost"])
def test_a_pass_that_breaks_off_is_taken_up_by_the_next(world, monkeypatch, method, lost):
    from penstock_lab.mock.backend import MockBackend

    async def story():
        world.block("far", 50_000.0, 60_000.0, 2)
        world.block("near", 3000.0, 3000.0, 4)
        run, _, _ = await world.submit(6)
        Controller(world.backend.on("far").engine).cancel("root", 1)
        world.backend.clock.advance(400.0)
        whole = getattr(MockBackend, method)
        broken = []

        async def breaks(self, *args, **more):
            if broken:
                return await whole(self, *args, **more)
            broken.append(True)
            if lost:
                await whole(self, *args, **more)
            raise (OutcomeUnknown if lost else SlurmUnavailable)("a fault")

        monkeypatch.setattr(MockBackend, method, breaks)
        run, done = await world.step(run.id, Hysteresis(300.0, 0.2))
        assert broken and done.problems
        run, done, _ = await world.until_done(run.id, Hysteresis(300.0, 0.2))
        assert done.progress.done == 6 and done.progress.failed == 0
        ran = [task for a in run.arrays for i in a.alive for task in a.pieces[i]]
        assert sorted(ran) == list(range(6))
        records = [
            r for c in ("near", "far") for a in run.arrays if a.cluster == c
            for r in await world.backend.on(c).history(name=a.name) if r.state is JobState.COMPLETED
        ]  # fmt: skip
        assert len(records) == 6  # each ran once

    asyncio.run(story())


def test_a_cluster_that_does_not_answer_is_left_out(world, monkeypatch):
    from penstock_lab.mock.backend import MockBackend

    async def story():
        whole = MockBackend.site

        async def silent(self):
            if self.name == "far":
                raise SlurmUnavailable("far: no answer")
            return await whole(self)

        monkeypatch.setattr(MockBackend, "site", silent)
        market = await world.market()
        assert list(market.views) == ["near"]
        assert market.problems == ["cluster far is left out: far: no answer"]
        assert [c.name for c in market.candidates] == ["near/main"]

    asyncio.run(story())


def test_the_file_of_a_bag(world):
    with pytest.raises(NotFound, match="there is no bag 7"):
        world.bags.load(7)
    run = world.bags.new(world.bag, 3, START, {})
    again = world.bags.load(run.id)
    assert (again.bag.task.name, again.unplaced, again.count) == ("md", [0, 1, 2], 3)
    assert world.bags.new(world.bag, 1, START, {}).id == run.id + 1
    with world.bags.locked(), pytest.raises(NotNow), world.bags.locked():
        pass
    next(world.bags._folder.glob("1.json")).write_text("{")
    with pytest.raises(StoreError):
        world.bags.load(1)


FORGETS = 300.0
ARRAY = 100


def test_a_number_that_was_taken_by_a_command_that_was_killed_at_once_is_no_bag(world, monkeypatch):
    with monkeypatch.context() as here:
        here.setattr(world.bags, "save", lambda run: None)
        killed = world.bags.new(world.bag, 3, START, {})
    other = world.bags.new(world.bag, 1, START, {})
    assert other.id == killed.id + 1
    assert world.bags.numbers() == [other.id]
    with pytest.raises(NotFound, match=f"there is no bag {killed.id}"):
        world.bags.load(killed.id)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.integers(1, 2000), st.booleans()), min_size=1, max_size=12),
    st.integers(1, 4),
    st.lists(st.integers(1, 900), min_size=1, max_size=6),
    st.integers(0, 120),
)
def test_every_task_of_an_array_has_an_end_however_rarely_one_looks(tasks, cores, steps, lag):
    begun, ends, busy = [], [], [0.0] * cores
    for seconds, _fails in tasks:
        busy.sort()
        begun.append(busy[0])
        busy[0] += seconds
        ends.append(busy[0])
    last = len(tasks) - 1
    ids = [ARRAY if i == last else ARRAY + 1 + i for i in range(len(tasks))]  # the last to begin has the array's own
    state = [JobState.FAILED if fails else JobState.COMPLETED for _seconds, fails in tasks]

    def rows(now):
        out, waiting = [], [i for i in range(len(tasks)) if begun[i] > now]
        if waiting:
            out.append(make_job(ARRAY, array_job=ARRAY, tasks=len(waiting)))
        for i in range(len(tasks)):
            if begun[i] <= now < ends[i] + FORGETS:
                is_now = state[i] if ends[i] <= now else JobState.RUNNING
                times = {"start": begun[i], "end": ends[i]}
                out.append(make_job(ids[i], "n1", array_job=ARRAY, array_task=i, state=is_now, **times))
        return out

    def records(now):
        return [
            AccountingRecord(
                ids[i], "bag", "alice", "main", "q", "a", state[i], 0, 0.0, 0.0, begun[i], ends[i], None, 1
            )
            for i in range(len(tasks))
            if ends[i] + lag <= now
        ]  # fmt: skip

    array = Array("bag", "near", "near/main", [[i] for i in range(len(tasks))], 100.0, 0.0, job=ARRAY)
    learned, now = Corrections(), 0.0
    for step in itertools.cycle(steps):
        jobs = rows(now)
        if not read_array(array, jobs, "md", learned):
            read_records(array, jobs, records(now), "md", learned)
        assert len(array.states) <= sum(end <= now for end in ends)
        if now > max(ends) + FORGETS + lag:
            break
        now += step
    assert sorted(int(i) for i in array.states) == list(range(len(tasks)))
    assert sorted(array.states.values()) == sorted(s.value for s in state)
    assert sorted(array.learned) == sorted(ids)


def test_what_fetching_input_took_teaches_nothing_of_run_times():
    array = Array("bag", "near", "near/main", [[0]], 100.0, 0.0, job=ARRAY, fetch=50.0)
    learned = Corrections()
    record = AccountingRecord(
        ARRAY, "bag", "alice", "main", "q", "a", JobState.COMPLETED, 0, 0.0, 0.0, 10.0, 160.0, None, 1
    )
    read_records(array, [], [record], "md", learned)
    assert array.states == {"0": "COMPLETED"} and learned.factor("md", "near/main") == 1.0


def test_tasks_that_were_preempted_are_to_be_done_again():
    array = Array("bag", "near", "near/main", [[0, 1], [2], [3]], 100.0, 0.0, job=ARRAY)
    array.states = {"0": "PREEMPTED", "1": "COMPLETED", "2": "FAILED"}
    assert given_way(array) == [0, 1] and array.withdrawn == [0]
    assert given_way(array) == []
    run = BagRun(1, bag_at({"name": "b", "requirements": [{"type": "compute", "amount": 1}]}, "t", Path(), "t"), 4, 0.0)
    run.arrays, run.unplaced = [array], [0, 1]
    assert summary(run, {}) == Progress(waiting=0, running=0, done=1, failed=1, unplaced=2)

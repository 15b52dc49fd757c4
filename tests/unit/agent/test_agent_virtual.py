"""Workflows under the whole agent over the simulated Slurm in virtual time."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from factories import ManualClock

from penstock.api import JobSpec, JobState
from penstock.core.pauses import Pause
from penstock.errors import Infeasible, NotFound, NotPermitted, OutcomeUnknown, SlurmUnavailable, StoreError, UserError
from penstock.waits.learners.base import BOUND
from penstock.waits.learners.geometry import parse
from penstock.waits.part import WaitsPart
from penstock.workflow.asks import Asks
from penstock.workflow.metrics import gap_before, run_metrics, waited
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import RunPhase, StagePhase
from penstock.workflow.run.accounting import Accounting
from penstock.workflow.run.seen import look_up
from penstock.workflow.state import StageRun, WorkflowRun
from penstock_lab.agent_world import START, Killed, World, chain, virtual
from penstock_lab.mock.codec import CHANGING
from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.model import PriorityType

pytestmark = pytest.mark.usefixtures("quick_and_quiet")


def deviation(run: WorkflowRun, stage: str) -> float:
    """Seconds from (parent's expected end - estimate) to the submission."""
    entry = run.stage(stage)
    assert entry.submitted is not None and entry.parent_end is not None and entry.estimate is not None
    return entry.submitted - (entry.parent_end - entry.estimate)


def assert_in_order(run: WorkflowRun) -> None:
    for before, after in zip(run.stages, run.stages[1:], strict=False):
        assert before.end is not None and after.start is not None
        assert before.end <= after.start


# -- workflows ---------------------------------------------------------------------------------------------------------


@virtual
async def test_asa_submits_each_stage_its_estimate_before_the_parents_end(tmp_path):
    world = World(tmp_path)
    await world.boot()
    run = await world.finish(await world.submit(chain(61, 62, 63), "asa"))
    assert run.phase is RunPhase.COMPLETED
    assert_in_order(run)
    assert world.submissions() == {"a": 1, "b": 1, "c": 1}
    for stage, parent in (("b", "a"), ("c", "b")):
        entry = run.stage(stage)
        assert abs(deviation(run, stage)) <= 1.0
        assert run.stage(parent).start < entry.submitted < run.stage(parent).end
        assert world.engine.records[entry.job].spec.dependency == f"afterok:{run.stage(parent).job}"
        assert not world.engine.records[entry.job].spec.hold, "Slurm remembers the parent, however it ends"
    # The machine is empty: with a dependency the next stage starts at its parent's very end.
    assert [gap_before(run, i) for i in (1, 2)] == [0.0, 0.0]


@virtual
async def test_perstage_submits_after_the_parents_end_without_a_dependency(tmp_path):
    world = World(tmp_path)
    await world.boot()
    run = await world.finish(await world.submit(chain(21, 22, 23), "perstage"))
    assert run.phase is RunPhase.COMPLETED
    assert_in_order(run)
    assert world.submissions() == {"a": 1, "b": 1, "c": 1}
    for i in (1, 2):
        assert world.engine.records[run.stages[i].job].spec.dependency is None
        assert run.stages[i].submitted >= run.stages[i - 1].end
        assert 0 < gap_before(run, i) <= 5.5  # the time until the next look
    assert all(stage.estimate is not None for stage in run.stages), "learned waits are shown under every strategy"


@pytest.mark.parametrize("predictor", ["asa-default", "share-mix"])
@virtual
async def test_what_is_planned_at_one_look_goes_by_the_same_waits(tmp_path, predictor):
    """asa-default draws its estimates at random."""
    world = World(tmp_path, {"asa": {"predictor": predictor, "alternatives": [2.0, 10.0, 50.0, 300.0]}})
    await world.boot()
    await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 500\n", 8, 600))
    runs = [await world.submit(chain(21, 22, 23, name=f"w{n}"), "packed") for n in range(5)]
    told = [
        [r for d in world.store.decisions.of(f"workflow {number}") for r in d["reasons"] if r[0] == "packed-cut"]
        for number in runs
    ]
    assert len(told[0]) == 1 and all(one == told[0] for one in told)


@virtual
async def test_a_pause_of_a_workflow_is_no_wait_and_no_reaction_of_the_agents(tmp_path):
    world = World(tmp_path)
    await world.boot()
    number, told = await world.submit(chain(21, 22, 23), "perstage"), world.app.executor.pause_control
    paused = Pause(feature="workflows")

    async def on_and_off():
        begun = world.run(number).stages[0].start is not None
        if begun and not told.pauses and world.engine.now < START + 60:
            told.pause(paused)
        elif told.pauses and world.engine.now >= START + 60:
            told.resume([paused])

    world.each_pass = on_and_off
    run = await world.finish(number)
    found = waited(run, 1)
    assert found.paused == pytest.approx(START + 60 - run.stages[0].end, abs=6)
    assert found.paused > 20 and found.reaction <= 6 and found.perceived <= 6
    assert waited(run, 2).paused == 0


@virtual
async def test_bigjob_submits_one_job_of_the_widest_stage_and_all_the_time(tmp_path):
    world = World(tmp_path)
    await world.boot()
    stages = (Stage("a", 2, 100, 20, "sleep 20"), Stage("b", 5, 200, 30, "sleep 30", ("a",)))
    run = await world.finish(await world.submit(Workflow("w", stages), "bigjob"))
    assert run.phase is RunPhase.COMPLETED
    (job,) = world.engine.records.values()
    assert (job.spec.nodes, job.spec.time_limit, job.spec.dependency) == (5, 300, None)
    assert "sleep 20" in job.spec.script
    assert "sleep 30" in job.spec.script


@virtual
async def test_under_load_asa_hides_the_waits_that_perstage_shows(tmp_path):
    waits = {}
    for strategy in ("asa", "perstage"):
        world = World(tmp_path / strategy, {"asa": {"predictor": "asa-default", "alternatives": [80.0]}}, nodes=4)
        await world.boot()

        async def keep_a_queue(world=world):
            pending = [j for j in world.living("bob") if j.state is JobState.PENDING]
            for _ in range(4 - len(pending)):
                await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 20\n", 2, 25))

        world.each_pass = keep_a_queue
        run = await world.finish(await world.submit(chain(100, 101, 102), strategy))
        assert run.phase is RunPhase.COMPLETED
        waits[strategy] = [gap_before(run, i) for i in (1, 2)]
    assert sum(waits["asa"]) < sum(waits["perstage"]) / 2, waits
    assert min(waits["perstage"]) > 10, waits


RULES = {"default": {"accrue_always": False}, "accrue-always": {}, "basic": {"priority": PriorityType.BASIC}}


@pytest.mark.parametrize("rules", RULES)
@virtual
async def test_under_load_auto_hides_the_waits_whatever_the_rules_of_the_site(tmp_path, rules):
    """At no extra node-second; asa with its dependency hides little of them where dependent jobs do not age."""
    waits = {}
    for strategy in ("auto", "perstage"):
        world = World(tmp_path / strategy, nodes=4, **RULES[rules])
        await world.boot()

        async def keep_a_queue(world=world):
            pending = [j for j in world.living("bob") if j.state is JobState.PENDING]
            for _ in range(4 - len(pending)):
                await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 20\n", 2, 25))

        world.each_pass = keep_a_queue
        run = await world.finish(await world.submit(chain(100, 101, 102), strategy))
        assert_in_order(run)
        metrics = run_metrics(run)
        assert (metrics.overhead_node_hours, metrics.misses) == (0, 0)
        assert metrics.node_hours == pytest.approx(303 * 2 / 3600, rel=0.01)
        waits[strategy] = [gap_before(run, i) for i in (1, 2)]
        assert world.submissions() == {"a": 1, "b": 1, "c": 1}
        if strategy == "auto":
            codes = {code for d in world.store.decisions.of("workflow 1") for code, _ in d["reasons"]}
            assert {"auto-handover", "pinned"} <= codes
    assert sum(waits["auto"]) < sum(waits["perstage"]) / 4, waits
    assert min(waits["perstage"]) > 10, waits


@virtual
async def test_a_start_that_is_too_early_idles_in_virtual_time_as_well(tmp_path):
    world = World(tmp_path, {"asa": {"predictor": "asa-default", "alternatives": [15.0]}})
    await world.boot()
    run = await world.finish(await world.submit(chain(60, 60, 60), "asa-naive"))
    assert run.phase is RunPhase.COMPLETED and run_metrics(run).misses == 0
    assert all(b.end >= a.end + 60 for a, b in zip(run.stages, run.stages[1:], strict=False))
    assert run_metrics(run).overhead_node_hours > 20 / 3600


@virtual
async def test_an_estimate_longer_than_the_parent_is_submitted_at_once(tmp_path):
    world = World(tmp_path, {"asa": {"predictor": "asa-default", "alternatives": [500.0]}})
    await world.boot()
    run = await world.finish(await world.submit(chain(60, 60, 60), "asa"))
    assert run.phase is RunPhase.COMPLETED
    assert_in_order(run)
    assert run.stages[1].submitted - run.stages[0].submitted < 5
    assert world.submissions() == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("strategy", ["asa", "perstage"])
@virtual
async def test_a_failing_middle_stage_fails_the_run_and_cancels_what_was_submitted_ahead(tmp_path, strategy):
    world = World(tmp_path, {"asa": {"predictor": "asa-default", "alternatives": [30.0]}})
    await world.boot()
    run = await world.finish(await world.submit(chain(40, 41, 42, failing="b"), strategy))
    assert run.phase is RunPhase.FAILED
    assert world.living() == []
    assert "b" in run.why
    assert [s.phase.value for s in run.stages] == ["done", "failed", "cancelled"]
    assert world.submissions() == ({"a": 1, "b": 1, "c": 1} if strategy == "asa" else {"a": 1, "b": 1})
    assert all(j.start is None for j in world.engine.records.values() if j.name.startswith("c."))


@virtual
async def test_a_cancelled_workflow_leaves_no_job(tmp_path):
    world = World(tmp_path, {"asa": {"predictor": "asa-default", "alternatives": [30.0]}})
    await world.boot()
    number = await world.submit(chain(40, 40, 40), "asa")
    await world.until(lambda: world.submissions()["c"] == 1)
    world.workflows.cancel(number, "cancelled by the user")
    run = await world.finish(number)
    assert (run.phase, run.why) == (RunPhase.CANCELLED, "cancelled by the user")
    assert world.living() == []
    assert world.workflows.runs == {}


@virtual
async def test_a_workflow_wider_than_the_partition_is_refused_with_nothing_submitted(tmp_path):
    world = World(tmp_path)
    await world.boot()
    with pytest.raises(UserError, match=r"stages\[0\]\.nodes: must be at most 8"):
        await world.submit(chain(10, 10, nodes=9), "asa")
    for _ in range(3):
        await world.tick()
    assert world.engine.records == {}
    assert world.store.runs.latest() == []


@virtual
async def test_the_queue_and_slurm_itself_are_asked_what_they_expect(tmp_path):
    world = World(tmp_path, {"asa": {"predictor": "share-mix"}})
    await world.boot()
    blocker = JobSpec("big", "#!/bin/sh\nsleep 100\n", 8, 600)
    await world.bob.submit(blocker)
    world.clock.advance(1)
    number = await world.submit(chain(30, 31), "asa")
    await world.until(lambda: world.run(number).stages[1].estimate is not None)
    for stage in world.run(number).stages:
        said = stage.estimate_said
        assert {"slurm", "queue", "history", BOUND} <= said.keys()
        assert 100 <= said["queue"] <= 700 and 0 < said["slurm"] <= 700
    assert (await world.finish(number)).phase is RunPhase.COMPLETED
    await world.app.part(WaitsPart).predictions.forecast.close()
    state = world.store.learning.learned(f"queue-watch {(await world.backend.site()).cluster}")
    assert state is not None and state["learner"]["examples"], "its own jobs and those of others teach it"


@virtual
async def test_concurrent_workflows_share_what_is_learned(tmp_path):
    world = World(tmp_path)
    await world.boot()
    numbers = [await world.submit(chain(30, 31, 32, name=f"w{i}"), "asa") for i in range(3)]
    for number in numbers:
        assert (await world.finish(number)).phase is RunPhase.COMPLETED
    waits = world.store.learning.waits()
    assert len(waits) == 9
    (key,) = {w["key"] for w in waits}
    known = parse(key)
    assert known is not None and (known.partition, known.size, known.limit) == ("main", 1, 0)
    assert known.cluster == (await world.backend.site()).cluster
    rows = world.store.connection.rows("SELECT key FROM learned")
    assert sorted(r["key"] for r in rows) == [f"asa-default common {known.cluster}", f"asa-default {key}"]
    before = world.store.learning.learned("asa-default main//n2/t0")
    await world.restart()
    assert world.store.learning.learned("asa-default main//n2/t0") == before


@virtual
async def test_a_job_that_vanished_from_the_queue_is_looked_up_in_accounting(tmp_path):
    """The agent is down for longer than Slurm remembers ended jobs."""
    world = World(tmp_path)
    await world.boot()
    number = await world.submit(chain(30, 31), "perstage")
    await world.until(lambda: world.run(number).stage("a").phase.value == "running")
    world.kill()
    world.clock.advance(3600)
    await world.boot()
    run = await world.finish(number)
    assert run.phase is RunPhase.COMPLETED
    assert run.stage("a").end - run.stage("a").start == 30
    assert world.submissions() == {"a": 1, "b": 1}


@pytest.mark.parametrize("strategy", ["asa", "auto", "perstage", "bigjob"])
@virtual
async def test_an_agent_thrown_away_at_any_pass_submits_each_stage_exactly_once(tmp_path, strategy):
    k, passes = 0, 1
    while k < passes:
        world = World(tmp_path / str(k))
        await world.boot()
        number = await world.submit(chain(26, 27, 28), strategy)
        while not world.run(number).phase.final:
            if world.passes == k and world.lives == 1:
                await world.restart()
            await world.tick()
        passes = world.passes
        assert world.run(number).phase is RunPhase.COMPLETED, k
        assert set(world.submissions().values()) == {1}, (k, world.submissions())
        assert len(world.submissions()) == (1 if strategy == "bigjob" else 3)
        world.kill()
        k += 1
    assert k >= (3 if strategy == "bigjob" else 10)


@virtual
async def test_an_agent_restarted_at_every_single_pass_still_gets_on(tmp_path):
    world = World(tmp_path)
    await world.boot()
    number = await world.submit(chain(26, 27, 28), "asa")
    while not world.run(number).phase.final:
        assert world.now < START + 1000
        await world.tick()
        await world.restart()
    assert world.run(number).phase is RunPhase.COMPLETED
    assert world.submissions() == {"a": 1, "b": 1, "c": 1}
    assert len(world.store.learning.waits()) == 3


@pytest.mark.parametrize("strategy", ["asa", "auto", "perstage"])
@pytest.mark.few(1)
@virtual
async def test_an_agent_killed_before_any_write_or_request_submits_each_stage_exactly_once(tmp_path, strategy):
    k, blown = 0, True
    while blown:
        world = World(tmp_path / str(k))
        await world.boot()
        number = await world.submit(chain(26, 27, 28), strategy)
        world.fuse.at = world.fuse.points + k
        run = await world.finish(number)
        blown = world.lives > 1
        assert run.phase is RunPhase.COMPLETED, k
        assert world.submissions() == {"a": 1, "b": 1, "c": 1}, k
        assert len(world.store.learning.waits()) == 3, k
        assert world.living() == []
        world.kill()
        k += 1
    assert k > 30


@pytest.mark.parametrize("answer", ["lost", OutcomeUnknown("never sent"), SlurmUnavailable("down")])
@pytest.mark.parametrize("strategy", ["asa", "perstage"])
@virtual
async def test_a_submission_without_an_answer_is_neither_lost_nor_repeated(tmp_path, strategy, answer):
    world = World(tmp_path)
    seen = Counter()

    def every_first(method):
        seen[method] += 1
        return answer if method == "submit" and seen[method] % 2 == 1 else None

    world.failing = every_first
    await world.boot()
    run = await world.finish(await world.submit(chain(50, 51, 52), strategy))
    assert run.phase is RunPhase.COMPLETED
    assert world.submissions() == {"a": 1, "b": 1, "c": 1}
    assert_in_order(run)


@pytest.mark.parametrize("seed", range(12))
@virtual
async def test_whatever_calls_fail_each_stage_is_submitted_exactly_once(tmp_path, seed):
    """Any call fails with some probability in any of its ways, and now and then the agent is killed besides."""
    draw = random.Random(seed)
    world = World(tmp_path)

    def sometimes(method):
        if draw.random() > 0.15:
            return None
        choices: list[Exception | str] = [SlurmUnavailable(f"{method}: no answer")]
        if method in CHANGING:
            choices += ["lost", OutcomeUnknown(f"{method}: never sent")]
        return draw.choice(choices)

    await world.boot()
    number = await world.submit(chain(50, 51, 52), draw.choice(["asa", "auto", "eager", "perstage"]))
    world.app.backend.failing = sometimes
    while not world.run(number).phase.final:
        assert world.now < START + 40_000
        await world.tick()
        if draw.random() < 0.03:
            await world.restart()  # without faults: an agent that starts waits until Slurm answers
            world.app.backend.failing = sometimes
    assert world.run(number).phase is RunPhase.COMPLETED
    assert world.submissions() == {"a": 1, "b": 1, "c": 1}
    assert_in_order(world.run(number))


@virtual
async def test_while_slurm_does_not_answer_nothing_is_done_and_the_reason_is_kept(tmp_path):
    world = World(tmp_path)
    await world.boot()
    number = await world.submit(chain(30, 31), "perstage")
    await world.until(lambda: world.run(number).stage("a").phase.value == "running")
    world.app.backend.failing = lambda _method: SlurmUnavailable("slurmctld is down")
    before = world.now
    await world.until(lambda: world.now > before + 300)
    assert world.submissions() == {"a": 1}
    (last,) = world.store.decisions.of("agent")[-1:]
    assert last["verb"] == "hold"
    assert "slurmctld is down" in last["reasons"][0][1]
    assert world.app.observer.looks < 100
    world.app.backend.failing = lambda _method: None
    assert (await world.finish(number)).phase is RunPhase.COMPLETED
    assert world.store.decisions.of("agent")[-1]["verb"] == "nothing"


@virtual
async def test_a_stage_that_slurm_refuses_for_good_fails_the_workflow(tmp_path):
    world = World(tmp_path)
    await world.boot()
    world.app.backend.failing = lambda method: Infeasible("Invalid qos specification") if method == "submit" else None
    run = await world.finish(await world.submit(chain(30, 31), "asa"))
    assert run.phase is RunPhase.FAILED
    assert "Invalid qos" in run.why
    assert world.engine.records == {}


@virtual
async def test_an_agent_killed_while_it_accepts_a_workflow_starts_again_with_all_of_it_or_nothing(tmp_path):
    k, blown = 0, True
    while blown:
        world = World(tmp_path / str(k))
        await world.boot()
        world.fuse.at = world.fuse.points + k
        try:
            await world.submit(chain(10, 11), "perstage")
            blown = False
        except Killed:
            await world.restart()
        await world.until(lambda w=world: w.now > START + 100)
        assert world.submissions() in ({}, {"a": 1, "b": 1}), k
        k += 1
    assert k > 1


@virtual
async def test_a_run_that_ended_is_finished_in_the_file_whenever_the_agent_is_killed(tmp_path):
    k, blown = 0, True
    while blown:
        world = World(tmp_path / str(k))
        await world.boot()
        number = await world.submit(chain(26, 27), "perstage")
        world.fuse.at = world.fuse.points + k
        await world.finish(number)
        before = world.now
        await world.until(lambda w=world, b=before: w.now > b + 15)
        blown = world.lives > 1
        assert world.store.runs.latest(live_only=True) == [], k
        assert world.workflows.runs == {}, k
        world.kill()
        k += 1


@virtual
async def test_a_submission_that_is_not_permitted_fails_its_workflow_and_no_other(tmp_path):
    world = World(tmp_path)
    await world.boot()
    bad = await world.submit(chain(10, 11, name="bad"), "asa")
    good = await world.submit(chain(10, 11, name="good"), "asa")
    real = world.backend.submit

    async def submit(spec):
        if spec.name.endswith(".bad"):
            raise NotPermitted("Access/permission denied")
        return await real(spec)

    world.app.backend.submit = submit
    assert (await world.finish(good, 200)).phase is RunPhase.COMPLETED
    assert (await world.finish(bad, 200)).phase is RunPhase.FAILED


@virtual
async def test_accounting_that_lags_is_asked_less_and_less_often(tmp_path):
    """A job has left the queue, and accounting still says that it runs."""
    world = World(tmp_path, min_job_age=1.0)
    await world.boot()
    number = await world.submit(chain(20, 21), "perstage")
    calls = []
    real = world.backend.history

    async def history(**query):
        calls.append(world.now)
        late = world.now < START + 220
        return [replace(r, state=JobState.RUNNING, end=None) if late else r for r in await real(**query)]

    world.app.backend.history = history
    assert (await world.finish(number)).phase is RunPhase.COMPLETED
    assert len(calls) < 30


@virtual
async def test_a_cancel_of_a_job_that_slurm_has_forgotten_holds_up_nobody(tmp_path):
    world = World(tmp_path)
    await world.boot()
    bad = await world.submit(chain(40, 40, name="bad"), "asa")
    good = await world.submit(chain(40, 40, name="good"), "asa")
    await world.until(lambda: world.submissions()["a"] == 2)
    world.app.backend.failing = lambda method: NotFound("Invalid job id specified") if method == "cancel" else None
    world.workflows.cancel(bad, "not wanted")
    assert (await world.finish(good)).phase is RunPhase.COMPLETED
    assert (await world.finish(bad)).phase is RunPhase.CANCELLED


@virtual
async def test_accounting_is_asked_again_after_the_clock_was_set_back():
    """Of all jobs at once (`Accounting`), and of each as it is due (`look_up`)."""
    clock, asked = ManualClock(1e9), []

    async def history(ids):
        asked.append(ids)
        return []

    accounting = Accounting(SimpleNamespace(history=history), clock, 10)
    for back, times in ((0, 1), (0, 1), (7200, 2)):
        clock.at -= back
        accounting.want(0, {5: 0.0})
        await accounting.ask()
        assert len(asked) == times
    stage = StageRun("a", phase=StagePhase.RUNNING, job=5, asked=8, asked_at=1e9)
    for now, due in ((1e9 + 1, False), (1e9 + 60, True), (1e9 - 7200, True)):
        turn = SimpleNamespace(now=now, note=lambda *_said: None, lookups=set())
        look_up(turn, stage)
        assert (turn.lookups == {5}) == due, now


@virtual
async def test_what_a_controller_fails_at_is_not_tried_again_at_once(tmp_path, monkeypatch):
    world = World(tmp_path)
    await world.boot()
    loop, controller = world.app.loop, world.workflows

    async def fails(_snapshot):
        raise StoreError("database or disk is full")

    monkeypatch.setattr(controller, "next_wake", lambda now: now)
    await loop.one_pass()
    assert loop.next_pass() == world.now
    with monkeypatch.context() as broken:
        broken.setattr(controller, "reconcile", fails)
        await loop.one_pass()
        assert loop.next_pass() == world.now + 5.0
    await loop.one_pass()
    assert loop.next_pass() == world.now


# -- arrays ------------------------------------------------------------------------------------------------------------


def with_array() -> Workflow:
    """A stage of three tasks side by side, and one after it."""
    tasks = Stage("a", 1, 600, 120, "sleep 120", asks=Asks(array="0-2"))
    return Workflow("w", (tasks, Stage("b", 1, 600, 30, "sleep 30", ("a",))), shell="plain")


@virtual
@pytest.mark.parametrize("strategy", ["eager", "perstage"])
async def test_a_stage_that_is_an_array_is_done_when_all_its_tasks_are(tmp_path, strategy):
    world = World(tmp_path)
    await world.boot()
    number = await world.submit(with_array(), strategy)
    first = await first_task(world)
    array = world.run(number).stages[0].job
    world.engine.end(world.engine.job(array), JobState.COMPLETED)  # the task that has the array's own number
    run = await world.finish(number)
    tasks = [j for j in world.engine.records.values() if j.id != run.stages[1].job]
    assert (run.phase, len(tasks), run.stages[0].job) == (RunPhase.COMPLETED, 3, array)
    assert run.stages[0].end == first.end <= run.stages[1].start, "the one after it has waited for the last of them"


async def first_task(world: World) -> SimJob:
    """The first task of the array, when all of them run."""
    await world.until(lambda: [j.state for j in world.living()].count(JobState.RUNNING) == 3)
    return next(j for j in world.living() if j.task == 0)


@virtual
@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_stage_of_which_a_task_fails_has_failed_when_all_have_ended(tmp_path, forgotten):
    # Slurm forgets the task before the others have ended.
    world = World(tmp_path, min_job_age=20.0 if forgotten else 600.0)
    await world.boot()
    number = await world.submit(with_array(), "perstage")
    first = await first_task(world)
    world.engine.end(first, JobState.FAILED, 3)
    run = await world.finish(number, 5000)
    assert run.phase is RunPhase.FAILED and run.stages[0].phase is StagePhase.FAILED
    assert [j.state for j in world.engine.records.values()].count(JobState.COMPLETED) == 2
    assert world.submissions()["b"] == 0


@virtual
async def test_an_array_that_is_found_again_is_one_job(tmp_path):
    world = World(tmp_path)
    lost = iter(["lost"])

    def failing(method):
        if method == "find" and [j.state for j in world.living()].count(JobState.RUNNING) < 3:
            return SlurmUnavailable("later")
        return next(lost, None) if method == "submit" else None

    world.failing = failing
    await world.boot()
    number = await world.submit(with_array(), "perstage")
    await first_task(world)
    run = await world.finish(number, 5000)
    assert (run.phase, run.discarded, world.submissions()) == (RunPhase.COMPLETED, (), {"a": 3, "b": 1})
    assert {j.state for j in world.engine.records.values()} == {JobState.COMPLETED}

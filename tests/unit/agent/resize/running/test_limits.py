"""Allow-lists and the cap on nodes moved within an hour: what is left alone, how that is said, and opt-in."""

from __future__ import annotations

import math
import os
import pwd
from dataclasses import replace

import pytest
from click.testing import CliRunner
from factories import ManualClock

from penstock.api import JobSpec, Offer
from penstock.cli import cli
from penstock.config import config_of, load
from penstock.core.pauses import PauseControl
from penstock.errors import ConfigError, NotPermitted
from penstock.resize.running.caps import CODE, Caps, NodeMove, room
from penstock.resize.running.machine import MalleableJob
from penstock.resize.running.registry import Registry
from penstock.resize.running.words import ResizePhase
from penstock.state.sizes import FinishedResize
from penstock.state.store import Store
from penstock.values.allow import NOT_ALLOWED, Rule, Subject, refusal
from penstock.workflow.part import WorkflowPart
from penstock.workflow.phases import RunPhase
from penstock_lab.agent_world import APP, World, chain, virtual
from penstock_planning.broker.assess import ClusterMarket

pytestmark = pytest.mark.usefixtures("quick_and_quiet")

ME = os.geteuid()
MY_NAME = pwd.getpwuid(ME).pw_name
HERE = Subject.of("malleable", ["alice"], ["batch"], ["physics"], ["normal"])


# -- the list ----------------------------------------------------------------------------------------------------------


def test_without_a_list_all_is_allowed_and_with_an_empty_one_nothing():
    assert refusal(None, HERE) is None
    assert refusal([], HERE).code == NOT_ALLOWED
    assert refusal([Rule()], HERE) is None


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (Rule(features=("workflows",)), "no rule that lets the agent act on malleable"),
        (Rule(users=("bob",)), "user alice is not one of bob"),
        (Rule(partitions=("gpu", "long")), "partition batch is not one of gpu, long"),
        (Rule(accounts=("chem",)), "account physics is not one of chem"),
        (Rule(qos=()), "QOS normal is not one of none"),
    ],
)
def test_what_a_rule_does_not_admit_is_named(rule, told):
    assert told in refusal([rule], HERE).text


def test_one_rule_that_agrees_is_enough_and_all_that_it_names_must_agree():
    fits = Rule(("malleable",), ("alice",), ("batch",), ("physics",), ("normal",))
    assert refusal([Rule(users=("bob",)), fits], HERE) is None
    both = refusal([Rule(users=("bob",)), Rule(users=("alice",), accounts=("chem",))], HERE)
    assert "user alice is not one of bob; and account physics is not one of chem" in both.text
    several = Subject.of("malleable", ["alice"], ["batch,gpu"])
    assert refusal([Rule(partitions=("batch",))], several).text.endswith("partition gpu is not one of batch")


def test_what_is_not_known_is_outside_unless_that_may_wait():
    unknown = Subject.of("workflows", ["alice"], ["batch"], [""], [])
    rules = [Rule(accounts=("physics",))]
    assert "its account is not known" in refusal(rules, unknown).text
    assert refusal(rules, unknown, strict=False) is None
    assert refusal([Rule(users=("bob",))], unknown, strict=False) is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("allow: [{partitons: [a]}]", "`limits.allow.0.partitons` is not a known key; did you mean `partitions`?"),
        ("allow: [{features: [all]}]", "`limits.allow.0.features.0`"),
        ("allow: {partitions: [a]}", "`limits.allow`"),
        ("allow: [{accounts: ['a b']}]", "`limits.allow.0.accounts.0`"),
        ("nodes_per_hour: -1", "`limits.nodes_per_hour`"),
        ("nodes_an_hour: 1", "did you mean `nodes_per_hour`?"),
    ],
)
def test_a_wrong_configuration_is_refused(tmp_path, text, said):
    file = tmp_path / "penstock.yaml"
    file.write_text(f"limits: {{{text}}}\n")
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert said in str(caught.value)


def test_the_configuration_is_shown_with_its_origin(tmp_path):
    file = tmp_path / "penstock.yaml"
    file.write_text("limits:\n  allow:\n    - {accounts: [physics]}\n")
    done = CliRunner().invoke(cli, ["config", "show", "--origin"], env={"PENSTOCK_CONFIG": str(file)})
    assert done.exit_code == 0 and f"{file}:2" in done.output
    variable = {"HOME": "/nonexistent", "PENSTOCK_LIMITS__ALLOW": "[{accounts: [physics]}]"}
    assert load(None, variable).limits.rules == (Rule(accounts=("physics",)),)


# -- the list in force -------------------------------------------------------------------------------------------------


@virtual
async def test_a_job_outside_of_the_list_keeps_its_size_until_a_reload_lets_it_in(tmp_path):
    world = World(tmp_path, {"limits": {"allow": [{"features": ["malleable"], "partitions": ["gpu"]}]}})
    await world.boot()
    program = await world.malleable(300)
    start = world.now
    await world.until(lambda: world.now > start + 60)
    assert program.sizes == [2] and not world.store.resizes.latest()
    last = world.store.decisions.of(f"job {program.job}")[-1]
    assert (last["verb"], last["reasons"][0][0]) == ("hold", NOT_ALLOWED)
    assert "partition main is not one of gpu" in last["reasons"][0][1]
    problems = (await world.app.operations["status"](0, {}))["problems"]
    assert [p for p in problems if p.startswith(f"job {program.job}: outside of `limits.allow`")]
    world.app.executor.pause_control.rules = config_of({"limits": {"allow": [{"partitions": ["main"]}]}}).limits.rules
    await world.until(lambda: program.sizes[-1] > 2, 60)


@virtual
async def test_a_workflow_outside_of_the_list_is_refused_with_the_way_out(tmp_path):
    world = World(tmp_path, {"limits": {"allow": [{"features": ["workflows"], "accounts": ["physics"]}]}})
    await world.boot()
    with pytest.raises(NotPermitted, match="its account is not known, and must be one of physics"):
        await world.submit(chain(5), "perstage")
    assert world.submissions() == {}


@virtual
async def test_a_workflow_that_a_reload_leaves_outside_goes_no_further(tmp_path):
    world = World(tmp_path)
    await world.boot()
    number = await world.submit(chain(20, 5), "perstage")
    await world.until(lambda: world.living())
    world.app.executor.pause_control.rules = [Rule(partitions=("gpu",))]
    start, passes = world.now, world.passes
    await world.until(lambda: world.now > start + 200)
    assert world.submissions() == {"a": 1} and not world.living(), "its job went on to its end"
    assert world.passes - passes < 100, "nothing is polled for"
    assert world.store.decisions.of(f"workflow {number}")[-1]["reasons"][0][0] == NOT_ALLOWED
    world.app.executor.pause_control.rules = [Rule(users=(MY_NAME,))]
    assert (await world.finish(number, 100)).phase is RunPhase.COMPLETED


@virtual
async def test_workflows_of_users_own_jobs_go_by_what_slurm_says_of_their_jobs(tmp_path):
    world = World(tmp_path, {"limits": {"allow": [{"users": ["nobody-of-this-name"]}]}})
    await world.boot()
    job = await world.backend.submit(JobSpec("s", "#!/bin/sh\nsleep 5\n", 1, 60, hold=True))
    uid = world.engine.uid_of("alice")
    request = {
        "workflow": "w",
        "strategy": "perstage",
        "stages": [{"name": "s", "job": job, "after": [], "hold": True}],
    }
    with pytest.raises(NotPermitted, match="is not one of nobody-of-this-name") as refused:
        await world.app.operations["guide"](uid, request) if uid == ME else await world.app.part(
            WorkflowPart
        ).controller.registrations.register(uid, request)
    assert refused.value.by_setting, "so that a request that was left is kept until the list lets it in"
    world.app.executor.pause_control.rules = [Rule(partitions=("gpu",))]
    number = await world.workflows.registrations.register(uid, request)
    start = world.now
    await world.until(lambda: world.now > start + 60)
    assert world.living()[0].state == "PENDING"
    last = world.store.decisions.of(f"workflow {number}")[-1]
    assert "partition main is not one of gpu" in last["reasons"][0][1]
    world.app.executor.pause_control.rules = [Rule(accounts=("physics",))]
    why = world.workflows.held(world.workflows.runs[number])
    assert "account" in why.text, "Slurm has shown the job, so what it does not say is outside"
    world.app.executor.pause_control.rules = [Rule(partitions=("main",))]
    await world.until(lambda: not world.workflows.runs, 120)
    assert world.workflows.book.finished == {("owner", "completed"): 1}


def test_bags_are_neither_sent_nor_moved_to_where_they_are_not_allowed():
    def told(rules, account="physics"):
        place = type("Candidate", (), {"partition": type("P", (), {"name": "batch"})})
        return ClusterMarket({}, (), {}, (), rules).refusal(account, "", place, "alice")

    assert told(None) is told([Rule(accounts=("physics",))]) is None
    assert "account chem is not one of physics" in told([Rule(accounts=("physics",))], account="chem")
    assert "partition batch is not one of gpu" in told([Rule(features=("select",), partitions=("gpu",))])


# -- the cap -----------------------------------------------------------------------------------------------------------


def test_the_cap_counts_the_last_hour_and_each_user():
    moves = [NodeMove(0, 1, 50), NodeMove(3000, 1, 4), NodeMove(3500, 2, 3)]
    assert room(Caps(), moves, 1, 4000).nodes == math.inf
    assert room(Caps(nodes=10), moves, 1, 4000).nodes == 3, "what is older than an hour does not count"
    assert room(Caps(nodes=10), moves, 1, 3550).nodes == 0
    mine = room(Caps(nodes=100, of_user=6), moves, 1, 4000)
    assert (mine.nodes, mine.reason.code) == (2, CODE)
    assert mine.reason.text == "resizes moved 4 nodes within the last hour, and `limits.nodes_per_hour_of_user` is 6"
    assert room(Caps(of_user=6), moves, 3, 4000).nodes == 6
    assert room(Caps(nodes=10), [NodeMove(9000, 1, 4)], 1, 4000).nodes == 6, "the clock was set back"


@virtual
async def test_a_job_grows_as_far_as_the_cap_allows_also_after_a_restart_and_on_after_the_hour(tmp_path):
    world = World(tmp_path, {"limits": {"nodes_per_hour": 5}, "agent": {"interval": 30, "idle_interval": 30}})
    await world.boot()
    program = await world.malleable(9000)
    await world.until(lambda: program.sizes[-1] > 2)
    grown = world.now
    assert program.sizes == [2, 4], "six more would fit, and five may be moved"
    why = [r for d in world.store.decisions.of(f"job {program.job}") for r in d["reasons"] if r[0] == CODE]
    assert why[0][1].endswith("`limits.nodes_per_hour` is 5: it only grows to 4")
    assert world.store.resizes.moves(0) and sum(n for _at, _uid, n in world.store.resizes.moves(0)) == 2
    await world.until(lambda: world.now > grown + 300)
    await world.restart()
    await world.until(lambda: world.now > grown + 3500, 4000)
    assert program.sizes == [2, 4]
    last = world.store.decisions.of(f"job {program.job}")[-1]
    assert last["verb"] == "nothing" and "moved 2 nodes within the last hour" in last["reasons"][-1][1]
    await world.until(lambda: program.sizes[-1] > 4, 300)
    assert world.now > grown + 3590


@virtual
async def test_a_cap_of_nothing_moves_nothing_and_a_program_may_still_ask_to_shrink(tmp_path):
    world = World(tmp_path, {"limits": {"nodes_per_hour": 0}})
    await world.boot()
    program = await world.malleable(900)
    start = world.now
    await world.until(lambda: world.now > start + 60)
    assert program.sizes == [2]
    program.bounds = {**program.bounds, "minimum": 1, "maximum": 1}
    await world.until(lambda: program.sizes[-1] == 1, 60)


@virtual
async def test_users_have_a_cap_of_their_own(tmp_path):
    world = World(tmp_path, {"limits": {"nodes_per_hour_of_user": 2}})
    await world.boot()
    uid = world.engine.uid_of("alice")
    world.store.resizes.add(FinishedResize(99, 1, "expand", (1, 2), "completed", {}, uid=uid + 1, nodes=5), world.now)
    await world.restart()
    program = await world.malleable(300)
    await world.until(lambda: program.sizes[-1] == 4)


@pytest.mark.parametrize("phase", [ResizePhase.OFFERED, ResizePhase.RESIZING, ResizePhase.GIVING_BACK])
def test_nodes_that_moved_count_also_if_the_job_ended_meanwhile(phase):
    clock, store = ManualClock(), Store(":memory:")
    registry = Registry(store, clock, lambda: None)
    idle = MalleableJob(7, ME, Offer(2, 1, 16, 2), ("n1", "n2"))
    registry.put(idle)
    grows = replace(idle, phase=phase, origin=2, target=8, resizer_name="r", marks={"decided": 0.0, "granted": 990.0})
    registry.put(grows)
    assert sum(move.nodes for move in registry.moves()) == 6
    registry.drop(7)
    assert sum(move.nodes for move in registry.moves()) == 6
    assert sum(move.nodes for move in Registry(store, clock, lambda: None).moves()) == 6, "after a restart, too"


def test_what_was_only_asked_for_when_the_job_ended_did_not_move():
    store = Store(":memory:")
    registry = Registry(store, ManualClock(), lambda: None)
    idle = MalleableJob(7, ME, Offer(2, 1, 16, 2), ("n1", "n2"))
    registry.put(idle)
    registry.put(
        replace(idle, phase=ResizePhase.ALLOCATING, origin=2, target=8, resizer_name="r", marks={"decided": 0.0})
    )
    registry.drop(7)
    assert registry.moves() == [] and store.resizes.latest() == []


def test_the_file_of_an_older_release_is_read(tmp_path):
    store = Store(tmp_path / "s.db")
    store.resizes.add(FinishedResize(1, 1, "expand", (1, 2), "completed", {}), 10.0)
    assert store.resizes.moves(0) == [], "of which nobody knows how many nodes that were"


# -- opt-in ------------------------------------------------------------------------------------------------------------


@virtual
async def test_a_job_that_never_asked_for_it_is_never_touched(tmp_path):
    world = World(tmp_path)
    await world.boot()
    plain = await world.bob.submit(JobSpec("plain", "#!/bin/sh\nsleep 200\n", 2, 400))
    mine = await world.backend.submit(JobSpec("mine", "#!/bin/sh\nsleep 200\n", 2, 400))
    program = await world.malleable(200)
    await world.until(lambda: program.sizes[-1] > 2)
    await world.until(lambda: world.engine.records[program.job].state.ended)
    for job in (plain, mine):
        assert len(world.engine.records[job].nodes) == 2
        assert world.store.decisions.of(f"job {job}") == []


# -- dry run -----------------------------------------------------------------------------------------------------------


@virtual
async def test_a_dry_run_says_what_it_would_do_to_others_jobs_and_does_nothing(tmp_path):
    world = World(tmp_path, {"limits": {"dry_run": True}}, operator=True)
    await world.boot()
    program = await world.malleable(seconds=600, **APP["launcher"])
    before = world.now
    await world.until(lambda: world.now > before + 60)
    assert program.sizes == [2] and world.resizers() == [] and world.store.resizes.latest() == []
    (said,) = {
        text for d in world.store.decisions.of(f"job {program.job}") for code, text in d["reasons"] if code == "dry-run"
    }
    assert said == "`limits.dry_run`: it would be resized from 2 to 8"
    world.app.executor.pause_control.dry_run = False
    await world.until(lambda: program.sizes[-1] == 8)


def test_a_dry_run_takes_no_workflows_of_others_and_acts_for_its_own_user(tmp_path):
    store = Store(tmp_path / "penstock.db")
    pause_control = PauseControl(store)
    assert pause_control.rehearses(ME + 1, "no") is None
    pause_control.dry_run = True
    assert pause_control.rehearses(ME, "no") is None
    assert pause_control.rehearses(ME + 1, "no").code == "dry-run"


def test_pictures_after_the_clock_was_set_back_are_not_older_than_what_was_done():
    clock = ManualClock(9000.0)
    registry = Registry(Store(":memory:"), clock, lambda: None)
    registry.changed()
    assert (registry.outdates(8999.0), registry.outdates(9000.0), registry.outdates(9001.0)) == (True, True, False)
    clock.at = 5000.0
    assert (registry.outdates(8999.0), registry.outdates(5000.0)) == (True, False)

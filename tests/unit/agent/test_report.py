"""The report: figures that the state file can answer for, each with how it was found."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from penstock.cli import cli
from penstock.errors import UserError
from penstock.messages.events import Event
from penstock.messages.report import PeriodReport, StageStart, as_text, report_of, started, waiting
from penstock.state.store import Store
from penstock.workflow.documents import run_to_dict
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.runner import Runner
from penstock.workflow.state import RunPhase, StagePhase, WorkflowRun
from penstock_lab.agent_world import World, chain, virtual

pytestmark = pytest.mark.usefixtures("quick_and_quiet")

FLOW = Workflow("w", (Stage("a", 2, 600, 300, "true"), Stage("b", 1, 600, 60, "true", ("a",))))


def run(**b) -> WorkflowRun:
    """Stage a ran from 100 to 400; b was submitted at 250, expected to wait 200 s, and started at 420."""
    it = Runner(accrues=True).start(1, FLOW, "asa", 50.0, partition="batch", token="t")
    it = it.with_stage(replace(it.stage("a"), phase=StagePhase.DONE, job=1, submitted=50.0, start=100.0, end=400.0))
    entry = {
        "phase": StagePhase.DONE,
        "job": 2,
        "submitted": 250.0,
        "start": 420.0,
        "end": 480.0,
        "estimate": 200.0,
        **b,
    }
    return replace(it.with_stage(replace(it.stage("b"), **entry)), phase=RunPhase.COMPLETED, ended_at=480.0)


def figures(report: PeriodReport) -> dict[str, float]:
    return {figure.name: figure.value for figure in report.figures}


def test_what_overlapped_was_left_and_was_saved():
    (one,) = started(run(), 0.0, 1000.0)
    assert one == StageStart(250.0, 400.0, 420.0, 200.0)
    assert (one.overlapped, one.perceived) == (150.0, 20.0)
    found = {figure.name: figure.value for figure in waiting([one])}
    assert found["waiting_overlapped"] == pytest.approx(150 / 3600)
    assert found["waiting_perceived"] == pytest.approx(20 / 3600)
    assert found["waiting_saved"] == pytest.approx((200 - 20) / 3600)


def test_what_was_not_ahead_or_not_predicted_saves_nothing_and_a_short_prediction_costs():
    after = StageStart(410.0, 400.0, 420.0, 5.0)
    unknown = StageStart(250.0, 400.0, 420.0, None)
    short = StageStart(390.0, 400.0, 460.0, 10.0)
    found = {figure.name: figure.value for figure in waiting([after, unknown, short])}
    assert (found["stages_started"], found["stages_ahead"]) == (3, 2)
    assert found["waiting_saved"] == pytest.approx((10 - 60) / 3600)


def test_time_on_hold_is_no_waiting_and_stages_of_another_time_are_not_counted():
    (held,) = started(run(released=300.0), 0.0, 1000.0)
    assert held.overlapped == 100.0
    assert list(started(run(), 420.0, 1000.0)) == list(started(run(), 0.0, 419.0)) == []


def test_a_report_of_a_state_file(tmp_path):
    store = Store(tmp_path / "s.db")
    for state, finished in ((run_to_dict(run()), 480.0), (run_to_dict(run()), 5.0), ({"version": 99}, 480.0)):
        store.save_run(store.add_run(1, state, 0.0), state, finished)
    for finished, outcome, nodes in (
        (100, "completed", 6),
        (200, "refused", 6),
        (300, "completed", None),
        (5, "completed", 9),
    ):
        store.add_resize(7, 1, "expand", (2, 8), outcome, {}, finished, uid=1, nodes=nodes)
    store.add_resize(7, 2, "shrink", (8, 4), "completed", {}, 400.0, uid=1, nodes=4)
    found = figures(report_of(store, 50.0, 1000.0))
    assert (found["workflows_completed"], found["workflows_unread"]) == (1, 1)
    assert (found["nodes_added"], found["nodes_given_back"], found["resizes_uncounted"]) == (6, 4, 1)
    assert (found["resizes_completed"], found["resizes_abandoned"]) == (3, 1)
    assert found["stages_ahead"] == 1
    assert "workflows_unread" not in figures(report_of(store, 500.0, 1000.0))


@virtual
async def test_what_an_agent_has_done(tmp_path):
    world = World(tmp_path)
    await world.boot()
    began = world.now
    program = await world.malleable(seconds=100)
    done = await world.finish(await world.submit(chain(60, 30, nodes=1), "asa"))
    assert done.phase is RunPhase.COMPLETED
    await world.until(lambda: world.engine.records[program.job].state.ended)
    found = report_of(world.store, began, world.now)
    values = figures(found)
    assert values["workflows_completed"] == 1 and values["stages_started"] == 1
    assert values["nodes_added"] == sum(r["nodes"] for r in world.store.resizes() if r["kind"] == "expand") > 0
    text = as_text(found)
    assert "waiting saved" in text and "by prediction" in text and "not known, and not claimed" in text
    assert all(figure.how for figure in found.figures)


@virtual
async def test_the_week_is_told_once_a_week(tmp_path):
    world = World(tmp_path, {"messages": {"command": ["/bin/true"]}})
    await world.boot()
    told: list[Event] = []
    for days in (0.0, 6.9, 7.1, 7.2, 14.5):
        world.clock.advance_to(1_000_000_000.0 + days * 86400)
        await world.restart()
        world.app.messenger._post = lambda _way, event, done: (told.append(event), done(None))
        await world.app.messenger._report()
        world.app.messenger.step()
    assert [event.kind for event in told] == ["report", "report"]
    assert "waiting saved" in told[0].text and told[0].uid is None
    since, until = told[1].details["since"], told[1].details["until"]
    assert until - since == pytest.approx(7.4 * 86400, abs=10)


@virtual
async def test_after_a_clock_was_set_back_the_week_begins_anew(tmp_path):
    world = World(tmp_path, {"messages": {"command": ["/bin/true"]}})
    await world.boot()
    told: list[str] = []
    world.app.messenger.tell = lambda event: told.append(event.kind)
    now = world.now
    world.store.remember("messages.reported", str(now + 30 * 86400))
    for days in (0.0, 6.9, 7.1):
        world.clock.advance_to(now + days * 86400)
        await world.app.messenger._report()
    assert told == ["report"]


def test_the_command(tmp_path):
    file = tmp_path / "penstock.yaml"
    file.write_text(f"agent: {{state_dir: {tmp_path}}}\n")
    environment = {"PENSTOCK_CONFIG": str(file)}

    def ran(*words):
        return CliRunner().invoke(cli, ["report", *words], env=environment)

    assert f"there is no state file {tmp_path}/penstock.db: no agent has run yet" in str(ran().exception)
    Store(tmp_path / "penstock.db").close()
    done = ran("--since", "2d")
    assert done.exit_code == 0 and "How these were found:" in done.output
    told = json.loads(ran("--json").output)
    assert told["until"] - told["since"] == pytest.approx(7 * 86400)
    assert {figure["name"] for figure in told["figures"]} >= {"waiting_saved", "nodes_added"}
    wrong = ran("--since", "soon")
    assert isinstance(wrong.exception, UserError) and "--since must be a duration" in str(wrong.exception)

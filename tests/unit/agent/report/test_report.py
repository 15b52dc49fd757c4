"""The report: figures that the state file can answer for, each with how it was found."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from penstock.cli import cli
from penstock.errors import UserError
from penstock.report.comparison import ChainTerms, Verdict, compared, terms_of
from penstock.report.period import PeriodReport, StageStart, as_text, report_of, started, waiting
from penstock.state.sizes import FinishedResize
from penstock.state.store import Store
from penstock.workflow.documents import run_to_dict
from penstock.workflow.metrics import WaitParts
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import RunPhase, StagePhase
from penstock.workflow.run.runner import Runner
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategy import KEEPS_PLACE, Rules
from penstock.workflow.ties import Tie
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


NOTHING = compared((), True)


def test_what_overlapped_was_left_and_the_agents_own_part():
    (one,) = started(run(), 0.0, 1000.0)
    assert one == StageStart(250.0, 400.0, 420.0, WaitParts(20.0, 0.0, 0.0))
    assert one.overlapped == 150.0
    late = StageStart(430.0, 400.0, 470.0, WaitParts(40.0, 10.0, 20.0))
    found = {figure.name: 3600 * figure.value for figure in waiting([one, late], NOTHING)}
    assert found["waiting_overlapped"] == pytest.approx(150)
    assert found["waiting_perceived"] == pytest.approx(60)
    assert (found["waiting_paused"], found["waiting_reaction"]) == (pytest.approx(10), pytest.approx(20))
    assert found["waiting_saved"] == 0, "nothing is claimed without a comparison"
    assert (found["stages_started"], found["stages_ahead"]) == (2 * 3600, 3600)


# -- beside a plain chain ----------------------------------------------------------------------------------------------


def other(first=(50.0, 50.0), then=(200.0, 20.0), tie=Tie.NODES, **b):
    """Of each stage what was predicted, and what it has waited; the second was in the queue before its turn."""
    it = run(start=400.0 + then[1], end=900.0, estimate=then[0], tie=tie, **b)
    a = replace(it.stage("a"), estimate=first[0], start=50.0 + first[1])
    return replace(it.with_stage(a), ended_at=900.0)


def verdict(runs, keeps_place=False):
    return compared([found for it in runs if (found := terms_of(it)) is not None], keeps_place)


def spread(count, waits, **more):
    return [other((100.0, 100.0 + 10 * (n % 5 - 2)), (100.0, waits(n)), **more) for n in range(count)]


def test_the_terms_of_a_workflow():
    assert terms_of(other((50.0, 70.0), (200.0, 20.0))) == ChainTerms(1, 180.0, 0.0, 1, 20.0)
    link = terms_of(other((50.0, 70.0), (200.0, 20.0), Tie.AFTEROK))
    assert link == ChainTerms(0, 0.0, 0.0, 1, 20.0), "a link of a plain chain gains nothing by itself"
    late = terms_of(other((50.0, 70.0), (200.0, 90.0), Tie.NONE, submitted=430.0))
    assert late == ChainTerms(0, 0.0, 30.0, 2, 20.0 + 60.0 - 200.0)
    assert terms_of(other(then=(None, 20.0))) is None, "what an older release has stored"
    assert terms_of(replace(other(), phase=RunPhase.FAILED)) is None
    assert terms_of(other(covers=("b", "c"))) is None
    merged = replace(other((50.0, 70.0), (200.0, 90.0), Tie.NONE, submitted=430.0, covers=("b", "c")), gain=75.0)
    assert terms_of(merged) == ChainTerms(0, 75.0, 30.0, 0, 0.0, foreseen=True), "what was forecast, and reactions"


def test_a_gain_that_forecasts_say_is_told_as_such():
    found = verdict([replace(one, gain=75.0) for one in spread(12, lambda n: 0, covers=("b", "c"))], keeps_place=None)
    assert found.verdict is Verdict.GAIN and found.gain == pytest.approx(75.0)
    assert "over 12 workflows (12 of them by the forecasts that they were submitted on)" in found.text


def test_a_gain_is_claimed_only_where_the_interval_excludes_none():
    found = verdict(spread(20, lambda n: n % 7))
    assert found.verdict is Verdict.GAIN and found.workflows == 20
    assert 0 < found.low < found.gain < found.high < 110
    assert found.text.startswith(f"gain {found.gain:.0f} s of waiting for each workflow (95 % interval ")
    assert found.text.endswith("over 20 workflows")
    same = verdict(spread(20, lambda n: 100.0 + 40 * (n % 3 - 1)))
    assert same.verdict is Verdict.NONE and same.low < 0 < same.high
    assert same.text.startswith("no gain seen over 20 workflows (")
    worse = verdict(spread(20, lambda n: 300.0 + n))
    assert worse.verdict is Verdict.LOSS and worse.high < 0 and worse.text.startswith("loss ")


def test_predictions_that_are_too_long_make_no_gain():
    """That is what it was about: the wait predicted less the wait that was left is no gain by itself."""
    runs = [other((500.0, 20.0 + n % 5), (500.0, 20.0 + 3 * n % 5)) for n in range(20)]
    found = verdict(runs)
    assert found.verdict is Verdict.NONE and abs(found.gain) < 10


def test_the_agents_reaction_is_a_loss():
    runs = [other((50.0, 50.0), (50.0, 80.0), Tie.NONE, submitted=430.0 + n % 3) for n in range(20)]
    found = verdict(runs)
    assert found.verdict is Verdict.LOSS and found.gain == pytest.approx(-30.95)


@pytest.mark.parametrize(
    ("keeps_place", "why"), [(True, "jobs keep their place in the queue here"), (None, "it is not known whether")]
)
def test_where_a_plain_chain_keeps_its_place_a_gain_cannot_be_known(keeps_place, why):
    found = verdict(spread(20, lambda n: n % 7), keeps_place)
    assert found.verdict is Verdict.UNKNOWN and why in found.text
    assert found.text.startswith("not known over 20 workflows")
    assert verdict(spread(20, lambda n: 300.0 + n), keeps_place).verdict is Verdict.LOSS


def test_of_few_workflows_nothing_is_claimed():
    few = verdict(spread(9, lambda n: 0.0))
    assert (few.verdict, few.gain) == (Verdict.NONE, None)
    assert few.text == "no gain seen over 9 workflows: it takes 10 at least, and there are 9 workflows"
    blind = [replace(it, stages=(replace(it.stages[0], estimate=None), it.stages[1])) for it in spread(12, lambda n: 0)]
    assert verdict(blind).text.endswith("it takes 10 at least, and there are 0 predictions")
    assert verdict([]).text == "no gain seen: no workflow to compare has completed"


def test_what_a_site_makes_of_jobs_that_depend_on_others():
    found = [Rules(accrues=True), Rules(weight_age=0), Rules(weight_age=1000), Rules()]
    assert [rules.keeps_place for rules in found] == [True, True, False, None]


def test_a_report_has_the_comparison(tmp_path):
    store = Store(tmp_path / "s.db")
    for it in spread(12, lambda n: n % 7):
        store.runs.save(store.runs.add(1, run_to_dict(it), 0.0), run_to_dict(it), 900.0)
    assert report_of(store, 50.0, 1000.0).comparison.verdict is Verdict.UNKNOWN
    store.facts.remember(KEEPS_PLACE, "false")
    found = report_of(store, 50.0, 1000.0)
    assert found.comparison.verdict is Verdict.GAIN
    assert figures(found)["waiting_saved"] == pytest.approx(12 * found.comparison.gain / 3600)
    assert f"Against a plain chain (sbatch --dependency=afterok): {found.comparison.text}." in as_text(found)
    assert json.loads(json.dumps(found.to_dict()))["comparison"]["verdict"] == "gain"


def test_time_on_hold_is_no_waiting_and_stages_of_another_time_are_not_counted():
    (held,) = started(run(released=300.0), 0.0, 1000.0)
    assert held.overlapped == 100.0
    assert list(started(run(), 420.0, 1000.0)) == list(started(run(), 0.0, 419.0)) == []


def test_a_report_of_a_state_file(tmp_path):
    store = Store(tmp_path / "s.db")
    for state, finished in ((run_to_dict(run()), 480.0), (run_to_dict(run()), 5.0), ({"version": 99}, 480.0)):
        store.runs.save(store.runs.add(1, state, 0.0), state, finished)
    for finished, outcome, nodes in (
        (100, "completed", 6),
        (200, "refused", 6),
        (300, "completed", None),
        (5, "completed", 9),
    ):
        store.resizes.add(FinishedResize(7, 1, "expand", (2, 8), outcome, {}, uid=1, nodes=nodes), finished)
    store.resizes.add(FinishedResize(7, 2, "shrink", (8, 4), "completed", {}, uid=1, nodes=4), 400.0)
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
    assert values["nodes_added"] == sum(r["nodes"] for r in world.store.resizes.latest() if r["kind"] == "expand") > 0
    text = as_text(found)
    assert "waiting saved" in text and "no gain seen" in text and "not known, and not claimed" in text
    assert all(figure.how for figure in found.figures)


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


@pytest.mark.parametrize("spared", [1.8e-7, -1.8e-7, 0.3, -0.3])
def test_of_a_gain_or_a_loss_below_a_second_nothing_is_said(spared):
    found = compared([ChainTerms(0, spared, 0.0, 0, 0.0, foreseen=True)] * 12, False)
    assert found.verdict is Verdict.NONE and found.text.startswith("no gain seen over 12 workflows")

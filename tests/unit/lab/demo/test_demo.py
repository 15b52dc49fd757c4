"""The demo's verdict can fail, and its picture shows who held what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.api import JobState
from penstock.config import WorkflowsSection
from penstock.workflow.metrics import WaitParts
from penstock_lab.cli.demo import policy_note
from penstock_lab.demo.accounting import Held, difference
from penstock_lab.demo.compare import Comparison, Outcome, StageTimes, Way
from penstock_lab.demo.gantt import Label, Panel, arranged, draw
from penstock_lab.demo.report import checks
from penstock_lab.demo.resizing import Resizing
from penstock_lab.demo.timeline import Timeline
from penstock_lab.testing import make_job

NONE = WaitParts(0.0, 0.0, 0.0)
CHAINED = (
    StageTimes("a", 0.0, 5.0, 105.0, NONE),
    StageTimes("b", 0.0, 120.0, 220.0, WaitParts(15.0, 0.0, 0.0)),
)
GUIDED = (StageTimes("a", 0.0, 5.0, 105.0, NONE), StageTimes("b", 1.0, 105.0, 205.0, NONE))


def way(title: str, stages: tuple[StageTimes, ...], *, completed: bool = True) -> Way:
    return Way(title, 0.0, completed, stages, Timeline(lambda job: "rival"))


def outcome(*stages: StageTimes, completed: bool = True) -> Outcome:
    return Outcome([way("plain chain", CHAINED), way("auto", stages, completed=completed)])


def resizing(**changes: object) -> Resizing:
    resizes = [{"kind": kind, "outcome": "completed", "marks": {}} for kind in ("expand", "shrink")]
    good = {"resizes": resizes, "rival_started": True, "same_bits": True, "residual": 0.01}
    return Resizing(**{**good, **changes})  # type: ignore[arg-type]


def failed(an_outcome: Outcome, a_resizing: Resizing) -> list[str]:
    return [check.text for check in checks(an_outcome, a_resizing) if not check.ok]


def test_it_says_which_policy_decides_where_that_is_not_the_default(tmp_path, monkeypatch):
    file = tmp_path / "penstock.yaml"
    file.write_text("agent: {interval: 1}\n")
    assert policy_note(file) == ""
    monkeypatch.setenv("PENSTOCK_DMR__POLICY", "wide")
    assert policy_note(file) == "the policy `wide` decides on resizes (`dmr.policy`)"


def test_all_is_well_when_all_happened():
    assert failed(outcome(*GUIDED), resizing()) == []
    assert failed(outcome(*GUIDED), resizing(booked=True, off=1.2)) == []
    assert failed(outcome(*CHAINED), resizing()) == [], "no slower is enough"
    told = [check.text for check in checks(outcome(*GUIDED), resizing())]
    assert "makespan 205 s under Penstock, 220 s as a plain chain" in told


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"resizes": []}, "grew"),
        ({"resizes": [{"kind": "expand", "outcome": "withdrawn", "marks": {}}]}, "grew"),
        ({"rival_started": False}, "waited started"),
        ({"same_bits": False}, "bit for bit"),
        ({"residual": 1e-5}, "far from converged"),
        ({"problem": "it hangs"}, "it hangs"),
        ({"booked": True, "off": 2.5}, "accounting of who held which node: to 2.5 s"),
        ({"booked": True, "off": None}, "accounting of who held which node: not at all"),
    ],
)
def test_each_thing_that_did_not_happen_to_the_mpi_job_is_named(change, complaint):
    assert any(complaint in text for text in failed(outcome(*GUIDED), resizing(**change)))


def test_a_late_submission_a_failed_stage_and_a_slower_workflow_are_named():
    a, b = GUIDED
    assert any("before it ended" in text for text in failed(outcome(a, replace(b, submitted=105.5)), resizing()))
    assert any("completed" in text for text in failed(outcome(a, b, completed=False), resizing()))
    assert any("makespan 240 s under" in text for text in failed(outcome(a, replace(b, end=240.0)), resizing()))


def test_the_plan_has_the_default_strategy():
    assert (Comparison().strategy, len(Comparison().stages)) == (WorkflowsSection().strategy, 3)


def test_samples_become_bars_and_a_picture(tmp_path):
    line = Timeline(lambda job: "stage-1" if job.id == 1 else "rival")
    for at in range(5):
        line.sample(float(at), [make_job(1, "n1", "n2")] if at < 3 else [make_job(2, "n1", start=2.5)])
    line.mark(1.0, "submit stage-2")
    bars = [(b.node, b.label, b.start, b.end) for b in line.bars]
    assert bars == [("n1", "stage-1", 0.0, 2.5), ("n2", "stage-1", 0.0, 3.0), ("n1", "rival", 2.5, 4.0)]
    panels = [Panel(title, line, 0.0, "one") for title in ("a chain", "a workflow")]
    draw(tmp_path / "pictures" / "gantt.png", panels, ["n1", "n2"])
    assert (tmp_path / "pictures" / "gantt.png").read_bytes().startswith(b"\x89PNG")


def test_a_job_that_grows_holds_its_new_nodes_from_then_on_and_ends_when_slurm_says():
    line = Timeline(lambda job: str(job.id))
    line.sample(1.0, [make_job(1, "n1", start=0.5), make_job(2, "n2", start=0.5)])
    line.sample(2.0, [make_job(1, "n1", start=0.5), make_job(2, state=JobState.COMPLETED, start=0.5, end=1.4)])
    line.sample(3.0, [make_job(1, "n1", start=0.5)])
    line.sample(4.0, [make_job(1, "n1", "n2", start=0.5)])
    line.sample(6.0, [make_job(1, state=JobState.COMPLETED, start=0.5, end=5.2)])
    found = sorted((b.node, b.job, b.start, b.end) for b in line.bars)
    assert found == [("n1", 1, 0.5, 5.2), ("n2", 1, 4.0, 5.2), ("n2", 2, 0.5, 1.4)]
    books = [Held("n1", 1, 0, 4), Held("n2", 3, 3, 4), Held("n1", 1, 4, 5), Held("n2", 1, 4, 5), Held("n2", 2, 0, 1)]
    assert difference(line.bars, books) == pytest.approx(0.5), "whole seconds, and a resizer that had them for none"
    assert difference(line.bars, [replace(one, node="n3") for one in books]) is None


def test_no_label_is_printed_over_another():
    assert arranged([(0.0, "submit a"), (0.5, "submit b"), (0.6, "shrink to 2")], 100.0) == [
        Label(0.0, "submit a, b, shrink to 2", 0)
    ]
    near = arranged([(0.0, "submit a"), (3.0, "submit b"), (5.0, "submit c"), (50.0, "submit d")], 100.0)
    assert [label.line for label in near] == [0, 1, 2, 0]

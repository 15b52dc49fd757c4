"""The demo's verdict can fail, and its picture shows who held what."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import make_job

from penstock.workflow.model import Stage, Workflow
from penstock.workflow.state import RunPhase, StagePhase, StageRun, WorkflowRun
from penstock_lab.demo.breathe import Breath
from penstock_lab.demo.compare import Comparison, Outcome, alternatives
from penstock_lab.demo.gantt import draw
from penstock_lab.demo.report import checks
from penstock_lab.demo.timeline import Timeline

STAGES = (
    StageRun("a", phase=StagePhase.DONE, job=1, estimate=5.0, submitted=0.0, start=5.0, end=105.0),
    StageRun(
        "b", (0,), phase=StagePhase.DONE, job=2, estimate=40.0, parent_end=105.0, submitted=65.5, start=105.0, end=205.0
    ),
    StageRun(
        "c",
        (1,),
        phase=StagePhase.DONE,
        job=3,
        estimate=100.0,
        parent_end=205.0,
        submitted=105.0,
        start=206.0,
        end=300.0,
    ),
)


def outcome(*stages: StageRun, phase: RunPhase = RunPhase.COMPLETED) -> Outcome:
    flow = Workflow("demo", tuple(Stage(s.name, 2, 600.0, 100.0, "true") for s in stages))
    run = WorkflowRun(1, flow, "asa", 0.0, "batch", "", tuple(stages), flow.stages, phase=phase)
    return Outcome(runs={"asa": run})


def breath(**changes: object) -> Breath:
    resizes = [{"kind": kind, "outcome": "completed", "marks": {}} for kind in ("expand", "shrink")]
    good = {"resizes": resizes, "rival_started": True, "same_bits": True, "residual": 0.01}
    return Breath(**{**good, **changes})  # type: ignore[arg-type]


def failed(an_outcome: Outcome, a_breath: Breath) -> list[str]:
    return [check.text for check in checks(an_outcome, a_breath) if not check.ok]


def test_all_is_well_when_all_happened():
    assert failed(outcome(*STAGES), breath()) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"resizes": []}, "grew"),
        ({"resizes": [{"kind": "expand", "outcome": "withdrawn", "marks": {}}]}, "grew"),
        ({"rival_started": False}, "waited started"),
        ({"same_bits": False}, "bit for bit"),
        ({"residual": 1e-5}, "far from converged"),
        ({"problem": "it hangs"}, "it hangs"),
    ],
)
def test_each_thing_that_did_not_happen_to_the_mpi_job_is_named(change, complaint):
    assert any(complaint in text for text in failed(outcome(*STAGES), breath(**change)))


def test_a_late_submission_a_failed_stage_and_submissions_at_the_start_are_named():
    a, b, c = STAGES
    assert any("off by" in text for text in failed(outcome(a, replace(b, submitted=69.0), c), breath()))
    assert any("completed" in text for text in failed(outcome(a, b, c, phase=RunPhase.FAILED), breath()))
    at_start = replace(b, estimate=100.0, submitted=5.0)
    assert any("parent's start" in text for text in failed(outcome(a, at_start, c), breath()))
    assert any("before it ended" in text for text in failed(outcome(a, replace(b, submitted=105.5), c), breath()))


def test_alternatives_reach_from_one_second_to_the_largest():
    grid = alternatives(120.0)
    assert (len(grid), grid[0], grid[-1]) == (53, 1.0, 120.0) and list(grid) == sorted(set(grid))


def test_the_stages_that_are_waited_for_outlast_the_largest_alternative():
    plan = Comparison()
    assert min(plan.stages) >= 90 and min(plan.stages[:-1]) > plan.largest == 120 and plan.warm_ups == 20


def test_samples_become_bars_and_a_picture(tmp_path):
    line = Timeline(lambda job: "stage-1" if job.id == 1 else "rival")
    for at in range(5):
        line.sample(float(at), [make_job(1, "n1", "n2")] if at < 3 else [make_job(2, "n1", start=2.5)])
    line.mark(1.0, "submit stage-2")
    bars = [(b.node, b.label, b.start, b.end) for b in line.bars]
    assert bars == [("n1", "stage-1", 0.0, 3.0), ("n2", "stage-1", 0.0, 3.0), ("n1", "rival", 3.0, 4.0)]
    draw(tmp_path / "pictures" / "gantt.png", [("a workflow", line)], ["n1", "n2"])
    assert (tmp_path / "pictures" / "gantt.png").read_bytes().startswith(b"\x89PNG")

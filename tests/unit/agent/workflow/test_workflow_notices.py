"""What people are told of workflows."""

from __future__ import annotations

import json
from dataclasses import replace

from penstock.core.events import Event
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.notices import failed_stages
from penstock.workflow.phases import StagePhase
from penstock.workflow.run.runner import Runner

RUN = Runner(accrues=True).start(
    3, Workflow("w", (Stage("a", 1, 60.0, 60.0, "true"),)), "asa", 0.0, partition="", token="t"
)


def at(**stage):
    return RUN.put(0, replace(RUN.stages[0], **stage))


def told(run, before=None):
    return list(failed_stages(before, run, uid=5, user="eve", now=9.0))


def test_a_stage_is_told_of_when_it_fails_and_again_when_its_next_job_does():
    running, failed = at(phase=StagePhase.RUNNING, job=7), at(phase=StagePhase.FAILED, job=7, failure="x\ny")
    assert told(running) == []
    (event,) = told(failed, running)
    assert (event.uid, event.user, event.details["why"]) == (5, "eve", "x y")
    assert told(failed) == [event]
    assert told(failed, failed) == []
    (again,) = told(at(phase=StagePhase.FAILED, job=8), failed)
    assert event.key != again.key
    refused = [told(at(phase=StagePhase.FAILED, attempt=n))[0].key for n in (1, 2)]
    assert len(set(refused)) == 2
    assert Event.from_dict(json.loads(json.dumps(event.to_dict()))) == event

"""`penstock cancel` of a workflow whose jobs Slurm knows no more: what it asks Slurm, and what it says."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from dataclasses import replace

import pytest
import yaml
from click.testing import CliRunner
from stored_states import owners_run

from penstock.cli import cli
from penstock.errors import SlurmUnavailable
from penstock.workflow.commands import runs, workflows
from penstock.workflow.documents import run_to_dict
from penstock.workflow.phases import RunPhase, StagePhase
from penstock.workflow.state import Own, StageRun
from penstock_lab.mock.backend import virtual_cluster

COUNT = 900
STAGES = tuple(StageRun(f"s{i}", (), StagePhase.QUEUED, job=1000 + i, submitted=1e9, own=Own()) for i in range(COUNT))


class Counted:
    """A simulated Slurm of which it is counted what it is asked; it may be `away`."""

    def __init__(self, slurm):
        self._slurm = slurm
        self.asked = Counter()
        self.away = False

    def __getattr__(self, name):
        found = getattr(self._slurm, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def counted(*args, **more):
            self.asked[name] += 1
            if self.away and name != "close":
                raise SlurmUnavailable("slurmctld gave no answer")
            return await found(*args, **more)

        return counted


@pytest.fixture
def slurm(request, tmp_path, monkeypatch):
    """Of a user whose workflow (of 900 jobs) was in a queue that has forgotten all of them."""
    config = tmp_path / "penstock.yaml"
    config.write_text(yaml.safe_dump({"agent": {"state_dir": str(tmp_path / "state")}}))
    monkeypatch.setenv("PENSTOCK_CONFIG", str(config))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "own"))
    failed = getattr(request, "param", ())
    run = owners_run(1, failed or STAGES, os.geteuid(), name="large", submitted_at=1e9)
    run = run_to_dict(replace(run, phase=RunPhase.FAILED) if failed else run)
    kinds = {"malleable": [], "moldable": [], "jobs": [], "resizes": []}
    answer = {"now": 1e9, "problems": [], "paused_until": 0.0, "workflows": [run], **kinds}
    monkeypatch.setattr(runs, "ask_or_read", lambda *_arguments, **_more: answer)
    monkeypatch.setattr(workflows, "ask_or_leave", lambda *_arguments, **_more: {})
    counted = Counted(virtual_cluster(start=1e9))
    monkeypatch.setattr("penstock.core.backends.make_backend", lambda _config: counted)
    return counted


def test_slurm_is_asked_once_for_all_jobs_of_a_workflow(slurm):
    done = CliRunner().invoke(cli, ["cancel", "large"], catch_exceptions=False)
    assert (done.exit_code, done.output) == (0, "Workflow 1 is being cancelled\n")
    assert slurm.asked.total() - slurm.asked["close"] <= 2, slurm.asked


def test_where_slurm_does_not_answer_the_line_can_be_read(slurm):
    slurm.away = True
    done = CliRunner().invoke(cli, ["cancel", "large"])
    assert done.exit_code != 0 and "slurmctld gave no answer" in str(done.exception)
    assert len(str(done.exception)) < 300


HELD = StageRun("s0", (), StagePhase.FAILED, job=1000, submitted=1e9, own=Own(), slurm_state="REQUEUE_HOLD")


@pytest.mark.parametrize("slurm", [(HELD,)], indirect=True)
def test_of_a_workflow_that_has_failed_what_slurm_holds_for_another_run_is_cancelled(slurm):
    done = CliRunner().invoke(cli, ["cancel", "large"], catch_exceptions=False)
    assert (done.exit_code, done.output) == (0, "Workflow 1 is being cancelled\n")
    assert slurm.asked.total() > slurm.asked["close"], "Slurm is asked for that job"


@pytest.mark.parametrize("slurm", [(replace(HELD, slurm_state="FAILED"),)], indirect=True)
def test_a_workflow_that_has_ended_is_not_cancelled(slurm):
    done = CliRunner().invoke(cli, ["cancel", "large"])
    assert "no running workflow 1: it is failed" in str(done.exception)

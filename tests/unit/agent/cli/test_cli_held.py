"""penstock submit --held: what the agent is asked to let go, and by which strategy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.api import Partition
from penstock.config import config_of
from penstock.errors import UserError
from penstock.slurm.sbatch_options import spec_words
from penstock.workflow.asks import Asks
from penstock.workflow.commands import held
from penstock.workflow.model import Stage, Workflow, submitted_from
from penstock.workflow.scripts import job_spec
from penstock.workflow.strategy import Rules
from penstock.workflow.submit.admission import plan_for_owner, registration

TWO = Workflow("w", (Stage("a", 1, 60.0, 30.0, "true"), Stage("b", 8, 60.0, 30.0, "true", ("a",))))
ONE = Workflow("w", TWO.stages[:1])


class Asked(Exception):
    """What would be planned next."""


@pytest.fixture
def asked_for(monkeypatch):
    async def partitions(_config):
        return [Partition("main", ("n1",) * 8, True, True, None, 3600.0, None)]

    def plan(_config, request):
        raise Asked(request)

    monkeypatch.setattr(held, "_partitions", partitions)
    monkeypatch.setattr(held, "plan_stages", plan)

    def ask(flow, strategy):
        with pytest.raises(Asked) as caught:
            held.HeldStages(config_of({})).submit(flow, strategy)
        return registration(caught.value.args[0], 0.0)

    return ask


@pytest.mark.parametrize("flow", [TWO, ONE], ids=["two", "one"])
@pytest.mark.parametrize("strategy", ["asa", "eager", "auto", "perstage", "packed", "bigjob", "elastic"])
def test_every_way_to_cut_a_workflow_can_be_let_go(asked_for, flow, strategy):
    chosen = asked_for(flow, strategy).strategy
    assert chosen == (strategy if strategy in ("asa", "eager") else "perstage" if strategy != "auto" else "auto")
    plan_for_owner(chosen, Rules())


@pytest.mark.parametrize("strategy", ["asa-naive", "asa-after", "handover"])
def test_a_guard_that_nobody_writes_into_the_scripts_is_refused_with_what_is_possible(asked_for, strategy):
    with pytest.raises(UserError, match="possible are: auto, asa, eager, perstage"):
        plan_for_owner(asked_for(TWO, strategy).strategy, Rules())


def test_a_job_that_its_owner_submits_asks_for_the_same():
    asks = Asks(memory="2G", array="0-3", exclude="n[1-2]", options=("--exclusive",))
    flow = submitted_from(Workflow("w", (Stage("a", 2, 90.0, 30.0, "true", asks=asks),)), "/from", 0o22)
    words = spec_words(replace(job_spec(flow, flow.stages[0], "c0ffee", 1, ()), requeue=True), "/from")
    assert words == [
        "--exclusive", "--mem=2G", "--array=0-3", "--job-name=a.penstock.c0ffee.1.w", "--nodes=2", "--time=2",
        "--requeue", "--kill-on-invalid-dep=no", "--ignore-pbs", "--chdir=/from", "--exclude=n1,n2",
    ]  # fmt: skip

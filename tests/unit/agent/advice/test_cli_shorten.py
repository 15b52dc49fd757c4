"""`penstock submit --shorten`: what earlier runs of a stage say about its time limit."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from penstock.advice.advice import JobKind, PastRuns
from penstock.advice.commands.shortening import named, shortened, with_less_memory
from penstock.advice.memory import PastMemory
from penstock.workflow.asks import Asks
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.scripts import job_name


def flow(*stages, partition=None):
    return Workflow("md", tuple(stages), partition=partition)


def runs(name="md/relax", nodes=2, partition="batch", took=(100.0,) * 99):
    return PastRuns(JobKind(name, partition, nodes), tuple(took), 9999.0)


RELAX = Stage("relax", 2, 3600.0, 1800.0, "x")


def test_runs_of_a_stage_are_known_by_its_workflow_whatever_the_run_and_attempt():
    assert named(job_name(flow(RELAX), "12-ab3f", "relax", 0)) == "md/relax"
    assert named(job_name(flow(RELAX), "7", "relax", 3)) == "md/relax"
    assert named("train-7") == "train-7"


def test_a_stage_with_enough_runs_asks_for_less():
    found, (told,) = shortened(flow(RELAX), [runs(), runs(nodes=4), runs("md/other")], 0.01)
    (stage,) = found.stages
    assert (stage.time_limit, stage.run_time) == (120.0, 120.0)
    assert told == (
        "stage relax has a time limit of 2m, not 1h: by 99 runs of it, at most 1.0% take longer and are cut off"
    )
    quick = Stage("relax", 2, 3600.0, 60.0, "x")
    assert shortened(flow(quick), [runs()], 0.01)[0].stages[0].run_time == 60.0
    numbered = Stage("relax7", 2, 3600.0, 60.0, "x")
    assert shortened(flow(numbered), [runs("md/relax#")], 0.01)[0].stages[0].time_limit == 120.0


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ([], "0 runs known of 99 that a risk of 0.01 takes"),
        ([runs(took=(100.0,) * 98)], "98 runs known of 99"),
        ([runs(nodes=1)], "0 runs known"),
        ([runs(partition="long")], "0 runs known"),
        ([runs(took=(3500.0,) * 200)], "200 runs carry no limit that is much shorter"),
    ],
)
def test_another_keeps_its_own(known, why):
    before = flow(RELAX, partition="batch")
    after, (told,) = shortened(before, known, 0.01)
    assert after == before
    assert told.startswith("stage relax keeps its time limit of 1h: ") and why in told


def test_without_a_partition_those_of_the_most_runs_count():
    found, _ = shortened(flow(RELAX), [runs(), runs(partition="long", took=(1000.0,) * 150)], 0.01)
    assert found.stages[0].time_limit == 1020.0


def test_a_stage_with_partitions_of_its_own_is_one_of_these():
    stage = replace(RELAX, asks=Asks(partition="batch,long"))
    found, _ = shortened(flow(stage, partition="gpu"), [runs(partition="gpu"), runs(took=(1000.0,) * 150)], 0.01)
    assert found.stages[0].time_limit == 1020.0


def memory(used, name="md/relax", nodes=2, partition="batch"):
    return PastMemory(JobKind(name, partition, nodes), tuple(used), 1.0)


def test_a_stage_with_enough_runs_asks_for_less_memory():
    stage = Stage("relax", 2, 3600.0, 1800.0, "x", asks=Asks(memory="16G", cpus="4"))
    after, (told,) = with_less_memory(flow(stage), [memory([2.0**30] * 99), memory([5.0], nodes=4)], 0.01)
    assert after.stages[0].asks == Asks(memory="1152M", cpus="4"), "a tenth on top, in steps of 64 MiB"
    assert told == (
        "stage relax has 1152M of memory a node, not 16G: by 99 runs of it, at most 1.0% use more and may be ended"
    )


@pytest.mark.parametrize(
    ("asked", "known", "why"),
    [
        ("", [memory([1e6] * 99)], "says no `memory` of its own"),
        ("0", [memory([1e6] * 99)], "says no `memory` of its own"),
        ("16G", [], "accounting has what 0 runs used, of 99 that a risk of 0.01 takes"),
        ("16G", [memory([1e6] * 98)], "what 98 runs used"),
        ("16G", [memory([1e6] * 98, partition="long")], "what 0 runs used"),
        ("1G", [memory([2.0**30] * 99)], "99 runs used hardly less, or ran out of it"),
        ("16G", [memory([1e6] * 98 + [math.inf])], "99 runs used hardly less, or ran out of it"),
    ],
)
def test_another_keeps_its_memory(asked, known, why):
    before = flow(Stage("relax", 2, 3600.0, 1800.0, "x", asks=Asks(memory=asked)), partition="batch")
    after, (told,) = with_less_memory(before, known, 0.01)
    assert after == before and why in told


def test_the_command(agent):
    (agent.folder / "w.yaml").write_text("name: w\nstages:\n  - {name: a, nodes: 1, time: 10m, run: 'true'}\n")
    done = agent.run("submit", "w.yaml", "--shorten", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["run"] == 1, done.stderr
    assert "stage a keeps its time limit of 10m: 0 runs known of 99 that a risk of 0.01 takes" in done.stderr
    done = agent.run("submit", "w.yaml", "--less-memory", "--json")
    assert done.returncode == 0 and "stages keep their memory: this back end does not ask sacct" in done.stderr
    assert "time limit" not in done.stderr
    refused = agent.run("submit", "w.yaml", "--risk", "5")
    assert refused.returncode == 2 and "--risk is for --shorten and --less-memory" in refused.stderr

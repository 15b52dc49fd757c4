"""The file of an elastic job: what it becomes, what is wrong with it, and the script that is submitted."""

from __future__ import annotations

import json
import subprocess

import pytest

from dmr.elastic import plans
from penstock.errors import UserError
from penstock.resize.recipes.model import read_elastic
from penstock.resize.recipes.recipes import RECIPES
from penstock.resize.recipes.script import batch_script, options

PYTHON = "/opt/penstock/bin/python"


def read(text: str):
    return read_elastic(text, "job.yaml", PYTHON)


def test_commands_of_ones_own():
    job = read(
        """
        name: survey
        time: 90m
        partition: batch
        sbatch: [--gres=gpu:2]
        elastic:
          {min: 2, max: 8, preferred: 4, factor: 2, start: ./head, join: ./work, base: false, leave: ./drain,
           signal: USR1, grace: 2m, ready: ./look, ready_timeout: 5m, notify: ./hear, interval: 2}
        """
    )
    plan = job.plan
    assert (plan.minimum, plan.maximum, plan.preferred, plan.factor) == (2, 8, 4, 2)
    assert (plan.start, plan.join, plan.base_joins, plan.leave, plan.signal) == (
        "./head",
        "./work",
        False,
        "./drain",
        10,
    )
    assert (plan.grace, plan.ready, plan.ready_timeout, plan.notify, plan.interval) == (120, "./look", 300, "./hear", 2)
    assert options(job) == [
        "--job-name=survey", "--nodes=2", "--time=90", "--partition=batch", "--exclusive", "--gres=gpu:2"
    ]  # fmt: skip


RECIPE_FILES = {
    "farm": "tasks: 'my tasks.txt', slots: 4",
    "dask": "run: python analyse.py",
    "pool": "run: ./send, pool: mine",
    "ray": "run: python trains.py, slots: 2",
    "restart": "run: mpiexec ./md, checkpoint: state.cpt",
    "torchrun": "run: train.py --epochs 3, slots: 2, options: --tee 3",
}


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_plans_whose_commands_are_bash(name):
    plan = read(f"elastic: {{min: 1, max: 4, use: {name}, {RECIPE_FILES[name]}}}").plan
    for line in (plan.start, plan.join, plan.leave, plan.ready, plan.again):
        assert subprocess.run(["bash", "-n", "-c", line], check=False).returncode == 0, line
    assert plan.join or plan.again
    # What the file says counts before the recipe.
    assert read(f"elastic: {{min: 1, max: 4, use: {name}, grace: 7s, {RECIPE_FILES[name]}}}").plan.grace == 7.0


def test_a_recipe_for_each_name_and_an_example_of_each():
    assert set(RECIPES) == set(RECIPE_FILES)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("elastic: {min: 1}", "job.yaml: elastic: the key 'max' is missing"),
        ("elastic: {min: 4, max: 2, join: x}", "elastic.max: 2 is below the minimum of 4"),
        ("elastic: {min: 1, max: 4, preferred: 5, join: x}", "elastic.preferred: 5 is outside 1..4"),
        ("elastic: {min: 1, max: 4}", "elastic.join: is missing"),
        ("elastic: {min: 1, max: 4, join: x, base: false}", "elastic.start: is missing"),
        ("elastic: {min: 1, max: 4, restart: x}", "elastic.start: is missing; `restart` starts anew"),
        ("elastic: {min: 1, max: 4, use: farm}", "elastic.tasks: is missing; `use: farm` needs it: a file of commands"),
        ("elastic: {min: 1, max: 4, join: x, tasks: t}", "elastic.tasks: only a recipe has use for it (use: farm)"),
        ("elastic: {min: 1, max: 4, use: spark}", "elastic.use: must be"),
        ("elastic: {min: 1, max: 4, joins: x}", "elastic: unknown key 'joins': did you mean 'join'?"),
        ("elastic: {min: 0, max: 4}", "elastic.min: must be a whole number from 1"),
        ("elastic: {min: 1, max: 4, join: x, start: y, grace: soon}", "elastic.grace: must be a duration"),
        ("elastic: {min: 1, max: 4, join: x, start: y, signal: NONE}", "elastic.signal: "),
        ("name: a b\nelastic: {min: 1, max: 4, join: x}", "name: must be a name without blanks"),
        ("[]", "must be a map"),
        ("elastic: [", "job.yaml: "),
    ],
)
def test_what_is_wrong_is_said_with_its_key(text, said):
    with pytest.raises(UserError) as error:
        read(text)
    assert said in str(error.value) and str(error.value).startswith("job.yaml: ") and "\n" not in str(error.value)


def test_the_script_says_the_plan_to_the_supervisor():
    job = read("elastic: {min: 1, max: 4, start: \"echo 'it''s' $HOME\", join: './work \"$PENSTOCK_ELASTIC_HEAD\"'}")
    script = batch_script(job.plan, [*options(job), "--comment=a b"], PYTHON)
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    assert "#SBATCH '--comment=a b'" in script
    said = script.split("<<'END_OF_PLAN'\n")[1].split("\nEND_OF_PLAN")[0]
    assert plans.of_mapping(json.loads(said)) == job.plan

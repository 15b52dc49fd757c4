"""A scalar in a file that people write is the text as it stands there, or it is refused with "quote it"."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.resize.recipes.model import read_elastic
from penstock.values.documents import as_written, parse_json
from penstock.values.yaml12 import parse_yaml
from penstock.workflow.files.formats import parse_workflow
from penstock_planning.broker.tasks import read_bags

NUMBERS = st.from_regex(
    r"[-+]?[0-9]{1,25}|[-+]?[0-9]{0,9}\.[0-9]{1,9}([eE][-+]?[0-9]{1,3})?|[0-9]{1,5}[eE]-?[0-9]{1,3}", fullmatch=True
)
OTHERS = """
    true false True no yes on null ~ .inf -.INF .nan 0x1f 0o17 1:30 1_000 2022-10-01 08 1. +.5 1e 0b1 1.2.3
"""
WORDS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.]{0,12}", fullmatch=True)
SCALARS = NUMBERS | st.sampled_from(OTHERS.split()) | WORDS
AS_WRITTEN = ("name", "constraint", "array", "environment")
ELSEWHERE = ("memory", "gpus", "gres", "ntasks", "cpus", "output", "error", "licenses", "account", "qos", "workdir")


def workflow(key: str, scalar: str) -> str:
    """A workflow file with this plain scalar at a key."""
    common = key in ("account", "qos", "workdir")
    return "\n".join(
        [
            "name: w",
            f"{key}: {scalar}" if common else f"environment: {{V: {scalar if key == 'environment' else 'x'}}}",
            f"stages: [{{name: {scalar if key == 'name' else 'a'}, nodes: 1, time: 1h, run: x"
            + (f", {key}: {scalar}}}]" if not common and key not in ("name", "environment") else "}]"),
        ]
    )


def read(key: str, scalar: str) -> object:
    made = parse_workflow(workflow(key, scalar))
    (stage,) = made.stages
    match key:
        case "name":
            return stage.name
        case "environment":
            return made.environment["V"]
        case "account" | "qos" | "workdir":
            return getattr(made, key)
        case other:
            return getattr(stage.asks, other)


@given(st.sampled_from(AS_WRITTEN), NUMBERS)
@example("environment", "1.10")
@example("environment", "007")
@example("constraint", "2022.10")
@example("array", "00")
@example("name", "0.0E+0")
@example("name", "007")
def test_a_number_where_a_text_is_meant_is_the_text_as_it_is_written(key, scalar):
    try:
        assert str(read(key, scalar)) == scalar
    except UserError as e:  # no name, or what sbatch would not take either
        assert "quote it" not in str(e) and refused_quoted(key, scalar), e


def test_the_numbers_of_an_environment_are_what_the_stage_gets():
    flow = parse_workflow(
        "name: numbers\nenvironment: {VERSION: 1.10, ID: 007, CADENCE: 2022.10, RATE: 1e3}\n"
        "stages:\n  - {name: 2.50, nodes: 1, time: 2m, run: x}\n"
        "  - {name: b, after: 2.50, nodes: 1, time: 2m, run: x}\n"
    )
    assert dict(flow.environment) == {"VERSION": "1.10", "ID": "007", "CADENCE": "2022.10", "RATE": "1e3"}
    assert [stage.name for stage in flow.stages] == ["2.50", "b"]


@given(st.sampled_from((*AS_WRITTEN, *ELSEWHERE)), SCALARS)
@example("memory", "1e3")
@example("gpus", "02")
@example("account", "00123")
@example("environment", "true")
@example("licenses", "1.0")
def test_no_scalar_changes_on_its_way(key, scalar):
    try:
        made = read(key, scalar)
    except UserError as e:
        assert "quote it" in str(e) or refused_quoted(key, scalar), e
        return
    assert str(made) == scalar or (not made and scalar in ("null", "~")), (key, scalar)


def refused_quoted(key: str, scalar: str) -> bool:
    """Whether quotes would not help: it is no value of this key, whoever reads it."""
    try:
        read(key, f'"{scalar}"')
    except UserError:
        return True
    return False


@given(st.lists(SCALARS, max_size=4))
def test_numbers_are_what_they_were_and_keep_their_text(scalars):
    found = parse_yaml("[" + ", ".join(scalars) + "]", "list")
    for scalar, value in zip(scalars, found, strict=True):
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert as_written(value) == scalar
            plain = float(scalar.lower().replace(".inf", "inf").replace(".nan", "nan"))
            assert value == plain or value != value or isinstance(value, int)
    assert as_written(True) is None and as_written([1]) is None


@pytest.mark.parametrize("text", ["{1: a, 1.0: b}", "{true: a, 1: b}", "{007: a, 7: b}"])
def test_two_keys_that_are_one_number_are_not_one_key(text):
    with pytest.raises(UserError, match="quote"):
        parse_yaml(text, "map")


def test_tasks_and_elastic_jobs_keep_what_is_written(tmp_path):
    entry = "run: x, requirements: [{type: cpu, amount: 1}], environment: {VERSION: 1.10, ID: 007, RATE: 1e3}"
    for name, text in (("t.yaml", f"tasks: [{{name: 1.10, {entry}}}]"), ("t.json", JSON)):
        (tmp_path / name).write_text(text)
        (bag,) = read_bags(tmp_path / name)
        assert dict(bag.environment)["VERSION"] == "1.10" and bag.task.name == "1.10"
    with pytest.raises(UserError, match="quote it"):
        (tmp_path / "b.yaml").write_text(
            "tasks: [{name: a, run: x, requirements: [{type: cpu, amount: 1}], environment: {FLAG: true}}]"
        )
        list(read_bags(tmp_path / "b.yaml"))
    job = read_elastic("account: 00123\nelastic: {min: 1, max: 2, join: x}\n", "e.yaml", "python3")
    assert job.account == "00123"
    assert as_written(parse_json('{"a": 1.10}')["a"]) == "1.10"


JSON = """
{"tasks": [{"name": 1.10, "run": "x", "requirements": [{"type": "cpu", "amount": 1}],
            "environment": {"VERSION": 1.10}}]}
"""

"""What people write is repeated in messages in part only, and costs little, whatever it is."""

from __future__ import annotations

import time

import pytest

from penstock.config import load
from penstock.errors import UserError
from penstock.resize.recipes.model import read_elastic
from penstock.values.documents import brief, show
from penstock.values.yaml12 import parse_yaml
from penstock.workflow.files.formats import load_workflow
from penstock_planning.broker.resources import read_resources
from penstock_planning.broker.tasks import read_bags
from penstock_planning.sites.file import read_sites

KEYS = """
    name nodes time expect took produces memory gpus gres array constraint after sbatch retries nonsense
"""


def bomb(doublings: int) -> str:
    """A list that stands for 2^doublings texts."""
    parts = [f"&a0 [{'x' * 50}, {'x' * 50}]", *(f"&a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, doublings))]
    return f"[{', '.join(parts)}]"


def refused(read, path, text: str) -> str:
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(UserError) as caught:
        read(path)
    assert time.process_time() - began < 2.0
    assert len(str(caught.value)) < 1000 + len(str(path)), str(caught.value)[:2000]
    return str(caught.value)


@pytest.mark.parametrize("doublings", [12, 60])
@pytest.mark.parametrize("key", KEYS.split())
def test_an_alias_bomb_in_a_workflow_is_refused_at_once(tmp_path, key, doublings):
    stage = f"stages: [{{name: a, nodes: 1, time: 1h, run: x, {key}: {bomb(doublings)}}}]\n"
    stage = stage.replace("name: a, ", "") if key == "name" else stage
    for other in ("nodes: 1, ", "time: 1h, "):
        stage = stage.replace(other, "") if other.startswith(f"{key}:") else stage
    said = refused(load_workflow, tmp_path / "w.yaml", f"name: w\n{stage}")
    assert doublings == 12 or "aliases" in said


def elastic(path):
    return read_elastic(path.read_bytes(), "e.yaml", "python3")


@pytest.mark.parametrize("doublings", [12, 60])
@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_bags, "tasks: [{name: a, run: x, requirements: BOMB}]"),
        (read_bags, "tasks: BOMB"),
        (read_resources, "resources: [{name: BOMB}]"),
        (read_sites, "sites: {a: {queue: BOMB}}"),
        (elastic, "elastic: {min: BOMB, max: 2, join: x}"),
        (elastic, "elastic: {min: 1, max: 2, join: x, signal: BOMB}"),
        (load, "agent: {interval: BOMB}"),
    ],
)
def test_and_in_every_other_file(tmp_path, read, text, doublings):
    refused(read, tmp_path / "f.yaml", text.replace("BOMB", bomb(doublings)))


@pytest.mark.parametrize(
    ("key", "number"), [("produces", "'{}'"), ("time", "'{}'"), ("nodes", "{}"), ("produces", "1 {}"), ("took", "'{}'")]
)
def test_a_long_text_is_told_in_short(tmp_path, key, number):
    stage = "stages: [{name: a, nodes: 1, time: 1h, run: x}]\n".replace(f"{key}: 1h, ", "").replace(f"{key}: 1, ", "")
    text = stage.replace("run: x", f"run: x, {key}: {number.format('9' * 900_000)}")
    refused(load_workflow, tmp_path / "w.yaml", f"name: w\n{text}")


@pytest.mark.parametrize("text", ["a: &x [*x]", "&x {a: *x}", "- &x {k: [*x]}"])
def test_an_alias_of_what_it_stands_in_is_refused(text):
    with pytest.raises(UserError, match="alias"):
        parse_yaml(text, "list")


def test_aliases_as_people_use_them_are_written_out():
    text = "common: &c {a: [1, 2], b: x}\nused:\n" + "- *c\n" * 1000
    assert parse_yaml(text, "map")["used"][999] == {"a": [1, 2], "b": "x"}
    assert parse_yaml("a & b", "text") == "a & b"


def test_what_nobody_foresaw_is_told_in_short():
    class OddError(Exception):
        def __repr__(self) -> str:
            raise RuntimeError

    assert len(brief(KeyError("x" * 10**6))) < 250
    assert brief(KeyError("jobs")) == "KeyError('jobs')"
    assert "OddError" in brief(OddError())
    assert len(show("y" * 10**6)) < 60

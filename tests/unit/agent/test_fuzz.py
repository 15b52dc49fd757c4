"""Every place where others' bytes are read bears damaged ones; what `penstock_lab.bench.fuzz` has found stays found."""

from __future__ import annotations

import json
import shutil

import pytest

from dmr import credential
from penstock import config
from penstock.api import ReservationSpec
from penstock.errors import ConfigError, UserError
from penstock.resize.commands.molding import start_nodes
from penstock.sbatch import directives
from penstock.sbatch.job import SbatchJob
from penstock.slurm import records, site_settings
from penstock.slurm.option_words import SbatchWords
from penstock.workflow.model import workflow_from_dict, workflow_to_dict
from penstock_lab.bench import fuzz, fuzz_targets
from penstock_planning.hold import requests
from penstock_pool.taskfile import read_tasks

MANY = "9" * 5000  # digits; int() reads 4300 at most
FIGURES = ("²", "٣", MANY)


@pytest.mark.parametrize("target", fuzz_targets.TARGETS, ids=lambda target: target.name)
def test_damaged_inputs_are_refused_in_the_documented_way(target):
    inputs = 5 * target.weight
    score = fuzz.fuzz((target,), inputs, seed=7)[target.name]
    assert score.inputs == inputs
    assert score.findings == {}


@pytest.mark.parametrize("target", fuzz_targets.TARGETS, ids=lambda target: target.name)
def test_what_the_inputs_are_made_from_is_sound(target):
    for seed in target.seeds:
        if target.name != "sshare":
            target.run(seed)


def test_a_finding_is_reported_with_its_input():
    def run(data):
        if b"!" in data:
            raise KeyError(data)

    target = fuzz_targets.Target("t", run, (ValueError,), (b"a",), (b"!",))
    found = fuzz.fuzz((target,), 500, seed=1)["t"].findings
    assert len(found) == 1
    assert all(b"!" in data for inputs in found.values() for data in inputs)
    assert fuzz.fuzz((target,), 500, seed=1)["t"].findings == found, "the seed alone says what is tried"


def test_what_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(fuzz, "LONGEST", 0.01)

    def run(_data):
        while True:
            pass

    target = fuzz_targets.Target("t", run, (Exception,), (b"a",), weight=1)
    assert list(fuzz.fuzz((target,), 1, seed=1)["t"].findings) == ["does not end"]


@pytest.mark.parametrize("said", ["key:é", "key:\udcff", "²"])
def test_a_credential_of_strange_characters_is_a_wrong_one(said):
    with pytest.raises(credential.CredentialError):
        credential.verify_key(said, "0" * 64, credential.Key(1, b"k" * 32))


@pytest.mark.parametrize("figures", FIGURES)
def test_figures_that_are_no_numbers_in_what_slurm_writes(figures):
    line = f"NodeName=n1 State=IDLE CPUTot=4 RealMemory={figures}"
    assert records.node_from_line(line).memory is None
    text = (fuzz_targets.ANSWERS / "22.05" / "config.txt").read_text()
    changed = "\n".join(
        f"{line.partition('=')[0]}= {figures}" if line.startswith(("MaxArraySize", "PriorityWeightAge")) else line
        for line in text.splitlines()
    )
    site = site_settings.site_from_text(changed)
    assert (site.max_array, site.priority_weight_age) == (1001, None)


@pytest.mark.parametrize("figures", FIGURES)
def test_figures_that_are_no_numbers_of_processes(figures):
    for said in (f"1:{figures}", f"{figures}:{figures}"):
        with pytest.raises(UserError, match="malleable"):
            directives.request({"malleable": said}, {}, None)
    asked = directives.request({"malleable": "1:8"}, {}, None)
    line = SbatchWords()
    assert start_nodes(SbatchJob(line, line, asked), {"DMR_RANKS_PER_NODE": figures}) == ("--nodes=1-8",)


@pytest.mark.parametrize(
    "text",
    [
        "agent: !!timestamp x",
        "agent: {interval: 2001-99-99}",
        "agent: {seed: 0b}",
        "agent: {seed: !!int x}",
        "[" * 2000,
        "agent: {seed: " + MANY + "}",
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nagent: {interval: *c}",
        "agent: {interval: 1}\nagent: {interval: 2}",
    ],
)
def test_a_configuration_that_cannot_be_is_one_line_that_names_the_file(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        config.load(path, {})
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 600
    assert str(path) in str(raised.value)


def test_a_configuration_that_doubles_with_every_line_is_not_printed_whole(tmp_path):
    lines = ["a0: &a0 [x, x, x, x]"]
    lines += [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}, *a{i - 1}, *a{i - 1}, *a{i - 1}]" for i in range(1, 12)]
    path = tmp_path / "c.yaml"
    path.write_text("\n".join([*lines, "log: {level: *a11}"]))
    with pytest.raises(ConfigError) as raised:
        config.load(path, {})
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize(
    "change",
    [
        {"stages": 5},
        {"stages": ["a"]},
        {"environment": {"A": 1}},
        {"environment": []},
        {"name": None},
        {"workdir": 5},
    ],
)
def test_a_request_that_is_no_workflow_raises_what_the_door_expects(change):
    workflow = dict(fuzz_targets._WORKFLOW)
    assert workflow_from_dict(workflow_to_dict(workflow_from_dict(workflow))) == workflow_from_dict(workflow)
    with pytest.raises((TypeError, UserError)):
        workflow_from_dict({**workflow, **change})
    for wrong in (None, "workflow", []):
        with pytest.raises(TypeError):
            workflow_from_dict(wrong)


@pytest.mark.parametrize(
    "change",
    [
        {"command": 5},
        {"run_time": 10**400},
        {"nodes": 2.5},
        {"nodes": True},
        {"after": "ab"},
        {"after": [1]},
        {"retries": ""},
    ],
)
def test_a_stage_that_is_none_raises_what_the_door_expects(change):
    stage = {**fuzz_targets._WORKFLOW["stages"][0], **change}
    with pytest.raises((TypeError, UserError)):
        workflow_from_dict({**fuzz_targets._WORKFLOW, "stages": [stage]})


def test_a_signature_of_strange_characters_is_a_wrong_one(tmp_path):
    body = json.loads(fuzz_targets._hold_seed())
    for signature in ("²", "\udcff", 5, None):
        path = tmp_path / "r.request"
        path.write_text(json.dumps({**body, "signature": signature}))
        with pytest.raises(UserError, match="has a wrong signature"):
            requests.read(path, b"k" * 32)


@pytest.mark.parametrize("memory", [10**400, -(10**400)])
def test_a_task_of_impossible_memory(tmp_path, memory):
    path = tmp_path / "tasks"
    path.write_text(json.dumps({"command": ["a"], "memory": memory}))
    with pytest.raises(UserError, match="memory") as raised:
        read_tasks(path, "/")
    assert len(str(raised.value)) < 300


def test_nesting_without_an_end_is_a_users_mistake(tmp_path):
    path = tmp_path / "deep"
    path.write_text('{"a":[' * 100_000)
    with pytest.raises(UserError):
        read_tasks(path, "/")
    with pytest.raises(UserError):
        requests.read(path, b"k" * 32)


@pytest.mark.parametrize("name", ["../x", "a/b", "", "x" * 300, "a\0b", "a b"])
def test_a_request_is_written_in_its_folder_and_nowhere_else(tmp_path, name):
    spec = ReservationSpec(name, 1.0, 60.0, 2, None, users=("a",))
    for act in (
        lambda: requests.write(tmp_path / "in", b"k" * 32, spec, "x", 1.0),
        lambda: requests.drop(tmp_path / "in", name),
    ):
        with pytest.raises(UserError, match="name"):
            act()
    assert list(tmp_path.rglob("*.request")) == []


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_damaged_replies_do_the_c_library_no_harm():
    given, taken = fuzz.c_library(50_000, seed=3)
    assert given == 50_000
    assert 1_000 < taken < 25_000, "the inputs are neither all right nor all wrong"

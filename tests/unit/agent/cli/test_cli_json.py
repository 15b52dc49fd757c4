"""Every command with --json: what it prints has a number and is what its schema says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import json_answers
import pytest
import yaml
from click.testing import CliRunner

import penstock.workflow.commands.joblog
import penstock_lab.papers.chapters
import penstock_lab.papers.dmr.chapters
import penstock_lab.papers.provision
import penstock_lab.papers.select_chapters
from penstock.cli import cli
from penstock.cli.schemas import answers, schema_of
from penstock.console.output import FORMAT
from penstock_lab.cluster import Cluster
from penstock_lab.cluster.status import Status
from penstock_lab.papers.report import Chapter

WITH_JSON = {name for name, command in json_answers.commands().items() if json_answers.prints_json(command)}
FLOW = """
name: flow
stages:
  - {name: first, nodes: 1, time: 10m, run: "true"}
  - {name: second, nodes: 2, time: 20m, run: "sleep 600", after: first}
"""
TASK = {"name": "md", "requirements": [{"type": "compute", "form": {"isa": "x86"}, "amount": 3e12}]}
RESOURCES = {"resources": [{"name": "a", "capabilities": [{"type": "compute", "form": {"isa": "x86"}, "rate": 2.8e9}]}]}
SITES = {
    "sites": {"near": {"queue": "near.json", "data": "here/"}, "far": {"queue": "near.json", "data": "there/"}},
    "staging": ["cp", "{source}{path}", "{target}{path}"],
    "links": [{"between": ["near", "far"], "bandwidth": "100 B/s", "latency": 1}],
}


def test_every_command_with_json_has_a_schema_and_no_other():
    assert set(answers()) == WITH_JSON


def test_every_schema_has_the_number_of_the_format():
    for name in answers():
        schema = schema_of(name)
        for one in [schema["$defs"][each["$ref"].rpartition("/")[2]] for each in schema.get("anyOf", ())] or [schema]:
            assert one["properties"]["format"]["const"] == FORMAT, name
            assert "format" in one["required"], name


def test_what_is_not_in_the_schema_is_seen():
    json_answers.check("pool cancel", '{"format": 1, "cancelled": 2}')
    for wrong in ({"format": 1}, {"format": 1, "cancelled": "2"}, {"format": 2, "cancelled": 2}):
        with pytest.raises(ValueError, match="validation error"):
            json_answers.check("pool cancel", json.dumps(wrong))
    for wrong in ({"cancelled": 2}, {"format": 1, "cancelled": 2, "more": 3}):
        with pytest.raises(AssertionError, match="what its schema does not say"):
            json_answers.check("pool cancel", json.dumps(wrong))


def test_the_schemas_can_be_printed():
    words = [sys.executable, "-m", "penstock.cli.schemas"]
    done = subprocess.run([*words, "hold", "list"], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == schema_of("hold list")
    refused = subprocess.run([*words, "agent"], capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1 and "prints no JSON" in refused.stderr


@pytest.fixture
def place(agent, monkeypatch) -> Path:
    """The folder that commands run in, with an agent over a simulated Slurm."""
    folder = agent.folder
    for name, value in (("task", TASK), ("resources", RESOURCES), ("sites", SITES)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(value))
    (folder / "flow.yaml").write_text(FLOW)
    (folder / "near.json").write_text('{"procs": 2, "horizon": 90}')
    for name in ("here", "there"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "here" / "out").write_bytes(b"x" * 200)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PENSTOCK_CONFIG", str(agent.config))
    monkeypatch.setenv("PENSTOCK_POOL__FOLDER", str(folder / "pool"))
    monkeypatch.setattr(penstock.workflow.commands.joblog, "output_files", lambda job, patience: ["/here/out"])
    return folder


@pytest.fixture
def run(place) -> Callable[..., dict[str, Any]]:
    """Runs a command, and holds what it prints against its schema."""
    seen: set[str] = set()

    def command(name: str, *words: object, code: int = 0) -> dict[str, Any]:
        called = name.removesuffix(" run").split()  # `penstock profile -- CMD` is `profile run`
        done = CliRunner().invoke(cli, [*called, "--json", *map(str, words)])
        assert done.exit_code == code, (name, done.output, done.exception)
        json_answers.check(name, done.stdout)
        seen.add(name)
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    command.seen = seen
    return command


@pytest.mark.timeout(600)
def test_every_command_prints_what_its_schema_says(agent, place, run, monkeypatch):
    number = run("submit", "flow.yaml", "--strategy", "perstage")["run"]
    agent.until(lambda: run("status", number)["workflows"][0]["stages"][1]["job"], "the second stage")
    for name in (
        "status",
        "top",
        "waits",
        "advise",
        "slots",
        "message list",
        "report",
        "audit",
        "tick",
        "bags",
        "config show",
    ):
        run(name)
    assert run("explain", f"w{number}")["decisions"]
    run("waits", "-N", "1", "-t", "1h")
    assert run("try", "flow.yaml")["live"]
    run("submit", "flow.yaml", "--dry-run")
    run("logs", number, "second")
    run("config show", "--origin")
    run("audit", "--verify")
    (place / "elastic.yaml").write_text("elastic: {min: 1, max: 4, start: ./head, join: ./work}\n")
    assert "dmr.elastic" in run("elastic", "elastic.yaml", "--dry-run")["script"]
    run("more", number, "1h")
    run("more", number, "no")
    run("cancel", number)
    agent.until(lambda: run("status", number)["workflows"][0]["phase"] == "cancelled", "the end of the workflow")
    run("retry", number)
    run("pause", "--feature", "malleable")
    run("resume", "--feature", "malleable")
    _slots(run)
    _select(run)
    _pools(agent, run)
    _laboratory(run, monkeypatch)
    for name in ("check", "backup"):
        run(f"db {name}", *(["copy.db"] if name == "backup" else []))
    run("db salvage", "copy.db", "saved.db")
    (place / "messages.yaml").write_text(yaml.safe_dump({**agent.settings, "messages": {"command": ["/bin/true"]}}))
    with monkeypatch.context() as other:
        other.setenv("PENSTOCK_CONFIG", str(place / "messages.yaml"))
        run("message test")
    run("doctor")
    run("off", "--dry-run")
    run("off", "--timeout", "60")
    run("on")
    run("db vacuum")
    assert run.seen == WITH_JSON


def _slots(run):
    run("quote", "-N", "1", "-t", "10m")
    run("plan", "flow.yaml", "--alpha", "0")
    held = run("hold open", "-N", "1", "-t", "10m", "--at", "now+2h", "-A", "lab")
    run("hold list")
    run("hold tick")
    run("hold cancel", held["hold"])
    assert run("ledger")["accounts"]
    run("plan", "flow.yaml", "--sites", "sites.yaml", "--alpha", "0")
    run("stage", "near", "far", "out", "--sites", "sites.yaml")


def _select(run):
    run("select", "task.yaml", "--resources", "resources.yaml")
    run("select", "task.yaml", "-n", "2", code=1)  # the simulated nodes say nothing of their processors
    run("profile run", "--out", "true.yaml", "--machine", "here", "--force", "true")
    run("profile compare", "true.yaml", "true.yaml")


def _pools(agent, run):
    pytest.importorskip("distributed")
    run("pool start", "--detach")
    run("pool submit", "true")
    run("pool status", "--tasks")
    run("pool auto", "--max-nodes", "2")
    run("pool top")
    run("pool logs", "1")
    run("pool cancel", "1")
    run("pool drain", "77")
    run("pool stop")


def _laboratory(run, monkeypatch):
    run("simulate model", "lublin", "--jobs", "50", "--out", "model.swf")
    run("simulate swf", "model.swf", "--procs", "128")
    run("simulate cluster", "model.swf", "--nodes", "128", "--out", "waited.swf")
    run("history import", "waited.swf", "--to", "waited.history")
    run("history show", "waited.history")
    run("backtest", "waited.history")
    run("whatif", "waited.history", "--windows", "2", "--judged", "10", "--processes", "1")
    run("whatif", "waited.history", "--windows", "2", "--judged", "10", "--processes", "1", "--nodes", "200")

    def chapter(*_: object) -> Chapter:
        return Chapter("one", "One", "Text.", [{"n": 1}])

    parts = {"one": chapter, "two": lambda *_: Chapter("two", "Two", "Text.", [{"n": 2}])}
    papers = penstock_lab.papers
    monkeypatch.setattr(papers.chapters, "CHAPTERS", parts)
    monkeypatch.setattr(papers.dmr.chapters, "CHAPTERS", parts)
    monkeypatch.setattr(papers.select_chapters, "chapters", lambda **_: parts)
    monkeypatch.setattr(papers.provision, "PARTS", parts)
    for name in ("asa", "dmr", "select", "provision"):
        assert run(f"bench {name}", "--part", "one")["rows"] == [{"n": 1}]
        assert set(run(f"bench {name}", "--part", "one", "--part", "two")) == {"format", "one", "two"}
    status = Status("penstock", Path("/here"), "25.11", True, {"slurmctld": True}, {"n1": "idle"}, {"alice": "alice"})
    cluster = type("Fake", (), {"name": "penstock", "status": lambda _: status})()
    monkeypatch.setattr(Cluster, "load", lambda folder: cluster)
    run("cluster status")

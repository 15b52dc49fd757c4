"""Runs as release 0.1.0 wrote them, which a state file of fd8d5927 may still have: they are read as what they were."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.workflow.documents import run_from_dict, run_to_dict
from penstock.workflow.model import workflow_from_dict
from penstock.workflow.phases import Kept, Submitter
from penstock.workflow.state import Own, StageRun, WorkflowRun

pytestmark = pytest.mark.usefixtures("quick_and_quiet")

FOLDER = Path(__file__).parent / "states_of_0_1_0"
FILES = ("agents", "unsent", "sent", "owners", "site")
VERSION_OF_0_1_0 = 4

# What the runs of each file were, by name: the run's phase, and the phases of its stages in their order.
AGENTS = {
    "done": ("completed", ["done", "done"]),
    "broken": ("failed", ["failed", "cancelled"]),
    "given-up": ("cancelled", ["cancelled", "cancelled"]),
    "ahead": ("active", ["running", "queued", "waiting"]),
    "forked": ("failing", ["failed", "running", "cancelled"]),
    "leaving": ("cancelling", ["running", "queued", "queued"]),
    "last": ("active", ["running", "submitted", "waiting"]),
}
# Where that release said "submitted", a job was held: for the agent (it waits), or by its owner alone (it is queued).
OWNERS = {
    "done": ("completed", ["done", "done"]),
    "broken": ("failed", ["failed", "cancelled"]),
    "given-up": ("cancelled", ["cancelled", "cancelled"]),
    "retried": ("active", ["running", "waiting", "waiting"]),
    "waits": ("active", ["running", "waiting", "waiting"]),
    "ahead": ("active", ["running", "queued", "waiting"]),
    "foreign": ("active", ["running", "queued", "waiting"]),
    "fails": ("failing", ["failed", "queued", "queued"]),
    "stuck": ("failing", ["failed", "waiting", "waiting"]),
    "left": ("cancelling", ["running", "waiting"]),
}
KILLED = {"last": ("active", ["running", "intended", "waiting"])}
SITE = {name: OWNERS[name] for name in ("waits", "ahead")}
WERE = {"agents": AGENTS, "unsent": KILLED, "sent": KILLED, "owners": OWNERS, "site": SITE}


def made(name: str, path: Path) -> Path:
    """The state file, as it was."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript((FOLDER / f"{name}.sql").read_text(encoding="utf-8"))
        db.execute("PRAGMA journal_mode=WAL")
        assert db.execute("PRAGMA user_version").fetchone() == (VERSION_OF_0_1_0,)
    return path


def documents(path: Path) -> dict[int, tuple[str, dict[str, Any]]]:
    """The runs of a file of that release, by number: `kind` and what was written."""
    with closing(sqlite3.connect(path)) as db:
        return {
            number: (kind, json.loads(text)) for number, kind, text in db.execute("SELECT id, kind, state FROM runs")
        }


def plain(value: object) -> object:
    """Without the difference between a list and a tuple, or between a number and the enumeration's."""
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("name", FILES)
def test_runs_are_read_as_what_they_were(tmp_path, name):
    for number, (kind, state) in documents(made(name, tmp_path / "penstock.db")).items():
        run = run_from_dict(state)
        assert (run.id, run.owned) == (number, kind == "guided")
        phase, stages = WERE[name][run.name]
        assert (run.phase, [stage.phase for stage in run.stages]) == (phase, stages)
        (_as_owners if run.owned else _as_agents)(run, state)
        assert run_from_dict(plain(run_to_dict(run))) == run, "it is read alike when it was written anew"


def _as_agents(run: WorkflowRun, state: dict[str, Any]) -> None:
    assert (run.submitter, run.flow) == (Submitter.AGENT, workflow_from_dict(state["workflow"]))
    for key in state.keys() - {"version", "workflow", "stages"}:
        assert plain(getattr(run, key)) == state[key], key
    for stage, was in zip(run.stages, state["stages"], strict=True):
        assert stage.own is None
        assert {key: plain(getattr(stage, key)) for key in was} == was
    assert [unit.name for unit in run.units] == [stage.name for stage in run.stages]


def _as_owners(run: WorkflowRun, state: dict[str, Any]) -> None:
    assert (run.submitter, run.flow, run.submitted_at) == (Submitter.OWNER, None, state["created"])
    for key in state.keys() - {"version", "created", "stages"}:
        assert plain(getattr(run, key)) == state[key], key
    read_apart = {"after", "hold", "phase"}
    own = set(Own.__dataclass_fields__)
    for stage, was in zip(run.stages, state["stages"], strict=True):
        assert [run.stages[i].name for i in stage.after] == was["after"]
        assert stage.mine.kept is (Kept.HOLD if was["hold"] else Kept.NOT)
        for key in was.keys() - read_apart:
            assert plain(_told(stage, key, own)) == was[key], (stage.name, key)
    assert [unit.nodes for unit in run.units] == [max(was["nodes"], 1) for was in state["stages"]]


def _told(stage: StageRun, key: str, own: set[str]) -> object:
    if key == "order":
        return {"words": stage.mine.order.words, "workdir": stage.mine.order.workdir, "script": stage.mine.order.script}
    return getattr(stage.mine if key in own else stage, key)

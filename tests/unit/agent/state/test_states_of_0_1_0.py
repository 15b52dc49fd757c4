"""State files as release 0.1.0 left them: this release opens them, reads what they say, and goes on from there.

They lie in `states_of_0_1_0`, each with what its Slurm had been asked to do; the same requests at the same times put
the same jobs into the simulated Slurm of today.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.api import JobSpec, JobState
from penstock.cli import cli
from penstock.config import config_of
from penstock.state.leadership import hold_state
from penstock.state.schema import VERSION
from penstock.statefile.statefile import open_checked
from penstock.workflow.documents import run_from_dict, run_to_dict
from penstock.workflow.model import workflow_from_dict
from penstock.workflow.phases import Kept, RunPhase, Submitter
from penstock.workflow.state import Own, StageRun, WorkflowRun
from penstock_lab.agent_world import START, World, virtual

pytestmark = pytest.mark.usefixtures("quick_and_quiet")

FOLDER = Path(__file__).parent / "states_of_0_1_0"
FILES = ("agents", "unsent", "sent", "owners", "site")
WITHOUT_RUNS = ("malleable",)
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


# -- opened and read ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*FILES, *WITHOUT_RUNS])
def test_a_file_is_whole_is_copied_and_is_brought_up_to_date(tmp_path, monkeypatch, name):
    monkeypatch.setenv("PENSTOCK_AGENT__STATE_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = made(name, tmp_path / "penstock.db")
    before = documents(path)
    told = CliRunner().invoke(cli, ["db", "check"])
    assert told.exit_code == 0, told.output
    assert f"version {VERSION_OF_0_1_0}, which the agent brings to {VERSION}" in told.output
    config = config_of({"agent": {"state_dir": str(tmp_path)}})
    with closing(hold_state(config, "agent")) as leadership, closing(open_checked(config, leadership)) as store:
        found = {number: state for number, _uid, state in store.runs.latest()}
        submitters = {n for n, _uid, _state in store.runs.latest(submitter=Submitter.OWNER)}
    assert found == {number: state for number, (_kind, state) in before.items()}
    assert submitters == {number for number, (kind, _state) in before.items() if kind == "guided"}
    told = CliRunner().invoke(cli, ["db", "check", "--json"])
    assert told.exit_code == 0, told.output
    assert (json.loads(told.output)["whole"], json.loads(told.output)["version"]) == (True, VERSION)
    copy = tmp_path / f"penstock.db.before-{VERSION}"
    assert documents(copy) == before, "as that release can go on with it"


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


# -- gone on with ------------------------------------------------------------------------------------------------------


async def world_of(tmp_path: Path, name: str) -> World:
    """A Slurm with the jobs that there were, and the file, at the instant at which the agent of 0.1.0 was gone."""
    said = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    nodes = 24 if name in ("owners", "site") else 16
    world = World(tmp_path, operator=name == "site", nodes=nodes)
    made(name, world.file)
    for asked in said["calls"]:
        world.clock.advance_to(START + asked["at"])
        args = [JobSpec(**asked["spec"])] if "spec" in asked else asked["args"]
        await getattr(world.backend.as_user(asked["user"]), asked["call"])(*args, **asked.get("more", {}))
    world.clock.advance_to(START + said["at"])
    assert [[j.id, j.name, j.state.value] for j in records(world)] == [job[:3] for job in said["jobs"]]
    return world


def records(world: World) -> list[Any]:
    return [job for _number, job in sorted(world.engine.records.items())]


def jobs_of(world: World, name: str) -> dict[str, Any]:
    """The latest job of each stage, by its name, which the jobs' names end with."""
    return {stage.name: world.engine.records[stage.job] for stage in run_of(world, name).stages if stage.job}


def run_of(world: World, name: str) -> WorkflowRun:
    (state,) = [state for _n, _uid, state in world.app.store.runs.latest() if run_from_dict(state).name == name]
    return run_from_dict(state)


def in_order(run: WorkflowRun) -> bool:
    """Whether no stage began before those that it comes after had ended."""
    pairs = [(run.stages[j], stage) for stage in run.stages for j in stage.after]
    return all(a.end is not None and b.start is not None and a.end <= b.start for a, b in pairs)


@pytest.mark.parametrize("name", ["agents", "unsent", "sent"])
@virtual
async def test_the_agents_own_workflows_end_as_they_should_and_nothing_is_submitted_twice(tmp_path, name):
    world = await world_of(tmp_path, name)
    was = documents(world.file)
    there = Counter(job.name for job in records(world))
    await world.boot()
    await world.until(lambda: not world.workflows.runs)
    ends = {n: run_of(world, n).phase for n in WERE[name]}
    after = {"ahead": "completed", "forked": "failed", "leaving": "cancelled", "last": "completed"}
    assert ends == {n: after.get(n, phase) for n, (phase, _stages) in WERE[name].items()}
    for number, (_kind, state) in was.items():
        run = world.run(number)
        if RunPhase(state["phase"]).final:
            assert plain(run_to_dict(run)) == plain(run_to_dict(run_from_dict(state))), "it was over"
        elif run.phase is RunPhase.COMPLETED:
            assert in_order(run), run.name
    names = Counter(job.name for job in records(world))
    assert set(names.values()) == {1} and there.keys() <= names.keys()
    done = [job.name.split(".", 3)[-1] for job in records(world) if job.state is JobState.COMPLETED]
    assert sorted(n for n in done if n.startswith("last")) == ["last.a", "last.b", "last.c"]
    if name == "agents":
        assert sorted(n for n in done if n.startswith("ahead")) == ["ahead.a", "ahead.b", "ahead.c"]
        assert "forked.long" in done, "it ran on to its end"
        assert not [n for n in done if n.startswith("leaving")]
    assert len(names) == len(there) + {"agents": 2, "unsent": 2, "sent": 1}[name]


@pytest.mark.parametrize("name", ["owners", "site"])
@virtual
async def test_jobs_that_0_1_0_held_are_let_go_by_lifting_their_owners_hold(tmp_path, name):
    world = await world_of(tmp_path, name)
    asked: Counter[str] = Counter()
    world.failing = lambda method: asked.update([method])
    there = len(records(world))
    held = {job.name for job in records(world) if job.id in world.engine.jobs and job.held}
    await world.boot()
    assert {run.name for run in world.workflows.runs.values()} == {
        n for n, (phase, _stages) in WERE[name].items() if not RunPhase(phase).final
    }
    for each in ("waits", "ahead", *(["retried"] if name == "owners" else [])):
        await world.until(lambda each=each: run_of(world, each).phase is RunPhase.COMPLETED)
        assert in_order(run_of(world, each)), each
        assert all(job.state is JobState.COMPLETED for job in jobs_of(world, each).values())
    let_go = {f"{each}-{letter}" for each in ("waits", "retried") for letter in "bc"} | {"ahead-c"}
    assert asked["release"] == len(held & let_go)
    assert not {"submit", "update", "cancel", "hold"} & asked.keys()
    if name == "owners":
        await _what_their_owner_does(world, asked)
    assert len(records(world)) == there, "nothing was submitted"
    assert not world.workflows.runs


async def _what_their_owner_does(world: World, asked: Counter[str]) -> None:
    """A job that its owner holds waits for its owner; so does what comes after one that failed."""
    foreign = jobs_of(world, "foreign")
    assert foreign["a"].state is JobState.COMPLETED and foreign["b"].held and foreign["c"].held
    before = asked["release"]
    await world.backend.release(foreign["b"].id)
    await world.until(lambda: run_of(world, "foreign").phase is RunPhase.COMPLETED)
    assert asked["release"] == before + 1 and in_order(run_of(world, "foreign"))
    for name in ("fails", "stuck", "left"):
        jobs = jobs_of(world, name)
        left = [job for job in jobs.values() if not job.state.ended]
        assert len(left) == (1 if name == "left" else 2) and not [
            job for job in left if job.state is not JobState.PENDING
        ]
        assert run_of(world, name).phase.value == ("cancelling" if name == "left" else "failing")
        for job in left:
            await world.backend.cancel(job.id)
    await world.until(lambda: not world.workflows.runs)
    ends = {name: run_of(world, name).phase.value for name in ("fails", "stuck", "left")}
    assert ends == {"fails": "failed", "stuck": "failed", "left": "cancelled"}

"""State files, ledgers and programs as Penstock of commit fd8d5927 left them: this one goes on with them.

They lie in `tests/fixtures/fd8d5927`. That commit's agent wrote them, over its own simulated Slurm in virtual time:
`agents` is the state with workflows of each strategy under way, and what Slurm had been asked to do until then;
`everything` a state with a row of everything; `ledger` that of a workflow which waits in its slots; `programs` the
lines between MPI programs and the agent, one of each kind, and what was stored of them at each point of their resizes.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dmr import credential, wire
from penstock.api import JobSpec
from penstock.config import config_of
from penstock.resize.running.machine import MalleableJob
from penstock.state.leadership import hold_state
from penstock.state.schema import VERSION
from penstock.state.store import Store
from penstock.statefile.statefile import inspect, open_checked
from penstock.workflow.documents import run_from_dict
from penstock.workflow.phases import RunPhase, StagePhase
from penstock_lab.agent_world import START, World, virtual
from penstock_planning.hold.ledger import Ledger
from penstock_planning.hold.ledgerfile import LEDGER
from places import PROJECT

pytestmark = pytest.mark.usefixtures("quick_and_quiet")

FOLDER = PROJECT / "tests" / "fixtures" / "fd8d5927"


def read(name: str) -> str:
    return gzip.decompress((FOLDER / f"{name}.gz").read_bytes()).decode()


PROGRAMS: dict[str, Any] = json.loads(read("programs.json"))
LINES = [
    pytest.param(*pair, id=f"{each['way']}-{i}") for each in PROGRAMS["ways"] for i, pair in enumerate(each["dialogue"])
]
STORED = [
    pytest.param(document, id=f"{way}-{when}")
    for way, documents in PROGRAMS["stored"].items()
    for when, document in documents.items()
]


def made(name: str, path: Path) -> Path:
    """The file, as it was."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(read(f"{name}.sql"))
    return path


# -- the state ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["agents", "everything"])
def test_a_state_is_whole_and_opened_with_all_that_is_in_it(tmp_path, name):
    path = made(name, tmp_path / "penstock.db")
    before = inspect(path)
    assert (before.problems, before.compatible) == ((), "same" if VERSION == 7 else "older")
    config = config_of({"agent": {"state_dir": str(tmp_path)}})
    with closing(hold_state(config, "agent")) as leadership, closing(open_checked(config, leadership)) as store:
        for number, _uid, state in store.runs.latest():
            assert run_from_dict(state).id == number
    after = inspect(path)
    assert (after.problems, after.version) == ((), VERSION)
    assert {table: after.rows[table] for table in before.rows} == dict(before.rows)


@virtual
async def test_waiting_workflows_are_carried_on_and_nothing_is_submitted_twice(tmp_path):
    said = json.loads(read("agents.json"))
    world = World(tmp_path, nodes=32)
    made("agents", world.file)
    for asked in said["calls"]:
        world.clock.advance_to(START + asked["at"])
        args = [JobSpec(**asked["spec"])] if "spec" in asked else asked["args"]
        await getattr(world.backend, asked["call"])(*args, **asked.get("more", {}))
    world.clock.advance_to(START + said["at"])
    there = [[j.id, j.name, j.state.value] for _n, j in sorted(world.engine.records.items())]
    assert there == said["jobs"]
    with closing(Store(world.file)) as store:
        were = {number: run_from_dict(state) for number, _uid, state in store.runs.latest()}
    waiting = [run for run in were.values() if not run.phase.final]
    assert {run.name for run in were.values()} >= {"w-asa", "w-perstage", "w-eager", "w-bigjob", "w-auto"}
    assert any(stage.phase is StagePhase.WAITING for run in waiting for stage in run.stages)
    await world.boot()
    await world.until(lambda: not world.workflows.runs)
    for run in were.values():
        assert world.run(run.id).phase is (run.phase if run.phase.final else RunPhase.COMPLETED), run.name
        assert [s.job for s in world.run(run.id).stages if s.job][: len([s for s in run.stages if s.job])] == [
            s.job for s in run.stages if s.job
        ]
    names = Counter(job.name for job in world.engine.records.values())
    assert set(names.values()) == {1}


def tables(path: Path) -> set[tuple[str, ...]]:
    with closing(sqlite3.connect(path)) as db:
        found = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name != 'lease'").fetchall()
        return {tuple(map(str, row)) for row in (*found, *db.execute("PRAGMA application_id"))}


def test_what_is_made_today_has_its_tables_to_the_letter(tmp_path):
    """So that commit goes on with a file of today as well, as long as the version is the same."""
    Store(tmp_path / "new.db").close()
    Ledger(tmp_path / "new-ledger.db").close()
    if VERSION == 7:
        assert tables(tmp_path / "new.db") == tables(made("everything", tmp_path / "old.db"))
    assert tables(tmp_path / "new-ledger.db") == tables(made("ledger", tmp_path / "old-ledger.db"))


def test_a_ledger_is_whole_and_its_workflow_is_there(tmp_path):
    path = made("ledger", tmp_path / "ledger.db")
    assert inspect(path, LEDGER).problems == ()
    with closing(Ledger(path)) as ledger:
        (run,) = ledger.runs()
        assert [stage.name for stage in run.stages] == ["a", "b", "c"]
        assert all(stage.slot is not None and stage.job is not None for stage in run.stages)
        assert len(ledger.holds()) == 3


# -- programs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("line", "_answer"), LINES)
def test_what_a_program_says_is_understood_and_its_credential_fits(line, _answer):
    said = json.loads(line)
    received = wire.decode_request(line.encode())
    request = received.request
    assert request.auth == credential.sign_key(received.digest, credential.Key(0, PROGRAMS["key"].encode()))
    assert json.loads(wire.encode(request)) == said, "it is what a program of today would have said"


@pytest.mark.parametrize(("line", "answer"), LINES)
def test_what_a_program_looks_for_in_an_answer_is_there(line, answer):
    said = json.loads(answer)
    reply = wire.decode_reply(answer.encode())
    asks_nodes = said.get("node_request") is not None
    assert {k: v for k, v in json.loads(wire.encode(reply)).items() if k != "errand"} == {
        k: v for k, v in said.items() if k != "errand"
    }
    assert not asks_nodes or json.loads(line)["requests_nodes"]


@pytest.mark.parametrize("document", STORED)
def test_what_was_stored_of_a_program_is_read_as_what_it_was(document):
    me = MalleableJob.from_dict(document)
    again = json.loads(json.dumps(me.to_dict()))
    again["offer"] = {key: again["offer"][key] for key in document["offer"]}  # today's may say more
    assert {key: again[key] for key in document} == document

"""The environment of who submits: only its user can read it, it is in no other place, and it is gone with its run."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.api import JobSpec, Origin
from penstock.cli import cli
from penstock.config import config_of
from penstock.console import door
from penstock.console.door import left_environment
from penstock.errors import Infeasible, OutcomeUnknown, UserError
from penstock.slurm.cli import CliBackend
from penstock.state.environments import Environments, own_environment
from penstock.state.store import Store
from penstock.workflow.files.formats import parse_workflow
from penstock.workflow.model import submitted_from, workflow_to_dict
from penstock.workflow.phases import RunPhase
from penstock_lab.agent_world import World, virtual

SECRET = "s3cret-of-alice"
VARIABLES = {b"PROBE": b"a b\n\xff'", b"PASSWORD": SECRET.encode(), b"EMPTY": b"", b"SUM": b"1=1"}
FLOW = """
name: w
shell: plain
stages:
  - {name: a, nodes: 1, time: 60, run: sleep 20}
  - {name: b, nodes: 1, time: 60, run: sleep 20}
"""


def files(folder: Path) -> list[Path]:
    return [path for path in (folder / "environments").glob("*") if path.is_file()]


def test_a_file_of_its_own_that_only_its_user_can_read(tmp_path):
    old = os.umask(0)
    try:
        kept = Environments(tmp_path)
        token = kept.leave(VARIABLES)
    finally:
        os.umask(old)
    (file,) = files(tmp_path)
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    assert {os.fsencode(k): os.fsencode(v) for k, v in kept.read(token).items()} == VARIABLES
    kept.erase(token)
    assert files(tmp_path) == [] and kept.read(token) is None
    for name in (token, "../x", "", "A" * 32):
        kept.erase(name)
        with pytest.raises(UserError, match="the same `agent"):
            kept.take(name)


def test_a_sweep_leaves_what_is_kept_and_what_was_just_left(tmp_path):
    kept = Environments(tmp_path)
    kept.sweep(())
    live, ended, fresh, stale = (kept.leave(VARIABLES) for _ in range(4))
    for token in (live, ended):
        kept.take(token)
    hours_ago = (tmp_path / "environments" / stale).stat().st_mtime - 7200
    os.utime(tmp_path / "environments" / stale, (hours_ago, hours_ago))
    ahead = kept.leave(VARIABLES)  # by the clock of a file server
    os.utime(tmp_path / "environments" / ahead, (hours_ago + 10000, hours_ago + 10000))
    kept.sweep({live})
    assert {path.name for path in files(tmp_path)} == {live, fresh, ahead}


def test_python_adds_nothing(monkeypatch):
    monkeypatch.setitem(os.environ, "LC_CTYPE", "C.UTF-8")
    started_with = b"LC_CTYPE=" in Path("/proc/self/environ").read_bytes()
    assert (b"LC_CTYPE" in own_environment()) is started_with
    monkeypatch.setitem(os.environ, "LC_CTYPE", "de_DE.UTF-8")
    assert own_environment()[b"LC_CTYPE"] == b"de_DE.UTF-8"


# -- under the agent ---------------------------------------------------------------------------------------------------


async def begun(world: World, text: str = FLOW, strategy: str = "perstage") -> int:
    token = Environments(world.file.parent).leave(VARIABLES)
    flow = submitted_from(parse_workflow(text), "/somewhere", 0o27)
    number = await world.workflows.submissions.submit(0, flow, strategy, token)
    world.pass_at = world.now
    await world.until(lambda: world.submissions()["a"] == 1)
    return number


def everywhere(folder: Path) -> bytes:
    """All that is in the state folder but the environments."""
    return b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.parent.name != "environments")


@virtual
async def test_jobs_get_it_and_it_goes_with_the_run(tmp_path, caplog):
    world = World(tmp_path)
    await world.boot()
    number = await begun(world)
    job = world.run(number).stages[0].job
    origin = world.engine.records[job].spec.origin
    assert (origin.folder, origin.umask, origin.environment["PASSWORD"]) == ("/somewhere", 0o27, SECRET)
    assert SECRET not in repr(world.engine.records[job].spec), "nor is it shown"
    assert len(files(tmp_path)) == 1
    told = json.dumps(await world.app.operations["status"](os.geteuid(), {}))
    assert "somewhere" in told and SECRET not in told
    assert SECRET.encode() not in everywhere(tmp_path)
    assert (await world.finish(number)).phase is RunPhase.COMPLETED
    assert files(tmp_path) == [] and SECRET not in caplog.text


@virtual
@pytest.mark.parametrize("how", ["failed", "cancelled", "killed"])
async def test_however_a_run_ends_it_is_erased(tmp_path, how):
    world = World(tmp_path)
    await world.boot()
    number = await begun(world, FLOW.replace("sleep 20", "exit 3") if how == "failed" else FLOW)
    if how == "cancelled":
        world.workflows.cancel(number, "by its user")
    if how == "killed":  # after its end was written down, and before more
        world.workflows._environments._folder = None
        await world.finish(number)
        assert len(files(tmp_path)) == 1
        world.kill()
        await world.boot()
    await world.finish(number)
    assert files(tmp_path) == []


@virtual
async def test_a_restart_leaves_that_of_a_run_that_goes_on(tmp_path):
    world = World(tmp_path)
    await world.boot()
    number = await begun(world)
    world.kill()
    await world.boot()
    assert len(files(tmp_path)) == 1
    run = await world.finish(number)
    assert world.engine.records[run.stages[1].job].spec.origin.environment["PASSWORD"] == SECRET


@virtual
async def test_a_retry_has_that_of_who_retries(tmp_path):
    world = World(tmp_path)
    await world.boot()
    number = await begun(world, FLOW.replace("sleep 20", "exit 3"))
    await world.finish(number)
    token = Environments(tmp_path).leave({b"AGAIN": b"1"})
    world.workflows.submissions.retry(number, None, token)
    world.pass_at = world.now
    await world.until(lambda: len(world.engine.records) == 2)
    spec = world.engine.records[max(world.engine.records)].spec
    assert (spec.origin.folder, spec.origin.environment) == ("/somewhere", {"AGAIN": "1"})
    await world.finish(number)
    assert files(tmp_path) == []
    world.workflows.submissions.retry(number)
    world.pass_at = world.now
    await world.until(lambda: len(world.engine.records) == 3)
    assert world.engine.records[max(world.engine.records)].spec.origin is None, "and none of before"


@virtual
async def test_where_not_all_is_exported_the_script_says_what_penstock_adds(tmp_path):
    world = World(tmp_path)
    await world.boot()
    await begun(world, FLOW.replace("name: a,", "name: a, sbatch: --export=NONE,"))
    spec = world.engine.records[max(world.engine.records)].spec
    assert spec.script.startswith("#!/bin/bash\nexport PENSTOCK_WORKFLOW=w\n") and SECRET not in spec.script


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def mine(tmp_path):
    return config_of({"agent": {"state_dir": str(tmp_path / "state")}})


def test_a_request_has_the_name_alone_and_a_refused_one_leaves_nothing(mine, monkeypatch):
    monkeypatch.setenv("PASSWORD", SECRET)
    folder = mine.agent.state_dir
    with left_environment(mine) as given:
        assert Environments(folder).read(given["environment"])["PASSWORD"] == SECRET
    assert len(files(folder)) == 1
    with pytest.raises(UserError), left_environment(mine):
        raise UserError("not so")
    assert len(files(folder)) == 1
    with pytest.raises(OutcomeUnknown), left_environment(mine):
        raise OutcomeUnknown("perhaps")
    assert len(files(folder)) == 2, "the agent may be about to take it"


def test_another_users_agent_is_given_nothing(mine, monkeypatch):
    mine.agent.state_dir.mkdir()
    monkeypatch.setattr(door.os, "geteuid", lambda: os.getuid() + 1)
    with left_environment(mine) as given:
        assert given == {} and files(mine.agent.state_dir) == []


def test_what_is_left_for_a_tick_is_not_in_the_state_file_nor_in_a_backup(tmp_path, monkeypatch):
    state, flow, copy = tmp_path / "state", tmp_path / "w.yaml", tmp_path / "copy.db"
    flow.write_text(FLOW)
    config = tmp_path / "penstock.yaml"
    config.write_text(json.dumps({"agent": {"state_dir": str(state)}}))
    monkeypatch.setenv("PENSTOCK_CONFIG", str(config))
    monkeypatch.setenv("PASSWORD", SECRET)
    done = CliRunner().invoke(cli, ["submit", str(flow), "--tick", "--json"])
    assert done.exit_code == 0, done.output
    assert SECRET not in done.output and len(files(state)) == 1
    ((_n, _at, _uid, op, payload),) = Store(state / "penstock.db").inbox.waiting()
    assert op == "submit" and payload["environment"] == files(state)[0].name
    assert payload["workflow"]["folder"] == str(Path.cwd())
    assert SECRET.encode() not in everywhere(state)
    assert CliRunner().invoke(cli, ["db", "backup", str(copy)]).exit_code == 0
    assert SECRET.encode() not in copy.read_bytes() and len(files(state)) == 1


# -- sbatch ------------------------------------------------------------------------------------------------------------

SBATCH = """#!/bin/sh
{ pwd; umask; env; for word; do echo "word $word"; done; cat; } >"$PROBE"
echo 7
"""


def test_sbatch_runs_as_its_submitter_would_have_run_it(tmp_path, monkeypatch):
    program = tmp_path / "bin" / "sbatch"
    program.parent.mkdir()
    program.write_text(SBATCH)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    folder, told = tmp_path / "from here", tmp_path / "told"
    folder.mkdir()
    environment = {"PROBE": str(told), "PATH": "/usr/bin:/bin", "SBATCH_WAIT": "1", "SBATCH_ACCOUNT": "x"}
    origin = Origin(str(folder), environment, 0o27)
    spec = JobSpec("n", "#!/bin/sh\n", 1, 60, options=("--exclusive",), memory="1G", origin=origin)

    class Backend(CliBackend):
        async def _check_size(self, partition, nodes):
            pass

    async def submit(what):
        backend = Backend()
        try:
            return await backend.submit(what)
        finally:
            await backend.close()

    monkeypatch.setenv("AGENTS_OWN", "1")
    assert asyncio.run(submit(spec)) == 7
    lines = told.read_text().splitlines()
    assert lines[:2] == [str(folder), "0027"]
    assert "SBATCH_ACCOUNT=x" in lines and "PATH=/usr/bin:/bin" in lines
    ours = ("SBATCH_WAIT", "AGENTS_OWN", "LC_ALL", "SLURM_TIME_FORMAT", "word --export")
    assert not [line for line in lines if line.startswith(ours)]
    words = [line.removeprefix("word ") for line in lines if line.startswith("word ")]
    assert words[:2] == ["--exclusive", "--mem=1G"] and words[-1] == "--parsable" and f"--chdir={folder}" in words
    folder.rmdir()
    with pytest.raises(Infeasible, match="is no folder"):
        asyncio.run(submit(spec))


def test_a_workflow_knows_from_where_it_comes():
    flow = submitted_from(parse_workflow(FLOW.replace("shell: plain", "workdir: sub")), "/from", 0o22)
    assert (flow.workdir, flow.folder, workflow_to_dict(flow)["umask"]) == ("/from/sub", "/from", 0o22)

"""The simulated Slurm as a process with real jobs. Waiting is polling with a deadline, never a bare sleep."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

import pytest

from penstock.api import Allocation, JobSpec, ReservationSpec
from penstock.errors import Infeasible, NotFound, NotNow, NotPermitted, OutcomeUnknown, SlurmUnavailable, UserError
from penstock.slurm.base import Backend
from penstock_lab.mock import control, processes
from penstock_lab.mock.client import MockClient
from penstock_lab.mock.model import ClusterConfig
from penstock_lab.mock.server import main as server_main

DEADLINE = 30.0


@pytest.fixture
def folder():
    """A folder with a short path that other users can reach."""
    path = Path(tempfile.mkdtemp(prefix="pm-"))
    path.chmod(0o755)
    yield path
    control.stop(path)
    assert not list(processes.find(lambda run: run.startswith(f"{path}:")))
    shutil.rmtree(path)


@pytest.fixture
def cluster(folder):
    return control.start(folder, ClusterConfig(nodes=4, requeue_delay=0.0), kill_wait=0.5)


@pytest.fixture
def backend(cluster):
    return MockClient(cluster.socket, time_limit=10)


def spec(body, nodes=1, limit=60.0, **more):
    return JobSpec(more.pop("name", "j"), f"#!/bin/bash\n{body}\n", nodes, limit, **more)


async def until(probe, what):
    """Poll until `probe` gives something true, and return it."""
    end = time.monotonic() + DEADLINE
    while not (found := await probe()):
        assert time.monotonic() < end, f"timed out waiting for {what}"
        await asyncio.sleep(0.05)
    return found


async def state(backend, job):
    (record,) = await backend.history(ids=[job])
    return record.state


async def ended(backend, job):
    async def probe():
        (record,) = await backend.history(ids=[job])
        return record if record.state.ended else None

    return await until(probe, f"the end of job {job}")


async def written(path, text=""):
    async def probe():
        return path.exists() and text in path.read_text() and path.read_text()

    return await until(probe, f"{text!r} in {path.name}")


def test_a_job_really_runs_with_slurms_variables(cluster, backend):
    async def run():
        client: Backend = backend
        text = (
            "echo $SLURM_JOB_ID $SLURM_JOB_NODELIST $SLURM_NNODES $SLURM_JOB_NAME $COLOUR $SLURM_NTASKS_PER_NODE; pwd"
        )
        job = await client.submit(
            spec(f"#SBATCH --ntasks-per-node=2\n{text}", 2, output="out-%j-%x.txt", environment={"COLOUR": "red"})
        )
        record = await ended(client, job)
        assert (record.state, record.exit_code, record.num_nodes) == ("COMPLETED", 0, 2)
        assert record.submit <= record.start <= record.end
        lines = (cluster.folder / "work" / f"out-{job}-j.txt").read_text().splitlines()
        assert lines == [f"{job} n1,n2 2 j red 2", str(cluster.folder / "work")]

    asyncio.run(run())


def test_workdir_and_interpreter_are_the_scripts_own(backend, tmp_path):
    async def run():
        script = f"#!{sys.executable}\nimport os, sys\nprint(os.getcwd())\nsys.exit(3)\n"
        record = await ended(backend, await backend.submit(JobSpec("j", script, 1, 60, workdir=str(tmp_path))))
        assert (record.state, record.exit_code) == ("FAILED", 3)
        assert (tmp_path / f"slurm-{record.id}.out").read_text() == f"{tmp_path}\n"

    asyncio.run(run())


def test_the_time_limit_and_a_cancel_kill_all_that_a_job_has_started(cluster, backend):
    async def run():
        # A session of its own and deafness to SIGTERM do not help.
        body = "setsid bash -c 'trap \"\" TERM; echo up >&2; while :; do sleep 60; done' &\nwait"
        late, cancelled = await backend.submit(spec(body, limit=1)), await backend.submit(spec(body))
        await written(cluster.folder / "work" / f"slurm-{cancelled}.out", "up")
        assert [s.id for s in await backend.steps(cancelled)] == ["batch"]
        await backend.cancel(cancelled)
        await backend.cancel(cancelled)
        assert await state(backend, cancelled) == "CANCELLED"
        assert (await ended(backend, late)).state == "TIMEOUT"
        assert await backend.steps(cancelled) == []

        async def nothing_left():
            return not list(processes.find(lambda run: run.startswith(f"{cluster.folder}:")))

        await until(nothing_left, "the jobs' processes to be gone")

    asyncio.run(run())


def test_an_allocation_waits_for_nodes_and_is_withdrawn_when_patience_ends(backend):
    async def run():
        blocker = await backend.submit(spec("sleep 600", 4))
        with pytest.raises(NotNow):
            await backend.allocate(Allocation("r", 1, 60), patience=0.2)
        (job,) = await backend.find("r")
        assert await state(backend, job) == "CANCELLED"
        waiting = asyncio.create_task(backend.allocate(Allocation("s", 1, 60), patience=20))
        await until(lambda: backend.find("s"), "the request to be queued")
        await backend.cancel(blocker)
        granted = await waiting
        assert await backend.find("s") == [granted]

    asyncio.run(run())


def test_a_cancelled_allocate_takes_its_request_back(backend):
    async def run():
        await backend.submit(spec("sleep 600", 4))
        waiting = asyncio.create_task(backend.allocate(Allocation("r", 1, 60), patience=60))
        (job,) = await until(lambda: backend.find("r"), "the request to be queued")
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        assert (await ended(backend, job)).state == "CANCELLED"

    asyncio.run(run())


def test_steps_run_on_nodes_and_die_with_them(cluster, backend):
    async def run():
        job = await backend.submit(
            spec("srun -N 2 bash -c 'echo up $SLURMD_NODENAME; exec sleep 600' &\nwait; sleep 600", 2)
        )
        out = cluster.folder / "work" / f"slurm-{job}.out"
        await written(out, "up n1")
        await written(out, "up n2")
        resizer = await backend.allocate(Allocation("r", 1, 60, expands=job), patience=5)
        await backend.merge(resizer, job)
        assert [(s.id, s.nodes) for s in await backend.steps(job)] == [("batch", ("n1",)), ("0", ("n1", "n2"))]
        await backend.shrink(job, ["n1"])
        assert [(s.id, s.nodes) for s in await backend.steps(job)] == [("batch", ("n1",)), ("0", ("n1",))]
        assert await state(backend, job) == "RUNNING"

    asyncio.run(run())


def test_srun_refuses_nodes_of_others_and_runs_in_a_companion(cluster, backend):
    async def run():
        companion = await backend.allocate(Allocation("c", 1, 60), patience=5)
        body = "srun -w n3 true; echo $?\n"
        body += f"srun --jobid={companion} --overlap -n 1 sh -c 'echo $SLURM_JOB_ID $SLURMD_NODENAME'"
        record = await ended(backend, await backend.submit(spec(body)))
        text = (cluster.folder / "work" / f"slurm-{record.id}.out").read_text()
        assert text.splitlines()[-2:] == ["1", f"{companion} n1"]
        assert await state(backend, companion) == "RUNNING"

    asyncio.run(run())


def test_a_dead_node_ends_its_job_or_sends_it_back(cluster, backend):
    async def run():
        fragile = await backend.submit(spec("sleep 600"))
        again = await backend.submit(spec("echo run $SLURM_RESTART_COUNT >> runs; sleep 600", requeue=True))
        await written(cluster.folder / "work" / "runs", "run 0")
        cluster.fail_node("n1")
        cluster.fail_node("n2")
        assert await state(backend, fragile) == "NODE_FAIL"
        assert [n.name for n in await backend.nodes() if not n.usable] == ["n1", "n2"]
        await written(cluster.folder / "work" / "runs", "run 1")
        assert await state(backend, again) == "RUNNING"
        cluster.resume_node("n1")
        cluster.drain_node("n2")

    asyncio.run(run())


def test_errors_keep_their_class_and_nonsense_is_answered(cluster, backend):
    async def run():
        with pytest.raises(NotFound, match="99"):
            await backend.cancel(99)
        with pytest.raises(Infeasible, match="batch script"):
            await backend.submit(JobSpec("j", "echo", 1, 60))

    asyncio.run(run())
    for line in (b"{}\n", b"nonsense\n", b'{"method": "jobs", "params": {"x": 1}}\n', b'{"method": "x"}\n'):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(cluster.socket))
            connection.sendall(line)
            assert json.loads(connection.makefile().readline())["error"]["class"] == "Infeasible"


def test_faults_on_order(cluster):
    async def run():
        backend = MockClient(cluster.socket, time_limit=10.0)
        hasty = MockClient(cluster.socket, time_limit=0.5)  # for what is never answered
        cluster.fault("jobs", "error", 2)
        for _ in range(2):
            with pytest.raises(SlurmUnavailable):
                await backend.jobs()
        assert await backend.jobs() == []
        cluster.fault("nodes", "hang")
        with pytest.raises(SlurmUnavailable):
            await hasty.nodes()
        cluster.fault("submit", "hang")
        with pytest.raises(OutcomeUnknown):
            await hasty.submit(spec("true"))
        assert await backend.find("j") == []
        cluster.fault("submit", "lost-answer")
        with pytest.raises(OutcomeUnknown):
            await backend.submit(spec("true"))
        assert len(await backend.find("j")) == 1
        cluster.fault("submit", "late", delay=0.1)
        assert await backend.submit(spec("true", name="late")) == (await backend.find("late"))[0]
        cluster.fault("*", "error")
        with pytest.raises(SlurmUnavailable):
            await backend.site()
        with pytest.raises(Infeasible):
            cluster.fault("jobs", "no-such-kind")

    asyncio.run(run())


def test_without_a_server_nothing_was_changed(tmp_path):
    async def run():
        with pytest.raises(SlurmUnavailable):
            await MockClient(tmp_path / "mock.sock").submit(spec("true"))

    asyncio.run(run())
    assert control.status(tmp_path) is None
    control.stop(tmp_path)


def test_start_twice_and_too_long_a_path_are_user_errors(cluster, tmp_path):
    with pytest.raises(UserError, match="already"):
        control.start(cluster.folder)
    with pytest.raises(UserError, match="too long"):
        control.start(tmp_path / ("x" * 100))


def test_a_broken_configuration_says_so(folder):
    (folder / "work").write_text("in the way")
    with pytest.raises(SlurmUnavailable, match="did not come up"):
        control.start(folder)
    with pytest.raises(SystemExit):
        server_main(["--nodes", "x"])


def test_stopping_leaves_nothing_behind_and_a_killed_server_is_cleared_away(folder):
    async def run(handle):
        backend = MockClient(handle.socket)
        job = await backend.submit(spec("setsid sleep 600 & sleep 600"))

        async def runs():
            return list(processes.find(lambda run: run == f"{folder}:{job}.0"))

        await until(runs, "the job's processes")

    handle = control.start(folder, ClusterConfig(nodes=1))
    assert control.status(folder) == handle
    asyncio.run(run(handle))
    handle.stop()
    assert control.status(folder) is None
    assert {p.name for p in folder.iterdir()} == {"work", "server.log", "cluster.json"}
    handle = control.start(folder)
    os.kill(handle.pid, signal.SIGKILL)
    os.waitpid(handle.pid, 0)
    control.stop(folder)
    assert not handle.socket.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs as another user")
def test_jobs_run_as_the_user_who_asks(cluster):
    nobody = pwd.getpwnam("nobody")
    code = (
        "import asyncio, sys\n"
        "from penstock.api import JobSpec\n"
        "from penstock_lab.mock.client import MockClient\n"
        "b = MockClient(sys.argv[1])\n"
        "print(asyncio.run(b.submit(JobSpec('theirs', '#!/bin/sh\\nid -un; umask; ls -d $HOME', 1, 60))), b.whoami())\n"
    )

    async def run():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, str(cluster.socket), user=nobody.pw_uid, stdout=asyncio.subprocess.PIPE, cwd="/"
        )
        out, _ = await process.communicate()
        job, who = out.split()
        backend = MockClient(cluster.socket)
        record = await ended(backend, int(job))
        assert (who, record.user, await backend.find("theirs")) == (b"nobody", "nobody", [])
        output = cluster.folder / "work" / f"slurm-{record.id}.out"
        assert output.read_text().startswith("nobody\n")
        assert output.stat().st_uid == nobody.pw_uid

    asyncio.run(run())


MPI_PROGRAM = """
import sys, time
from mpi4py import MPI

parent = MPI.Comm.Get_parent()
if parent == MPI.COMM_NULL:
    world = MPI.COMM_WORLD
    info = MPI.Info.Create()
    if len(sys.argv) > 1:
        info.Set("hosts", sys.argv[1])
    children = world.Spawn(sys.executable, [__file__], maxprocs=2, info=info)
    total = children.allreduce(0, op=MPI.SUM)
    if world.rank == 0:
        print("world", world.size, "children", children.remote_size, "sum", total, flush=True)
    children.Disconnect()
else:
    import os

    print("child on", os.environ["SLURMD_NODENAME"], flush=True)
    parent.allreduce(MPI.COMM_WORLD.rank + 1, op=MPI.SUM)
    parent.Disconnect()
"""


@pytest.mark.mpi
@pytest.mark.parametrize("launcher", ["srun", "-launcher slurm", "fork"])
@pytest.mark.few(1)
def test_mpi_with_spawn(cluster, backend, tmp_path, launcher):
    pytest.importorskip("mpi4py")
    (tmp_path / "app.py").write_text(MPI_PROGRAM)

    async def run():
        flags = launcher if launcher.startswith("-") else ""
        body = f"mpiexec {flags} -n 4 -ppn 1 python app.py n3,n4"
        environment = {"HYDRA_LAUNCHER": "fork"} if launcher == "fork" else {}
        job = await backend.submit(spec(body, 4, workdir=str(tmp_path), environment=environment))
        record = await ended(backend, job)
        text = (tmp_path / f"slurm-{job}.out").read_text()
        assert record.state == "COMPLETED", text
        assert "world 4 children 2 sum 3" in text
        if launcher != "fork":
            assert "child on n3" in text
            assert "child on n4" in text

    asyncio.run(run())


GROW_AND_SHRINK = """
import os, sys, time
from mpi4py import MPI

stage = sys.argv[1]
parent = MPI.Comm.Get_parent()
if parent != MPI.COMM_NULL:
    parent.Barrier()
    parent.Disconnect()
print(stage, MPI.COMM_WORLD.rank, "of", MPI.COMM_WORLD.size, "on", os.environ["SLURMD_NODENAME"], flush=True)
following = {"first": ("grown", 4, "n1,n2,n3,n4"), "grown": ("shrunk", 2, "n1,n2")}.get(stage)
go = "go-" + (following[0] if following else "end")
deadline = time.monotonic() + 60
while not os.path.exists(go) and time.monotonic() < deadline:
    time.sleep(0.05)
if following:
    info = MPI.Info.Create()
    info.Set("hosts", following[2])
    children = MPI.COMM_WORLD.Spawn(sys.executable, [__file__, following[0]], maxprocs=following[1], info=info)
    children.Barrier()
    children.Disconnect()
"""


@pytest.mark.mpi
@pytest.mark.long
def test_an_mpi_job_grows_into_merged_nodes_and_shrinks_again(backend, tmp_path):
    """The whole dance of the DMR paper: replace all processes, then give the nodes back when their step has gone."""
    pytest.importorskip("mpi4py")
    (tmp_path / "app.py").write_text(GROW_AND_SHRINK)

    async def run():
        job = await backend.submit(
            spec("mpiexec -n 2 -ppn 1 python app.py first; echo rc $?", 2, workdir=str(tmp_path))
        )
        out = tmp_path / f"slurm-{job}.out"
        await written(out, "first 1 of 2 on n2")
        resizer = await backend.allocate(Allocation("r", 2, 60, expands=job), patience=5)
        await backend.merge(resizer, job)
        (tmp_path / "go-grown").touch()
        await written(out, "grown 3 of 4 on n4")

        async def steps(wanted):
            return [s.id for s in await backend.steps(job)] == wanted

        await until(lambda: steps(["batch", "1"]), "step 0 to be gone")
        (tmp_path / "go-shrunk").touch()
        await written(out, "shrunk 1 of 2 on n2")
        await until(lambda: steps(["batch", "2"]), "step 1 to be gone")
        await backend.shrink(job, ["n1", "n2"])
        assert [n.name for n in await backend.nodes() if n.state == "IDLE"] == ["n3", "n4"]
        (tmp_path / "go-end").touch()
        record = await ended(backend, job)
        assert (record.state, record.num_nodes) == ("COMPLETED", 2)
        assert "rc 0" in out.read_text()

    asyncio.run(run())


def test_acting_for_another_user_is_for_the_owner_of_the_cluster(backend):
    async def run():
        name = "daemon" if backend.whoami() == "nobody" else "nobody"
        other = backend.as_user(name)
        job, theirs = await backend.submit(spec("sleep 60")), await other.submit(spec("sleep 60"))
        assert {j.id: j.user for j in await backend.jobs()} == {job: backend.whoami(), theirs: name}
        with pytest.raises(NotPermitted):
            await other.cancel(job)
        with pytest.raises(NotPermitted):
            await other._call("fail_node", name="n1")
        await other.cancel(theirs)

    asyncio.run(run())


@pytest.fixture
def two_clusters(tmp_path):
    west = ClusterConfig(nodes=1, cluster="west", licenses={"matlab": 2})
    handle = control.start(tmp_path, ClusterConfig(nodes=2, cluster="east", siblings=(west,)), kill_wait=0.1)
    yield handle
    handle.stop()


def test_a_site_of_two_clusters_with_arrays_reservations_and_licences(two_clusters):
    async def run():
        east = MockClient(two_clusters.socket, name="east")
        west = east.on("west")
        assert (list(await east.clusters()), list(await west.clusters())) == (["east", "west"], ["east", "west"])
        assert [(lic.name, lic.total) for lic in await west.licenses()] == [("matlab", 2)]
        assert (len(await east.nodes()), len(await west.nodes())) == (2, 1)
        with pytest.raises(NotFound):
            await east.on("north").jobs()
        made = await east.as_user("root").reserve(ReservationSpec("r", east.now() + 600, 60, 1, users=("root",)))
        assert list(await east.reservations()) == [made] and list(await west.reservations()) == []
        line = 'echo "$SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT" > task-$SLURM_ARRAY_TASK_ID'
        array = await west.submit(spec(line, array="3,5", comment="say so"))
        assert (await west.texts([array]))[array].comment == "say so"
        work = two_clusters.folder / "clusters" / "west" / "work"
        for task in (3, 5):
            await written(work / f"task-{task}", f"{array} {task} 2")
        assert list(await east.jobs()) == []
        assert (await west.estimate(spec("true"))).nodes == ("n1",)

    asyncio.run(run())


def test_the_controller_is_away_and_requests_arrive_twice(cluster):
    async def run():
        backend = MockClient(cluster.socket)
        cluster.fault("submit", "repeat")
        second = await backend.submit(spec("true"))
        assert list(await backend.find("j")) == [second - 1, second]
        cluster.away(3600)
        with pytest.raises(SlurmUnavailable, match="Unable to contact"):
            await backend.jobs()
        cluster.away(0)
        assert len(await backend.jobs()) == 2

    asyncio.run(run())

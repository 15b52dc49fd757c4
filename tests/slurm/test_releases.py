"""Another Slurm release in a file system of its own: what runs inside, and that nothing of it stays outside."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from agents import SlurmAgent
from click.testing import CliRunner
from leftovers import once_free
from malleable import mergeable

from penstock.api import Allocation, JobSpec
from penstock.errors import Infeasible, PenstockError, UserError
from penstock.slurm.cli import CliBackend
from penstock_lab.cli.cluster import cluster as command
from penstock_lab.cluster import Cluster, ClusterSpec, down, up
from penstock_lab.cluster.processes import MARK
from penstock_lab.cluster.programs import version_pair
from penstock_lab.cluster.rootfs import prepare

pytestmark = [pytest.mark.slurm, pytest.mark.release, pytest.mark.timeout(180, func_only=True)]

RELEASES = {"trixie": ((24, 11), (24, 11)), "sid": ((26, 5), (99, 0))}  # the unstable one moves on


def mounted(folder: Path) -> list[str]:
    """What the cluster in this folder has mounted where the machine sees it. Other tests mount meanwhile."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in lines if line.split()[0] == "penstock" or str(folder) in line]


def marked(folder: Path) -> list[int]:
    """Numbers of living processes that belong to the cluster in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            # As bytes: slurmstepd has written over the first variables.
            variables = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            if f"{MARK}={folder}".encode() in variables and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


@pytest.fixture(scope="module", params=list(RELEASES))
def release(request, need_slurm):
    """A release whose file system is there."""
    need_slurm(request.param)
    return request.param


@pytest.fixture(scope="module")
def another(release, sweep):
    """A cluster of that release, as a site with PrologFlags=Contain has it."""
    folder = Path("/var/tmp") / f"pst-test-{release}-{os.getpid()}"
    expedite = ("SlurmctldParameters=enable_expedited_requeue",)  # 24.11 does not mind
    it = up(ClusterSpec(nodes=3, folder=folder, release=release, contain=True, extra=expedite))
    yield it
    it.down()
    assert not folder.exists() and not marked(folder) and not mounted(folder)


def test_a_controller_that_is_killed_before_it_has_saved_its_state_starts_again(another):
    """26.05 refuses without the file, unless it is told not to mind; it is written every few minutes."""
    controller = psutil.Process(another.daemons.state.processes["slurmctld"].pid)
    controller.kill()
    controller.wait(30)
    for file in (another.folder / "state").glob("assoc_usage*"):
        file.unlink()
    another.start_controller()
    assert "idle" in another.run_as("alice", ["sinfo", "-h"], check=True).stdout


def test_commands_of_its_users_are_those_of_that_release(another, release):
    for who in ("alice", "operator", "root"):
        done = another.run_as(who, ["sh", "-c", "id -un; pwd; squeue --version"], check=True)
        login, cwd, version = done.stdout.splitlines()
        assert (login, cwd) == (another.users.get(who, "root"), str(another.home(who)))
        assert version.split()[-1] == another.slurm_version
    first, last = RELEASES[release]
    assert first <= version_pair(another.slurm_version) <= last
    assert another.run_as("alice", ["no-such-command"]).returncode == 127
    assert not mounted(another.folder)


def test_a_batch_job_with_this_python_and_srun(another):
    out = another.home("alice") / "out"
    script = f"srun {sys.executable} -c 'import dmr, os; print(os.environ[\"SLURMD_NODENAME\"])'"
    another.run_as("alice", ["sbatch", "--wait", "-N2", "-o", str(out), "--wrap", script], check=True)
    assert sorted(out.read_text().split()) == ["n1", "n2"]


@pytest.mark.long
def test_a_stage_that_slurm_holds_for_another_run_has_failed_and_goes_with_its_workflow(another, release):
    if release != "sid":
        pytest.skip("--requeue=expedite is of 25.11 and later")
    agent = SlurmAgent(another).start()
    try:
        words = ["--penstock-workflow=ex", "-N1", "-t1", "-o/dev/null"]
        for more in (
            ["--penstock-stage=a", "--requeue=expedite", "--wrap=exit 1"],
            ["--penstock-stage=b", "--penstock-after=a", "--wrap=true"],
        ):
            done = agent.run("alice", "sbatch", *words, *more)
            assert done.returncode == 0, done.stderr
        agent.until(lambda: agent.state(1)["phase"] == "failing", "the failure", 30)
        assert "REQUEUE_HOLD" in another.run_as("alice", ["squeue", "-h", "-o", "%T"], check=True).stdout
        assert agent.run("alice", "cancel", "ex").returncode == 0
        assert agent.finish(1)["phase"] == "cancelled"
        assert another.run_as("alice", ["squeue", "-h"], check=True).stdout == ""
    finally:
        agent.down()


def test_a_shell_of_root_and_the_run_command(another):
    folder = ["--dir", str(another.folder)]
    shown = CliRunner().invoke(command, ["env", *folder]).stdout
    done = subprocess.run(
        ["bash", "-c", f"{shown}\ncd /root; sinfo --version; sinfo -h -o %D"],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.stdout.split() == ["slurm-wlm", another.slurm_version, "3"], done.stderr
    words = ["run", *folder, "--as", "bob", "--", "sh", "-c", "exit 7"]
    assert CliRunner().invoke(command, words).exit_code == 7


def test_under_contain_a_merge_is_refused_for_good(another):
    mergeable(another)
    asyncio.run(_merge_is_refused(another))


async def _merge_is_refused(another: Cluster) -> None:
    user = another.user("alice")
    backend = CliBackend(prefix=another.prefix("alice"), user=user.name, slurm_conf=another.env["SLURM_CONF"])
    assert not (await backend.site()).permits_expansion
    job = await backend.submit(JobSpec("job", "#!/bin/sh\nsleep 60\n", 1, 120.0, output="/dev/null", workdir="/tmp"))
    deadline = time.monotonic() + 90
    while not [j for j in await backend.jobs() if j.id == job and j.running]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)
    resizer = await backend.allocate(Allocation("resizer", 1, 120.0, expands=job), 10.0)
    while not await backend.steps(resizer):  # the extern step
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)
    with pytest.raises(Infeasible, match="Job step already exists"):
        await backend.merge(resizer, job)
    await backend.cancel(resizer)
    await backend.cancel(job)
    await backend.close()


def test_a_holder_that_was_killed_is_started_again(another):
    holder = another.daemons.state.processes["enclosure"]
    os.kill(holder.pid, signal.SIGKILL)
    with pytest.raises(PenstockError, match="holder"):
        while holder.alive or another.run_as("alice", ["squeue"]):
            time.sleep(0.01)
    another.start("enclosure")
    assert another.run_as("alice", ["squeue"], check=True).stdout
    assert another.status().healthy


def test_what_a_killed_up_leaves_goes_with_down(release, new_folder):
    folder = new_folder("killed")
    words = ["up", "--nodes", "2", "--release", release, "--dir", str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-c", "from penstock_lab.cli.cluster import cluster; cluster()", *words]
    )
    deadline = time.monotonic() + 90
    while len(marked(folder)) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait(10)
    assert once_free(lambda: down(folder))
    assert not marked(folder) and not folder.exists() and not mounted(folder)


def test_an_accounting_older_than_the_cluster(another, cluster, new_folder):
    with pytest.raises(UserError, match="older"):
        up(ClusterSpec(nodes=1, folder=new_folder("young"), join=cluster.folder, release=another.spec.release))
    assert isinstance(Cluster.load(cluster.folder), Cluster)


def test_an_unknown_release_and_a_missing_tool(monkeypatch, tmp_path, new_folder):
    with pytest.raises(UserError, match="trixie, sid"):
        up(ClusterSpec(nodes=1, folder=new_folder("old"), release="buzz"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    real = shutil.which
    monkeypatch.setattr("shutil.which", lambda name, **more: None if name == "mmdebstrap" else real(name, **more))
    with pytest.raises(UserError, match="apt-get install mmdebstrap"):
        up(ClusterSpec(nodes=1, folder=new_folder("old"), release="trixie"))
    assert not new_folder("old").exists()


def test_a_build_that_fails_says_why_and_leaves_nothing(monkeypatch, tmp_path):
    stub = tmp_path / "mmdebstrap"
    stub.write_text('#!/bin/sh\nfor last; do :; done\nmkdir -p "$last/usr"\necho "E: no such suite"\nexit 2\n')
    stub.chmod(0o755)
    monkeypatch.setattr("penstock_lab.cluster.rootfs.PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(PenstockError, match="E: no such suite"):
        prepare("sid")
    assert [path.name for path in (tmp_path / "cache" / "penstock").iterdir()] == ["sid.log"]

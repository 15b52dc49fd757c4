"""The throw-away cluster itself: what it is, what it survives, and that nothing of it stays."""

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from leftovers import once_free
from malleable import mergeable

from penstock.errors import PenstockError, UserError
from penstock_lab.cli.cluster import cluster as command
from penstock_lab.cluster import Cluster, ClusterSpec, down, up
from penstock_lab.cluster.files import cgroup_conf
from penstock_lab.cluster.processes import MARK, other_clusters

pytestmark = pytest.mark.slurm


COMMAND = [sys.executable, "-c", "from penstock_lab.cli.cluster import cluster; cluster()"]


def upping(folder: Path) -> list[str]:
    """The command line that brings a cluster up."""
    return [*COMMAND, "up", "--dir", str(folder)]


def marked(folder: Path) -> list[psutil.Process]:
    """Living processes that belong to the cluster in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            # As bytes: slurmstepd has written over the first variables.
            variables = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            if f"{MARK}={folder}".encode() in variables and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def with_word(word: str) -> list[psutil.Process]:
    """Living processes that have this word on their command line."""
    return [p for p in psutil.process_iter(["cmdline"]) if word in (p.info["cmdline"] or ())]


def until(what: str, condition: Callable[[], object], limit: float = 60.0) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit:g} s in vain until {what}"
        time.sleep(0.05)


def until_asleep(seconds: str, count: int = 1) -> None:
    """Wait until so many processes sleep for so long; those that are yet to become a sleep do not count."""
    until(f"{count} sleep", lambda: [p.info["cmdline"][0] for p in with_word(seconds)].count("sleep") >= count)


@pytest.fixture
def folder(new_folder) -> Iterator[Path]:
    """The folder of a cluster that this test makes."""
    path = new_folder("x")
    yield path
    down(path)
    assert not path.exists()
    assert not marked(path)


def submit(it: Cluster, who: str, *words: str) -> int:
    return int(it.run_as(who, ["sbatch", "--parsable", *words], check=True).stdout)


def field(it: Cluster, job: int, name: str) -> str:
    shown = it.run_as("root", ["scontrol", "-o", "show", "job", str(job)], check=True).stdout
    match = re.search(rf"(?:^| ){name}=(\S*)", shown)
    assert match, shown
    return match[1]


class TestUsers:
    def test_commands_run_as_the_user_and_nobody_else(self, cluster):
        for who in ("alice", "bob", "operator"):
            said = cluster.run_as(who, ["sh", "-c", "id -un; id -Gn; echo $HOME $USER $LOGNAME; pwd; echo $SLURM_CONF"])
            login, groups, names, cwd, conf = said.stdout.splitlines()
            assert login == groups == cluster.users[who]
            assert names.split() == [cwd, login, login]
            assert Path(cwd).stat().st_mode & 0o777 == 0o700
            assert conf == cluster.env["SLURM_CONF"]

    def test_mpi_programs_of_one_machine_keep_to_its_loopback(self, cluster):
        said = cluster.run_as("alice", ["srun", "-N2", "-t5", "sh", "-c", "echo $UCX_NET_DEVICES"], check=True)
        assert said.stdout.split() == ["lo", "lo"]

    def test_homes_are_private(self, cluster):
        assert cluster.run_as("bob", ["ls", str(cluster.home("alice"))]).returncode != 0

    def test_secrets_are_private(self, cluster):
        for name in ("munge/munge.key", "etc/slurmdbd.conf", "db/db.sock"):
            assert cluster.run_as("alice", ["cat", str(cluster.folder / name)]).returncode != 0

    def test_slurm_does_not_run_as_root(self, cluster):
        said = cluster.run_as("root", ["scontrol", "show", "config"], check=True).stdout
        assert re.search(r"SlurmUser\s*= penstock-slurm", said)

    def test_the_operator_is_one_and_the_others_are_not(self, cluster, wait_for_state):
        job = submit(cluster, "alice", "-t5", "--begin=now+1hour", "--wrap", "true")
        for words in (["priority=123456"], ["StartTime=now"]):
            change = ["scontrol", "update", f"jobid={job}", *words]
            assert cluster.run_as("bob", change).returncode != 0
            cluster.run_as("operator", change, check=True)
        assert field(cluster, job, "Priority") == "123456"
        wait_for_state(cluster, job, "COMPLETED")

    def test_a_stranger_and_a_time_limit(self, cluster):
        with pytest.raises(UserError, match="no user of this cluster"):
            cluster.run_as("nobody", ["true"])
        begun = time.monotonic()
        with pytest.raises(subprocess.TimeoutExpired):
            cluster.run_as("alice", ["sh", "-c", "sleep 60 & sleep 60"], timeout=0.5)
        assert time.monotonic() - begun < 20


class TestJobs:
    def test_a_batch_job_runs_as_its_user_and_is_accounted(self, cluster, wait_for_state):
        out = cluster.home("alice") / "out"
        job = submit(cluster, "alice", "-N3", "-o", str(out), "--wrap", "id -un; srun sh -c 'echo $SLURMD_NODENAME'")
        wait_for_state(cluster, job, "COMPLETED")
        assert sorted(out.read_text().split()) == ["n1", "n2", "n3", "pst-alice"]
        deadline = time.monotonic() + 60
        while "COMPLETED" not in (rows := cluster.run_as("alice", ["sacct", "-nPXj", str(job), "-ostate"]).stdout):
            assert time.monotonic() < deadline, rows

    @pytest.mark.parametrize("memory", ["--mem=1000", "--mem-per-cpu=500"])
    def test_jobs_may_ask_for_memory(self, cluster, wait_for_state, memory):
        job = submit(cluster, "alice", memory, "-o", "/dev/null", "--wrap", "true")
        wait_for_state(cluster, job, "COMPLETED")

    def test_grow_by_merging_and_shrink(self, cluster, wait_for_state):
        mergeable(cluster)
        job = submit(cluster, "alice", "-N2", "-t10", "--wrap", "sleep 100")
        wait_for_state(cluster, job, "RUNNING")
        words = ["salloc", "--no-shell", "-N2", "-t5", f"--dependency=expand:{job}", "-J", "resizer"]
        granted = cluster.run_as("alice", words, check=True, timeout=30).stderr
        resizer = re.search(r"Granted job allocation (\d+)", granted)[1]
        cluster.run_as("alice", ["scontrol", "update", f"jobid={resizer}", "NumNodes=0"], check=True)
        assert field(cluster, job, "NodeList") == "n[1-4]"
        cluster.run_as("alice", ["scontrol", "update", f"jobid={job}", "NodeList=n1,n3"], check=True)
        assert field(cluster, job, "NodeList") == "n[1,3]"
        assert field(cluster, job, "JobState") == "RUNNING"

    def test_many_short_jobs_start_promptly(self, cluster, wait_for_state):
        jobs = [submit(cluster, "bob", "-N4", "-t1", "--wrap", "sleep 0.2") for _ in range(6)]
        begun = time.monotonic()
        for job in jobs:
            wait_for_state(cluster, job, "COMPLETED")
        assert time.monotonic() - begun < 20


class TestFaults:
    def test_the_controller_comes_back_with_its_jobs(self, cluster, wait_for_state):
        job = submit(cluster, "alice", "-N1", "-t10", "--wrap", "sleep 100")
        wait_for_state(cluster, job, "RUNNING")
        cluster.stop_controller()
        try:
            assert cluster.run_as("alice", ["scontrol", "ping"]).returncode != 0
            assert not cluster.status().healthy
        finally:
            cluster.start_controller()
        assert cluster.status().healthy
        assert field(cluster, job, "JobState") == "RUNNING"

    def test_a_killed_node_takes_its_processes_along_and_comes_back(self, cluster, wait_for_state):
        job = submit(cluster, "alice", "-w", "n5", "-t10", "--wrap", "exec sleep 4321.5")
        wait_for_state(cluster, job, "RUNNING")
        until_asleep("4321.5")
        others = len(marked(cluster.folder))
        cluster.kill_node("n5")
        assert not with_word("4321.5")
        assert len(marked(cluster.folder)) < others
        assert not cluster.status().daemons["n5"]
        cluster.start_node("n5")
        assert cluster.status().healthy

    def test_a_second_up_mends_dead_nodes_and_keeps_the_rest(self, cluster):
        cluster.kill_node("n8")
        again = up(cluster.spec)
        assert again.already_up
        assert again.status().healthy
        assert again.daemons.state.processes["slurmctld"] == cluster.daemons.state.processes["slurmctld"]
        assert cluster.status().healthy

    def test_unknown_names(self, cluster):
        with pytest.raises(UserError, match="no daemon"):
            cluster.stop("sshd")
        with pytest.raises(UserError, match="no node"):
            cluster.kill_node("n9")


class TestLife:
    def test_up_down_twice_leaves_nothing(self, folder):
        for _ in range(2):
            it = up(ClusterSpec(nodes=2, folder=folder))
            submit(it, "alice", "-t5", "--wrap", "sleep 4324.5")
            submit(it, "bob", "-t5", "--wrap", "setsid sleep 4324.5 & sleep 4324.5")
            until_asleep("4324.5", 3)
            waiting = it.popen_as("alice", ["salloc", "-N2", "sleep", "300"], stderr=subprocess.DEVNULL)
            until("salloc waits", lambda it=it: it.run_as("root", ["squeue", "-h", "-t", "PD"]).stdout)
            assert down(folder)
            assert waiting.wait(60) != 0
            assert not folder.exists()
            assert not marked(folder)
            assert not down(folder)

    def test_processes_without_any_sign_of_the_cluster_go_too(self, folder):
        it = up(ClusterSpec(nodes=1, folder=folder))
        out = it.home("alice") / "out"
        submit(
            it, "alice", "--export=NONE", "-t5", "-o", str(out), "--wrap", "setsid env -i sleep 4323.5 & sleep 4323.5"
        )
        stray = it.popen_as("bob", ["env", "-i", "sleep", "4323.5"])
        until_asleep("4323.5", 3)
        it.down()
        left = with_word("4323.5")
        if other_clusters(folder):
            for process in left:  # they may be of any cluster that runs now; the last one takes them along
                process.kill()
        else:
            assert not left
        stray.wait(5)

    def test_two_side_by_side_and_users_until_the_last_one_goes(self, cluster, folder):
        other = up(ClusterSpec(nodes=2, folder=folder))
        assert set(other.daemons.state.ports.nodes).isdisjoint(cluster.daemons.state.ports.nodes)
        assert cluster.run_as("alice", ["sinfo", "-h", "-o", "%D"]).stdout.strip() == "8"
        assert other.run_as("alice", ["sinfo", "-h", "-o", "%D"]).stdout.strip() == "2"
        other.down()
        assert pwd.getpwnam("pst-alice")
        assert cluster.run_as("alice", ["srun", "-N2", "true"]).returncode == 0

    def test_joined_clusters_see_each_other(self, folder, new_folder):
        first = up(ClusterSpec(nodes=2, folder=folder))
        second_folder = new_folder("y")
        second = up(ClusterSpec(nodes=1, folder=second_folder, join=folder))
        assert (first.name, second.name) == ("penstock", "penstock2")
        job = submit(second, "alice", "-t5", "--wrap", "sleep 60")
        seen = first.run_as("alice", ["squeue", "-M", "penstock,penstock2", "-o", "%i %u"], check=True).stdout
        assert "CLUSTER: penstock2" in seen
        assert f"{job} pst-alice" in seen
        far = first.run_as("bob", ["sbatch", "-M", "penstock2", "-t5", "--wrap", "true"], check=True).stdout
        assert "on cluster penstock2" in far
        with pytest.raises(UserError, match="already has one of this name"):
            up(ClusterSpec(nodes=1, folder=new_folder("z"), join=folder, name="penstock2"))
        assert not new_folder("z").exists()
        said = CliRunner().invoke(command, ["down", "--dir", str(folder)]).output
        assert said == f"the cluster is gone\npenstock2 in {second_folder}, which had joined it, is gone with it\n"
        assert not second_folder.exists()
        assert not marked(second_folder)

    def test_a_joined_cluster_can_go_and_come_again(self, folder, new_folder):
        first = up(ClusterSpec(nodes=1, folder=folder))
        spec = ClusterSpec(nodes=1, folder=new_folder("y"), join=folder, name="other")
        up(spec).down()
        listed = first.run_as("root", ["sacctmgr", "-nP", "show", "cluster", "format=cluster"]).stdout
        assert listed.split() == ["penstock"]
        second = up(spec)
        assert second.run_as("alice", ["srun", "true"], timeout=20).returncode == 0
        for process in marked(folder):
            process.kill()
        assert not up(ClusterSpec(nodes=1, folder=folder)).already_up
        assert not second.folder.exists() and not marked(second.folder)

    def test_options_reach_slurm(self, folder):
        spec = ClusterSpec(
            nodes=3,
            folder=folder,
            name="odd",
            accrue_always=True,
            contain=True,
            expansion=False,
            select="cons_tres",
            min_job_age=7,
            extra=("PreemptType=preempt/none",),
        )
        it = up(spec)
        config = it.run_as("alice", ["scontrol", "show", "config"], check=True).stdout
        for key, value in {
            "ClusterName": "odd",
            "PriorityFlags": "ACCRUE_ALWAYS",
            "PriorityCalcPeriod": "00:01:00",
            "PriorityMaxAge": "00:10:00",
            "PriorityWeightAge": "100000",
            "PrologFlags": "Alloc,Contain",
            "SelectType": "select/cons_tres",
            "MinJobAge": "7 sec",
        }.items():
            assert re.search(rf"^{key} *= {re.escape(value)}$", config, re.M), (key, config)
        assert "permit_job_expansion" not in config
        assert it.run_as("alice", ["srun", "-N3", "true"], timeout=30).returncode == 0

    def test_without_root_the_caller_is_its_only_user(self, cluster):
        state = cluster.home("bob") / "s"
        env = {"XDG_STATE_HOME": str(state)}
        try:
            done = cluster.run_as("bob", [*COMMAND, "up", "--nodes", "2"], env=env, check=True)
            assert "2 nodes" in done.stdout
            assert "users: pst-bob" in done.stdout
            exports = cluster.run_as("bob", [*COMMAND, "env"], env=env, check=True).stdout
            conf = f"export SLURM_CONF={state}/penstock/cluster/etc/slurm.conf"
            assert exports.splitlines()[:2] == [conf, "export UCX_NET_DEVICES=lo"]
            # Its commands know which cluster it is without any variable.
            shell = f"{exports} unset SLURM_CONF; srun -N2 id -un"
            ran = cluster.run_as("bob", ["sh", "-c", shell], check=True, timeout=30)
            assert ran.stdout.split() == ["pst-bob"] * 2
        finally:
            done = cluster.run_as("bob", [*COMMAND, "down"], env=env)
        assert done.stdout == "the cluster is gone\n"
        assert not (state / "penstock" / "cluster").exists()


class TestCrashes:
    @pytest.mark.parametrize("seconds", [0.8, 2.5, *(pytest.param(s, marks=pytest.mark.long) for s in (0.3, 1.5, 3.5))])
    def test_up_killed_halfway_is_found_and_cleaned(self, folder, seconds):
        victim = subprocess.Popen(upping(folder))
        time.sleep(seconds)
        victim.kill()
        victim.wait()
        it = once_free(lambda: up(ClusterSpec(nodes=2, folder=folder)))
        assert not it.already_up
        assert it.run_as("alice", ["srun", "-N2", "true"], timeout=20).returncode == 0
        assert len([p for p in marked(folder) if p.name() == "slurmd"]) == 2

    def test_down_after_up_was_killed_halfway(self, folder):
        victim = subprocess.Popen(upping(folder))
        while not folder.exists() or len(marked(folder)) < 2:
            time.sleep(0.02)
        victim.kill()
        victim.wait()
        assert once_free(lambda: down(folder))

    def test_everything_killed_is_found_and_cleaned(self, folder):
        it = up(ClusterSpec(nodes=2, folder=folder))
        submit(it, "alice", "-t5", "--wrap", "exec sleep 4322.5")
        until_asleep("4322.5")
        for process in marked(folder):
            process.kill()
        assert with_word("4322.5")
        again = up(ClusterSpec(nodes=2, folder=folder))
        assert not again.already_up
        assert not with_word("4322.5")
        assert again.status().healthy

    def test_ctrl_c_and_term_clean_up(self, folder):
        for number in (signal.SIGINT, signal.SIGTERM):
            victim = subprocess.Popen(upping(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while not folder.exists() or len(marked(folder)) < 2:
                time.sleep(0.02)
            victim.send_signal(number)
            assert victim.wait(60) != 0
            assert not folder.exists()
            assert not marked(folder)

    def test_a_cluster_of_another_release_is_named_and_can_be_taken_down(self, folder):
        it = up(ClusterSpec(nodes=1, folder=folder))
        record = it.daemons.layout.state_file
        record.write_text(json.dumps({**json.loads(record.read_text()), "version": 1, "unknown": 1}))
        with pytest.raises(UserError, match="another release"):
            up(ClusterSpec(nodes=1, folder=folder))
        assert down(folder)
        assert not marked(folder)

    def test_a_foreign_record_is_left_alone(self, folder):
        folder.mkdir()
        record = folder / "cluster.json"
        for text in ("", "[]", '{"version": 2}'):
            record.write_text(text)
            with pytest.raises(UserError, match="not the record of a cluster"):
                up(ClusterSpec(nodes=1, folder=folder))
            assert not down(folder)
            assert record.read_text() == text
        shutil.rmtree(folder)

    def test_a_daemon_that_does_not_start_is_quoted_and_nothing_stays(self, folder):
        with pytest.raises(PenstockError, match=r"(?s)slurmctld ended while starting.*nosuch"):
            up(ClusterSpec(nodes=1, folder=folder, extra=("JobSubmitPlugins=nosuch",)))
        assert not folder.exists()
        assert not marked(folder)
        with pytest.raises(PenstockError, match="NoSuchThing"):
            up(ClusterSpec(nodes=1, folder=folder, extra=("NoSuchThing=1",)))
        assert not folder.exists()
        assert not marked(folder)

    def test_two_at_once_in_one_folder(self, folder):
        first = subprocess.Popen(upping(folder))
        while not folder.exists() or len(marked(folder)) < 1:
            time.sleep(0.02)
        with pytest.raises(PenstockError, match="is at work"):
            down(folder)
        assert first.wait(30) == 0
        assert Cluster.load(folder).status().healthy


class TestCommand:
    def run(self, *words: str):
        return CliRunner().invoke(command, words)

    def test_up_status_env_down(self, folder):
        place = ("--dir", str(folder))
        assert "2 nodes, up in" in self.run("up", "--nodes", "2", *place).output
        assert "is already up" in self.run("up", "--nodes", "2", *place).output
        report = json.loads(self.run("status", "--json", *place).output)
        assert report["healthy"] is True
        assert report["nodes"] == {"n1": "IDLE", "n2": "IDLE"}
        assert set(report["daemons"]) == {"munged", "mariadbd", "slurmdbd", "slurmctld", "n1", "n2"}
        assert report["users"] == {"alice": "pst-alice", "bob": "pst-bob", "operator": "pst-operator"}
        text = self.run("status", *place)
        assert text.exit_code == 0
        assert "slurmctld  running" in text.output
        shell = subprocess.run(
            ["sh", "-c", f"{self.run('env', *place).stdout} exec sinfo -h -o %D"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert shell.stdout.strip() == "2"
        Cluster.load(folder).kill_node("n1")
        assert self.run("status", *place).exit_code == 1
        assert self.run("down", *place).output == "the cluster is gone\n"
        assert self.run("down", *place).output == "there is no cluster\n"
        assert self.run("down", *place).exit_code == 0

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--nodes", "0"], "--nodes 0: must be between 1 and 256"),
            (["--nodes", "1000"], "--nodes 1000: must be between"),
            (["--select", "cubic"], "--select cubic: must be one of linear, cons_tres"),
            (["--min-job-age", "0"], "--min-job-age 0: must be at least 2"),
            (["--name", "No Name"], "--name No Name: must be"),
            (["--join", "/nonexistent"], "--join /nonexistent: no cluster there"),
        ],
    )
    def test_bad_options_say_so_and_write_nothing(self, folder, words, message):
        result = self.run("up", "--dir", str(folder), *words)
        assert isinstance(result.exception, UserError)
        assert message in str(result.exception)
        assert "\n" not in str(result.exception)
        assert not folder.exists()

    def test_bad_folders(self, folder):
        for place, message in {
            "/var/tmp/with blank": "allow only",
            f"/var/tmp/{'x' * 60}": "too long",
            "/proc/penstock": "--dir /proc/penstock",
            "/dev/null": "not a folder",
        }.items():
            with pytest.raises(UserError, match=message):
                up(ClusterSpec(nodes=1, folder=Path(place)))
        folder.mkdir()
        precious = folder / "precious"
        precious.write_text("x")
        with pytest.raises(UserError, match="not empty"):
            up(ClusterSpec(nodes=1, folder=folder))
        assert not down(folder)
        assert precious.read_text() == "x"
        shutil.rmtree(folder)

    def test_a_folder_behind_a_closed_one(self):
        with tempfile.TemporaryDirectory(prefix="pst-") as closed, pytest.raises(UserError, match="cannot pass"):
            up(ClusterSpec(nodes=1, folder=Path(closed) / "c"))

    def test_somebody_elses_folder_is_not_trusted(self, cluster, folder):
        folder.mkdir()
        os.chown(folder, pwd.getpwnam("pst-bob").pw_uid, -1)
        with pytest.raises(UserError, match="belongs to you"):
            up(ClusterSpec(nodes=1, folder=folder))
        folder.rmdir()
        folder.symlink_to("/etc")
        with pytest.raises(UserError, match="belongs to you"):
            down(folder)
        folder.unlink()

    def test_missing_programs_are_named_with_their_packages(self, folder, monkeypatch):
        monkeypatch.setattr("penstock_lab.cluster.programs.PATH", "/nonexistent")
        with pytest.raises(UserError, match=r"missing slurmctld.*munged.*mariadb-server.*apt-get install") as caught:
            up(ClusterSpec(nodes=1, folder=folder))
        assert "\n" not in str(caught.value)
        assert not folder.exists()

    def test_env_and_status_without_a_cluster(self, folder):
        for name in ("env", "status"):
            result = self.run(name, "--dir", str(folder))
            assert isinstance(result.exception, UserError)
            assert f"penstock cluster up --dir {folder}" in str(result.exception)
            assert not result.stdout


def test_from_23_11_on_the_cgroup_plug_in_is_turned_off():
    assert cgroup_conf((22, 5)) is None
    assert cgroup_conf((23, 2)) is None
    assert cgroup_conf((23, 11)) == "CgroupPlugin=disabled\n"
    assert cgroup_conf((25, 11)) == "CgroupPlugin=disabled\n"


def test_a_job_that_drops_slurms_variables_still_reaches_its_cluster(cluster):
    drop = "for name in $(env | grep -o ^SLURM_[A-Z_]*); do [ $name = SLURM_JOB_ID ] || unset $name; done"
    script = f"{drop}; srun -n1 hostname && squeue -h -j $SLURM_JOB_ID -o %T"
    words = ["sbatch", "-W", "-Q", "-t1", "-n1", "-o", "told", f"--wrap={script}"]
    assert cluster.run_as("alice", words, cwd=cluster.home("alice")).returncode == 0
    assert (cluster.home("alice") / "told").read_text().split()[-1] == "RUNNING"
    (cluster.home("alice") / "told").unlink()

"""Jobs that become tasks of a pool, beside those of a real Slurm: who submits, asks and cancels sees no difference."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import Desk, SlurmAgent

from penstock_lab.cluster import Cluster

pytest.importorskip("distributed")
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600, func_only=True)]
LIMIT = 120.0


class PoolSite(SlurmAgent):
    """Alice's, with a pool, and front programs in `fronts`."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.environment["PENSTOCK_POOL__FOLDER"] = str(self.folder / "pools")
        self.pool = self.folder / "pools" / "main"
        self.work = self.folder / "work"
        self.work.mkdir()
        user = cluster.user("alice")
        os.chown(self.work, user.uid, user.gid)
        self.fronts = Desk(self).say("penstock", "shim", "--path").strip()
        self.penstock("pool", "start", "--detach")

    def penstock(self, *words: str) -> None:
        done = self.run("alice", *words)
        assert done.returncode == 0, done.stderr

    def address(self) -> dict[str, Any]:
        return dict(json.loads((self.pool / "address.json").read_text()))

    def join(self, nodes: int = 2, minutes: int = 30) -> int:
        """An allocation of so many nodes of two cores each."""
        before = len(self.members())
        job = self.ask_for(nodes, minutes)
        self.until(lambda: len(self.members()) == before + nodes, "the members")
        return job

    def ask_for(self, nodes: int, minutes: int) -> int:
        """An allocation that becomes a member when Slurm starts it."""
        script = self.place / "join.sh"
        command = " ".join([sys.executable, "-m", "penstock", "pool", "join"])
        script.write_text(f"#!/bin/bash\nexec {command}\n")
        words = ["sbatch", "--parsable", f"-N{nodes}", f"-t{minutes}", "-o/dev/null", str(script)]
        done = self.cluster.run_as("alice", words, env=self.environment, cwd=self.work, check=True)
        return int(done.stdout)

    def members(self) -> list[dict[str, Any]]:
        done = self.run("alice", "pool", "status", "--json")
        return list(json.loads(done.stdout)["members"]) if done.returncode == 0 else []

    def call(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A command of a shell with the front programs."""
        path = f"{self.fronts}:{self.cluster.user_env('alice')['PATH']}"
        env = {**self.environment, "PATH": path, **more}
        done: subprocess.CompletedProcess[str] = self.cluster.run_as(
            "alice", list(words), env=env, cwd=self.work, timeout=LIMIT
        )
        return done

    def say(self, *words: str, **more: str) -> str:
        done = self.call(*words, **more)
        assert (done.returncode, done.stderr) == (0, ""), (words, done.stdout, done.stderr)
        return done.stdout

    def submit(self, *words: str, wrap: str = "true", partition: str = "penstock", **more: str) -> int:
        told = self.say("sbatch", "--parsable", "-p", partition, *words, f"--wrap={wrap}", **more)
        return int(told)

    def state(self, job: int | str) -> str:
        return self.say("sacct", "-X", "-n", "-P", "-j", str(job), "-o", "State").strip()

    def ended(self, *jobs: int) -> None:
        names = [str(job) for job in jobs]

        def over() -> bool:
            states = self.say("sacct", "-X", "-n", "-P", "-j", ",".join(names), "-o", "State").split("\n")[:-1]
            alive = ("PENDING", "RUNNING", "COMPLETING", "REQUEUED")
            return len(states) >= len(names) and not any(state in alive for state in states)

        self.until(over, f"the end of {names}", LIMIT)

    def down(self) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError):
            os.kill(self.address()["pid"], signal.SIGKILL)
        self.cluster.run_as("root", ["scancel", f"--user={self.cluster.users['alice']}"])
        super().down()


@pytest.fixture
def site(cluster: Cluster) -> Iterator[PoolSite]:
    it = PoolSite(cluster)
    yield it
    it.down()


# How it is submitted, and what it runs; what it writes is compared, and how it ends.
ALIKE: dict[str, tuple[list[str], str]] = {
    "plain": ([], "echo $1 out; echo err >&2; pwd; umask"),
    "code": ([], "exit 7"),
    "killed": ([], "kill -9 $$"),
    "signal": ([], "kill -USR1 $$; sleep 30"),
    "files": (["-o", "%x-%j-%A.o", "-e", "%x.%u.%s.%t.e"], "echo out; echo err >&2"),
    "input": (["-i", "given"], "cat"),
    "chdir": (["-D", "sub"], "pwd; echo $SLURM_SUBMIT_DIR"),
    "cpus": (["-c2", "-n1"], "echo $SLURM_CPUS_PER_TASK $SLURM_NTASKS $SLURM_CPUS_ON_NODE; nproc"),
    "memory": (["--mem=100", "-t5"], "echo $SLURM_MEM_PER_NODE $SLURM_JOB_NUM_NODES"),
    "exported": (["--export=GIVEN,OTHER=a b"], "echo $GIVEN $OTHER $MISSING"),
    "all": ([], "echo $GIVEN $MISSING"),
    "array": (
        ["-a", "3-7:4", "-o", "a-%a.o"],
        "echo $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_MAX",
    ),
    "nowhere": (["-o", "/nonexistent/x"], "true"),
    "paged": (
        ["-J", "paged"],
        "#!/bin/bash\n# one\ftwo\u2028three\n#SBATCH --mem=100\f-c2 --array=0-1 -o %a.o\n"
        "echo $SLURM_MEM_PER_NODE $SLURM_CPUS_PER_TASK $SLURM_ARRAY_TASK_ID\n",
    ),
    "slurms": ([], "#!/bin/bash\n#SLURM --mem=100 -o told\necho $SLURM_MEM_PER_NODE\n"),
    "names": (["-J", "a b"], "echo $SLURM_JOB_NAME $SLURM_JOB_NODELIST | sed s/n[0-9]*$/NODE/"),
}


def outcome(site: PoolSite, what: str, partition: str, folder: Path) -> tuple[set[str], dict[str, str]]:
    """How a job of the table ends in this partition, and all that it leaves in `folder`."""
    words, script = ALIKE[what]
    site.say("mkdir", "-p", f"{folder}/sub")
    site.say("sh", "-c", f"echo given > {folder}/given")
    if script.startswith("#!"):
        (folder / "script").write_text(script)
        last = "script"
    else:
        last = f"--wrap={script}"
    lines = ["sbatch", "--parsable", "-p", partition, "-J", what, *words, last]
    done = site.call("sh", "-c", 'cd "$0"; exec "$@"', str(folder), *lines, GIVEN="g")
    assert done.returncode == 0, done.stderr
    job = int(done.stdout)
    site.ended(job)
    # Accounting learns of a job's name, and of an array's tasks, in portions.
    told = site.say("sacct", "-X", "-n", "-P", "-j", str(job), "-o", "State,ExitCode").splitlines()
    files = {
        re.sub(r"\d{6,}|\b\d+\b", "N", str(file.relative_to(folder))): file.read_text().replace(str(folder), "FOLDER")
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
    return set(told), files


def test_a_job_of_a_pool_does_as_one_of_slurms(site: PoolSite):
    site.join(1)
    differ = {}
    for what in ALIKE:
        found = [outcome(site, what, partition, site.work / partition / what) for partition in ("batch", "penstock")]
        if found[0] != found[1]:
            differ[what] = found
    assert not differ, differ


STEPS = r"""
    srun hostname | wc -l
    srun -n1 -N2 sh -c 'echo one'
    srun -n5 hostname
    srun -n5 -O sh -c 'echo $SLURM_PROCID' | sort
    srun -n1 nope
    srun -n1 /tmp
    srun -n1 sh -c 'exit 3'
    srun -n1 sh -c 'kill -9 $$'
    srun -n2 sh -c 'exit $SLURM_PROCID'
    srun -n2 sh -c 'exit 4'
    echo in | srun -n2 cat
    echo in | srun -n2 --input=0 cat
    echo in | srun -n1 --input=none cat
    echo in | srun -n1 -i /etc/hostname wc -l
    srun -l -n2 sh -c 'echo $SLURM_PROCID' | sort
    srun -n2 -o f-%t-%s sh -c 'echo $SLURM_PROCID'; cat f-*; ls f-*
    srun -n2 -o one sh -c 'echo x'; cat one
    srun -n2 -o 1 sh -c 'echo $SLURM_PROCID'
    srun -n1 -o none -e err sh -c 'echo x; echo e >&2'; cat err
    srun
    srun --nonsense true
    srun -D /tmp -n1 pwd
    srun -n1 --export=NONE,X=3 /bin/sh -c 'echo $X'
    srun -n1 --export=X=3,GIVEN /bin/sh -c 'echo $X $GIVEN'
    srun -n2 sh -c 'echo $SLURM_NTASKS $SLURM_LOCALID $SLURM_NODEID $SLURM_STEP_NUM_TASKS $SLURM_GTIDS' | sort
    srun -n1 -c2 sh -c 'echo $SLURM_CPUS_PER_TASK; nproc'
    srun -n1 sh -c 'echo $SLURM_STEP_ID'
    srun -n1 sh -s a b <<< 'echo script $1 $2'
    srun -N1 --ntasks-per-node=2 sh -c 'echo x'
    srun -n1 -J nm sh -c 'echo $SLURM_JOB_NAME'
    srun -n0 true
    srun -n x true
    srun -t x true
"""
EACH = r"""#!/bin/bash
export GIVEN=g
while IFS= read -r line; do
    ( eval "$line" ) >out 2>err </dev/null; code=$?
    echo "$line: $code"; cat out; sed 's/^/err: /' err | sort
done < steps
"""
# What an srun of Slurm's says of itself besides; of a node that is "down" when a task is killed while it connects.
ASIDE = re.compile(
    r"err: srun: (Force Terminated|launch/slurm|cluster configuration lacks|Job \d+ step|Step created|error: IO: Hey)"
)


def told_by_steps(site: PoolSite, partition: str) -> list[str]:
    folder = site.work / partition
    site.say("mkdir", str(folder))
    (folder / "steps").write_text(STEPS.replace("\n    ", "\n").lstrip())
    (folder / "each").write_text(EACH)
    words = ["sbatch", "-W", "-Q", "-p", partition, "-n2", "-o", "told", "each"]
    assert site.call("sh", "-c", 'cd "$0"; exec "$@"', str(folder), *words).returncode == 0
    text = re.sub(
        r"slurmstepd-n\d+|\bn\d+: task",
        lambda m: m[0].split("-")[0].lstrip("n0123456789"),
        (folder / "told").read_text(),
    )
    return [re.sub(r"job \d+", "job N", line) for line in text.splitlines() if not ASIDE.match(line)]


def test_its_srun_says_and_does_what_slurms_own_does(site: PoolSite):
    site.join(1)
    real, ours = (told_by_steps(site, partition) for partition in ("batch", "penstock"))
    assert len(real) > 60
    assert ours == real


@pytest.mark.long
def test_what_waits_is_told_and_what_is_cancelled_ends(site: PoolSite):
    site.join(1)
    real = site.submit("-t1", wrap="sleep 3", partition="batch")
    first = site.submit(
        "-a", "1-2%1", wrap="echo $SLURM_ARRAY_TASK_ID >> ran; sleep 1; exit $((SLURM_ARRAY_TASK_ID - 1))"
    )
    one = site.submit("-d", f"afterok:{first}_1", wrap="echo one >> ran")
    never = site.submit("-d", f"afterok:{first}", wrap="echo never >> ran")
    after_real = site.submit("-d", f"afterok:{real}", wrap="echo real >> ran")
    held = site.submit("-H", wrap="echo held >> ran")
    long = site.submit(wrap='trap "echo term >> ran; exit" TERM; while true; do sleep 0.1; done')
    site.until(lambda: site.say("squeue", "-h", "-j", str(long), "-o", "%T").strip() == "RUNNING", "the long one")
    site.ended(one, after_real)
    site.until(lambda: "Never" in site.say("squeue", "-h", "-j", str(never), "-o", "%r"), "what can never run")
    listed = site.say("squeue", "-h", "--me", "-o", "%i %r").splitlines()
    assert f"{held} JobHeldUser" in listed
    assert f"{never} DependencyNeverSatisfied" in listed
    assert site.say("squeue", "-h", "-t", "all", "-j", f"{real},{long}", "-o", "%i").split() == [str(real), str(long)]
    site.say("scontrol", "release", str(held))
    site.ended(held)
    asleep = site.submit("-H", partition="batch")
    done = site.call("scancel", str(long), str(asleep), "5000009999")
    assert (done.returncode, done.stderr) == (
        1,
        "scancel: error: Kill job error on job id 5000009999: Invalid job id specified\n",
    )
    site.ended(long, asleep)
    uid = site.cluster.user("alice").uid
    assert site.state(long) == site.state(asleep) == f"CANCELLED by {uid}"
    assert sorted((site.work / "ran").read_text().split()) == ["1", "2", "held", "one", "real", "term"]
    assert (
        site.say("sacct", "-n", "-P", "-j", f"{held}.batch,{long}.7", "-o", "JobID,State")
        == f"{held}.batch|COMPLETED\n"
    )
    shown = site.say("scontrol", "show", "job", str(held))
    assert f"JobId={held} JobName=wrap\n" in shown
    assert "JobState=COMPLETED" in shown
    site.say("scancel", "--me")
    assert site.say("squeue", "-h", "--me", "-t", "PD", "-o", "%i").strip() == ""


SACCT = "sacct -X -P -n -o jobname,state,exitcode,alloccpus,reqcpus,reqmem,eligible,start,end,nnodes,timelimit"
SQUEUE = "squeue -h -o %j|%t|%T|%C|%m|%l|%D|%S|%V"
# Lines that have both Slurm's jobs and those of the pool.
LISTS = [
    *(
        f"{SACCT} {more}"
        for more in (
            "", "-a", "-D", "-L", "-M all", "-S today", "-S midnight -E now", "-S now-1hour",
            "-S now-2days -E tomorrow",
            "-S {today} -E {today}-23:59:59", "-S 010120 -E now-1hour", "-S noon -E noon", "-s R", "-s running,PD",
            "-s CD", "-s CD -S now-1hour", "-s cd,F,CA,TO -S now-1hour -E now", "-s PD -S now-1hour -E now",
            "-s R -S now-1hour -E now", "-s PD", "-r batch,penstock", "-A PENSTOCK", "-A x", "-q normal", "-N n[1-8]",
            "-N n9", "-u pst-bob", "-u pst-bob,pst-alice", "-u pst-bob -a", "-a -u pst-bob", "--units=K", "--units=G",
            "--noconvert", "-g pst-alice", "-j {all}", "-j {all} -s CD", "-j {all} -S now-1hour", "-j {all} -u pst-bob",
        )
    ),
    "sacct -P -n -o jobname,state,exitcode,ncpus,ntasks,reqcpufreqmin,consumedenergy -j {all}",
    *(
        f"{SQUEUE} {more}"
        for more in (
            "", "-t all", "-P", "-M penstock", "-w n[1-8]", "-w n1,n2,n3,n4,n5,n6,n7,n8 -t all", "-u pst-bob", "-R x",
            "-S i", "-S -i", "-S -t,j -t all", "-S m,-j", "--sort=-S -n forms-runs,forms-later", "--noconvert", "-L x",
            "-S V,i -t PD", "-j {all} -S -i", "--start -S j", "--start -t R", "-o %j|%t|%s|%b -j {all} -S i",
        )
    ),
    "squeue -h --start -o %j|%t|%S|%Y|%R -S j",
    "squeue -h -t all -S i -O name:.12,statecompact:5,cpus-per-task:5,numtasks:5,requeue:3,restartcnt:3,batchflag:3,"
    "deadline:5,cluster:10,tres-per-node:5,eligibletime:22",
]  # fmt: skip
NAMED = re.compile(r"forms-\w+|batch(?=\|)")


def alike(site: PoolSite, partition: str) -> dict[str, int]:
    """Jobs in each state by name."""
    words = ["-n2", "-t5", "-A", "penstock", "--qos=normal", "--mem=64", "--comment=c"]

    def submit(name: str, wrap: str, *more: str) -> int:
        return site.submit(*words, "-J", f"forms-{name}", *more, partition=partition, wrap=wrap)

    made = {"done": submit("done", "true"), "failed": submit("failed", "exit 3")}
    site.ended(*made.values())
    made["runs"] = submit("runs", "sleep 500")
    site.until(lambda: site.state(made["runs"]) == "RUNNING", "the one that goes on")
    made["held"] = submit("held", "true", "-H", "--mem=1536")
    made["after"] = submit("after", "true", "-d", f"afterok:{made['held']}")
    made["later"] = submit("later", "true", "-b", "now+1hour")
    made["gone"] = submit("gone", "true", "-b", "now+2hours")
    made["dropped"] = submit("dropped", "true", "-H")
    site.say("scancel", f"{made['gone']},{made['dropped']}")
    return made


@pytest.mark.long
def test_lists_tell_of_a_job_of_a_pool_what_they_tell_of_slurms(site: PoolSite):
    site.join(1)
    made = [alike(site, partition) for partition in ("batch", "penstock")]
    numbers = ",".join(str(job) for jobs in made for job in jobs.values())
    for job in made[0].values():  # accounting hears of jobs in portions
        site.until(lambda job=job: site.state(job) != "", "accounting")
    differ = {}
    for line in LISTS:
        words = line.format(all=numbers, today=time.strftime("%Y-%m-%d")).split()
        done = site.call(*words)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "TIME", done.stdout)
        rows = [re.sub(r"\bn\d+", "NODE", row).strip() for row in text.splitlines() if NAMED.search(row)]
        found = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
        if words[0] == "sacct" or not re.search("-S|--sort", line):  # in no order that is known
            found = [sorted(part) for part in found]
        found[0] += [done.stderr] if done.stderr or done.returncode else []
        if found[0] != found[1]:
            differ[line] = found
    assert not differ, "\n".join(f"{line}\n  {real}\n  {ours}" for line, (real, ours) in differ.items())
    long = site.say("sacct", "-l", "-n", "-j", f"{made[0]['done']},{made[1]['done']}").splitlines()
    assert (len(long), len({len(row) for row in long})) == (4, 1)
    headed = site.say("squeue", "--start", "-M", "penstock", "-j", str(made[1]["held"]))
    assert headed.splitlines()[0] == "CLUSTER: penstock"
    for words in (["squeue", "--json"], ["sacct", "--json"], ["squeue", "-s"]):
        done = site.call(*words)
        assert (done.returncode, "jobs of pool 'main' are left out" in done.stderr) == (0, True), words
    done = site.call("timeout", "5", "squeue", "-i", "1", "-h")
    assert "jobs of pools are left out: squeue --iterate" in done.stderr
    assert site.say("squeue", "--version").startswith("slurm")


@pytest.mark.long
def test_a_submission_is_made_once_while_the_scheduler_is_killed_and_its_job_runs_once(site: PoolSite):
    site.join(2)
    count, told, over = 60, [], threading.Event()

    def kill() -> None:
        while not over.wait(2.0):
            os.kill(site.address()["pid"], signal.SIGKILL)
            site.penstock("pool", "start", "--detach")

    def submit(part: int) -> None:
        for i in range(part, count, 3):
            # On a busy machine a scheduler takes several times as long to start as it lives here.
            told.append(site.submit("-o", "/dev/null", wrap=f"echo {i} >> each", PENSTOCK_SHIM_PATIENCE="100"))

    killer = threading.Thread(target=kill)
    threads = [threading.Thread(target=submit, args=(part,)) for part in range(3)]
    for thread in (killer, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    killer.join()
    assert len(set(told)) == count
    listed = site.say(
        "sacct", "-X", "-n", "-P", "--name", "wrap", "-S", time.strftime("%Y-%m-%dT00:00:00"), "-o", "JobID"
    )
    assert sorted(int(word) for word in listed.split() if word.startswith("5000")) == sorted(told)
    site.ended(*told)
    assert sorted(int(word) for word in (site.work / "each").read_text().split()) == list(range(count))


@pytest.mark.long
def test_what_ran_in_an_allocation_that_is_killed_runs_elsewhere(site: PoolSite):
    lost = site.join(1)
    job = site.submit(wrap="echo $SLURM_RESTART_COUNT >> ran; until [ -e go ]; do sleep 0.1; done")
    once = site.submit("--no-requeue", wrap="sleep 100")
    for one in (job, once):
        site.until(lambda one=one: site.state(one) == "RUNNING", "both of them")
    site.cluster.run_as("root", ["scancel", "-s", "KILL", str(lost)], check=True)
    site.until(lambda: site.state(once) == "NODE_FAIL", "the end of the one that is not to run again")
    site.join(1)
    (site.work / "go").touch()
    site.ended(job)
    assert site.state(job) == "COMPLETED"
    assert (site.work / "ran").read_text().split() == ["1"]


def test_what_has_no_pool_says_so(site: PoolSite):
    done = site.call("sbatch", "-p", "penstock-other", "--wrap=true")
    assert done.returncode == 1
    assert "pool 'other' has no scheduler; `penstock pool start --detach --pool other` starts one" in done.stderr
    done = site.call("sbatch", "-p", "penstock", "-N2", "--wrap=true")
    assert (done.returncode, "--nodes=2" in done.stderr) == (1, True)
    real = int(site.say("sbatch", "--parsable", "--comment=penstock-pool", "-N2", "-H", "--wrap=true"))
    assert real < 5_000_000_000  # by a word of its comment: Slurm does what a pool cannot
    job = site.submit("-H")
    for words in ([], ["--comment=penstock-pool", "-N2"]):
        done = site.call("sbatch", *words, "-d", f"afterok:{job}", "--wrap=true")
        assert (done.returncode, "is a task of a pool" in done.stderr) == (1, True)
    site.penstock("pool", "stop")
    assert str(real) in site.say("squeue", "-h", "--me", "-o", "%i")  # a pool that was stopped is in nobody's way
    done = site.call("squeue", "-j", str(job))
    assert (done.returncode, "has no scheduler" in done.stderr) == (1, True)


def test_without_the_key_of_the_pool_nobody_is_let_in(site: PoolSite):
    site.submit("-H")
    door = json.loads((site.pool / "door.json").read_text())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection((door["host"], door["port"]), timeout=20)
    with contextlib.closing(plain), pytest.raises(OSError), context.wrap_socket(plain) as connection:
        connection.sendall(b'{"op": "answer", "program": "squeue", "words": [], "environ": {}}\n')
        if not connection.recv(1000):
            raise ConnectionResetError


# What a job asks for; scripts take themselves for something else where a variable is there that Slurm does not set.
ASKS = (
    "", "-n1", "-n2", "--ntasks-per-node=2", "-N1 --ntasks-per-node=1", "-c2", "-n1 -c2", "-n2 -c1 --ntasks-per-node=2",
    "--mem=100", "--mem-per-cpu=50", "-n2 --mem-per-cpu=50", "-a 3", "-J named -A penstock -t 5",
)  # fmt: skip
# Another for each job or node, or of the connection to an srun that is a program of its own.
OWN = re.compile(
    r"(PENSTOCK_|SLURM_(JOB_?ID|JOB_(START|END)_TIME|ARRAY_JOB_ID|TASK_PID|SUBMIT_DIR|JOB_PARTITION|TOPOLOGY_ADDR|"
    r"(STEP_)?LAUNCHER_PORT|STEP_LAUNCHER_PORT|SRUN_COMM_\w+|LAUNCH_NODE_IPADDR|CPU_BIND\w*|UMASK|PRIO_PROCESS|"
    r"JOB_CPUS_PER_NODE\w*|CPUS_ON_NODE|DISTRIBUTION|WORKING_CLUSTER|TOPOLOGY_ADDR_PATTERN|NODE_ALIASES|CONF|CLUSTERS)$|"
    r"(PATH|PWD|OLDPWD|TMPDIR|SRUN_DEBUG|_|LS_COLORS|SHLVL)$)"
)


def variables(text: str) -> dict[str, str]:
    pairs = (one.partition("=") for one in text.split("\0") if "=" in one)
    return {name: re.sub(r"^n\d+$", "NODE", value) for name, _, value in pairs if not OWN.match(name)}


@pytest.mark.long
def test_a_script_and_its_steps_have_the_variables_that_slurm_gives_them(site: PoolSite):
    site.join(1)
    script = "env -0 > script; srun sh -c 'env -0 > step-$SLURM_PROCID'"
    script += "; srun -N1 --ntasks-per-node=1 -n1 -c1 --mem=10 -J other sh -c 'env -0 > second'"
    made = []
    for place, words in enumerate(ASKS):
        for partition in ("batch", "penstock"):
            folder = site.work / partition / str(place)
            site.say("mkdir", "-p", str(folder))
            line = ["sbatch", "--parsable", "-o", "out", "-p", partition, *words.split(), f"--wrap={script}"]
            told = site.call("sh", "-c", 'cd "$0"; exec "$@"', str(folder), *line)
            assert told.returncode == 0, told.stderr
            made.append(int(told.stdout))
    site.ended(*made)
    differ = {}
    for place, words in enumerate(ASKS):
        real, ours = (
            {file.name: variables(file.read_text()) for file in (site.work / partition / str(place)).glob("s*")}
            for partition in ("batch", "penstock")
        )
        for name in real.keys() | ours.keys():
            one, other = real.get(name, {}), ours.get(name, {})
            if one != other:
                # Who has defaults, and whole nodes of two CPUs, are Slurm's own.
                keys = {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}
                keys -= {key for key in ("SLURM_JOB_ACCOUNT", "SLURM_JOB_QOS") if key not in other}
                keys -= {"SLURM_TASKS_PER_NODE"} if "SLURM_NTASKS" not in one else set()
                if keys:
                    differ[f"{words}: {name}"] = {key: (one.get(key), other.get(key)) for key in sorted(keys)}
    assert not differ, "\n".join(f"{what} {found}" for what, found in differ.items())

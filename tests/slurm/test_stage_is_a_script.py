"""The same script by plain sbatch and as a stage of a workflow file, `run:` and `script:`, on several releases."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest
from agents import COMMAND, SlurmAgent

from penstock_lab.cluster import ClusterSpec, up

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300, func_only=True)]

HEAD = """\
#!/bin/bash
#SBATCH --job-name=mine --nodes=2 -t 3 --ntasks=2
#SLURM --mem=1 --comment='a b' --open-mode=append
#SBATCH -o out-%j.txt -e err-%j.txt
"""
# What ends no line of a script, and has no place in YAML.
PAGES = "# page one\f\v\u2028page two\n"
# What Slurm says of the job, and the job of itself, in files that begin with its number.
BODY = """\
id=$SLURM_JOB_ID
env -0 > $id.environment
pwd > $id.folder
umask > $id.umask
scontrol -o show job $id > $id.job
echo out
echo err >&2
false
echo on >> $id.folder
"""
# What is another's for each job, and what Penstock adds.
OF_THE_JOB = (
    "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NAME", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_JOB_START_TIME",
    "SLURM_JOB_END_TIME", "SLURM_TASK_PID", "SLURMD_NODENAME", "SLURM_TOPOLOGY_ADDR", "SLURM_JOB_SLUID", "_",
)  # fmt: skip
ADDED = ("PENSTOCK_", "DMR_")
LIMITS = (
    "UserId", "GroupId", "Account", "QOS", "TimeLimit", "Partition", "NumNodes", "NumCPUs", "NumTasks",
    "CPUs/Task", "MinCPUsNode", "MinMemoryNode", "MinMemoryCPU", "MinTmpDiskNode", "Features", "OverSubscribe",
    "Licenses", "Network", "WorkDir", "StdErr", "StdIn", "StdOut", "Comment", "TRES", "ReqTRES", "Dependency",
)  # fmt: skip


OTHERS = [pytest.param(release, marks=pytest.mark.release) for release in ("trixie", "sid")]


@pytest.fixture(scope="module", params=["own", *OTHERS])
def site(request, need_slurm, new_folder):
    """A cluster of this machine's release, or of another."""
    if request.param == "own":
        yield request.getfixturevalue("session_cluster")
        return
    need_slurm(request.param)
    it = up(ClusterSpec(nodes=4, folder=new_folder(f"script{request.param}"), release=request.param))
    yield it
    it.down()


@pytest.fixture
def agent(site):
    it = SlurmAgent(site).start()
    yield it
    it.down()


@pytest.fixture
def folder(site):
    """A folder of alice's, from which all is submitted."""
    made = site.home("alice") / f"from here {os.urandom(3).hex()}"
    site.run_as("alice", ["mkdir", str(made)], check=True)
    return made


def submitted(site, agent, folder, *words, **environment):
    """What a command of alice's says, from that folder, with that environment and a umask of her own."""
    shell = ["sh", "-c", 'umask 027; exec "$@"', "-", *words]
    done = site.run_as("alice", shell, env={**agent.environment, **environment}, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done


def write(site, path: Path, text: str) -> None:
    site.run_as("alice", ["sh", "-c", 'printf %s "$2" > "$1"', "-", str(path), text], check=True)


def by_sbatch(site, agent, folder, *words, **environment):
    done = submitted(site, agent, folder, "sbatch", "--parsable", "--wait", *words, **environment)
    return int(done.stdout.split()[0])


def as_stages(site, agent, folder, head, body, **environment):
    """The jobs of the same script as `run:` and as `script:`, one after the other."""
    text = textwrap.indent(head + body, "      ")
    stages = f"- name: inline\n  run: |\n{text}- name: filed\n  script: s.sh\n"
    write(site, folder / "w.yaml", f"name: forms\nshell: plain\nstages:\n{stages}")
    command = [*COMMAND, "submit", "w.yaml", "--strategy", "perstage"]
    done = submitted(site, agent, folder, *command, **environment)
    run = agent.finish(int(done.stdout.split()[-1]), 150)
    assert run["phase"] == "completed", (run, agent.said())
    return [stage["job"] for stage in run["stages"]]


def environment_of(folder: Path, job: int) -> dict[str, str]:
    text = (folder / f"{job}.environment").read_text()
    pairs = (line.partition("=") for line in text.split("\0") if line)
    return {k: v for k, _, v in pairs if k not in OF_THE_JOB and not k.startswith(ADDED)}


def limits_of(folder: Path, job: int) -> dict[str, str]:
    text = (folder / f"{job}.job").read_text().replace(str(folder), "FOLDER").replace(f"-{job}.txt", "-JOB.txt")
    return {w.partition("=")[0]: w.partition("=")[2] for w in text.split() if w.partition("=")[0] in LIMITS}


@pytest.mark.long_elsewhere
def test_a_stage_is_a_job_script(site, agent, folder):
    own = {"PROBE": "a b\n\tc 'd' \"e\" $HOME ü", "PROBE_SECRET": "s3cret", "TMPDIR": "/var/tmp"}
    write(site, folder / "s.sh", HEAD.replace("#SBATCH", PAGES + "#SBATCH", 1) + BODY)
    plain = by_sbatch(site, agent, folder, "s.sh", **own)
    for job in as_stages(site, agent, folder, HEAD, BODY, **own):
        assert environment_of(folder, job) == environment_of(folder, plain)
        assert environment_of(folder, job)["PROBE"] == own["PROBE"]
        assert environment_of(folder, job)["SLURM_SUBMIT_DIR"] == str(folder)
        for what in ("folder", "umask"):
            assert (folder / f"{job}.{what}").read_text() == (folder / f"{plain}.{what}").read_text()
        assert (folder / f"{job}.folder").read_text() == f"{folder}\non\n", "it goes on after a line that fails"
        assert limits_of(folder, job) == limits_of(folder, plain)
        assert limits_of(folder, job)["TimeLimit"] == "00:03:00"
        for file, text in (("out", "out\n"), ("err", "err\n")):
            assert (folder / f"{file}-{job}.txt").read_text() == text
            assert (folder / f"{file}-{plain}.txt").read_text() == text
    names = {line.partition("JobName=")[2].split()[0] for line in (p.read_text() for p in folder.glob("*.job"))}
    assert {name.split(".")[0] for name in names} == {"mine", "inline", "filed"}
    kept = agent.folder / "agent" / "environments"
    assert [*kept.iterdir()] == [], "the run has ended"


@pytest.mark.long_elsewhere
def test_only_what_is_exported_reaches_a_stage(site, agent, folder):
    own = {"PROBE": "kept", "PROBE_SECRET": "s3cret"}
    head = HEAD + "#SBATCH --export=PROBE,PATH,MORE=1\n"
    write(site, folder / "s.sh", head + BODY)
    plain = by_sbatch(site, agent, folder, "s.sh", **own)
    for job in as_stages(site, agent, folder, head, BODY, **own):
        found = environment_of(folder, job)
        assert found == environment_of(folder, plain)
        assert (found["PROBE"], found["MORE"], "PROBE_SECRET" in found) == ("kept", "1", False)
        whole = (folder / f"{job}.environment").read_text()
        assert "PENSTOCK_WORKFLOW=forms" in whole and "DMR_AGENT=" in whole, "but Penstock's own do"

"""What decides which ranks are on which nodes of a job, and what tells which GPUs it has."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mpi_libraries import LIBRARIES, ONE_HOST, python_of
from penstock.slurm.parse import parse_version
from penstock.values import merging
from penstock_lab.cluster import Cluster, ClusterSpec, up
from waiting import until

pytestmark = [pytest.mark.slurm, pytest.mark.long_elsewhere, pytest.mark.timeout(180, func_only=True)]

RELEASES = [None, *(pytest.param(release, marks=pytest.mark.release) for release in ("trixie", "sid"))]
GRES = "NodeName=n4 Name=gpu Type=a100 File=/dev/null,/dev/zero\n"  # without files slurmd counts no GPU
MPICH = f"{Path(sys.executable).parent / 'mpiexec'} -launcher slurm"
WHERE = "bash -c 'echo rank-on $SLURMD_NODENAME' </dev/null"


@pytest.fixture(scope="module", params=RELEASES)
def slurm(
    request: pytest.FixtureRequest,
    need_slurm: Callable[[str | None], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """Nodes of 4, 4, 2 and 8 CPUs, the last with two GPUs; each has a host name and an address of its own."""
    need_slurm(request.param)
    conf = tmp_path_factory.mktemp("gres") / "gres.conf"
    conf.write_text(GRES)
    spec = ClusterSpec(
        nodes=4,
        folder=Path(f"/var/tmp/pst-test-bg{request.param or ''}-{os.getpid()}"),
        release=request.param,
        isolated=True,
        select="cons_tres",
        nodes_have=("CPUs=4", "CPUs=4", "CPUs=2", "CPUs=8 Gres=gpu:a100:2"),
        extra=("GresTypes=gpu",),
        beside=(conf,),
    )
    it = up(spec)
    yield it
    it.down()


def said(slurm: Cluster, script: str, *words: str) -> str:
    """What a job prints, once it is over."""
    out = slurm.home("alice") / "said"
    out.unlink(missing_ok=True)
    slurm.run_as(
        "alice", ["sbatch", "-t2", "-o", "said", *words], input=f"#!/bin/bash\n{script}\necho over\n", check=True
    )
    until(lambda: out.exists() and out.read_text(errors="replace").endswith("over\n"), "the job's end", 100)
    return out.read_text(errors="replace")


def ranks(text: str) -> dict[str, int]:
    """How many ranks were on each node."""
    nodes = re.findall(r"rank-on (\S+)", text)
    return {node: nodes.count(node) for node in sorted(set(nodes))}


def running(slurm: Cluster, *words: str) -> int:
    job = int(slurm.run_as("alice", ["sbatch", "--parsable", "-t2", *words, "--wrap", "sleep 60"], check=True).stdout)
    state = lambda: slurm.run_as("root", ["squeue", "-h", "-j", str(job), "-o", "%T"]).stdout.strip()  # noqa: E731
    until(lambda: state() == "RUNNING", f"job {job}", 30)
    return job


def column(slurm: Cluster, job: int, *names: str) -> list[str]:
    form = ",".join(f"{name}:|" for name in names)
    text = slurm.run_as("root", ["squeue", "-h", "-j", str(job), "-O", form], check=True).stdout
    return [cell.strip() for cell in text.strip().split("|")][: len(names)]


def shown(slurm: Cluster, job: int) -> str:
    return slurm.run_as("root", ["scontrol", "-o", "-d", "show", "job", str(job)], check=True).stdout


def ended(slurm: Cluster, *jobs: int) -> None:
    for job in jobs:
        slurm.run_as("root", ["scancel", str(job)])
    listed = lambda: slurm.run_as("root", ["squeue", "-h"]).stdout  # noqa: E731
    until(lambda: not listed(), "the end of all jobs", 40)


def test_mpich_goes_by_the_list_and_the_tasks_per_node(slurm: Cluster) -> None:
    """MPICH's mpiexec starts SLURM_TASKS_PER_NODE ranks on SLURM_JOB_NODELIST, whatever SLURM_NNODES says.

    Releases seen: MPICH 5.0.2 in 22.05.8, 24.11.5 and 26.05.5.
    Guess: SLURM_NNODES makes it narrower, as it does srun.
    Relied on by: dmr.slurm_variables, penstock.workflow.narrow.
    """
    found = said(slurm, f"export SLURM_NNODES=2 SLURM_JOB_NUM_NODES=2; {MPICH} {WHERE}", "-N4", "--exclusive")
    assert ranks(found) == {"n1": 4, "n2": 4, "n3": 2, "n4": 8}


def test_mpich_without_tasks_per_node_puts_all_ranks_on_one_node(slurm: Cluster) -> None:
    """Without SLURM_TASKS_PER_NODE MPICH's mpiexec takes itself to be outside of Slurm, and says nothing.

    Releases seen: MPICH 5.0.2 in 22.05.8, 24.11.5 and 26.05.5.
    Guess: it fails, or asks Slurm.
    Relied on by: dmr.slurm_variables (which Slurm's own resize script is not like).
    """
    line = f"unset SLURM_TASKS_PER_NODE; {MPICH.split()[0]} -n 4 {WHERE}; echo code $?"
    found = said(slurm, line, "-N2", "-n4", "--exclusive")
    assert list(ranks(found).values()) == [4] and "code 0" in found


@pytest.mark.long
def test_open_mpi_without_tasks_per_node_does_not_start(slurm: Cluster) -> None:
    """Without SLURM_TASKS_PER_NODE Open MPI's mpiexec ends with an error.

    Releases seen: Open MPI 5.0.11 in 22.05.8, 24.11.5 and 26.05.5.
    Guess: it asks Slurm.
    Relied on by: dmr.slurm_variables.
    """
    library = next(library for library in LIBRARIES if library.name == "openmpi5")
    mpiexec = Path(python_of(library)).parent / "mpiexec"
    settings = " ".join(f"{name}={value}" for name, value in ONE_HOST.items())
    line = f"export {settings}; unset SLURM_TASKS_PER_NODE; timeout 60 {mpiexec} {WHERE}; echo code $?"
    found = said(slurm, line, "-N2", "-n4", "--exclusive")
    assert ranks(found) == {} and "code 0" not in found and "SLURM_TASKS_PER_NODE" in found


def test_a_list_in_another_order_than_slurms_puts_ranks_on_other_nodes(slurm: Cluster) -> None:
    """MPICH's mpiexec has its daemons started by a bare srun, so that names in the list count by their places alone.

    Releases seen: MPICH 5.0.2 in 22.05.8, 24.11.5 and 26.05.5.
    Guess: each daemon runs on the node of its name.
    Relied on by: dmr.job_nodes.facts (nodes in Slurm's order), penstock.workflow.narrow (the first nodes).
    """
    line = f"export SLURM_JOB_NODELIST=n4,n1 SLURM_NODELIST=n4,n1 SLURM_TASKS_PER_NODE=8,4; {MPICH} {WHERE}"
    assert ranks(said(slurm, line, "-w", "n1,n4", "-N2", "--exclusive")) == {"n1": 8, "n4": 4}


def test_srun_goes_by_numbers(slurm: Cluster) -> None:
    """srun starts SLURM_NTASKS tasks on SLURM_NNODES nodes of the job; SLURM_TASKS_PER_NODE counts for nothing.

    Releases seen: 22.05.8, 24.11.5, 26.05.5.
    Guess: SLURM_TASKS_PER_NODE says how many are where.
    Relied on by: dmr.slurm_variables (tasks are laid out as slurmctld does).
    """
    line = f"export SLURM_NNODES=2 SLURM_JOB_NUM_NODES=2 SLURM_NTASKS=3 SLURM_TASKS_PER_NODE=1,7; srun {WHERE}"
    assert sorted(ranks(said(slurm, line, "-N4", "-n4", "--exclusive")).values()) == [1, 2]


def test_a_list_that_is_too_short_keeps_srun_from_later_nodes(slurm: Cluster) -> None:
    """srun believes SLURM_JOB_NODELIST in so far as it asks for no more nodes than are named there.

    Releases seen: 22.05.8, 24.11.5, 26.05.5.
    Guess: it asks slurmctld which nodes the job has.
    Relied on by: dmr.slurm_variables.
    """
    line = f"export SLURM_JOB_NODELIST=n1 SLURM_NODELIST=n1; srun -N2 {WHERE}"
    assert "Only allocated 1 nodes asked for 2" in said(slurm, line, "-w", "n1,n2", "-N2", "--exclusive")


def test_tasks_are_laid_out_on_nodes_in_turn(slurm: Cluster) -> None:
    """slurmctld gives each node of a job a task in turn, as long as a node has CPUs for one more.

    Releases seen: 22.05.8, 24.11.5, 26.05.5.
    Guess: "block" fills the first node before the second has any.
    Relied on by: dmr.slurm_variables.lay_out, penstock.workflow.narrow.
    """
    line = f"echo said $SLURM_TASKS_PER_NODE; srun {WHERE}"
    found = said(slurm, line, "-N4", "-n13", "--exclusive")
    assert ranks(found) == {"n1": 4, "n2": 4, "n3": 2, "n4": 3} and "said 4(x2),2,3" in found


def test_a_job_that_asks_for_no_tasks_has_as_many_as_its_cpus_are_enough_for(slurm: Cluster) -> None:
    """Without -n and --ntasks-per-node, SLURM_NTASKS is not set and SLURM_TASKS_PER_NODE says what fits.

    Releases seen: 22.05.8, 24.11.5, 26.05.5.
    Guess: one task for each node, as srun starts.
    Relied on by: dmr.slurm_variables.
    """
    line = "echo said $SLURM_TASKS_PER_NODE ${SLURM_NTASKS-none}"
    assert "said 4(x2),2,8 none" in said(slurm, line, "-N4", "--exclusive")
    assert "said 2(x2),1,4 none" in said(slurm, line, "-N4", "--exclusive", "-c2")


def grown(slurm: Cluster, job: int, *asks: str) -> None:
    if (why := merging.why_not(parse_version(slurm.slurm_version))) is not None:
        pytest.skip(f"NO MERGE: {why}")
    words = ["salloc", "--no-shell", f"--dependency=expand:{job}", "-t2", "--exclusive", *asks]
    match = re.search(r"Granted job allocation ([0-9]+)", slurm.run_as("alice", words, check=True, timeout=60).stderr)
    assert match
    slurm.run_as("alice", ["scontrol", "update", f"jobid={match[1]}", "NumNodes=0"], check=True)
    until(lambda: column(slurm, job, "NumNodes") == ["3"], "the merge", 30)


def test_no_command_tells_the_cpus_of_nodes_that_were_merged(slurm: Cluster) -> None:
    """After a merge of earlier nodes `scontrol -d` shows the CPUs of one node as another's; their sum is right.

    Releases seen: 22.05.8, 24.11.5 and 26.05.5 (n1, n3, n4 of 4, 2 and 8 CPUs).
    Guess: it shows what each node has.
    Relied on by: dmr.job_nodes.cpus_of.
    """
    job = running(slurm, "-N1", "-n2", "-w", "n3")
    grown(slurm, job, "-N2", "-n12", "-w", "n1,n4")
    assert column(slurm, job, "NumCPUs") == ["14"]
    assert "Nodes=n4 CPU_IDs=0-7" not in shown(slurm, job)
    ended(slurm, job)


def test_a_merge_that_asks_for_nodes_alone_brings_one_cpu_each(slurm: Cluster) -> None:
    """Under cons_tres a resizer has one CPU on each node, though it says --exclusive, unless it asks for tasks.

    Releases seen: 22.05.8, 24.11.5, 26.05.5.
    Guess: --exclusive brings whole nodes, as it does to a job by itself.
    Relied on by: dmr.slurm_variables (no more tasks than CPUs), dmr.job_nodes.cpus_of.
    """
    job = running(slurm, "-N1", "-n2", "-w", "n3")
    grown(slurm, job, "-N2", "-w", "n1,n4")
    assert column(slurm, job, "NumCPUs") == ["4"]
    ended(slurm, job)


def test_a_list_that_the_job_was_submitted_with_does_not_shrink_it(slurm: Cluster) -> None:
    """From 24.11 on `scontrol update NodeList=` does nothing where the job had asked for just these nodes (-w).

    Releases seen: 22.05.8 (shrinks), 24.11.5 and 26.05.5 (exit 0, nothing is changed).
    Guess: the job has these nodes then.
    Relied on by: nothing yet; every resize is read back.
    """
    job = running(slurm, "-N1", "-n2", "-w", "n3")
    grown(slurm, job, "-N2", "-n12", "-w", "n1,n4")
    slurm.run_as("alice", ["scontrol", "update", f"jobid={job}", "NodeList=n3"], check=True)
    kept = parse_version(slurm.slurm_version) >= (23, 0, 0)
    until(lambda: column(slurm, job, "NumNodes") == ["3" if kept else "1"], "the number of nodes", 10)
    ended(slurm, job)


WAYS = [
    ("--gres=gpu:1", 0, "gpu:1"),
    ("--gpus=a100:1", 1, "gpu:a100:1"),
    ("--gpus-per-socket=1 --sockets-per-node=1", 2, "gpu:1"),
    ("-n1 --gpus-per-task=1", 3, "gpu[:=]1"),
    ("-n2 -c2 --gpus-per-task=a100:1", 3, "gpu:a100[:=]1"),
]


@pytest.mark.few(2)
@pytest.mark.parametrize(("asks", "place", "text"), WAYS, ids=[way[0] for way in WAYS])
def test_each_way_of_asking_for_gpus_has_a_column_of_its_own(slurm: Cluster, asks: str, place: int, text: str) -> None:
    """What a job has asked for by node, in all, by socket and by task stands in one of four columns, and only there.

    "gres:" up to 22.05, "gres/" later; where tasks ask from 24.05 on "=" and, where they have said CPUs, "cpu=2,".

    Releases seen: 22.05.8, 24.11.5, 26.05.5.
    Guess: tres-per-node has what is needed of a node.
    Relied on by: penstock.slurm.needs.
    """
    job = running(slurm, "-N1", *asks.split())
    cells = column(slurm, job, "tres-per-node", "tres-per-job", "tres-per-socket", "tres-per-task")
    assert re.fullmatch(rf"(cpu=2,)?gres[:/]{text}", cells[place]), cells
    assert not any("gpu" in cell for i, cell in enumerate(cells) if i != place)
    ended(slurm, job)


def test_tasks_per_gpu_ask_for_gpus_in_no_column(slurm: Cluster) -> None:
    """GPUs of a job that has said -n and --ntasks-per-gpu alone are asked for in no column of squeue.

    `scontrol` shows NtasksPerTRES, and with `-d` what each group of nodes was given.

    Releases seen: 22.05.8, 24.11.5, 26.05.5.
    Guess: it counts as --gpus, which it stands for.
    Relied on by: penstock.slurm.needs.
    """
    job = running(slurm, "-N1", "-n2", "--ntasks-per-gpu=1")
    cells = column(slurm, job, "tres-per-node", "tres-per-job", "tres-per-socket", "tres-per-task")
    assert not any("gpu" in cell for cell in cells)
    text = shown(slurm, job)
    assert "NtasksPerTRES=1" in text and re.search(r"Nodes=n4 CPU_IDs=\S+ Mem=\S+ GRES=gpu:a100:2\(IDX:0-1\)", text)
    ended(slurm, job)


def test_an_exclusive_job_is_given_gpus_that_it_has_not_asked_for(slurm: Cluster) -> None:
    """A job that is exclusive has all GPUs of its nodes, without asking for any.

    Releases seen: 22.05.8, 24.11.5, 26.05.5.
    Guess: it has what it asks for.
    Relied on by: penstock.slurm.needs (what it has counts only where it has asked).
    """
    job = running(slurm, "-N1", "--exclusive", "-w", "n4")
    assert "GRES=gpu:a100:2(IDX:0-1)" in shown(slurm, job)
    ended(slurm, job)

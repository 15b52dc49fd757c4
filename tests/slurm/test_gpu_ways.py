"""However a job has asked for GPUs, it grows onto a node that has as many: n4, not n1 and n2, which are idle, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from elastic_jobs import Elastic
from malleable import Agent, an_agent, assert_nothing_left

from penstock.slurm.parse import parse_version
from penstock_lab.cluster import Cluster, ClusterSpec, up

pytestmark = [pytest.mark.slurm, pytest.mark.long_elsewhere, pytest.mark.timeout(300, func_only=True)]

# Devices that every Linux has.
GRES = "NodeName=n[3-4] Name=gpu Type=a100 File=/dev/null,/dev/zero\n"
RELEASES = [None, *(pytest.param(release, marks=pytest.mark.release) for release in ("trixie", "sid"))]


@pytest.fixture(scope="module", params=RELEASES)
def gpus(
    request: pytest.FixtureRequest,
    need_slurm: Callable[[str | None], None],
    new_folder: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """Two nodes without GPUs, two with two each. Their gres.conf says nothing that needs a driver."""
    need_slurm(request.param)
    conf = tmp_path_factory.mktemp("gres") / "gres.conf"
    conf.write_text(GRES)
    has = "CPUs=4 Sockets=2 CoresPerSocket=2"
    spec = ClusterSpec(
        nodes=4,
        folder=new_folder(f"g{request.param or ''}"),
        release=request.param,
        select="cons_tres",
        nodes_have=(has, has, f"{has} Gres=gpu:a100:2", f"{has} Gres=gpu:a100:2"),
        extra=("GresTypes=gpu",),
        beside=(conf,),
    )
    it = up(spec)
    yield it
    it.down()


@pytest.fixture(scope="module")
def agent(gpus: Cluster) -> Iterator[Agent]:
    with an_agent(gpus) as it:
        it.start()
        yield it


# What a job asks for, and how many GPUs it and its companion have.
WAYS = [
    ("-N1 --gres=gpu:1", 1),
    ("-N1 --gres=gpu:a100:2", 2),
    ("-N1 --gpus-per-node=2", 2),
    ("-N1 --gpus-per-node=a100:1", 1),
    ("-N1 --gpus=2", 2),
    ("-N1 -G a100:1", 1),
    ("-N1 -n1 --gpus-per-task=1", 1),
    ("-N1 -n2 -c2 --gpus-per-task=a100:1", 2),
    ("-N1 --gpus-per-socket=1 --sockets-per-node=2", 2),
    ("-N1 --gpus-per-socket=a100:1 --sockets-per-node=1", 1),
    ("-N1 -n2 --ntasks-per-gpu=1", 2),
    ("-N1 --gpus=1 --ntasks-per-gpu=2", 1),
    ("-N1 --gpus=1 --cpus-per-gpu=2 --mem-per-gpu=10", 1),
    ("-N1 -n2 --tres-per-task=cpu:1,gres/gpu:1", 2),  # from 24.05 on
]


@pytest.mark.few(2)
@pytest.mark.parametrize(("asks", "count"), WAYS, ids=[asks for asks, _ in WAYS])
def test_a_companion_has_the_gpus_of_a_node(gpus: Cluster, agent: Agent, asks: str, count: int) -> None:
    if "tres-per-task" in asks and parse_version(gpus.slurm_version) < (24, 5, 0):
        pytest.skip("sbatch of this release does not know --tres-per-task")
    head = ("--start", "sleep 300", "--join", "echo $SLURMD_NODENAME has $SLURM_GPUS_ON_NODE; sleep 300")
    job = Elastic(agent, "--nodes", "1:2", "--interval", "0.5", "--settle", "0.5", *head, sbatch=asks.split())
    try:
        job.until_said("grown 1 -> 2 nodes")
        (companion,) = job.companions()
        assert held(gpus, companion) == (1, count), (job.said(), shown(gpus, job.id), shown(gpus, companion))
        assert {node(gpus, job.id), node(gpus, companion)} == {"n3", "n4"}
    finally:
        for each in (*job.companions(), job.id):
            gpus.run_as("root", ["scancel", str(each)])
        assert_nothing_left(gpus)


def shown(cluster: Cluster, job: int) -> str:
    return cluster.run_as("root", ["scontrol", "-o", "-d", "show", "job", str(job)], check=True).stdout


def node(cluster: Cluster, job: int) -> str:
    return cluster.run_as("root", ["squeue", "-h", "-j", str(job), "-o", "%N"], check=True).stdout.strip()


def held(cluster: Cluster, job: int) -> tuple[int, int]:
    """How many nodes a job has, and GPUs in all that it asked for."""
    words = ["squeue", "-h", "-j", str(job), "-O", "NumNodes:9,tres-per-node:99"]
    nodes, gres = cluster.run_as("root", words, check=True).stdout.split()
    return int(nodes), int(gres.rpartition(":")[2])

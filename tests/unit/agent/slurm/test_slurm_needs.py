"""What each further node of a job needs: every way of asking for GRES, as real Slurm of three releases has written it.

tests/slurm/test_gpu_ways.py has the agent do it on real Slurm.
"""

from __future__ import annotations

import pytest

from penstock.slurm import needs
from penstock_rest import records as rest

NONE = "N/A"
ONE = "gpu:a100:1(IDX:0)"
TWO = "gpu:a100:2(IDX:0-1)"

# What sbatch was asked, the columns per node, job, socket and task, whether there was --ntasks-per-gpu, what each group
# of nodes had; and what is needed. The nodes had two A100, one of them four and two FPGAs.
ASKED = [
    # 22.05
    ("-N1 --gres=gpu:1", ("gres:gpu:1", NONE, NONE, NONE), False, [ONE], "gpu:1"),
    ("-N2 --gres=gpu:a100:2", ("gres:gpu:a100:2", NONE, NONE, NONE), False, [TWO], "gpu:a100:2"),
    ("-N2 --gpus=3", (NONE, "gres:gpu:3", NONE, NONE), False, [TWO, ONE], "gpu:2"),
    ("-N1 -G a100:2", (NONE, "gres:gpu:a100:2", NONE, NONE), False, [TWO], "gpu:a100:2"),
    ("-n1 --gpus-per-task=1", (NONE, NONE, NONE, "gres:gpu:1"), False, [ONE], "gpu:1"),
    ("-N2 -n4 --gpus-per-task=1", (NONE, NONE, NONE, "gres:gpu:1"), False, [ONE, "gpu:a100:3(IDX:0-2)"], "gpu:3"),
    ("-n3 --gpus-per-task=a100:1", (NONE, NONE, NONE, "gres:gpu:a100:1"), False, ["gpu:a100:3(IDX:0-2)"], "gpu:a100:3"),
    ("-N1 --gpus-per-socket=1 --sockets-per-node=2", (NONE, NONE, "gres:gpu:1", NONE), False, [TWO], "gpu:2"),
    ("-n2 --ntasks-per-gpu=1", (NONE, NONE, NONE, NONE), True, [TWO], "gpu:2"),
    ("-N2 --ntasks-per-gpu=2 --gpus=2", (NONE, "gres:gpu:2", NONE, NONE), True, [ONE], "gpu:1"),
    (
        "--gres=gpu:2,fpga:1",
        ("gres:gpu:2,gres:fpga:1", NONE, NONE, NONE),
        False,
        [f"{TWO},fpga(CNT:1)"],
        "gpu:2,fpga:1",
    ),
    ("--gres=fpga", ("gres:fpga", NONE, NONE, NONE), False, ["fpga(CNT:1)"], "fpga"),
    ("-N2 --gpus=2 --gpus-per-node=1", ("gres:gpu:1", "gres:gpu:2", NONE, NONE), False, [ONE], "gpu:1"),
    ("--exclusive --gres=gpu:1", ("gres:gpu:1", NONE, NONE, NONE), False, ["gpu:a100:4(IDX:0-3),fpga(CNT:2)"], "gpu:1"),
    # It has what it did not ask for: no other node needs that.
    ("--exclusive", (NONE, NONE, NONE, NONE), False, ["gpu:a100:4(IDX:0-3),fpga(CNT:2)"], None),
    ("--gres=none", (NONE, NONE, NONE, NONE), False, [""], None),
    # 24.11 and 26.05
    ("--gres=gpu:1", ("gres/gpu:1", NONE, NONE, NONE), False, [ONE], "gpu:1"),
    ("-N2 --gpus=3", (NONE, "gres/gpu:3", NONE, NONE), False, [ONE, TWO], "gpu:2"),
    ("-n1 --gpus-per-task=1", (NONE, NONE, NONE, "gres/gpu=1"), False, [ONE], "gpu:1"),
    ("-n3 -c4 --gpus-per-task=1", (NONE, NONE, NONE, "cpu=4,gres/gpu=1"), False, [ONE], "gpu:1"),
    ("-n3 --gpus-per-task=a100:1", (NONE, NONE, NONE, "gres/gpu:a100=1"), False, ["gpu:a100:3(IDX:0-2)"], "gpu:a100:3"),
    ("--gpus-per-socket=a100:1", (NONE, NONE, "gres/gpu:a100:1", NONE), False, [ONE], "gpu:a100:1"),
    (
        "-n2 --tres-per-task=cpu:2,gres/gpu:a100:1",
        (NONE, NONE, NONE, "cpu:2,gres/gpu:a100:1"),
        False,
        [TWO],
        "gpu:a100:2",
    ),
    # Not seen here: an untyped one as some releases write it, and what is shared out by its memory.
    ("--gpus-per-task=1", (NONE, NONE, NONE, "gres/gpu=1"), False, ["gpu:(null):2(IDX:0,3)"], "gpu:2"),
    (
        "--gres=shard:4 --gpus=1",
        ("gres/shard:4", "gres/gpu:1", NONE, NONE),
        False,
        ["shard:a100:4(4/8),gpu:2(IDX:0-1)"],
        "shard:4,gpu:2",
    ),
    ("--gpus=1g.5gb:2", (NONE, "gres/gpu:1g.5gb:2", NONE, NONE), False, ["gpu:1g.5gb:2(IDX:0-1)"], "gpu:1g.5gb:2"),
]


@pytest.mark.parametrize(("asks", "columns", "by_gpu", "given", "expected"), ASKED, ids=[row[0] for row in ASKED])
def test_every_way_of_asking(asks, columns, by_gpu, given, expected) -> None:
    found = needs.node_needs((*columns, "(null)"), given, tasks_per_gpu=by_gpu)
    assert (found.gres, found.constraint, found.unknown) == (expected, None, "")
    per_node = bool(columns[0] != NONE and "gpu" in columns[0] and set(columns[1:]) == {NONE})
    assert needs.named_per_node((*columns, "(null)")) == per_node, "then no second question is asked"


@pytest.mark.parametrize("given", [[], [""], ["fpga(CNT:1)"], ["gpu:v100:1(IDX:0)"]])
def test_where_a_node_cannot_be_told_it_says_so(given) -> None:
    found = needs.node_needs((NONE, NONE, NONE, "gres/gpu:a100=1", "(null)"), given)
    assert found.gres is None
    assert found.unknown == "it has asked for gpu:a100, but Slurm does not say how many each of its nodes has"


@pytest.mark.parametrize(
    ("text", "constraint"),
    [("big&fast", "big&fast"), ("[rack1|rack2]", "[rack1|rack2]"), ("a b; c", None), ("--uid=0 x", None)],
)
def test_features(text, constraint) -> None:
    assert needs.node_needs((NONE, NONE, NONE, NONE, text), ()).constraint == constraint


def test_what_is_no_gres_is_not_asked_for() -> None:
    assert needs.node_needs(("cpu:4,gres:gpu:$(x)", "mem:3", NONE, NONE, NONE), ()).gres is None


SHOWN = (
    "JobId=29 JobName=x NumNodes=2 NumCPUs=4 JOB_GRES=gpu:a100:4   Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:a100:1(IDX:0)   "
    "Nodes=n[3-4] CPU_IDs=0-2 Mem=0 GRES=gpu:a100:3(IDX:0-2) MinCPUsNode=1 TresPerTask=gres:gpu:1 NtasksPerTRES=1 \n"
)


def test_what_nodes_have_is_read_of_scontrol() -> None:
    assert needs.given_in(SHOWN) == ["gpu:a100:1(IDX:0)", "gpu:a100:3(IDX:0-2)"]
    assert needs.tasks_per_gpu_in(SHOWN) and not needs.tasks_per_gpu_in(SHOWN.replace("Ntasks", ""))
    assert needs.given_in("JobId=29 Nodes=n1 CPU_IDs=0 Mem=0 GRES= MinCPUsNode=1") == [""]


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({"tres_per_task": "gres/gpu=1", "gres_detail": [ONE, "gpu:a100:3(IDX:0-2)"]}, "gpu:3"),
        ({"tasks_per_tres": {"set": True, "infinite": False, "number": 1}, "gres_detail": [TWO]}, "gpu:2"),
        ({"tasks_per_tres": {"set": True, "infinite": False, "number": 0}, "gres_detail": [TWO]}, None),
        ({"tres_per_node": "gres/gpu:2,gres/fpga:1", "gres_detail": [f"{TWO},fpga(CNT:1)"]}, "gpu:2,fpga:1"),
        ({"tres_per_socket": "gres/gpu:a100:1", "gres_detail": [TWO]}, "gpu:a100:2"),
        ({"tres_per_job": "gres/gpu:2", "gres_detail": []}, None),
    ],
)
def test_the_same_of_slurmrestd(job, expected) -> None:
    found = rest.needs_from_json(job)
    assert found.gres == expected
    assert bool(found.unknown) == ("tres_per_job" in job)

"""What Slurm's variables say of a job's nodes and tasks, for other nodes than those of its start. Pure.

mpiexec and srun believe these variables, each others: MPICH's and Open MPI's mpiexec put on the nodes of
`SLURM_JOB_NODELIST` the tasks of `SLURM_TASKS_PER_NODE`, which belong together by their places in the list; srun has
`SLURM_NTASKS` tasks laid out by slurmctld on `SLURM_NNODES` nodes. So all of them are said, nodes in Slurm's own order,
and tasks as slurmctld lays them out: one on each node in turn, as long as a node has CPUs for one more. (Run on 22.05,
24.11 and 26.05, MPICH 5.0, Open MPI 5.0; tests/behaviour.)

How many tasks there are:

- A job that said so (`--ntasks`, `--ntasks-per-node`) has as many for each node as at its start, rounded up in the sum,
  as far as its CPUs go (`--cpus-per-task`). So the number follows from the number of nodes, whatever came between.
- A job that did not has as many on each node as its CPUs there are enough for, which is what Slurm says, too; and
  `srun` without `-n` starts one on each node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["ASKED", "compressed", "expanded", "lay_out", "resized"]

ASKED: Final = "DMR_ASKED_TASKS"
"""The tasks and the nodes of the job's start ("8:2"): what the variables say is overwritten by each resize."""
_RUN: Final = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,7})\))?", re.ASCII)
_PAIR: Final = re.compile(r"([1-9][0-9]{0,8}):([1-9][0-9]{0,6})", re.ASCII)


def expanded(text: str) -> list[int]:
    """`2(x3),1` as [2, 2, 2, 1]; empty where it is none of these."""
    found: list[int] = []
    for part in text.split(","):
        match = _RUN.fullmatch(part)
        if match is None:
            return []
        found += [int(match[1])] * int(match[2] or 1)
    return found


def compressed(counts: Sequence[int]) -> str:
    """[2, 2, 2, 1] as `2(x3),1`."""
    runs: list[list[int]] = []
    for count in counts:
        if runs and runs[-1][0] == count:
            runs[-1][1] += 1
        else:
            runs.append([count, 1])
    return ",".join(str(count) if times == 1 else f"{count}(x{times})" for count, times in runs)


def lay_out(tasks: int, room: Sequence[int]) -> list[int]:
    """So many tasks on nodes that have room for so many each, as slurmctld does: in turn; at least one on each node,
    and in turn beyond the room where there is none left."""
    found = [1] * len(room)
    left = tasks - len(room)
    while left > 0 and room:
        takers = ([i for i, most in enumerate(room) if found[i] < most] or list(range(len(room))))[:left]
        for i in takers:
            found[i] += 1
        left -= len(takers)
    return found


def resized(
    environ: Mapping[str, str], nodes: Sequence[str], cpus: Sequence[int], tasks: int | None = None
) -> dict[str, str | None]:
    """The variables for these nodes, in Slurm's order, with so many CPUs each; None: to be unset.

    `cpus` is empty where it is not known. `tasks`: so many in all, instead of as many for each node as at the start.
    """
    count, each = len(nodes), _number(environ, "SLURM_CPUS_PER_TASK") or 1
    per_node = _number(environ, "SLURM_NTASKS_PER_NODE")
    asked = _asked(environ, per_node)
    room = [max(1, n // each) for n in cpus]
    said: dict[str, str | None] = {
        "SLURM_JOB_NODELIST": ",".join(nodes),
        "SLURM_NODELIST": ",".join(nodes),
        "SLURM_JOB_NUM_NODES": str(count),
        "SLURM_NNODES": str(count),
        "SLURM_JOB_CPUS_PER_NODE": compressed(cpus) if cpus else None,
        "SLURM_NTASKS": None,
        "SLURM_NPROCS": None,
    }
    if environ.get("SLURM_DISTRIBUTION", "").startswith(("plane", "arbitrary")):  # of just the nodes of the start
        said |= {"SLURM_DISTRIBUTION": None, "SLURM_DIST_PLANESIZE": None, "SLURM_ARBITRARY_NODELIST": None}
    if asked is None and tasks is None:
        most = max(expanded(environ.get("SLURM_TASKS_PER_NODE", "")), default=1)
        return said | {"SLURM_TASKS_PER_NODE": compressed(room or [most] * count)}
    if tasks is None and asked is not None:
        tasks = -(-asked[0] * count // asked[1])
        if per_node:
            room = [min(per_node, most) for most in room]
        if room and not _number(environ, "SLURM_OVERCOMMIT"):
            tasks = min(tasks, sum(room))
    placed = lay_out(tasks or count, room or [0] * count)
    total = str(sum(placed))
    said |= {"SLURM_TASKS_PER_NODE": compressed(placed), "SLURM_NTASKS": total, "SLURM_NPROCS": total}
    if asked is not None:
        said[ASKED] = f"{asked[0]}:{asked[1]}"
    if per_node and set(placed) != {per_node}:
        said["SLURM_NTASKS_PER_NODE"] = None  # srun takes it for a contradiction
    return said


def _asked(environ: Mapping[str, str], per_node: int) -> tuple[int, int] | None:
    """The tasks that the job said at its start, and on how many nodes."""
    if match := _PAIR.fullmatch(environ.get(ASKED, "")):
        return int(match[1]), int(match[2])
    nodes = _number(environ, "SLURM_JOB_NUM_NODES") or _number(environ, "SLURM_NNODES") or 1
    tasks = _number(environ, "SLURM_NTASKS") or per_node * nodes
    return (tasks, nodes) if tasks else None


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0

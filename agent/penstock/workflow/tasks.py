"""The command of a stage that is made of many small tasks: packed into the stage's nodes, or a pool's. Text only.

With `srun`: as many workers as the nodes have slots, each of which takes its own part of the list, given out beforehand
by expected run times (longest first, to the worker with the least). On one node without srun: the same as a local pool.
"""

from __future__ import annotations

import base64
import gzip
import heapq
import json
import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["WorkflowTask", "packed_command", "packed_time", "pool_command"]

# A list that is longer than this many bytes is compressed: Slurm takes scripts of 4 MB at most.
_PLAIN: Final = 64_000

_WORKER: Final = """\
failed=0
while IFS=$'\\t' read -r worker task; do
  [ "$worker" = "${SLURM_PROCID:-$PENSTOCK_WORKER}" ] || continue
  bash -c "$task" </dev/null || { echo "penstock: failed with $?: ${task:0:500}" >&2; failed=1; }
done
exit $failed"""


class WorkflowTask(NamedTuple):
    """A shell `command` that takes `seconds` on `cores` cores; `name` is its own within the workflow."""

    command: str
    seconds: float
    cores: int = 1
    name: str = ""


def _share(tasks: Sequence[WorkflowTask], workers: int) -> list[tuple[float, list[int]]]:
    """For each worker when it is done (s), and which tasks it takes."""
    heap: list[tuple[float, int]] = [(0.0, worker) for worker in range(workers)]
    taken: list[list[int]] = [[] for _ in range(workers)]
    done = [0.0] * workers
    for place in sorted(range(len(tasks)), key=lambda i: (-tasks[i].seconds, i)):
        busy, worker = heapq.heappop(heap)
        taken[worker].append(place)
        done[worker] = busy + tasks[place].seconds
        heapq.heappush(heap, (done[worker], worker))
    return list(zip(done, taken, strict=True))


def _slots(tasks: Sequence[WorkflowTask], nodes: int, cores: int) -> tuple[int, int, int]:
    """Workers per node, workers in all, and cores of each: as wide as the widest task needs."""
    width = min(max(task.cores for task in tasks), cores)
    per_node = max(cores // width, 1)
    return per_node, min(per_node * nodes, max(len(tasks), nodes)), width


def packed_time(tasks: Sequence[WorkflowTask], nodes: int, cores: int) -> float:
    """How long (s) they take on so many nodes of so many cores."""
    return max(busy for busy, _ in _share(tasks, _slots(tasks, nodes, cores)[1]))


def packed_command(tasks: Sequence[WorkflowTask], nodes: int, cores: int) -> str:
    """The command that runs them all there; it fails when one of them has failed, after the others."""
    _, workers, width = _slots(tasks, nodes, cores)
    rows = "".join(
        f"{worker}\t{_one_line(tasks[place].command)}\n"
        for worker, (_, places) in enumerate(_share(tasks, workers))
        for place in places
    )
    if nodes == 1:
        worker = (
            f"{{ tasks=$(cat); pids=(); for PENSTOCK_WORKER in $(seq 0 {workers - 1}); do "
            f'export PENSTOCK_WORKER; env -u SLURM_PROCID bash -c {shlex.quote(_WORKER)} <<<"$tasks" & pids+=($!); '
            f'done; code=0; for pid in "${{pids[@]}}"; do wait $pid || code=1; done; exit $code; }}'
        )
    else:
        worker = (
            f"srun --nodes={nodes} --ntasks={workers} --ntasks-per-node={-(-workers // nodes)} "
            # The others go on after one that has ended, whatever the site's KillOnBadExit and WaitTime.
            f"--cpus-per-task={width} --wait=0 --kill-on-bad-exit=0 bash -c {shlex.quote(_WORKER)}"
        )
    return _fed(worker, rows)


def pool_command(tasks: Sequence[WorkflowTask], command: str) -> str:
    """The shell command that has them run in a pool: `command` with one JSON object a line on its standard input."""
    rows = "".join(
        json.dumps({"name": t.name, "command": ["bash", "-c", t.command], "cores": t.cores, "time": t.seconds or None})
        + "\n"
        for t in tasks
    )
    return _fed(command, rows)


def _one_line(command: str) -> str:
    """The same for bash on one line."""
    if "\n" not in command:
        return command
    escaped = command.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"eval $'{escaped}'"


def _fed(command: str, rows: str) -> str:
    """A shell command with these lines on its standard input."""
    ending = "PENSTOCK_TASKS_END"
    if len(rows) > _PLAIN:
        packed = base64.b64encode(gzip.compress(rows.encode(), mtime=0)).decode()
        folded = "\n".join(packed[i : i + 4000] for i in range(0, len(packed), 4000))
        return f"base64 -d <<'{ending}' | gunzip | {command}\n{folded}\n{ending}\n"
    return f"cat <<'{ending}' | {command}\n{rows}{ending}\n"

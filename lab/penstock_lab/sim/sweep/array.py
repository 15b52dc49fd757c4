"""A sweep as a Slurm job array: every task computes its share of the grid, and a job after them merges the parts."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError, SlurmUnavailable, UserError
from penstock_lab.sim.sweep.grid import Combination, Grid
from penstock_lab.sim.sweep.parts import Parts
from penstock_lab.sim.swfout import whole_file

__all__ = ["Submitted", "share_of", "submit_array"]

_TIME_LIMIT = 120.0
_GRID = "grid.yaml"


@dataclass(frozen=True, slots=True)
class Submitted:
    """The job ids of the array and of the job that merges."""

    array: int
    merge: int


def submit_array(grid: Grid, result: Path, tasks: int, processes: int, options: Sequence[str]) -> Submitted:
    """Submit the array and the merge after it; `options` are added to both calls of sbatch.

    The grid is put beside the parts, so that the tasks do not depend on what becomes of the caller's files of options.
    What tasks and merge print goes there, too. UserError without sbatch, SlurmUnavailable when it does not answer, and
    PenstockError when it refuses.
    """
    parts = Parts(result)
    parts.make()
    file = parts.folder / _GRID
    try:
        with whole_file(file) as out:
            out.write(grid.as_file().encode())
    except OSError as e:
        raise UserError(f"{file} cannot be written: {e.strerror or e}") from None
    sweep = [sys.executable, "-P", "-m", "penstock", "simulate", "sweep", str(file), "--out", str(result)]
    array = _sbatch(
        [
            f"--array=0-{tasks - 1}",
            "--job-name=penstock-sweep",
            "--ntasks=1",
            f"--cpus-per-task={processes}",
            f"--output={_literal(parts.folder)}/task-%a.log",
            *options,
            f"--wrap={shlex.join([*sweep, '--share', str(tasks), '--processes', str(processes)])}",
        ]
    )
    merge = _sbatch(
        [
            f"--dependency=afterany:{array}",
            "--job-name=penstock-merge",
            "--ntasks=1",
            f"--output={_literal(parts.folder)}/merge.log",
            *options,
            f"--wrap={shlex.join([*sweep, '--merge'])}",
        ]
    )
    return Submitted(array, merge)


def share_of(combinations: Sequence[Combination], tasks: int, environment: Mapping[str, str]) -> Sequence[Combination]:
    """What this task of an array of so many computes: every `tasks`-th. UserError outside such an array."""
    task = environment.get("SLURM_ARRAY_TASK_ID", "")
    if not (task.isascii() and task.isdigit() and int(task) < tasks):
        raise UserError(
            f"--share {tasks} is for the tasks 0 to {tasks - 1} of a job array; SLURM_ARRAY_TASK_ID is {task!r}"
        )
    return combinations[int(task) :: tasks]


def _literal(folder: Path) -> str:
    """A folder in a pattern for the name of an output file, where % begins a replacement."""
    return str(folder).replace("%", "%%")


def _sbatch(arguments: Sequence[str]) -> int:
    # Inside a job, sbatch would take some of that job's options as defaults.
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("SLURM_") or key == "SLURM_CONF"
    }
    try:
        done = subprocess.run(
            ["sbatch", "--parsable", *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIME_LIMIT,
            env=environment,
            check=False,
        )
    except FileNotFoundError:
        raise UserError("--slurm-array needs Slurm's sbatch, which is not on the PATH") from None
    except subprocess.TimeoutExpired:
        raise SlurmUnavailable(f"sbatch did not answer within {_TIME_LIMIT:.0f} s") from None
    found = re.match(r"(\d+)(?:;|$)", done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "")
    if done.returncode or found is None:
        said = " ".join((done.stderr or done.stdout).split())
        raise PenstockError(f"sbatch refused: {said[:500]}")
    return int(found[1])

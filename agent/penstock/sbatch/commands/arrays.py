"""Of a job array that failed, the tasks that are to run again: those that Slurm does not say have completed.

Asked as the caller: the controller, which soon forgets tasks that have ended, and accounting, which may lag.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from penstock.slurm.parse import array_tasks, array_text
from penstock.values.lines import split_lines
from penstock.workflow.commands.joblog import slurm_says

__all__ = ["again", "completed_in", "completed_tasks"]

_JOB: Final = re.compile(r"^JobId=", re.MULTILINE)
_TASK: Final = re.compile(r"\bArrayTaskId=([0-9]+) .*?^ +JobState=COMPLETED ", re.DOTALL | re.MULTILINE)


def completed_tasks(job: int, limit: float) -> frozenset[int]:
    """The numbers of an array's tasks that have completed. Raises `SlurmUnavailable` when there is no answer in `limit`
    seconds."""
    shown = slurm_says(["scontrol", "show", "job", str(job)], limit)
    recorded = slurm_says(["sacct", "-n", "-P", "-X", "-o", "JobID,State", "-j", str(job)], limit)
    return completed_in(job, shown, recorded)


def completed_in(job: int, shown: str, recorded: str) -> frozenset[int]:
    """The same from what `scontrol show job` and `sacct -P -o JobID,State` print."""
    rows = (line.partition("|") for line in split_lines(recorded))
    mine = f"{job}_"  # the array as a whole may have a row, too
    names = (name for name, _, state in rows if state.strip() == "COMPLETED" and name.startswith(mine))
    ended = [name.removeprefix(mine) for name in names]
    seen = (_TASK.search(part) for part in _JOB.split(shown))
    return frozenset({*(int(task) for task in ended if task.isdecimal()), *(int(found[1]) for found in seen if found)})


def again(asked: str, completed: Collection[int]) -> str:
    """The array expression of those that `asked` names and that have not completed, with its limit of how many may run
    at once; `asked` itself where that is all of them, or none. Raises ParseError for no such expression."""
    tasks = array_tasks(asked)
    left = tasks.difference(completed)
    if not left or len(left) == len(tasks):
        return asked
    _, percent, most = asked.partition("%")
    return array_text(left) + percent + most

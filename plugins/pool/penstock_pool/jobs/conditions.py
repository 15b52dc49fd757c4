"""What has become of the jobs of Slurm's that jobs of a pool wait for: from the queue, else from accounting."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from penstock.errors import SlurmUnavailable
from penstock.fronts.programs.submit import ALIVE
from penstock.slurm.parse import parse_time
from penstock.slurm.raw_looks import RawLooks
from penstock_fronts.rows import parse_table
from penstock_pool.waiting import OtherJob

__all__ = ["SlurmJobs", "judged"]

_LETTERS: Final = "AFKTSe"
_NO_ACCOUNTING: Final = "accounting storage is disabled"
_UNKNOWN: Final = "Invalid job id"
_LOST: Final = OtherJob(0.0, 0.0, completed=False)

Wanted = tuple[int, int | None]
"""A job, and one task of its array or None."""
Row = tuple[str, str, str, str, str, str]
"""Of a job: its number, that of its array, the task, its state, start and end."""


class SlurmJobs:
    """Looks them up, by `looks`; None: the backend runs no commands, so that nothing is known of them."""

    def __init__(self, looks: RawLooks | None) -> None:
        self._looks = looks

    async def look(self, wanted: Collection[Wanted]) -> dict[Wanted, OtherJob]:
        """What is known of these. Raises SlurmUnavailable."""
        if self._looks is None:
            raise SlurmUnavailable("this backend says nothing of single jobs")
        numbers = ",".join(map(str, sorted({job for job, _ in wanted})))
        try:
            look = await self._looks.squeue(_LETTERS, "-r", "-j", numbers)
            rows: list[Row] = [
                (row["A"], row["F"], row["K"], row["T"], row["S"], row["e"])
                for row in parse_table(look.text, look.separator, _LETTERS).rows
            ]
        except SlurmUnavailable as e:
            if _UNKNOWN not in str(e):
                raise
            rows = []
        found = judged(wanted, rows)
        left = sorted({job for job, task in wanted if (job, task) not in found})
        if left:
            found |= judged([one for one in wanted if one not in found], await self._accounting(left))
        return {one: found.get(one, _LOST) for one in wanted}

    async def _accounting(self, jobs: Iterable[int]) -> list[Row]:
        assert self._looks is not None
        try:
            look = await self._looks.sacct("-X", "-j", ",".join(map(str, jobs)))
        except SlurmUnavailable as e:
            if _NO_ACCOUNTING in str(e):
                return []
            raise
        found: list[Row] = []
        for row in parse_table(look.text, look.separator).rows:
            array, _, task = row["JobID"].partition("_")
            found.append((row["JobIDRaw"], array, task, row["State"].partition(" ")[0], row["Start"], row["End"]))
        return found


def judged(wanted: Collection[Wanted], rows: Collection[Row]) -> dict[Wanted, OtherJob]:
    """Of each wanted job that rows show, what it has come to; an array has
    ended with the last of its tasks, and begun with the first."""
    found: dict[Wanted, OtherJob] = {}
    for job, task in wanted:
        own = [row for row in rows if str(job) in row[:2] and (task is None or row[2] == str(task))]
        if not own:
            continue
        started = [start for row in own if (start := parse_time(row[4])) is not None]
        over = all(row[3] not in ALIVE for row in own)
        ended = [end for row in own if (end := parse_time(row[5])) is not None]
        found[job, task] = OtherJob(
            min(started, default=None),
            max(ended, default=0.0) if over else None,
            completed=over and all(row[3] == "COMPLETED" for row in own),
        )
    return found

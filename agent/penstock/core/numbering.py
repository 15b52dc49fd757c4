"""Whether Slurm's job numbers have begun again: what the agent knows by number would then be somebody else's.

That happens where slurmctld has lost its state, or where a state file is used with a new Slurm. Within one life numbers
only grow, as the moments of submission do; so a job is of another life when its number had been given out before it was
submitted, and nothing is left of the jobs before. A job that was requeued has a new moment, and says nothing; nor does
a count that has come round at its end (`MaxJobId`), or one that is behind by a few.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from penstock.api import Job
from penstock.errors import StoreError
from penstock.host.logs import get_logger
from penstock.state.store import Store

__all__ = ["Mark", "Numbering", "began_again", "raised"]

_LOCAL: Final = 26
"""Bits of a number that count; what is above them names the cluster of a federation."""
_ROUND: Final = 60_000_000
"""From here on a count may have come to its end, which is 67,043,328 where the site has set none."""
_FORGOTTEN: Final = 100
"""So many of the latest numbers may be given out again: what a slurmctld that crashed had taken in its last seconds."""
_FACT: Final = "job numbers"
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Mark:
    """The highest number seen, and a moment (epoch s) by which it had been given out."""

    number: int = 0
    given: float = 0.0


def raised(mark: Mark, jobs: Iterable[Job], now: float) -> Mark:
    """The mark after a look at `now` that shows these. Their submissions count, too, where our clock is behind."""
    seen = [job for job in jobs if not job.id >> _LOCAL]
    highest = max((job.id for job in seen), default=0)
    if highest <= mark.number:
        return mark
    return Mark(highest, max(now, *(job.submit for job in seen)))


def began_again(mark: Mark, jobs: Iterable[Job]) -> Job | None:
    """A job that shows it, out of one look; None: there is none."""
    if not 0 < mark.number < _ROUND:
        return None
    seen = [job for job in jobs if not job.id >> _LOCAL and not job.restarts]
    if any(job.submit <= mark.given for job in seen):
        return None  # one of those before is there still
    return min((job for job in seen if job.id <= mark.number - _FORGOTTEN), key=lambda job: job.id, default=None)


class Numbering:
    """Keeps the mark of one cluster in a state file; what was found stays found until that is another one."""

    def __init__(self, store: Store, cluster: str = "") -> None:
        self._store = store
        self._key = f"{_FACT} {cluster}".strip()
        self._mark, self._why = Mark(), ""
        try:
            known = json.loads(store.facts.get(self._key) or "{}")
            self._mark, self._why = Mark(int(known["number"]), float(known["given"])), str(known["why"])
        except (ValueError, KeyError, TypeError):
            pass
        self._kept = (self._mark, self._why)

    def check(self, jobs: Iterable[Job], now: float) -> str | None:
        """Why nothing may be done after a look at `now` that shows these jobs; None: it may."""
        seen = list(jobs)
        if not self._why and (job := began_again(self._mark, seen)) is not None:
            when = datetime.fromtimestamp(job.submit, UTC).strftime("%Y-%m-%d %H:%MZ")
            self._why = (
                f"Slurm counts its jobs anew: job {job.id} is of {when}, and job {self._mark.number} was known before. "
                f"What {self._store.path} knows by number may be somebody else's now, so nothing is done: "
                "docs/state.md says what to do"
            )
            _log.error("nothing is done", why=self._why)
        elif not self._why:
            self._mark = raised(self._mark, seen, now)
        self._keep()
        return self._why or None

    def _keep(self) -> None:
        if self._kept == (self._mark, self._why):
            return
        text = json.dumps({"number": self._mark.number, "given": self._mark.given, "why": self._why})
        try:
            self._store.facts.remember(self._key, text)
        except StoreError as e:
            _log.warning("the highest job number cannot be written down yet", why=str(e))
        else:
            self._kept = (self._mark, self._why)

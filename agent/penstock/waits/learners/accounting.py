"""Waits that accounting tells of: what a user's learners begin with. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.api import AccountingRecord, Geometry, JobState

__all__ = ["waits_of"]

_ONE_YEAR = 365 * 86400.0
# A job that was cancelled may have no wait, and a requeued or resized one's record is of its last part.
_TELLING = frozenset(
    {
        JobState.COMPLETED,
        JobState.FAILED,
        JobState.TIMEOUT,
        JobState.RUNNING,
        JobState.OUT_OF_MEMORY,
        JobState.NODE_FAIL,
    }
)


def waits_of(records: Iterable[AccountingRecord]) -> Iterator[tuple[Geometry, float, float]]:
    """The geometry, the wait from eligible to start (s) and the start of every job that began, in order of starts.

    Accounting does not say why a job waited: waits that a hold or a limit made long are among them.
    """
    for r in sorted(records, key=lambda r: r.start or 0.0):
        if r.state not in _TELLING or not r.start or not r.eligible or r.num_nodes < 1:
            continue
        wait = r.start - max(r.eligible, r.submit)
        if wait >= 0:
            limit = r.time_limit if r.time_limit is not None else _ONE_YEAR
            geometry = Geometry(r.partition, r.qos, r.num_nodes, limit, account=r.account, user=r.user)
            yield geometry, wait, r.start

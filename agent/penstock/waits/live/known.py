"""What a command knows of a queue's past: from the agent's state file, where it is the caller's to read, else from what
accounting tells of the caller's own jobs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import replace

from penstock.api import AccountingRecord, Snapshot
from penstock.config import Config
from penstock.errors import NotPermitted, PenstockError, StoreError
from penstock.future.bands import Misses
from penstock.future.past import ENOUGH, QueuePast, used_in
from penstock.slurm.base import Reader
from penstock.state.ownership import is_readable, state_path
from penstock.state.store import Store
from penstock.waits.live.recorder import past_in
from penstock.waits.live.starts import misses_in

__all__ = ["kept_past", "known_by", "known_past", "with_history"]


def kept_past(config: Config, cluster: str, snapshot: Snapshot) -> tuple[QueuePast, Misses]:
    """The same from the state file alone."""
    path = state_path(config)
    with suppress(NotPermitted, StoreError):  # another's
        if is_readable(path):
            with closing(Store.read_only(path)) as store:
                return past_in(store, cluster, snapshot), misses_in(store, cluster)
    return QueuePast(), Misses()


async def known_past(config: Config, backend: Reader, cluster: str, snapshot: Snapshot) -> tuple[QueuePast, Misses]:
    """How long jobs ran and who came, and what bands of starts have missed. Raises nothing: what cannot be had is not
    known."""
    past, misses = kept_past(config, cluster, snapshot)
    return await with_history(past, backend, config.asa.history), misses


async def with_history(past: QueuePast, reader: Reader, period: float) -> QueuePast:
    """With what accounting tells of the caller's own jobs of so long (s), where by the look at the queue too few are
    known. Raises nothing: what cannot be had is not known."""
    if len(past.used) >= ENOUGH or not period:
        return past
    try:
        return known_by(past, await reader.history(since=reader.now() - period))
    except PenstockError:
        return past  # without accounting


def known_by(past: QueuePast, records: Iterable[AccountingRecord]) -> QueuePast:
    """With what accounting tells of the caller's own jobs, where by the look at the queue too few are known."""
    if len(past.used) >= ENOUGH:
        return past
    own = used_in(records)
    return replace(past, used=(*own, *past.used[len(past.own) :]), own=own)

"""First use: the waits that accounting knows of the user's own jobs, so that nobody begins with a guess."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from penstock.api import AccountingRecord, Geometry
from penstock.errors import NotNow, OutcomeUnknown, PenstockError, SlurmUnavailable
from penstock.host.clock import Clock, Rest
from penstock.host.logs import get_logger
from penstock.slurm.base import Reader
from penstock.state.store import Store
from penstock.waits.learners.accounting import waits_of
from penstock.waits.learners.model_store import ModelStore
from penstock.waits.live.recorder import keep_used, kept_used

__all__ = ["FairShares", "complete", "defaults", "known_shares", "learn_history", "usual"]

_log = get_logger(__name__)

_DONE: Final = "waits.history"
_DEFAULTS: Final = "waits.defaults"
_SHARES: Final = "waits.shares"
_TRIES: Final = 3
_MOST: Final = 20_000
_HOUR: Final = 3600.0


async def learn_history(backend: Reader, store: Store, model_store: ModelStore, clock: Clock, period: float) -> int:
    """Learn from the caller's jobs of the last `period` seconds, once per state file; how many waits there were.

    One request. Accounting that is absent or fails is said, and tried again at the next start. Raises nothing of that.
    """
    known = store.facts.get(_DONE) is not None
    if (known and kept_used(store)) or not period:
        return 0
    try:
        records = await _read(backend, clock.now() - period)
    except PenstockError as e:
        _log.info("accounting tells nothing; waits are learned from own observations only", why=str(e))
        return 0
    waits = list(waits_of(records))[-_MOST:]
    with store.together():
        keep_used(store, records, clock.now())
        if known:
            return 0
        store.facts.remember(_DEFAULTS, json.dumps(usual(records)))
        count = model_store.import_waits(waits)
        store.facts.remember(_DONE, f"{count} waits at {clock.now():.0f}")
    _log.info("learned from accounting", waits=count, days=round(period / 86400))
    return count


async def _read(backend: Reader, since: float) -> Sequence[AccountingRecord]:
    for _ in range(_TRIES - 1):
        try:
            return await backend.history(since=since)
        except NotNow as e:
            if isinstance(e, SlurmUnavailable | OutcomeUnknown) or e.again_in is None:
                raise
            await asyncio.sleep(e.again_in)  # the budget is spent for the moment
    return await backend.history(since=since)


def usual(records: Sequence[AccountingRecord]) -> dict[str, str]:
    """The account and QOS that most of the jobs had, which are those of a job that names none."""
    accounts, qos = Counter(r.account for r in records), Counter(r.qos for r in records)
    return {"account": accounts.most_common(1)[0][0], "qos": qos.most_common(1)[0][0]} if records else {}


def defaults(store: Store) -> Mapping[str, str]:
    """The user's usual `account` and `qos`, as far as they are known."""
    with suppress(ValueError):
        found = json.loads(store.facts.get(_DEFAULTS) or "{}")
        if isinstance(found, dict):
            return {str(k): str(v) for k, v in found.items()}
    return {}


def known_shares(store: Store) -> tuple[float, Mapping[str, float]] | None:
    """When the user's fair-share factors were asked for last, and what they are by account; None: not yet."""
    with suppress(ValueError, TypeError, AttributeError):
        at, found = json.loads(store.facts.get(_SHARES) or "null")
        return float(at), {str(k): float(v) for k, v in found.items()}
    return None


class FairShares:
    """The user's fair-share factors by account, asked for at most once an hour.

    They outlive the process: what was predicted under one is learned under it, whichever process sees the job start.
    """

    def __init__(self, backend: Reader, clock: Clock, store: Store) -> None:
        self._backend = backend
        self._clock = clock
        self._store = store
        known = known_shares(store)
        self.shares: Mapping[str, float] = known[1] if known else {}
        self._rest = Rest(known[0], known[0] + _HOUR) if known else Rest()

    async def refresh(self) -> bool:
        """Ask, if it is time; whether anything is new. Without an answer the old ones stay."""
        now = self._clock.now()
        if self._rest.lasts(now):
            return False
        self._rest = Rest(now, now + _HOUR)
        before = self.shares
        with suppress(PenstockError):
            self.shares = await self._backend.shares()
            self._store.facts.remember(_SHARES, json.dumps([now, dict(self.shares)]))
        return self.shares != before


def complete(
    geometry: Geometry,
    cluster: str,
    usual: Mapping[str, str],
    shares: Mapping[str, float],
    *,
    one_user: bool,
) -> Geometry:
    """The geometry with what the site knows of it: its cluster, the account and QOS of jobs that name none, and the
    account's fair share; a user's only account is theirs."""
    account = geometry.account or usual.get("account", "") or (min(shares) if len(shares) == 1 else "")
    return replace(
        geometry,
        cluster=geometry.cluster or cluster,
        account=account,
        share=shares.get(account) if geometry.share is None else geometry.share,
        qos=geometry.qos or usual.get("qos", ""),
        user="" if one_user else geometry.user,
    )

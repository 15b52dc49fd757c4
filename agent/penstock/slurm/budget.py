"""How often Slurm may be asked. Every request of a backend passes `RequestBudget.admit`; there is no way round it.

Three limits, each told apart in the numbers for the metrics:
- a token bucket for all requests. slurmctld's own limiter gives a user 30 requests, refilled at 2 per second; the
  defaults stay within that. Requests that only look leave the last quarter of the bucket to those that act, and looks
  for front programs come behind both (`turns`).
- buckets for submissions, so that a fault in the agent cannot flood the queue: one for what it decides by itself, and a
  larger one for what its user has asked for (`SubmissionKind`);
- a ladder of pauses when there is no answer, with jitter, for each controller and for accounting apart.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from penstock.errors import NotNow, SlurmUnavailable
from penstock.slurm.meter import Meter
from penstock.slurm.turns import AskerTurns, asking
from penstock.texts import plural
from penstock.values.backoff import Ladder
from penstock.values.bucket import TokenBucket

__all__ = ["BudgetLimits", "Metered", "RequestBudget", "SubmissionKind", "Ticket"]


@runtime_checkable
class Metered(Protocol):
    """A backend that tells what it asks of Slurm, and its budget."""

    @property
    def meter(self) -> Meter:
        """What was asked of Slurm, and how that went."""
        ...

    @property
    def budget(self) -> RequestBudget:
        """What every request has to pass."""
        ...


class SubmissionKind(StrEnum):
    """Why a job is submitted: its user has asked for it (stages, tasks of a bag, slots), or the agent has decided so
    (what a running job grows by)."""

    ASKED = "asked"
    OWN = "own"


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """`burst` requests at once, refilled at `per_second`; at most `submissions_per_hour` jobs of the agent's own in any
    hour; of its user's `user_submissions_burst` at once, refilled at `user_submissions_per_hour`."""

    burst: int = 30
    per_second: float = 2.0
    submissions_per_hour: int = 60
    user_submissions_burst: int = 500
    user_submissions_per_hour: int = 1200


@dataclass(frozen=True, slots=True)
class Ticket:
    """The right to one request, given at `at` (the budget's clock)."""

    service: _Service
    at: float


@dataclass(slots=True)
class _Service:
    """Whoever answers. Requests that fail together count as one failure."""

    ladder: Ladder
    closed_until: float = float("-inf")
    failed_at: float = float("-inf")


@dataclass(slots=True)
class RequestBudget:
    """The budget of one agent, shared by all its backends. `clock` and `sleep` are for tests."""

    limits: BudgetLimits = field(default_factory=BudgetLimits)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    rng: random.Random = field(default_factory=random.Random)
    waited: float = 0.0
    """Seconds that requests have waited for their turn, in total."""
    may_change: Callable[[], None] = lambda: None
    """Called when the turn of a request that changes something has come; raises what is in its way by then."""
    shared: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered for each submission while it is looked whether there is one left: what others have taken since counts
    then, and what is left is written down when it is left; raises what is in its way."""
    refused: Counter[str] = field(default_factory=Counter)
    """Requests that were not made, by reason: `budget`, `submissions`, `turns` (see `AskerTurns`), or the service that
    does not answer."""
    turns: AskerTurns = field(init=False)
    """The line of requests that come behind all others."""
    _requests: TokenBucket = field(init=False)
    _submissions: dict[SubmissionKind, TokenBucket] = field(init=False)
    _services: dict[str, _Service] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._requests = TokenBucket(self.limits.burst, self.limits.per_second)
        self.turns = AskerTurns(self._requests, self.clock, self.sleep)
        # A full bucket and an hour's refill together make the limit.
        half = self.limits.submissions_per_hour / 2
        self._submissions = {
            SubmissionKind.OWN: TokenBucket(max(half, 1.0), half / 3600),
            SubmissionKind.ASKED: TokenBucket(
                self.limits.user_submissions_burst, self.limits.user_submissions_per_hour / 3600
            ),
        }

    @property
    def tokens(self) -> float:
        """Requests that could be made at once."""
        return max(0.0, self._requests.tokens(self.clock()))

    def submissions(self, kind: SubmissionKind) -> float:
        """Jobs that could be submitted at once."""
        return self._submissions[kind].tokens(self.clock())

    def resume(self, kind: SubmissionKind, submissions: float, ago: float) -> None:
        """Go on from what was left of the submissions so many seconds ago."""
        self._submissions[kind].resume(submissions, ago, self.clock())

    async def admit(
        self, service: str, *, changing: bool, patience: float, submits: SubmissionKind | None = None
    ) -> Ticket:
        """Wait for the turn of a request to `service` (slurmctld, slurmdbd…); `submits`: it adds a job to the queue.

        Raises `SlurmUnavailable` at once when Slurm does not answer and is left in peace, or when the turn would come
        after more than `patience` seconds; `NotNow` when too many jobs were submitted. Nothing was asked then.
        """
        now = self.clock()
        asked = self._services.setdefault(service, _Service(Ladder(self.rng)))
        if now < asked.closed_until:
            pause = asked.closed_until - now
            self.refused[service] += 1
            times = plural(asked.ladder.failures, "time")
            raise SlurmUnavailable(
                f"{service} gave no answer {times} in a row; it is asked again in {pause:.0f} s",
                again_in=pause,
            )
        if not changing and (askers := asking()) is not None:
            try:
                await self.turns.take(askers, patience)
            except SlurmUnavailable:
                self.refused["turns"] += 1
                raise
            return Ticket(asked, self.clock())
        with self.shared() if submits else nullcontext():
            if submits and (pause := self._submissions[submits].delay(now)) > 0:
                self.refused["submissions"] += 1
                raise NotNow(
                    f"more than {self._allowed(submits)}; the next is possible in {pause:.0f} s", again_in=pause
                )
            delay = self._requests.delay(now, kept=0 if changing else self.limits.burst / 4)
            if delay > patience:
                self.refused["budget"] += 1
                raise SlurmUnavailable(
                    f"too many requests to Slurm; the next is possible in {delay:.0f} s", again_in=delay
                )
            self._requests.take()
            if submits:
                self._submissions[submits].take()
        if delay > 0:
            self.waited += delay
            await self.sleep(delay)
        if changing:
            self.may_change()
        return Ticket(asked, self.clock())

    def _allowed(self, kind: SubmissionKind) -> str:
        limits = self.limits
        if kind is SubmissionKind.OWN:
            return f"{plural(limits.submissions_per_hour, 'submission')} an hour (`slurm.submissions_per_hour`)"
        return (
            f"{plural(limits.user_submissions_burst, 'submission')} at once and then "
            f"{limits.user_submissions_per_hour} an hour "
            "(`slurm.user_submissions_burst`, `slurm.user_submissions_per_hour`)"
        )

    def answered(self, ticket: Ticket, ok: bool) -> None:
        """How the request went; `ok` false: Slurm gave no answer (a refusal is an answer)."""
        service, now = ticket.service, self.clock()
        if ok:
            service.ladder.succeeded()
            service.closed_until = float("-inf")
        elif ticket.at > service.failed_at:
            service.failed_at = now
            service.closed_until = now + service.ladder.failed()

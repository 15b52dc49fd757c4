"""Pauses: what people have told the agent to leave alone until further notice, and what its configuration does not
allow. Pauses outlive the agent. Whoever is about to act asks here, and nowhere else.

What is paused or not allowed is left as it is, as if the agent were away: nothing is submitted, released, re-pointed,
requeued or resized. What is under way in Slurm comes to its end (a resize that has begun, a workflow that is being
cancelled). `penstock off` is stronger than all pauses: what is held is given back as well (`penstock.shutdown`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from penstock.api import Reason
from penstock.core.off import CODE, Off, keep_off, merged, off_in
from penstock.errors import LeaseLost, StoreError
from penstock.host.logins import login
from penstock.state.store import Store
from penstock.values.allow import FEATURES, Rule, Subject, refusal

__all__ = ["FEATURES", "Pause", "PauseControl", "as_pauses", "pauses_in"]

_KEY: Final = "pauses"


@dataclass(frozen=True, slots=True)
class Pause:
    """Of one `feature`, of one user's jobs (`uid`), in one `partition`; None: of all. `by` whom (uid), and when."""

    feature: str | None = None
    uid: int | None = None
    partition: str | None = None
    by: int = 0
    since: float = 0.0
    why: str = ""

    @property
    def scope(self) -> tuple[str | None, int | None, str | None]:
        """What it is about."""
        return (self.feature, self.uid, self.partition)

    def covers(self, feature: str, uid: int, partitions: Iterable[str]) -> bool:
        """Whether it holds for a job, or a workflow with jobs in these partitions."""
        return (
            self.feature in (None, feature)
            and self.uid in (None, uid)
            and (self.partition is None or self.partition in partitions)
        )

    def __str__(self) -> str:
        what = self.feature or "everything"
        whose = "" if self.uid is None else f" of {login(self.uid)}"
        where = "" if self.partition is None else f" in {self.partition}"
        return f"{what}{whose}{where} paused by {login(self.by)}" + (f": {self.why}" if self.why else "")


def pauses_in(store: Store) -> tuple[Pause, ...]:
    """What a state file has of pauses."""
    return tuple(Pause(**p) for p in json.loads(store.facts.get(_KEY) or "[]"))


def as_pauses(off: Off | None) -> tuple[Pause, ...]:
    """The order that all is off as a pause, for commands of users, which keep to those."""
    return () if off is None else (Pause(by=off.by, since=off.since, why=str(off)),)


class PauseControl:
    """The pauses of one agent, as its state file has them, and its allow-list `rules` (None: all is allowed).

    What makes the agent do less holds at once, also while the file cannot be written: `unwritten` says so then. What
    makes it do more has to be written first. With `dry_run` it only says what it would do to others' jobs.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.rules: Sequence[Rule] | None = None
        self.dry_run = False
        self.pauses: tuple[Pause, ...] = pauses_in(store)
        self.off: Off | None = off_in(store)
        self._stored: tuple[tuple[Pause, ...], Off | None] = self.pauses, self.off
        self._failure = ""

    @property
    def unwritten(self) -> str:
        """What a person is told while the state file has not what holds; empty while it has."""
        if (self.pauses, self.off) == self._stored:
            return ""
        what = "that it is off" if self.pauses == self._stored[0] else "what is paused"
        return f"{what} is known to this agent alone and does not outlive the agent: {self._failure}"

    def pause(self, pause: Pause) -> None:
        """From the next pass on; one of the same scope is replaced."""
        self.pauses = (*(p for p in self.pauses if p.scope != pause.scope), pause)
        self._try_to_write()

    def resume(self, lifted: Iterable[Pause]) -> None:
        """These are over. Raises StoreError where that cannot be written; what never was need not be."""
        gone = set(lifted)
        self._keep_pauses(tuple(p for p in self.pauses if p not in gone))

    def turn_off(self, off: Off) -> Off:
        """Nothing is begun any more, and what is held is given back; the order as it stands then."""
        self.off = merged(self.off, off)
        self._try_to_write()
        return self.off

    def turn_on(self) -> Off | None:
        """That is over; what was given before, None where it was not off. Raises StoreError like `resume`."""
        off = self.off
        self._keep_off(None)
        return off

    def write(self) -> None:
        """Write down what could not be before. Raises StoreError."""
        self._keep_pauses(self.pauses)
        self._keep_off(self.off)

    def _try_to_write(self) -> None:
        try:
            self.write()
        except LeaseLost:
            raise  # the file is another agent's, and so is what happens next
        except StoreError as e:
            self._failure = str(e)

    def _keep_pauses(self, pauses: tuple[Pause, ...]) -> None:
        if pauses != self._stored[0]:
            self._store.facts.remember(_KEY, json.dumps([asdict(p) for p in pauses]))
        self.pauses, self._stored = pauses, (pauses, self._stored[1])

    def _keep_off(self, off: Off | None) -> None:
        if off != self._stored[1]:
            keep_off(self._store, off)
        self.off, self._stored = off, (self._stored[0], off)

    def on(
        self,
        feature: str,
        uid: int,
        partitions: Iterable[str],
        accounts: Iterable[str] = (),
        qos: Iterable[str] = (),
        *,
        strict: bool = True,
    ) -> Reason | None:
        """Why nothing is to be done about such a job or workflow now; None: go on. `strict` as for `allow.refusal`."""
        known = tuple(partitions)
        return self.paused(feature, uid, known) or self.refuses(feature, uid, known, accounts, qos, strict=strict)

    def paused(self, feature: str, uid: int, partitions: Iterable[str]) -> Reason | None:
        """Why nothing is to be done until somebody lifts a pause, or turns it on again; None: go on."""
        if self.off is not None:
            return Reason(CODE, str(self.off))
        known = tuple(name for names in partitions for name in names.split(","))  # of a job that waits in several
        found = next((p for p in self.pauses if p.covers(feature, uid, known)), None)
        return None if found is None else Reason("paused", str(found))

    def rehearses(self, uid: int, what: str) -> Reason | None:
        """Why `what` is only said of this user's jobs, and not done; None: do it."""
        if not self.dry_run or uid == os.geteuid():
            return None
        return Reason("dry-run", f"`limits.dry_run`: {what}")

    def refuses(
        self,
        feature: str,
        uid: int,
        partitions: Iterable[str] = (),
        accounts: Iterable[str] = (),
        qos: Iterable[str] = (),
        *,
        strict: bool = True,
    ) -> Reason | None:
        """Why the configuration does not allow to act on it; None: it does. `strict` as for `allow.refusal`."""
        if self.rules is None:
            return None
        subject = Subject.of(feature, [login(uid)], partitions, accounts, qos)
        return refusal(self.rules, subject, strict=strict)

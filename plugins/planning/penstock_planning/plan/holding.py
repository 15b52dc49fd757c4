"""Holding a slot: what is asked of Slurm next, given what is seen. Pure: states and observations in, acts out.

Four ways: `reservation` (an operator's account), `request` (a file for somebody who may make one), `var` (a job that
idles until the slot begins, Figure 33), `combined` (a reservation, and a job that may replace it, Figure 45). The
machine looks at levels: after a kill the state as it was stored and a new look at Slurm lead on from there. Whatever
happens, a settled hold has no reservation, no job and no request left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from penstock.api import Job, Reservation, plural
from penstock.errors import Infeasible
from penstock_planning.plan.pricing import cancelling
from penstock_planning.plan.var import combine, idle_cost

__all__ = ["METHODS", "Act", "Hold", "HoldPhase", "HoldStep", "LedgerEntry", "Limits", "Seen", "WantedSlot", "step"]

METHODS: Final = ("reservation", "request", "var", "combined")


class HoldPhase(StrEnum):
    """NEW: nothing done. ASKED: the act was sent or is about to be. HELD: the slot is there. The others are final."""

    NEW = "new"
    ASKED = "asked"
    HELD = "held"
    DONE = "done"
    CANCELLED = "cancelled"
    LOST = "lost"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        """Whether nothing is held or asked for any more."""
        return self in (HoldPhase.DONE, HoldPhase.CANCELLED, HoldPhase.LOST, HoldPhase.FAILED)


@dataclass(frozen=True, slots=True)
class WantedSlot:
    """A slot: `nodes` of `partition` from `start` for `duration` seconds for `user`, paid by `account`.

    `base` is n x d x c, `f` the price of delays (infinite: no reservation can be had), `penalty` the share of f for
    cancelling, `node_second` the plain price of a node for a second. `margin` seconds are reserved beyond the end,
    so that Slurm does not kill a job that is on time; `nodelist` are the nodes it was priced for, if they matter.
    `submit_at` and `run_time` are those of the idle job, which runs `command` in `workdir` when the slot begins and
    `meanwhile` until then; it does run by then with probability `chance`, and idles for `idle` seconds on average
    (None: that was not noted).
    """

    name: str
    user: str
    account: str
    nodes: int
    partition: str
    start: float
    duration: float
    method: str
    base: float
    f: float
    penalty: float = 0.1
    node_second: float = 1.0
    margin: float = 60.0
    submit_at: float | None = None
    run_time: float = 0.0
    command: str = ""
    workdir: str = ""
    nodelist: tuple[str, ...] = ()
    chance: float | None = None
    idle: float | None = None
    meanwhile: str = ""

    @property
    def end(self) -> float:
        """When the slot ends, without the margin."""
        return self.start + self.duration


@dataclass(frozen=True, slots=True)
class Hold:
    """A wanted slot and how far it is. `job` is the idle job's id, `used` which of the two a combined hold kept,
    `requested` whether its request was written and not taken back: whoever answers it may take it away. `settled`: it
    is over, and nothing is left of it."""

    wanted: WantedSlot
    phase: HoldPhase = HoldPhase.NEW
    job: int | None = None
    job_asked: bool = False
    used: str = ""
    reason: str = ""
    giving_up: bool = False
    requested: bool = False
    settled: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Hold:
        """What `to_dict` gave."""
        wanted = WantedSlot(**{**data["wanted"], "nodelist": tuple(data["wanted"]["nodelist"])})
        phase = HoldPhase(data["phase"])
        # Releases that did not note it wrote the request right after the phase was stored.
        return cls(**{"requested": phase is not HoldPhase.NEW, **data, "wanted": wanted, "phase": phase})


@dataclass(frozen=True, slots=True)
class Seen:
    """One look: the reservation of the hold's name, and the idle job (None: not there, or ended long ago).

    `refused`: the answer when the reservation or the idle job was asked for, if there will never be one.
    """

    reservation: Reservation | None = None
    job: Job | None = None
    refused: str = ""


class Act(StrEnum):
    """What is to be done; each can be repeated without harm."""

    RESERVE = "reserve"
    UNRESERVE = "unreserve"
    WRITE_REQUEST = "write request"
    DROP_REQUEST = "drop request"
    SUBMIT = "submit"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A line of the ledger, in service units: positive is charged. One per hold and kind, ever."""

    kind: str
    amount: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What a site allows: the `share` of the machine that may be reserved at once, `notice` seconds between asking and
    the slot's begin, holds `per_user` at a time. The presets are `open`, `careful` and `strict`."""

    share: float = 1.0
    notice: float = 0.0
    per_user: int = 1000

    @classmethod
    def preset(cls, name: str) -> Limits:
        """By name. KeyError if there is none."""
        return {"open": cls(), "careful": cls(0.5, 300.0, 20), "strict": cls(0.1, 3600.0, 3)}[name]

    def check(
        self, wanted: WantedSlot, now: float, machine: int, reserved: int, holds: int, exchange: bool = False
    ) -> None:
        """Raises Infeasible, with the limit, if a slot may not be held. `reserved` nodes are so at its time already.
        An `exchange` is for a slot that was asked for in time and needs no notice of its own."""
        if not exchange and wanted.start - now < self.notice:
            # No word of how far ahead it is: what is tried in each pass is told again when its words change.
            raise Infeasible(f"a slot must be requested at least {self.notice:g} s ahead here")
        if reserved + wanted.nodes > self.share * machine:
            most = math.floor(self.share * machine)
            raise Infeasible(
                f"the limit here is {plural(most, 'reserved node')} at a time, and {reserved} are reserved then"
            )
        if holds >= self.per_user:
            raise Infeasible(f"a user may hold at most {plural(self.per_user, 'slot')} at a time here")


@dataclass(frozen=True, slots=True)
class HoldStep:
    """The new state, what to do now (in this order), and what to enter into the ledger first."""

    hold: Hold
    acts: tuple[Act, ...] = ()
    entries: tuple[LedgerEntry, ...] = field(default=())


def step(hold: Hold, seen: Seen, now: float) -> HoldStep:
    """What comes next. The state that is given back must be stored before the acts are done."""
    if hold.phase.final:
        # What came into being after all, by an answer that was late, is taken back, and what could not be so far.
        left = _leftovers(hold, seen)
        return HoldStep(hold, left) if left else HoldStep(replace(hold, settled=True))
    if hold.giving_up:
        return _give_up(hold, seen, now)
    wanted = hold.wanted
    if wanted.method == "var":
        return _virtual(hold, seen, now)
    asking = Act.WRITE_REQUEST if wanted.method == "request" else Act.RESERVE
    if hold.phase is HoldPhase.NEW:
        return HoldStep(replace(hold, phase=HoldPhase.ASKED), (asking,))
    if hold.phase is HoldPhase.ASKED:
        return _asked(hold, seen, now, asking)
    if hold.used != "VAR" and seen.reservation is None and now >= wanted.start:
        return _end(hold, seen, HoldPhase.DONE, "the reservation was used up, released or purged")
    if hold.used != "VAR" and seen.reservation is None:
        refund = LedgerEntry("refund", -(wanted.base + wanted.f))
        lost = replace(hold, phase=HoldPhase.LOST, reason="somebody else deleted the reservation")
        return HoldStep(lost, _leftovers(lost, seen), (refund,))
    if hold.used == "VAR" and _died(hold, seen, now):
        return _end(hold, seen, HoldPhase.LOST, "the idle job ended before the slot began")
    if now >= wanted.end + wanted.margin:
        return _end(hold, seen, HoldPhase.DONE, "the slot is over")
    if wanted.method == "combined" and not hold.used:
        return _combined(hold, seen, now)
    return HoldStep(hold, _superseded(hold, seen))


def _asked(hold: Hold, seen: Seen, now: float, asking: Act) -> HoldStep:
    """Until the reservation is there or refused, or it is too late."""
    wanted = hold.wanted
    if seen.reservation is not None:
        return HoldStep(
            replace(hold, phase=HoldPhase.HELD, reason=""), (), (LedgerEntry("charge", wanted.base + wanted.f),)
        )
    if seen.refused:
        if wanted.method == "combined" and wanted.submit_at is not None:
            virtual = replace(wanted, method="var", f=math.inf)
            return HoldStep(
                replace(hold, wanted=virtual, phase=HoldPhase.NEW, reason=f"no reservation: {seen.refused}")
            )
        return _end(hold, seen, HoldPhase.FAILED, seen.refused)
    if now >= wanted.start:
        return _end(hold, seen, HoldPhase.FAILED, "the reservation was not made before the slot began")
    return HoldStep(hold, () if wanted.method == "request" and hold.requested else (asking,))


def _virtual(hold: Hold, seen: Seen, now: float) -> HoldStep:
    """Figure 33: submitted at its time, idles until the slot begins, given up if it waits by then."""
    wanted = hold.wanted
    if wanted.submit_at is None:
        return _end(
            hold, seen, HoldPhase.FAILED, "there is no time at which the idle job could be submitted to run by then"
        )
    if hold.phase is HoldPhase.NEW:
        return (
            HoldStep(hold)
            if now < wanted.submit_at
            else HoldStep(replace(hold, phase=HoldPhase.ASKED, job_asked=True), (Act.SUBMIT,))
        )
    if hold.phase is HoldPhase.HELD:
        if _died(hold, seen, now):
            return _end(hold, seen, HoldPhase.LOST, "the idle job ended before the slot began")
        if now >= wanted.end or seen.job is None or seen.job.state.ended:
            return _end(hold, seen, HoldPhase.DONE, "the slot is over")
        return HoldStep(hold)
    if seen.refused:
        return _end(hold, seen, HoldPhase.FAILED, seen.refused)
    began = _began(seen)
    if began is not None and began <= wanted.start:
        idle = idle_cost(wanted.nodes, wanted.start, began) * wanted.node_second
        entries = (LedgerEntry("charge", wanted.base), LedgerEntry("idle", idle))
        return HoldStep(replace(hold, phase=HoldPhase.HELD, used="VAR"), (), entries)
    if now >= wanted.start or (seen.job is not None and seen.job.state.ended):
        return _end(hold, seen, HoldPhase.FAILED, "the job did not begin before the slot")
    return HoldStep(hold, (Act.SUBMIT,) if seen.job is None and hold.job is None else ())


def _combined(hold: Hold, seen: Seen, now: float) -> HoldStep:
    """Figure 45, once the reservation is held: is the job there in time, and cheaper?"""
    wanted = hold.wanted
    if wanted.f == 0 or wanted.submit_at is None:
        return HoldStep(replace(hold, used="AR"))
    if not hold.job_asked:
        if now >= wanted.start:
            return HoldStep(replace(hold, used="AR"))
        return HoldStep(hold) if now < wanted.submit_at else HoldStep(replace(hold, job_asked=True), (Act.SUBMIT,))
    if seen.refused:
        return HoldStep(replace(hold, used="AR", reason=f"no idle job: {seen.refused}"))
    began = _began(seen)
    if began is not None and began <= wanted.start and not _died(hold, seen, now):
        price = wanted.node_second
        found = combine(wanted.nodes, wanted.start, wanted.f / price, wanted.penalty, began)
        if found.use == "VAR":
            idle = idle_cost(wanted.nodes, wanted.start, began) * price
            entries = (
                LedgerEntry("refund", -wanted.f),
                LedgerEntry("penalty", cancelling(wanted.f, wanted.penalty)),
                LedgerEntry("idle", idle),
            )
            kept = replace(hold, used="VAR", reason="the idle job is cheaper than the reservation")
            return HoldStep(kept, (Act.UNRESERVE,), entries)
        return HoldStep(replace(hold, used="AR", reason="the reservation is cheaper than the idle job"), (Act.CANCEL,))
    if now >= wanted.start or (seen.job is not None and seen.job.state.ended):
        return HoldStep(replace(hold, used="AR", reason="the idle job did not begin in time"), (Act.CANCEL,))
    return HoldStep(hold, (Act.SUBMIT,) if hold.job is None else ())


def _give_up(hold: Hold, seen: Seen, now: float) -> HoldStep:
    """The user cancels: before the begin the price of delays comes back but for the penalty, and so does the rest."""
    wanted = hold.wanted
    entries: tuple[LedgerEntry, ...] = ()
    if hold.phase is HoldPhase.HELD and hold.used != "VAR" and now < wanted.start:
        refund = LedgerEntry("refund", -(wanted.base + wanted.f))
        entries = (refund, LedgerEntry("penalty", cancelling(wanted.f, wanted.penalty)))
    done = _end(hold, seen, HoldPhase.CANCELLED, "cancelled by its user")
    return HoldStep(done.hold, done.acts, entries)


def _end(hold: Hold, seen: Seen, phase: HoldPhase, reason: str) -> HoldStep:
    ended = replace(hold, phase=phase, reason=reason)
    return HoldStep(ended, _leftovers(ended, seen))


def _leftovers(hold: Hold, seen: Seen) -> tuple[Act, ...]:
    # First the request: nobody shall grant what is given up, and only an operator can drop the reservation.
    acts = [Act.DROP_REQUEST] if hold.requested else []
    if seen.reservation is not None:
        acts.append(Act.UNRESERVE)
    if seen.job is not None and not seen.job.state.ended:
        acts.append(Act.CANCEL)
    return tuple(acts)


def _superseded(hold: Hold, seen: Seen) -> tuple[Act, ...]:
    """What is held beside that which was decided for: the agent may be killed before it has given it back."""
    if hold.used == "VAR" and seen.reservation is not None:
        return (Act.UNRESERVE,)
    if hold.used == "AR" and seen.job is not None and not seen.job.state.ended:
        return (Act.CANCEL,)
    return (Act.DROP_REQUEST,) if hold.requested else ()


def _began(seen: Seen) -> float | None:
    """When the idle job began to run, if it ever did."""
    job = seen.job
    if job is None or job.start is None or not (job.running or job.state.ended):
        return None
    # Of a job that ended without having run Slurm says that it started when it ended.
    return None if job.state.ended and (job.end is None or job.start >= job.end) else job.start


def _died(hold: Hold, seen: Seen, now: float) -> bool:
    """Whether the idle job, which had begun, ended before the slot began. One not seen later may have done its work."""
    job, start = seen.job, hold.wanted.start
    if job is None:
        return now < start
    return job.state.ended and (now if job.end is None else job.end) < start

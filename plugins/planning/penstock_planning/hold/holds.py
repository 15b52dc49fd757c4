"""Does what `provision.holding` says: looks, steps, stores, has the executor act; one pass after the other."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from penstock.api import Decision, Job, JobSpec, Reason, Reservation, ReservationSpec, Verb
from penstock.core.acts import AskOperator, KnownJob, MoveReservation, Reserve, SlurmAct, SubmitJob, Unreserve
from penstock.core.executor import Concern, Executor, Payload
from penstock.errors import (
    Infeasible,
    LeftAlone,
    NotNow,
    NotPermitted,
    OutcomeUnknown,
    SlurmUnavailable,
    StoreError,
    UserError,
)
from penstock.slurm.base import Reader
from penstock_planning.hold import requests
from penstock_planning.hold.ledger import Ledger
from penstock_planning.plan.holding import Act, Hold, HoldPhase, Limits, Seen, WantedSlot, step

__all__ = ["NOT_PERMITTED", "Holds", "RequestFolder", "ReservationView"]

NOT_PERMITTED: Final = "not permitted"
"""What the reason of a hold begins with that needs more rights than its user has."""

_PURGE: Final = 10
"""Minutes after which Slurm drops a reservation that nobody uses."""
_MOVED: Final = 61.0
"""Seconds by which a reservation begins at another time than was asked for, and not only at a whole minute."""
_FURTHEST: Final = 8
_VERBS: Final = {Act.RESERVE: Verb.RESERVE, Act.UNRESERVE: Verb.UNRESERVE, Act.SUBMIT: Verb.SUBMIT}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RequestFolder:
    """Where requests go, and the key that signs them."""

    folder: Path
    key: bytes


class ReservationView:
    """What Slurm has of reservations and jobs: looked at once for a pass, however many slots it goes through, and again
    after a change of which only Slurm knows what has become."""

    def __init__(self, backend: Reader) -> None:
        self._backend = backend
        self._reservations: dict[str, Reservation] | None = None
        self._jobs: dict[int, Job] | None = None
        self._size: int | None = None

    async def reservations(self) -> Mapping[str, Reservation]:
        """All, by name."""
        if self._reservations is None:
            self._reservations = {r.name: r for r in await self._backend.reservations()}
        return self._reservations

    async def job(self, number: int) -> Job | None:
        """The job, if Slurm has it in memory."""
        if self._jobs is None:
            self._jobs = {job.id: job for job in await self._backend.jobs()}
        return self._jobs.get(number)

    async def size(self) -> int:
        """How many nodes there are."""
        if self._size is None:
            self._size = len(await self._backend.nodes())
        return self._size

    def made(self, reservation: Reservation) -> None:
        """There is one more."""
        if self._reservations is not None:
            self._reservations[reservation.name] = reservation

    def dropped(self, name: str) -> None:
        """There is this one no more."""
        if self._reservations is not None:
            self._reservations.pop(name, None)

    def forget(self) -> None:
        """Something else has changed, or may have."""
        self._reservations = self._jobs = None


class Holds:
    """Holds slots of one cluster, with one ledger. Who opens several gives each call the same `view`."""

    def __init__(
        self,
        backend: Reader,
        executor: Executor,
        ledger: Ledger,
        limits: Limits | None = None,
        requested: RequestFolder | None = None,
    ) -> None:
        self._backend = backend
        self._executor = executor
        self._ledger = ledger
        self.limits = limits or Limits()
        self._requested = requested

    def view(self) -> ReservationView:
        """What will be seen of Slurm in one pass over several slots."""
        return ReservationView(self._backend)

    async def open(self, wanted: WantedSlot, view: ReservationView | None = None, exchange: bool = False) -> int:
        """Check a wanted slot against the site's limits and the budget, store it and take the first steps; its number.
        An `exchange` takes the place of another one. Raises Infeasible for what is not allowed, LeftAlone where
        it is paused; what Slurm refuses is in the hold's `reason`."""
        self._executor.check(_concern(wanted))
        view = view or self.view()
        until = wanted.end + wanted.margin
        reservations = (await view.reservations()).values()
        taken = {n for r in reservations if r.start < until and r.end > wanted.start for n in r.nodes}
        mine = [h for h in self._ledger.holds().values() if h.wanted.user == wanted.user and not h.phase.final]
        self.limits.check(wanted, self._backend.now(), await view.size(), len(taken), len(mine), exchange)
        if any(h.wanted.name == wanted.name for h in self._ledger.holds().values()):
            raise Infeasible(f"there is a hold called {wanted.name} already")
        number = self._ledger.open_hold(Hold(wanted))
        await self.advance(number, view)
        return number

    async def cancel(self, number: int) -> Hold:
        """Give a slot up; the hold as it is then."""
        hold = self._ledger.hold(number)
        if not hold.phase.final:
            self._ledger.store(number, replace(hold, giving_up=True), (), self._backend.now())
            told = Reason("given-up", "it is given up")
            self._executor.record(Decision(Verb.CANCEL, f"hold {number}", (told,)))
        return await self.advance(number)

    async def move(self, number: int, start: float, nodes: Sequence[str]) -> Hold:
        """Have a slot that is held begin at another instant, on these nodes; the hold as it is then. Raises NotNow or
        Infeasible where that cannot be, and then it is as it was."""
        hold = self._ledger.hold(number)
        wanted = hold.wanted
        length = wanted.duration + wanted.margin
        payload: Payload = {"slot": wanted.name, "start": start, "nodes": ",".join(nodes)}
        act = MoveReservation(wanted.name, start, length, tuple(nodes))
        moved = await self._executor.act(act, f"hold {number}", payload, _concern(wanted))
        return self._adopt(number, hold, moved)

    def _adopt(self, number: int, hold: Hold, seen: Reservation) -> Hold:
        """The hold is where its reservation is: an answer may be late, or an operator may have moved it."""
        wanted = replace(hold.wanted, start=seen.start, nodelist=tuple(seen.nodes))
        hold = replace(hold, wanted=wanted)
        self._ledger.store(number, hold, (), self._backend.now())
        return hold

    async def tick(self) -> dict[int, Hold]:
        """One pass over all that is not settled."""
        view = self.view()
        return {number: await self.advance(number, view) for number in self._ledger.holds()}

    async def advance(self, number: int, view: ReservationView | None = None) -> Hold:
        """Step one hold until nothing is left to do now."""
        view, refused = view or self.view(), ""
        done: tuple[Act, ...] = ()
        for _ in range(_FURTHEST):
            hold = self._ledger.hold(number)
            seen = replace(await self._look(hold, view), refused=refused)
            made = seen.reservation
            if made is not None and hold.phase is HoldPhase.HELD and abs(made.start - hold.wanted.start) > _MOVED:
                hold = self._adopt(number, hold, made)
            found = step(hold, seen, self._backend.now())
            if found.hold != hold or found.entries:
                self._ledger.store(number, found.hold, found.entries, self._backend.now())
            elif not found.acts or found.acts == done:
                return hold  # what Slurm has still to take in is looked at in the next pass
            refused, done = "", found.acts
            for act in found.acts:
                try:
                    await self._do(act, number, found.hold, view)
                except LeftAlone as why:
                    self._executor.record(Decision(Verb.HOLD, f"hold {number}", (Reason("left-alone", str(why)),)))
                    return self._ledger.hold(number)
                except (SlurmUnavailable, OutcomeUnknown):
                    view.forget()
                    return found.hold  # the next pass looks what became of it
                except (Infeasible, NotPermitted, NotNow, UserError) as error:
                    view.forget()
                    later = isinstance(error, NotNow) and act is not Act.RESERVE
                    if act in (Act.RESERVE, Act.WRITE_REQUEST, Act.SUBMIT) and not later:
                        refused = f"{NOT_PERMITTED}: {error}" if isinstance(error, NotPermitted) else str(error)
                    else:
                        return self._ledger.hold(number)
        return self._ledger.hold(number)

    async def _look(self, hold: Hold, view: ReservationView) -> Seen:
        name = hold.wanted.name
        reservation: Reservation | None = None
        if hold.wanted.method != "var":
            reservation = (await view.reservations()).get(name)
        job: Job | None = None
        if hold.job_asked:
            number = hold.job
            if number is None:
                found = await self._backend.find(name)
                number = found[-1] if found else None
            if number is not None:
                job = await view.job(number)
        return Seen(reservation, job)

    async def _do(self, act: Act, number: int, hold: Hold, view: ReservationView) -> None:
        wanted, backend = hold.wanted, self._backend
        if act is Act.RESERVE:
            spec = self._spec(wanted)
            view.made(await self._act(act, number, hold, Reserve(spec)))
        elif act is Act.UNRESERVE:
            await self._act(act, number, hold, Unreserve(wanted.name))
            view.dropped(wanted.name)
        elif act is Act.SUBMIT:
            if not await backend.find(wanted.name):
                view.forget()
                job = await self._act(act, number, hold, SubmitJob(_idle_job(wanted)))
                self._ledger.store(number, replace(hold, job=job), (), backend.now())
        elif act is Act.CANCEL:
            for job in await backend.find(wanted.name):
                view.forget()
                known = KnownJob.named(job, os.geteuid(), wanted.name)
                await self._executor.cancel(known, f"hold {number}", _concern(wanted))
        elif act is Act.WRITE_REQUEST:
            await self._act(act, number, hold, AskOperator(lambda: self._request(number, hold)))
        else:
            if self._requested is not None:
                requests.drop(self._requested.folder, wanted.name)
            self._ledger.store(number, replace(hold, requested=False), (), backend.now())

    async def _act(self, act: Act, number: int, hold: Hold, asked: SlurmAct[T]) -> T:
        wanted = hold.wanted
        payload: Payload = {"slot": wanted.name, "nodes": wanted.nodes}
        concern = replace(_concern(wanted), ends=act is Act.UNRESERVE)
        answer = await self._executor.act(asked, f"hold {number}", payload, concern)
        if act in _VERBS:
            why = hold.reason or f"the slot {wanted.name}, {hold.phase}"
            self._executor.record(Decision(_VERBS[act], f"hold {number}", (Reason(act.value, why),)))
        return answer

    def _request(self, number: int, hold: Hold) -> None:
        if self._requested is None:
            raise NotPermitted("`provision.requests` is not set, or you may not read the key (`provision.request_key`)")
        wanted, now = hold.wanted, self._backend.now()
        price = wanted.base + wanted.f
        try:
            requests.write(self._requested.folder, self._requested.key, self._spec(wanted), wanted.account, price)
        except StoreError as error:
            self._ledger.store(number, replace(hold, reason=str(error)), (), now)
            raise NotNow(str(error)) from error
        self._ledger.store(number, replace(hold, requested=True, reason=""), (), now)

    @staticmethod
    def _spec(wanted: WantedSlot) -> ReservationSpec:
        flags = (f"PURGE_COMP={_PURGE}",)
        length = wanted.duration + wanted.margin
        return ReservationSpec(
            wanted.name,
            wanted.start,
            length,
            wanted.nodes,
            wanted.partition,
            users=(wanted.user,),
            flags=flags,
            nodelist=wanted.nodelist,
        )


def _concern(wanted: WantedSlot) -> Concern:
    # Whoever holds slots does so for themselves: the ledger is theirs, and so are the jobs.
    return Concern("slots", os.geteuid(), (wanted.partition,), (wanted.account,))


# It leaves the pool by itself before. If it has not, what the pool still runs ends as if the allocation did, and is
# tried again elsewhere. If even that hangs, the slot's own work begins all the same.
_MEANWHILE: Final = """\
  {command} --left "$left" </dev/null &
  meanwhile=$!
  sleep "$left"
  if kill "$meanwhile" 2>/dev/null; then
    (sleep 30; kill -9 "$meanwhile") 2>/dev/null &
    wait "$meanwhile"
    kill $! 2>/dev/null
  fi
"""


def _idle_job(wanted: WantedSlot) -> JobSpec:
    """A job that idles, or works for a pool, until the slot begins, and then does its own work."""
    until = _MEANWHILE.replace("{command}", wanted.meanwhile) if wanted.meanwhile else '  sleep "$left"\n'
    script = (
        "#!/bin/sh\n"
        f"left=$(( {int(wanted.start)} - $(date +%s) ))\n"
        f'if [ "$left" -gt 0 ]; then\n{until}fi\n'
        f"{wanted.command or 'sleep infinity'}\n"
    )
    return JobSpec(wanted.name, script, wanted.nodes, wanted.run_time, wanted.partition, workdir=wanted.workdir or None)

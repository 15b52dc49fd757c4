"""Reservations: nodes kept for some users from a start to an end, made and undone as Slurm does it.

Nodes are chosen and pinned at once, the first ones that neither a running job (by its limit) nor another reservation
has in that time; jobs that wait do not count. Others' jobs are planned around them. Jobs that ask for the reservation
run on its nodes and in its time only, or with FLEX anywhere and any time, preferably there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.api import Reservation, ReservationSpec
from penstock.errors import Infeasible, NotNow, PenstockError
from penstock.future.bits import BitProfile, NodeBits, lowest
from penstock.slurm.parse import parse_limit

__all__ = ["Held", "Reservations"]

_FLAGS = frozenset(
    {"ANY_NODES", "DAILY", "FLEX", "FIRST_CORES", "HOURLY", "IGNORE_JOBS", "LICENSE_ONLY", "MAGNETIC", "MAINT"}
    | {"NO_HOLD_JOBS_AFTER", "NO_HOLD_JOBS_AFTER_END", "OVERLAP", "PART_NODES", "PURGE_COMP", "REPLACE"}
    | {"REPLACE_DOWN", "STATIC_ALLOC", "TIME_FLOAT", "USER_DELETE", "WEEKDAY", "WEEKEND", "WEEKLY"}
)
_PURGE_AFTER = 300.0  # Slurm's default
_YEAR = 365 * 86400.0  # what Slurm makes of a duration without end
_PATIENCE = 600.0  # so far may a start lie in the past when the request arrives (MAX_RESV_DELAY)


@dataclass(slots=True)
class Held:
    """A reservation as the controller keeps it; `mask` are its nodes. `purge` is how long it may be idle."""

    spec: ReservationSpec
    start: float
    end: float
    nodes: tuple[str, ...]
    mask: int
    flags: frozenset[str]
    purge: float = math.inf
    idle_since: float = 0.0

    @property
    def flex(self) -> bool:
        """Whether its jobs may run outside of it, too."""
        return "FLEX" in self.flags

    @property
    def holds_jobs(self) -> bool:
        """Whether jobs that still wait for it at its end are held."""
        return not any(flag.startswith("NO_HOLD_JOBS_AFTER") for flag in self.flags)

    def admits(self, user: str, account: str) -> bool:
        """Whether a job of this user and account may ask for it."""
        return _named(user, self.spec.users) or _named(account, self.spec.accounts)

    def view(self, now: float) -> Reservation:
        """What `scontrol show reservations` would say."""
        return Reservation(
            name=self.spec.name,
            start=self.start,
            end=self.end,
            nodes=self.nodes,
            users=frozenset(self.spec.users),
            accounts=frozenset(self.spec.accounts),
            flags=self.flags,
            active=self.start <= now < self.end,
            partition=self.spec.partition or "",
        )


def _named(name: str, names: tuple[str, ...]) -> bool:
    """Whether the list lets the name in: names with a minus are shut out, and then everybody else is let in."""
    if any(n.startswith("-") for n in names):
        return f"-{name}" not in names
    return name in names


class Reservations:
    """All reservations of a cluster that have not ended."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}

    def __iter__(self) -> Iterator[Held]:
        return iter(list(self._held.values()))

    def __bool__(self) -> bool:
        return bool(self._held)

    def get(self, name: str) -> Held | None:
        """The reservation of this name."""
        return self._held.get(name)

    def remove(self, held: Held) -> None:
        """It has ended or was deleted."""
        del self._held[held.spec.name]

    def move(
        self, held: Held, spec: ReservationSpec, now: float, bits: NodeBits, running: BitProfile, within: int
    ) -> Held:
        """What takes the place of one that has not begun; raises as `add`, and then all is as it was."""
        del self._held[held.spec.name]
        try:
            return self.add(spec, now, bits, running, within)
        except PenstockError:
            self._held[held.spec.name] = held
            raise

    def add(self, spec: ReservationSpec, now: float, bits: NodeBits, running: BitProfile, within: int) -> Held:
        """Create one on nodes of `within` that are free in `running`, a profile that knows the running jobs.

        Raises `Infeasible` and `NotNow` with Slurm's words.
        """
        flags, purge = _flags(spec.flags)
        duration = _YEAR if spec.duration == math.inf else 60.0 * math.ceil(spec.duration / 60.0)
        if not (spec.users or spec.accounts):
            raise Infeasible("Either Users/Groups and/or Accounts must be specified.  No reservation created.")
        if spec.name in self._held:
            raise Infeasible("Error creating the reservation: Duplicate reservation name")
        if spec.start < now - _PATIENCE or not duration > 0:
            raise Infeasible("Error creating the reservation: Invalid time specified")
        if not 0 < spec.nodes <= within.bit_count():
            raise Infeasible("Error creating the reservation: Requested node configuration is not available")
        start = max(spec.start, now)
        free = running.common(start, start + duration, within)
        for other in self._held.values():
            if other.start < start + duration and start < other.end:
                free &= ~other.mask
        if spec.nodelist:
            if not set(spec.nodelist) <= set(bits.named(within)):
                raise Infeasible("Error creating the reservation: Invalid node name specified")
            free &= bits.mask(spec.nodelist)
        if free.bit_count() < spec.nodes:
            raise NotNow("Error creating the reservation: Requested nodes are busy")
        mask = lowest(free, spec.nodes)
        held = Held(spec, start, start + duration, bits.named(mask), mask, flags, purge, start)
        self._held[spec.name] = held
        return held


def _flags(flags: tuple[str, ...]) -> tuple[frozenset[str], float]:
    """The flags as scontrol shows them, and how long the reservation may be idle."""
    purge, shown = math.inf, set[str]()
    for flag in flags:
        name, _, value = flag.upper().partition("=")
        if name not in _FLAGS or (value and name != "PURGE_COMP"):
            raise Infeasible(f"Error parsing flags {flag}.  No reservation created.")
        if name == "PURGE_COMP":
            purge = _seconds(value) if value else _PURGE_AFTER
            flag = f"PURGE_COMP={_clock(purge)}"
        shown.add(flag.upper())
    return frozenset(shown), purge


def _seconds(text: str) -> float:
    """Slurm's time specification; a number alone is minutes [run on 22.05.8]."""
    try:
        seconds = parse_limit(text)
    except ValueError:
        seconds = None
    if seconds is None:
        raise Infeasible(f"Error parsing flags PURGE_COMP={text}.  No reservation created.")
    return seconds


def _clock(seconds: float) -> str:
    """As Slurm shows a duration: D-HH:MM:SS."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hour:02}:{minute:02}:{second:02}"

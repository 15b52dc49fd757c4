"""What the executor can be asked to do to Slurm, as values: the only module besides it that names a `Changer`.

An act says which job it changes (`KnownJob`: a number alone is no identity) and what that job gets by it that it did
not have (`Wish`, None: nothing). The executor checks both, by a look younger than a second, before it carries the act
out. So what is not written here cannot be done, and what is written here cannot be done unchecked.

Slurm itself judges what is submitted and what starts, as own requests of a user: `SubmitJob`, a release and a new
dependency give nothing by themselves. It does not judge again what an Operator sets, nor the limit of a job that runs:
these acts have a wish.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeVar

from penstock.api import FAR, Allocation, Job, JobSpec, Reservation, ReservationSpec
from penstock.core.ownlimits import Extension, Growth, Joining, Shape, Wish
from penstock.slurm.base import Changer

__all__ = [
    "AskLauncher",
    "AskOperator",
    "CancelJob",
    "Expand",
    "HoldJob",
    "KnownJob",
    "MergeNodes",
    "Mold",
    "MoveReservation",
    "PutIntoReservation",
    "PutOff",
    "Rank",
    "ReleaseJob",
    "RequeueJob",
    "Reserve",
    "Retarget",
    "SetLimit",
    "ShrinkNodes",
    "Signal",
    "SlurmAct",
    "SubmitJob",
    "Unreserve",
    "bears_name",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_NOW: Final = "now"


@dataclass(frozen=True, slots=True)
class KnownJob:
    """One job, which no other can be taken for: slurmctld gives numbers out again after a crash.

    `submit` is Slurm's submission time (epoch s) in the look that it was decided on; None where no look has shown it
    yet: then `name` is the name that it was given. A requeue moves the time, and raises Slurm's count of `restarts`:
    under its name it is the same job then. `uid` is its user's.
    """

    number: int
    uid: int
    submit: float | None = None
    name: str = ""
    restarts: int = 0

    @classmethod
    def of(cls, job: Job) -> KnownJob:
        """As a look shows it."""
        return cls(job.id, job.uid, job.submit, restarts=job.restarts)

    @classmethod
    def named(cls, number: int, uid: int, name: str) -> KnownJob:
        """By the unique name that it was given."""
        return cls(number, uid, None, name)


def bears_name(number: int, rows: Sequence[Job], named: Collection[int]) -> bool:
    """Whether these rows of a job's number are what has its name: `named` are the jobs that Slurm finds by that, of an
    array the tasks that have begun each by itself."""
    return number in named or any(row.id in named for row in rows)


class SlurmAct(Protocol[T_co]):
    """Something that is done to Slurm."""

    @property
    def verb(self) -> str:
        """What the journal and the audit trail call it."""
        ...

    @property
    def job(self) -> KnownJob | None:
        """The job that it changes; None: none yet."""
        ...

    @property
    def wish(self) -> Wish | None:
        """What that job gets by it; None: nothing that Slurm would not judge by itself."""
        ...

    @property
    def companions(self) -> tuple[int, ...]:
        """The numbers of the jobs that hold nodes for it already, which count with it."""
        ...

    async def carry_out(self, slurm: Changer) -> T_co:
        """Do it. Raises what the `Changer` does."""
        ...


@dataclass(frozen=True, slots=True)
class _Plain:
    """An act that changes no job and gives none anything."""

    job: ClassVar[KnownJob | None] = None
    wish: ClassVar[Wish | None] = None
    companions: ClassVar[tuple[int, ...]] = ()


@dataclass(frozen=True, slots=True)
class _OnJob:
    """An act on a job, which gives it nothing."""

    wish: ClassVar[Wish | None] = None
    companions: ClassVar[tuple[int, ...]] = ()
    job: KnownJob


# -- new jobs ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SubmitJob(_Plain):
    """Submit a batch job as the caller; its number."""

    verb: ClassVar[str] = "submit"
    spec: JobSpec

    async def carry_out(self, slurm: Changer) -> int:
        """See `Changer.submit`."""
        return await slurm.submit(self.spec)


@dataclass(frozen=True, slots=True)
class Expand:
    """Ask for the nodes that a running job grows onto; the number of the job that holds them. `companions` are the
    numbers of those that it has already."""

    verb: ClassVar[str] = "expand"
    job: KnownJob
    spec: Allocation
    patience: float
    wish: Growth
    companions: tuple[int, ...] = ()

    async def carry_out(self, slurm: Changer) -> int:
        """See `Changer.allocate`."""
        return await slurm.allocate(self.spec, self.patience)


@dataclass(frozen=True, slots=True)
class AskLauncher:
    """Have the launcher of a running job ask for the nodes that it grows onto, as its owner: `give` hands it the
    request, which Slurm judges by itself."""

    verb: ClassVar[str] = "ask the launcher"
    job: KnownJob
    give: Callable[[], None]
    wish: Growth
    companions: tuple[int, ...] = ()

    async def carry_out(self, _slurm: Changer) -> None:
        """Leave the request for it."""
        self.give()


# -- jobs that wait ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mold:
    """A job that waits asks for another size from now on."""

    verb: ClassVar[str] = "mold"
    companions: ClassVar[tuple[int, ...]] = ()
    job: KnownJob
    wish: Shape

    async def carry_out(self, slurm: Changer) -> None:
        """See `Changer.update`."""
        await slurm.update(self.job.number, nodes=self.wish.nodes, time_limit=self.wish.time_limit)


@dataclass(frozen=True, slots=True)
class ReleaseJob(_OnJob):
    """Let a job go that the agent, or its owner for the agent, has kept back: by a begin time, or (`hold`) by a hold.
    `reset_age`: it ages from now on."""

    verb: ClassVar[str] = "release"
    hold: bool = False
    reset_age: bool = False

    async def carry_out(self, slurm: Changer) -> None:
        """A begin time is brought forward, which leaves a hold as it is that was put on since the last look."""
        if self.hold:
            await slurm.release(self.job.number)
        else:
            await slurm.update(self.job.number, begin=_NOW, reset_age=self.reset_age)


@dataclass(frozen=True, slots=True)
class PutOff(_OnJob):
    """Keep a job of the caller's from starting by the begin time that does not come."""

    verb: ClassVar[str] = "put off"

    async def carry_out(self, slurm: Changer) -> None:
        """See `Changer.update`."""
        await slurm.update(self.job.number, begin=FAR)


@dataclass(frozen=True, slots=True)
class HoldJob(_OnJob):
    """Keep what waits of an array of the caller's from starting."""

    verb: ClassVar[str] = "hold"

    async def carry_out(self, slurm: Changer) -> None:
        """See `Changer.hold`."""
        await slurm.hold(self.job.number)


@dataclass(frozen=True, slots=True)
class Retarget(_OnJob):
    """What a job waits for: other jobs, nodes, or both. Empty: nothing any more, None: as it is."""

    verb: ClassVar[str] = "change"
    dependency: str | None = None
    nodelist: Collection[str] | None = None

    async def carry_out(self, slurm: Changer) -> None:
        """See `Changer.update`."""
        await slurm.update(self.job.number, dependency=self.dependency, nodelist=self.nodelist)


@dataclass(frozen=True, slots=True)
class Rank(_OnJob):
    """How much is taken off the priority of a job that waits."""

    verb: ClassVar[str] = "reorder"
    nice: int = 0

    async def carry_out(self, slurm: Changer) -> None:
        """See `Changer.update`."""
        await slurm.update(self.job.number, nice=self.nice)


@dataclass(frozen=True, slots=True)
class PutIntoReservation(_OnJob):
    """Have a job of the caller's run in a reservation of the caller's; empty: in none."""

    verb: ClassVar[str] = "change"
    reservation: str = ""

    async def carry_out(self, slurm: Changer) -> None:
        """See `Changer.update`."""
        await slurm.update(self.job.number, reservation=self.reservation)


# -- jobs that run -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MergeNodes:
    """Move the nodes of the allocation `resizer` into the running job."""

    verb: ClassVar[str] = "merge"
    job: KnownJob
    resizer: int
    wish: Joining
    companions: tuple[int, ...] = ()

    async def carry_out(self, slurm: Changer) -> None:
        """See `Changer.merge`."""
        await slurm.merge(self.resizer, self.job.number)


@dataclass(frozen=True, slots=True)
class ShrinkNodes(_OnJob):
    """Give back every node that is not in `keep`."""

    verb: ClassVar[str] = "shrink"
    keep: tuple[str, ...]

    async def carry_out(self, slurm: Changer) -> None:
        """See `Changer.shrink`."""
        await slurm.shrink(self.job.number, self.keep)


@dataclass(frozen=True, slots=True)
class SetLimit:
    """Another time limit for a running job; `raises` only says which of the two verbs it is. `companions` are the
    numbers of those that count with it."""

    job: KnownJob
    wish: Extension
    raises: bool = True
    companions: tuple[int, ...] = ()

    @property
    def verb(self) -> str:
        """Of the journal."""
        return "extend" if self.raises else "lower"

    async def carry_out(self, slurm: Changer) -> None:
        """See `Changer.update`."""
        await slurm.update(self.job.number, time_limit=self.wish.time_limit)


@dataclass(frozen=True, slots=True)
class Signal(_OnJob):
    """Send a signal to the script of a running job."""

    verb: ClassVar[str] = "signal"
    number: int

    async def carry_out(self, slurm: Changer) -> None:
        """See `Changer.signal`."""
        await slurm.signal(self.job.number, self.number)


@dataclass(frozen=True, slots=True)
class RequeueJob(_OnJob):
    """Put a running job back into the queue."""

    verb: ClassVar[str] = "requeue"

    async def carry_out(self, slurm: Changer) -> None:
        """See `Changer.requeue`."""
        await slurm.requeue(self.job.number)


@dataclass(frozen=True, slots=True)
class CancelJob(_OnJob):
    """End a job, or these `tasks` of an array alone."""

    verb: ClassVar[str] = "cancel"
    tasks: tuple[int, ...] = ()

    async def carry_out(self, slurm: Changer) -> None:
        """See `Changer.cancel`."""
        await slurm.cancel(self.job.number, self.tasks)


# -- reservations ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reserve(_Plain):
    """Make a reservation, which Slurm grants to operators alone; how it became."""

    verb: ClassVar[str] = "reserve"
    spec: ReservationSpec

    async def carry_out(self, slurm: Changer) -> Reservation:
        """See `Changer.reserve`."""
        return await slurm.reserve(self.spec)


@dataclass(frozen=True, slots=True)
class MoveReservation(_Plain):
    """Have a reservation that has not begun begin at another instant, on these nodes; how it is then."""

    verb: ClassVar[str] = "change"
    name: str
    start: float
    duration: float
    nodes: tuple[str, ...]

    async def carry_out(self, slurm: Changer) -> Reservation:
        """See `Changer.move_reservation`."""
        return await slurm.move_reservation(self.name, self.start, self.duration, self.nodes)


@dataclass(frozen=True, slots=True)
class Unreserve(_Plain):
    """Delete a reservation."""

    verb: ClassVar[str] = "unreserve"
    name: str

    async def carry_out(self, slurm: Changer) -> None:
        """See `Changer.unreserve`."""
        await slurm.unreserve(self.name)


@dataclass(frozen=True, slots=True)
class AskOperator(_Plain):
    """Leave a request for a reservation where an operator finds it (`write`)."""

    verb: ClassVar[str] = "write request"
    write: Callable[[], None]

    async def carry_out(self, _slurm: Changer) -> None:
        """Write it."""
        self.write()

"""The Protocols of a backend, and what every call guarantees. `tests/contract/` holds each sentence to it.

`Reader` is what looks, and is handed to everyone. `Changer` is what changes Slurm, and is handed to the executor alone,
so that whatever acts beside the executor does not type-check. `Backend` is both: what a back end has to have, and what
the parts that put the program together make.

All calls are coroutines. Each either returns, or raises within the backend's time limit:
`Infeasible` (never repeat), `NotFound`, `NotPermitted`, `SlurmUnavailable` (nothing was changed, or the call only
read), `OutcomeUnknown` (a changing call whose answer was lost: read back before repeating).
A backend acts as one user (`whoami`); Slurm itself decides what that user may do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from penstock.api import (
    AccountingRecord,
    Allocation,
    Job,
    JobSpec,
    JobTexts,
    License,
    Node,
    NodeNeeds,
    Owner,
    OwnerLimits,
    Partition,
    Reservation,
    ReservationSpec,
    SiteConfig,
    StartEstimate,
    Step,
)
from penstock.errors import NotPermitted

__all__ = ["Backend", "Changer", "NotOffered", "Reader"]


class NotOffered(NotPermitted):
    """This backend cannot do it, and no command may."""

    def __init__(self, text: str) -> None:
        super().__init__(text, by_setting=True)


class Reader(Protocol):
    """One cluster, seen as one user."""

    name: str

    def now(self) -> float:
        """The cluster's clock: real time, or the simulation's."""
        ...

    def whoami(self) -> str:
        """The user name that requests are made as."""
        ...

    async def site(self) -> SiteConfig:
        """The cluster's settings. Cheap to call once; callers keep the answer until reload."""
        ...

    async def operators(self) -> frozenset[str]:
        """Login names of those whom accounting calls operators or administrators, as far as the caller may see; nobody
        where there is no accounting."""
        ...

    async def jobs(self) -> Sequence[Job]:
        """Every job in the controller's memory, all users, one request. A job that ended a moment ago is listed with
        its final state until Slurm forgets it (MinJobAge); a job that is not listed may have ended or never existed.
        `start` of a pending job is Slurm's own estimate, the same as `squeue --start` shows."""
        ...

    async def nodes(self) -> Sequence[Node]:
        """Every node, one request."""
        ...

    async def partitions(self) -> Sequence[Partition]:
        """Every partition with its limits, one request."""
        ...

    async def reservations(self) -> Sequence[Reservation]:
        """Every reservation, one request. Slurm drops one within seconds of its end, if no job is left in it."""
        ...

    async def licenses(self) -> Sequence[License]:
        """Every licence of the cluster with its use, one request."""
        ...

    async def shares(self) -> Mapping[str, float]:
        """The caller's fair-share factor (0 to 1, more is better) in each of their accounts. Empty without
        accounting; by priority/basic they mean nothing."""
        ...

    async def limits(self, owners: Sequence[Owner]) -> Sequence[OwnerLimits]:
        """What Slurm lets each of these owners have, and what of it is in use at this moment: one for each, in their
        order, by as many requests for a hundred owners as for one. It is what slurmctld holds jobs to. Where that is
        not shown to the caller, accounting's limits stand in, whose use is not known; what nobody says is named in
        `unknown`, and is not unlimited. Whether the cluster holds anybody to them is `SiteConfig.enforced`."""
        ...

    async def charges(self, jobs: Collection[int]) -> Mapping[int, Mapping[str, float]]:
        """What each of these jobs counts for in limits by TRES ("node", "cpu", "mem" in MB, "gres/gpu"), of those in
        the controller's memory: what it holds, or while it waits what it asks for."""
        ...

    async def clusters(self) -> Sequence[str]:
        """Names of the clusters that can be reached from here, this one included, sorted. Without accounting: this
        one alone."""
        ...

    def on(self, cluster: str) -> Reader:
        """The same user's view of another cluster of this site; the cluster's first call finds out if there is one
        (`NotFound`). Closing either closes both."""
        ...

    async def texts(self, ids: Collection[int]) -> Mapping[int, JobTexts]:
        """What users wrote about these jobs, of those in the controller's memory. Heavier than `jobs`: the whole queue
        where Slurm cannot filter."""
        ...

    async def estimate(self, spec: JobSpec) -> StartEstimate:
        """When Slurm thinks that `spec` would start if it were submitted now (`sbatch --test-only`); nothing is
        submitted. `Infeasible` when it never could. `NotNow` when Slurm can name no time at present (a licence is in
        use, nodes are reserved or down), which says nothing about later. A hold, and all tasks of an array but the
        first, are left out of account."""
        ...

    async def steps(self, job: int) -> Sequence[Step]:
        """The running steps of a job, `batch` and `extern` included. No steps, or an ended job: empty."""
        ...

    async def holds_gres(self, job: int) -> bool:
        """Whether a job asked for or was given GRES (GPUs…). `NotFound` when the controller does not know it."""
        ...

    async def node_needs(self, job: int) -> NodeNeeds:
        """What each further node of a job has to have. Of GRES that it has asked for in all, for each task or socket,
        as many as that node of it has that has the most. `NotFound` when the controller does not know it."""
        ...

    async def find(self, name: str, uid: int | None = None) -> Sequence[int]:
        """Ids of the caller's own jobs, or those of user `uid`, with exactly this name in the controller's memory, any
        state, ascending. The tasks of an array that wait have the array's id, the others an id each."""
        ...

    async def history(
        self, *, ids: Collection[int] = (), name: str | None = None, since: float | None = None
    ) -> Sequence[AccountingRecord]:
        """Accounting records, one per job (the latest where a job was requeued), of the given ids, or of the caller's
        jobs with a name and/or submitted or alive after `since` (without those that never became eligible). Records may
        lag by some seconds. An array that is named by its id has one record for all its tasks: that of one which has
        not ended or else has failed, where there is such a one. RESIZING as a state means that the job lives, or was
        merged into another; such a record is no source of waits or run times."""
        ...


class Changer(Protocol):
    """One cluster, acted on as one user."""

    def on(self, cluster: str) -> Changer:
        """The same for another cluster of this site, as for `Reader`."""
        ...

    async def submit(self, spec: JobSpec) -> int:
        """Submit a batch job (an array has one id, too); its id. Not idempotent: after `OutcomeUnknown` look for
        `spec.name` with `find`."""
        ...

    async def allocate(self, spec: Allocation, patience: float) -> int:
        """Ask for nodes without a script and wait up to `patience` seconds until they are granted; the granted
        job's id. If time runs out the request is withdrawn and `NotNow` raised. Found again by `find(spec.name)`."""
        ...

    async def merge(self, resizer: int, into: int) -> None:
        """Move all nodes of the granted allocation `resizer` into the running job `into`, which ends `resizer`.
        Idempotent: when `resizer` has gone and its nodes are with `into` already, it returns. `NotNow` while `resizer`
        is still pending. A resizer merged into another job than `into` earlier is not told apart: its id is spent.
        `Infeasible`, and nothing is sent, where the update may end slurmctld (`penstock.values.merging`)."""
        ...

    async def shrink(self, job: int, keep: Collection[str]) -> None:
        """Take every node not in `keep` from the running job; processes there are killed at once. Idempotent.
        `Infeasible` when `keep` is not a part of the job's nodes or leaves out the host of its batch script."""
        ...

    async def cancel(self, job: int, tasks: Collection[int] = ()) -> None:
        """Cancel a job, or all tasks of an array by its id, or those of its `tasks` alone, running or not. Idempotent:
        an ended job is no error; `NotFound` for an id that Slurm does not know. A task that is cancelled before it
        began leaves no record of its own."""
        ...

    async def hold(self, job: int) -> None:
        """Keep a pending job from starting, or by an array's id those of its tasks that wait. Idempotent; `Infeasible`
        when it runs or has ended. What an operator holds, only an operator can release."""
        ...

    async def release(self, job: int) -> None:
        """Release a held job. Idempotent."""
        ...

    async def requeue(self, job: int) -> None:
        """Stop a running batch job and put it back into the queue under its id; an ended one that Slurm still knows,
        cancelled or not, is put back, too, and by an array's id all its tasks. Slurm starts it again two minutes later
        at the earliest. A job that waits already is no error. `Infeasible`, waiting or not, when it was submitted with
        `requeue` false, and for an allocation without a script. Not idempotent once it runs again: compare
        `restarts`."""
        ...

    async def signal(self, job: int, number: int) -> None:
        """Send a signal to the shell of a running job's batch script, and to nothing else of it. `Infeasible` when it
        does not run, or has no script."""
        ...

    async def update(
        self,
        job: int,
        *,
        time_limit: float | None = None,
        dependency: str | None = None,
        priority: int | None = None,
        begin: str | None = None,
        nodelist: Collection[str] | None = None,
        reset_age: bool = False,
        nice: int | None = None,
        nodes: int | None = None,
        reservation: str | None = None,
    ) -> None:
        """Change what is given, leave the rest. An empty `dependency` removes it; `begin` is the earliest start, also
        of a job that had none, and leaves a hold of anybody as it is; `nodelist` are the nodes it must have, none: any.
        `nice` takes so much off the
        priority that it would have (0: nothing), and it goes on ageing; no user may say less than 0 (`NotPermitted`).
        `nodes` is how many it asks for from now on, with as many processors on each as before; it keeps its place and
        its age. What it has asked for in all, such as tasks, stays.
        `reset_age`: it ages from now on (ResetAccrueTime), if it was known from when on it would; without that a job
        whose `begin` is brought forward ages from the old one. A user may lower, not raise, the priority of a job and
        the time limit of one that runs (`NotPermitted`). `reservation` is the one that it runs in, empty: in none
        (`Infeasible`: there is none of this name, `NotPermitted`: it is not for this user). Only a pending job takes
        a `dependency`, a `begin`, a `nodelist`, `nodes`, a `reservation` or `reset_age` (`Infeasible`)."""
        ...

    async def reserve(self, spec: ReservationSpec) -> Reservation:
        """Create a reservation; how it became. Operators only (`NotPermitted`). `NotNow` when the nodes are not to be
        had at that time: running jobs and other reservations keep them, jobs that wait do not. `Infeasible` for more
        nodes than the partition has, an unknown user, account, partition or flag, and a name that is taken. Not
        idempotent: after `OutcomeUnknown` look for `spec.name` among `reservations`."""
        ...

    async def move_reservation(
        self, name: str, start: float, duration: float, nodelist: Collection[str]
    ) -> Reservation:
        """Have a reservation that has not begun begin at another instant, on these nodes; how it is then. It keeps its
        name and the jobs that wait for it, and may overlap with what it was. Operators only (`NotPermitted`). `NotNow`
        when the nodes are not to be had at that time, and then it is as it was; `Infeasible` where it has begun or is
        not there. Idempotent."""
        ...

    async def unreserve(self, name: str) -> None:
        """Delete a reservation. Operators only (`NotPermitted`). Idempotent: one that is not there is no error.
        `NotNow` while a job runs in it or waits for it."""
        ...


class Backend(Reader, Changer, Protocol):
    """One cluster, seen and acted on as one user."""

    def on(self, cluster: str) -> Backend:
        """Both for another cluster of this site."""
        ...

    async def close(self) -> None:
        """Release sockets and processes. The backend is not used afterwards."""
        ...

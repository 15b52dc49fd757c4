"""The backend that speaks to a real Slurm through its commands.

Works with every release since 22.05, needs nothing but the client programs, and acts as the user it runs as. Every
request goes through `_run`. Looking is in `queries`, submitting in `submission`, reading answers in `records` and
`refusals`; this module changes what is there.
"""

from __future__ import annotations

import asyncio
import math
import pwd
import re
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Self

from penstock.api import Job, JobState, Reservation, ReservationSpec
from penstock.errors import Infeasible, NotFound, NotNow, OutcomeUnknown, PenstockError
from penstock.slurm.parse import HostListError, compress_hosts, format_minutes
from penstock.slurm.queries import checked_name
from penstock.slurm.submission import CliSubmission
from penstock.values import merging
from penstock.values.documents import show
from penstock.values.merging import Version

__all__ = ["CliBackend"]

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=:@-]*", re.ASCII)  # of a list with commas in scontrol's arguments
_SETTLE = 5.0  # seconds that Slurm may take until a resize shows in the job
_POLL = 0.2


class CliBackend(CliSubmission):
    """One cluster through Slurm's commands, as one user. The options are those of `CliQueries`, and:

    `merge_releases`: releases on which the site has tried that merging works (`penstock.values.merging`).
    """

    def __init__(self, *, merge_releases: Collection[Version] = (), **options: Any) -> None:  # noqa: ANN401 (theirs)
        super().__init__(**options)
        self._merge_releases = merge_releases

    def on(self, cluster: str) -> Self:
        """See `Backend.on`."""
        view = super().on(cluster)
        view._merge_releases = self._merge_releases
        return view

    # -- resizing -----------------------------------------------------------------------------------------------

    async def merge(self, resizer: int, into: int) -> None:
        """See `Backend.merge`. A merged resizer ends COMPLETED and without nodes, which no other job does.

        The release is asked for each time: slurmctld may have been replaced by another one since anybody looked.
        """
        if (why := merging.why_not(await self._release(), self._merge_releases)) is not None:
            raise Infeasible(f"job {resizer} is not merged into job {into}: {why}")
        target, source = await asyncio.gather(self._look(into), self._look(resizer))
        if target is None:
            raise NotFound(f"job {into}, which should take the nodes of job {resizer}, is not there")
        if source is None or source.state.ended:
            await self._assert_merged(resizer, source, target)
            return
        if not target.running:
            raise Infeasible(f"job {into} is {target.state}; only a running job can take nodes")
        if source.pending:
            raise NotNow(f"job {resizer} has not been granted its nodes yet")
        moved = set(source.nodes)
        answer: PenstockError | None = None
        try:
            await self._give_away(resizer)
        except PenstockError as error:
            # What counts is what the jobs look like, except where the answer leaves no doubt.
            if "already finished" not in str(error) and not isinstance(error, OutcomeUnknown):
                raise
            answer = error

        async def merged() -> bool:
            into_now, resizer_now = await asyncio.gather(self._look(into), self._look(resizer))
            gone = resizer_now is None or resizer_now.state.ended
            return gone and into_now is not None and moved <= set(into_now.nodes)

        if not await _soon(merged):
            raise OutcomeUnknown(f"job {resizer} was not seen to be merged into job {into}") from answer

    async def _give_away(self, resizer: int) -> None:
        await self._change(["scontrol", "update", f"jobid={int(resizer)}", "NumNodes=0"])

    async def _assert_merged(self, resizer: int, seen: Job | None, target: Job) -> None:
        """Return if the resizer that is gone was merged; raise what happened to it otherwise."""
        if seen is not None and not seen.nodes and seen.state is JobState.COMPLETED and target.running:
            return
        if seen is not None:
            raise Infeasible(f"job {resizer} has ended ({seen.state}); it has no nodes to merge")
        for record, nodes in await self._accounting([resizer], None, None):
            # A resizer's only row stays RESIZING, until a restart of the controller makes it COMPLETED on 0 nodes.
            gave_all = record.state in (JobState.RESIZING, JobState.COMPLETED) and not nodes
            if gave_all or (record.state is JobState.RESIZING and set(nodes) <= set(target.nodes)):
                return
            raise Infeasible(f"job {resizer} has ended ({record.state}); it has no nodes to merge")
        raise NotFound(f"job {resizer} is not there")

    async def shrink(self, job: int, keep: Collection[str]) -> None:
        """See `Backend.shrink`."""
        now = await self._look(job)
        if now is None:
            raise NotFound(f"job {job} is not there")
        wanted = set(keep)
        if not now.running:
            raise Infeasible(f"job {job} is {now.state}; only a running job can be shrunk")
        if not wanted or not wanted <= set(now.nodes):
            raise Infeasible(f"job {job} has {compress_hosts(now.nodes)}; that does not hold {sorted(wanted)}")
        if now.batch_host in now.nodes and now.batch_host not in wanted:
            raise Infeasible(f"job {job} must keep {now.batch_host}, where its batch script runs")
        if wanted == set(now.nodes):
            return
        try:
            survivors = compress_hosts(wanted)
        except HostListError as error:
            raise Infeasible(str(error)) from error
        await self._keep_nodes(job, survivors, wanted)

        async def shrunk() -> bool:
            seen = await self._look(job)
            return seen is not None and set(seen.nodes) == wanted

        if not await _soon(shrunk):
            raise OutcomeUnknown(f"job {job} was not seen to be shrunk to {survivors}")

    async def _keep_nodes(self, job: int, survivors: str, keep: Collection[str]) -> None:
        """Shrink the job to the nodes `keep`, as a host list `survivors`."""
        await self._change(["scontrol", "update", f"jobid={int(job)}", f"NodeList={survivors}"])

    # -- changing -----------------------------------------------------------------------------------------------

    async def hold(self, job: int) -> None:
        """See `Backend.hold`. Slurm itself would take it for a running job, too: it would forget when that became
        eligible, and hold it if it was ever requeued. It does so to the running tasks of an array that is held."""
        rows = await self._tasks(job)
        if not any(row.pending for row in rows):
            raise Infeasible(f"job {job} is {rows[0].state}; only a pending job can be held")
        await self._change(["scontrol", "hold", str(int(job))])

    async def release(self, job: int) -> None:
        """See `Backend.release`. A job that has started or ended meanwhile was released: no error."""
        await self._change(["scontrol", "release", str(int(job))], tolerated=["already finished"])

    async def requeue(self, job: int) -> None:
        """See `Backend.requeue`."""
        await self._change(["scontrol", "requeue", str(int(job))], tolerated=["Job is pending execution"])

    async def signal(self, job: int, number: int) -> None:
        """See `Backend.signal`. scancel says nothing of a job that it does not know, or that has no script."""
        seen = await self._look(job)
        if seen is None:
            raise NotFound(f"job {job} is not there")
        if not seen.running:
            raise Infeasible(f"job {job} is {seen.state}; only a running job takes a signal")
        if not seen.batch_host:
            raise Infeasible(f"job {job} has no batch script")
        await self._change(["scancel", "--batch", f"--signal={int(number)}", str(int(job))])

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
        """See `Backend.update`. Slurm keeps limits in whole minutes: rounded up. An ended job is `Infeasible`."""
        changes = []
        if time_limit is not None:
            changes.append(f"TimeLimit={format_minutes(time_limit)}")
        if dependency is not None:
            changes.append(f"Dependency={dependency}")
        if priority is not None:
            changes.append(f"Priority={int(priority)}")
        if begin is not None:
            changes.append(f"StartTime={begin}")
        if nodelist is not None:
            changes.append(f"ReqNodeList={','.join(nodelist)}")
        if reset_age:
            changes.append("ResetAccrueTime")
        if nice is not None:
            changes.append(f"Nice={int(nice)}")
        if nodes is not None:
            changes += await self._size(job, int(nodes))
        if reservation is not None:
            await self._pending(job, "be put into a reservation")  # of one that runs Slurm takes it, to no effect
            changes.append(f"ReservationName={reservation}")
        if changes:
            # "Changes to job priority are not persistent": said to a user whose change was made all the same.
            tolerated = ["are not persistent"] if priority is not None else []
            await self._change(["scontrol", "update", f"jobid={int(job)}", *changes], tolerated=tolerated)

    async def _pending(self, job: int, what: str) -> Job:
        """The job, if it waits; `what` only such a one can do."""
        seen = await self._look(job)
        if seen is None:
            raise NotFound(f"job {job} is not there")
        if not seen.pending:
            raise Infeasible(f"job {job} is {seen.state}; only a pending job can {what}")
        return seen

    async def _size(self, job: int, nodes: int) -> list[str]:
        """The words for so many nodes."""
        nodes, cpus = await self._numbers(job, nodes)
        return [f"NumNodes={nodes}-{nodes}", f"NumCPUs={cpus}"]  # one number of nodes leaves the most as it is

    async def _numbers(self, job: int, nodes: int) -> tuple[int, int]:
        """So many nodes, and the processors on them. Of more nodes than there are Slurm makes half of the change, or
        all of it and never starts the job; nor does it where the processors are left that more nodes had."""
        seen = await self._pending(job, "ask for another number of nodes")
        await self._check_size(seen.partition.partition(",")[0], nodes)
        return nodes, max(math.ceil(seen.num_cpus * nodes / max(seen.least_nodes, 1)), 1)

    # -- reservations -------------------------------------------------------------------------------------------

    async def reserve(self, spec: ReservationSpec) -> Reservation:
        """See `Backend.reserve`."""
        name = checked_name(spec.name)
        if not (spec.users or spec.accounts):
            raise Infeasible("a reservation is for somebody: users or accounts")
        if not spec.duration > 0:  # Slurm takes 0 for infinite
            raise Infeasible(f"a reservation lasts some time, not {spec.duration:g} s")
        for word in (*spec.users, *spec.accounts, *spec.flags):
            if not _WORD.fullmatch(word):
                raise Infeasible(f"not a user, account or flag of a reservation: {show(word)}")
        for user in spec.users:
            try:  # of an unknown one Slurm says "Invalid user id", as to a caller who may not do this
                pwd.getpwnam(user)
            except KeyError:
                raise Infeasible(f"there is no user {user}") from None
        if not spec.nodelist:
            await self._check_size(spec.partition, spec.nodes)  # of too many nodes it says that they are busy
        await self._create_reservation(spec)
        try:
            made = {item.name: item for item in await self.reservations()}
            if name not in made:
                raise OutcomeUnknown(f"reservation {name} was made and is not there")
            if len(made[name].nodes) >= spec.nodes:
                return made[name]
            await self.unreserve(name)  # 22.05 is content with the nodes that it finds
        except PenstockError as error:
            raise OutcomeUnknown(f"reservation {name} was made, but not checked: {error}") from error
        raise NotNow(f"only {len(made[name].nodes)} of {spec.nodes} nodes are free at that time")

    async def _create_reservation(self, spec: ReservationSpec) -> None:
        argv = ["scontrol", "create", "reservation", f"ReservationName={spec.name}", f"StartTime={_utc(spec.start)}"]
        where = f"Nodes={_nodes(spec.nodelist)}" if spec.nodelist else f"NodeCnt={int(spec.nodes)}"
        argv += [f"Duration={format_minutes(spec.duration)}", where]
        if spec.partition:
            argv.append(f"PartitionName={spec.partition}")
        for option, words in (("Users", spec.users), ("Accounts", spec.accounts), ("Flags", spec.flags)):
            if words:
                argv.append(f"{option}={','.join(words)}")
        await self._change(argv, extra={"TZ": "UTC0"})

    async def move_reservation(
        self, name: str, start: float, duration: float, nodelist: Collection[str]
    ) -> Reservation:
        """See `Backend.move_reservation`."""
        held = await self._reservation(checked_name(name))
        if held.active:
            raise Infeasible(f"reservation {name} has begun")  # of its start Slurm would say that it is invalid
        await self._shift_reservation(name, start, duration, nodelist)
        try:
            return await self._reservation(name)
        except PenstockError as error:
            raise OutcomeUnknown(f"reservation {name} was moved, but not checked: {error}") from error

    async def _shift_reservation(self, name: str, start: float, duration: float, nodes: Collection[str]) -> None:
        argv = ["scontrol", "update", f"ReservationName={name}", f"StartTime={_utc(start)}"]
        argv += [f"Duration={format_minutes(duration)}", f"Nodes={_nodes(nodes)}"]
        await self._change(argv, extra={"TZ": "UTC0"})

    async def _reservation(self, name: str) -> Reservation:
        for item in await self.reservations():
            if item.name == name:
                return item
        raise NotFound(f"there is no reservation {name}")

    async def unreserve(self, name: str) -> None:
        """See `Backend.unreserve`."""
        argv = ["scontrol", "delete", f"ReservationName={checked_name(name)}"]
        await self._change(argv, tolerated=["Requested reservation is invalid"])


def _utc(instant: float) -> str:
    """For scontrol, which reads no epoch seconds, in a zone of its own."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(math.floor(instant)))


def _nodes(names: Collection[str]) -> str:
    for node in names:
        if not _WORD.fullmatch(node):
            raise Infeasible(f"not the name of a node: {show(node)}")
    return ",".join(names)


async def _soon(condition: Callable[[], Awaitable[bool]]) -> bool:
    """Poll until the condition holds; False if it does not within some seconds."""
    deadline = time.monotonic() + _SETTLE
    while not await condition():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(_POLL)
    return True

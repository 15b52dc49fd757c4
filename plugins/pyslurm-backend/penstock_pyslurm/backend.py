"""The backend that speaks to a real Slurm through pyslurm, and through Slurm's commands for what pyslurm lacks.

pyslurm binds libslurm: no command is started and no text parsed, one message goes to the controller. It fits one major
release of Slurm only, so it is checked against the site's when it is loaded (`pyslurm_link.misfit`), and it lives in
a process of its own (`pyslurm_worker`), because a libslurm call that hangs or ends its process takes all of Python
with it. Requests go through it one after the other. Run with pyslurm 22.5.3 and 25.11.2.

Through pyslurm: jobs, nodes, texts, find, steps, history, submit, update, hold, release, requeue, cancel,
and reservations up to the releases that have the older half of pyslurm. Through the commands, each with its reason:

- allocate: pyslurm cannot ask for nodes without a script; estimate: no call; other clusters: libslurm knows one
- merge, shrink: `Job.modify` with other nodes returns without an error and changes nothing
- partitions: no billing weights, and not whether jobs have nodes for themselves
- site: it must be known before it is known whether pyslurm fits; before 24.11 pyslurm gives flags as bare numbers
- reserve, unreserve, licences, and reservations of newer pyslurm: flags by other names than Slurm's, no reserved count
- changes of arrays and their tasks: by a number they reach one task, or (a cancel of a task) none
- a submission with a dependency where jobs with a hopeless one are killed (`kill_invalid_depend`): no way to say no
- the dependency of a job without a script that may be `expand`: left out of what pyslurm answers, as is `singleton`
- history of jobs that may have been resized: pyslurm gives the last row only, and when they started is in the first;
  and of jobs that never began: it does not give their size

What is known to differ: a job that waits and asked for no limit at all is shown with its partition's default; a job
is submitted without the agent's resource limits (sbatch hands them on).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Self, TypeVar

from penstock.api import (
    AccountingRecord,
    Job,
    JobSpec,
    JobTexts,
    Node,
    Partition,
    Reservation,
    SiteConfig,
    Step,
)
from penstock.errors import ConfigError, Infeasible, NotFound, NotNow, OutcomeUnknown, SlurmUnavailable
from penstock.slurm.budget import SubmissionKind
from penstock.slurm.cli import CliBackend
from penstock.slurm.parse import ParseError, parse_job_state
from penstock.slurm.queries import checked_name
from penstock.slurm.refusals import classify, unanswered
from penstock_pyslurm import records as records
from penstock_pyslurm.link import PyslurmLink, Unfit, misfit

__all__ = ["PyslurmBackend"]

_NO_DEPENDENCY = "0"  # what removes one; pyslurm leaves out an empty text
_MANY = 2000  # rows
_KILLS_THE_HOPELESS = "kill_invalid_depend"

T = TypeVar("T")


class _Lacking(Exception):
    """Pyslurm cannot do it; nothing was sent."""


class PyslurmBackend(CliBackend):
    """One cluster through pyslurm, as one user. The options are those of `CliQueries`, and:

    `fallback`: if pyslurm does not fit, tell it why, once, and use the commands from then on. Without it the first
    call raises `ConfigError`.
    """

    def __init__(self, *, fallback: Callable[[str], None] | None = None, **options: Any) -> None:  # noqa: ANN401 (theirs)
        super().__init__(**options)
        self._fallback = fallback
        self._link = PyslurmLink(self._runner)
        self._starting = asyncio.Lock()
        self._has_fitted = False
        self._unfit = False
        self._kills_the_hopeless = False

    async def close(self) -> None:
        """End the process that holds pyslurm, and whatever commands run."""
        await self._link.end()
        await super().close()

    def on(self, cluster: str) -> Self:
        """See `Backend.on`. Through the commands: libslurm speaks to the cluster that slurm.conf names."""
        view = super().on(cluster)
        view._unfit = True
        return view

    # -- looking ------------------------------------------------------------------------------------------------

    async def site(self) -> SiteConfig:
        """See `Backend.site`. Whether pyslurm fits is found out here, too."""
        site = await super().site()
        await self._fits(site)
        return site

    async def jobs(self) -> Sequence[Job]:
        """See `Backend.jobs`."""
        if not await self._fits():
            return await super().jobs()
        await self._check_clock()
        rows = await self._ask("jobs")
        if self._partitions is None:
            await self.partitions()

        def parsed() -> list[Job]:
            return self._understood(
                "jobs", lambda: records.understood(records.job_from_values, rows, self._default_limit)
            )

        # A long queue takes seconds to read, during which applications and users want answers, too.
        jobs = await asyncio.to_thread(parsed) if len(rows) > _MANY else parsed()
        unread = [job.id for row, job in zip(rows, jobs, strict=True) if records.unreadable_dependency(row)]
        if not unread:
            return jobs
        try:
            whole = {job.id: job for job in await self._queue("-j", ",".join(map(str, unread)))}
        except NotFound:
            whole = {}
        return [whole.get(job.id, job) for job in jobs]

    async def nodes(self) -> Sequence[Node]:
        """See `Backend.nodes`."""
        if not await self._fits():
            return await super().nodes()
        rows = await self._ask("nodes")
        return self._understood("nodes", lambda: records.understood(records.node_from_values, rows))

    async def partitions(self) -> Sequence[Partition]:
        """See `Backend.partitions`. By the command: pyslurm tells neither all who may use one nor what it charges."""
        found = await super().partitions()
        self._partitions = {partition.name: partition for partition in found}
        return found

    async def reservations(self) -> Sequence[Reservation]:
        """See `Backend.reservations`."""
        if await self._fits():
            try:
                rows = await self._ask("reservations")
            except _Lacking:
                pass
            else:
                make = records.reservation_from_values
                return self._understood("reservations", lambda: records.understood(make, rows, self.now()))
        return await super().reservations()

    async def texts(self, ids: Collection[int]) -> Mapping[int, JobTexts]:
        """See `Backend.texts`."""
        if not ids:
            return {}
        if not await self._fits():
            return await super().texts(ids)
        rows = await self._ask("texts", ids=sorted(ids))
        found = self._understood("texts", lambda: records.understood(records.texts_from_values, rows))
        return {texts.job: texts for texts in found}

    async def steps(self, job: int) -> Sequence[Step]:
        """See `Backend.steps`."""
        if not await self._fits():
            return await super().steps(job)
        rows = await self._ask("steps", job=int(job))
        found = self._understood("steps", lambda: records.understood(records.step_from_values, rows, job))
        return [step for step in found if step is not None]

    async def find(self, name: str, uid: int | None = None) -> Sequence[int]:
        """See `Backend.find`."""
        checked_name(name)
        if uid is not None or not await self._fits():
            return await super().find(name, uid)
        found: list[int] = await self._ask("find", name=name)
        return found

    async def history(
        self, *, ids: Collection[int] = (), name: str | None = None, since: float | None = None
    ) -> Sequence[AccountingRecord]:
        """See `Backend.history`."""
        if name is not None:
            checked_name(name)
        if not await self._fits():
            return await super().history(ids=ids, name=name, since=since)
        begin = max(1, int(since)) if since is not None else 0 if ids else 1
        rows = await self._ask("history", ids=sorted(ids), name=name, since=begin)
        read = self._understood("history", lambda: records.understood(records.record_from_values, rows))
        # The database compares names without regard to case.
        found = {
            record.id: (record, doubtful)
            for record, doubtful in filter(None, read)
            if name is None or record.name == name
        }
        if ids and not found.keys() <= set(ids):  # the tasks of an array, which are taken together
            return await super().history(ids=ids, name=name, since=since)
        known = {job: record for job, (record, _) in found.items()}
        if unsure := [job for job, (_, doubtful) in found.items() if doubtful]:
            known |= {record.id: record for record in await super().history(ids=unsure)}
        return [known[job] for job in sorted(known)]

    # -- changing -----------------------------------------------------------------------------------------------

    async def submit(self, spec: JobSpec) -> int:
        """See `Backend.submit`, and `CliBackend.submit` for the job's environment."""
        checked_name(spec.name)
        if records.beyond(spec) or not await self._fits():
            return await super().submit(spec)
        if spec.dependency is not None and self._kills_the_hopeless:
            return await super().submit(spec)
        await self._check_size(spec.partition, spec.nodes)
        home = self._home()
        lines = self._job_environment(spec, home).decode(errors="surrogateescape").split("\0")
        job = {
            "description": records.description_of(spec, home),
            "script": spec.script,
            "environment": dict(line.split("=", 1) for line in lines if line),
        }
        try:
            return int(await self._ask("submit", changing=True, **job))
        except _Lacking:
            return await super().submit(spec)

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
        """See `Backend.update` and `CliBackend.update`."""
        changes: dict[str, object] = {}
        if time_limit is not None:
            changes["time_limit"] = records.minutes_of(time_limit)
        if dependency is not None:
            changes["dependencies"] = dependency or _NO_DEPENDENCY
        if priority is not None:
            changes["priority"] = int(priority)
        if begin is not None:
            changes["begin_time"] = begin
        # What pyslurm cannot say, or says and does not do.
        commanded = reset_age or any(new is not None for new in (nodelist, nice, nodes, reservation))
        if not changes and not commanded:
            return
        if not commanded and await self._fits():
            try:
                await self._ask("update", changing=True, job=int(job), changes=changes)
                return
            except _Lacking:
                pass
        await super().update(
            job,
            time_limit=time_limit,
            dependency=dependency,
            priority=priority,
            begin=begin,
            nodelist=nodelist,
            reset_age=reset_age,
            nice=nice,
            nodes=nodes,
            reservation=reservation,
        )

    async def hold(self, job: int) -> None:
        """See `Backend.hold`."""
        if await self._fits():
            try:
                state = parse_job_state(await self._ask("hold", changing=True, job=int(job)))
            except _Lacking:
                pass
            else:
                if not state.waits:
                    raise Infeasible(f"job {job} is {state}; only a pending job can be held")
                return
        await super().hold(job)

    async def requeue(self, job: int) -> None:
        """See `Backend.requeue`."""
        if await self._fits():
            try:
                await self._ask("requeue", changing=True, job=int(job))
                return
            except _Lacking:
                pass
        await super().requeue(job)

    async def release(self, job: int) -> None:
        """See `Backend.release`."""
        if await self._fits():
            try:
                await self._ask("release", changing=True, job=int(job))
                return
            except _Lacking:
                pass
        await super().release(job)

    async def cancel(self, job: int, tasks: Collection[int] = ()) -> None:
        """See `Backend.cancel`."""
        if not tasks and await self._fits():
            try:
                await self._ask("cancel", changing=True, job=int(job))
                return
            except NotFound:
                if await self.history(ids=[job]):
                    return
                raise
            except _Lacking:
                pass
        await super().cancel(job, tasks)

    # -- asking pyslurm -----------------------------------------------------------------------------------------

    async def _ask(self, call: str, /, *, changing: bool = False, **params: object) -> Any:  # noqa: ANN401 (JSON)
        """The door to pyslurm: every request passes here and is counted."""
        label = f"pyslurm {call}"
        service = "slurmdbd" if call == "history" else "slurmctld"
        submits = SubmissionKind.ASKED if call == "submit" else None
        ticket = await self.budget.admit(service, changing=changing, patience=self._limit, submits=submits)
        self.meter.begun(label)
        started = time.monotonic()
        outcome = "ok"
        try:
            answer = await self._link.call(call, params, limit=self._limit, changing=changing)
            if "result" in answer:
                return answer["result"]
            if "refused" in answer:
                outcome = "unanswered" if unanswered(answer["refused"]) else "refused"
            else:  # pyslurm cannot do it
                outcome = "abandoned"
        except (SlurmUnavailable, OutcomeUnknown):
            outcome = "unanswered"
            raise
        except BaseException:
            outcome = "abandoned"
            raise
        finally:
            self.budget.answered(ticket, outcome != "unanswered")
            self.meter.ended(label, outcome, time.monotonic() - started)
        if "lacking" in answer:
            raise _Lacking(answer["lacking"])
        if "refused" in answer:
            error = classify(answer["refused"], changing=changing)
            # A read has nothing to be final about but the thing not being there.
            raise error if changing or isinstance(error, (NotNow, NotFound)) else SlurmUnavailable(str(error))
        if changing:
            # What pyslurm itself finds wrong it does not send.
            raise Infeasible(answer["invalid"]) if "invalid" in answer else OutcomeUnknown(answer["broken"])
        raise SlurmUnavailable(answer.get("invalid") or answer["broken"])

    async def _fits(self, site: SiteConfig | None = None) -> bool:
        """Whether pyslurm is to be used. Its process is started here, and checked against the site each time."""
        if self._unfit:
            return False
        async with self._starting:
            if self._link.alive:
                return True
            if self._unfit:
                return False
            site = site or await super().site()
            try:
                if why := misfit(await self._link.start(self._limit), site.version):
                    await self._link.end()
                    raise Unfit(why)
            except Unfit as error:
                if self._fallback is not None:
                    self._unfit = True
                    self._fallback(str(error))
                    return False
                if self._has_fitted:
                    raise SlurmUnavailable(str(error)) from error
                raise ConfigError(f"`slurm.backend: pyslurm`: {error}") from error
            self._has_fitted = True
            self._kills_the_hopeless = _KILLS_THE_HOPELESS in site.scheduler_parameters
            return True

    def _understood(self, call: str, parse: Callable[[], T]) -> T:
        """What cannot be read is no answer."""
        try:
            return parse()
        except ParseError as error:
            raise SlurmUnavailable(f"pyslurm {call}: {error}") from error

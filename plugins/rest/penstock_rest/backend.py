"""The backend that speaks to a real Slurm through slurmrestd, and through Slurm's commands for what that lacks.

No command of Slurm and no library of it has to be on this host, which is why this is there: sites that let no commands
onto service hosts offer slurmrestd. What it cannot do goes to the commands where they are there and act as the same
user, and is refused where not (`NotPermitted`, with the reason): what stands above does without.

- estimate: there is no request; requeue: before v0.0.45 (Slurm 26.05) there is none
- reserve, move_reservation, unreserve: before v0.0.43 (25.05) there is none
- allocate: there is one from v0.0.41 (24.05) on, which answers when the nodes are granted
- merge: slurmctld's release has to be known, and slurmrestd tells its own; the other update is as the commands send it
- other clusters: slurmrestd speaks for one
- jobs whose script or options hold what only sbatch understands (`requests`)
- the settings of the cluster: before v0.0.45 they are not told (`site`)

Looking is in `queries`, what is sent in `requests`, reading answers in `records` and `errors`.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.api import Allocation, JobSpec, ReservationSpec, plural
from penstock.errors import (
    Infeasible,
    NoCluster,
    NotFound,
    NotNow,
    OutcomeUnknown,
    PenstockError,
)
from penstock.slurm.base import NotOffered
from penstock.slurm.budget import SubmissionKind
from penstock.slurm.cli import CliBackend
from penstock.slurm.commands import CommandResult, CommandRunner
from penstock.slurm.queries import checked_name
from penstock.slurm.submission import checked_variables
from penstock.values.documents import show
from penstock_rest import requests
from penstock_rest.errors import judged
from penstock_rest.queries import RestQueries
from penstock_rest.requests import Unsaid
from penstock_rest.values import count, member, text

__all__ = ["NoCommands", "RestBackend"]

_CLUSTER = re.compile(r"[A-Za-z0-9._-]{1,200}", re.ASCII)
_DONE = ("already completing or completed", "already finished")
_WAITS = "Job is pending execution"
_NOT_PERSISTENT = "are not persistent"
_NO_DEPENDENCY = "0"  # what removes one


class NoCommands(CommandRunner):
    """Stands where commands would be run, and says why they are not: `why`."""

    def __init__(self, why: str, **options: Any) -> None:  # noqa: ANN401 (theirs)
        super().__init__(**options)
        self._why = why

    async def run(self, argv: Sequence[str], **_: Any) -> CommandResult:  # noqa: ANN401
        """Refuse."""
        raise NotOffered(f"slurmrestd cannot do what `{' '.join(argv[:2])}` does here, and {self._why}")

    async def launch(self, argv: Sequence[str]) -> asyncio.subprocess.Process:
        """Refuse."""
        raise NotOffered(f"{argv[0]} is not run: {self._why}")


class RestBackend(RestQueries):
    """One cluster through slurmrestd, as one user. The options are those of `RestQueries`, and:

    `without`: why no command of Slurm is to be run, where that is so (`commands` false).
    """

    def __init__(self, *, without: str = "", **options: Any) -> None:  # noqa: ANN401 (theirs)
        super().__init__(**options)
        if not self._commands:
            why = without or "its commands may not be used here (`rest.commands: never`)"
            self._runner = NoCommands(why, budget=self._runner.budget)

    def on(self, cluster: str) -> CliBackend:  # type: ignore[override]  # of other clusters only the commands know
        """See `Backend.on`. Through the commands: a slurmrestd speaks for one cluster."""
        if not _CLUSTER.fullmatch(cluster) or cluster == "all":
            raise NoCluster(f"{show(cluster)} cannot be the name of a cluster")
        view = CliBackend(name=self.name, user=self._user, timeout=self._limit, merge_releases=self._merge_releases)
        view._runner = self._runner
        view._cluster = None if cluster == self._alone else cluster
        return view

    async def lacks(self) -> tuple[str, ...]:
        """What cannot be done here, for people; empty where the commands do what slurmrestd cannot."""
        if self._commands:
            return ()
        version = await self._agreed()
        there = {
            "estimates of a start": False,
            "merging (jobs grow by companions)": False,
            "other clusters": False,
            "what is in use of limits": False,
            "front programs (`penstock shim`)": False,
            "the cluster's settings (see `rest.settings`)": version.settings,
            "putting jobs back into the queue": version.requeues,
            "reservations": version.reserves,
            "nodes without a script, by which jobs grow": version.allocates,
        }
        return tuple(what for what, possible in there.items() if not possible)

    # -- submitting ---------------------------------------------------------------------------------------------

    async def submit(self, spec: JobSpec) -> int:
        """See `Backend.submit`, and `CliBackend.submit` for the job's environment."""
        checked_name(spec.name)
        home = self._home()
        version = await self._agreed()
        try:
            requests.checked_script(spec.script)
            begun = home if spec.origin is None else spec.origin.folder
            if not Path(begun).is_dir():
                raise Infeasible(f"{begun}, from where it was submitted, is no folder (any more)")
            environment = self._variables(spec, home, begun)
            job = requests.description(spec, version, spec.workdir or begun, environment, self.now())
        except Unsaid as why:
            if self._commands:
                return await super().submit(spec)
            raise Infeasible(f"slurmrestd cannot be told {why}, and sbatch may not be used here") from None
        await self._check_size(spec.partition, spec.nodes)
        body = {"script": spec.script, "job": job}
        answer = await self._send("submit", "POST", "job/submit", body, submits=SubmissionKind.ASKED)
        if number := count(answer.get("job_id")) or count(member(answer, "result", "job_id")):
            return number
        raise OutcomeUnknown("slurmrestd named no job")

    def _variables(self, spec: JobSpec, home: str, begun: str) -> Mapping[str, str]:
        """The environment of the job, with what sbatch tells slurmd by way of it."""
        mask = os.umask(0o077)
        os.umask(mask)
        if spec.origin is None:
            lines = self._job_environment(spec, home).decode(errors="surrogateescape").split("\0")
            given = dict(line.split("=", 1) for line in lines if line)
        else:
            given = {**requests.handed_on(spec.origin.environment), "SLURM_JOB_NAME": spec.name}
            given |= checked_variables(spec.environment)
            mask = mask if spec.origin.umask is None else spec.origin.umask
        return given | {
            "SLURM_PRIO_PROCESS": "0",
            "SLURM_SUBMIT_DIR": begun,
            "SLURM_SUBMIT_HOST": socket.gethostname(),
            "SLURM_UMASK": f"0{mask:03o}",
        }

    async def allocate(self, spec: Allocation, patience: float) -> int:
        """See `Backend.allocate`. The request is answered when the nodes are granted; who stops waiting withdraws."""
        version = await self._agreed()
        if not version.allocates:
            return await super().allocate(spec, patience)
        name = checked_name(spec.name)
        await self._check_size(spec.partition, spec.nodes)
        try:
            job = requests.allocation(spec, version, self._home(), self.now())
        except Unsaid as why:
            raise Infeasible(f"slurmrestd cannot be told {why}") from None
        known = set(await self.find(name))
        limit = max(patience, 0.1)
        try:
            answer = await self._send(
                "allocate", "POST", "job/allocate", {"job": job}, submits=SubmissionKind.OWN, limit=limit
            )
        except (OutcomeUnknown, asyncio.CancelledError) as error:
            granted = await self._unheard(name, known, error)
            if granted is None:
                raise NotNow(f"{plural(spec.nodes, 'node')} not granted within {patience:g} s") from error
            return granted
        number = count(answer.get("job_id"))
        if number and await self._holds_nodes(number):
            return number
        granted = await self._withdraw(name, number or None, known)
        if granted is None:
            raise NotNow(f"{plural(spec.nodes, 'node')} not granted within {patience:g} s")
        return granted

    # -- changing -----------------------------------------------------------------------------------------------

    async def _give_away(self, resizer: int) -> None:
        await self._update(resizer, {"minimum_nodes": 0, "maximum_nodes": 0})

    async def _keep_nodes(self, job: int, survivors: str, keep: Collection[str]) -> None:
        await self._update(job, {"required_nodes": sorted(keep)})

    async def hold(self, job: int) -> None:
        """See `Backend.hold`."""
        rows = await self._tasks(job)
        if not any(row.pending for row in rows):
            raise Infeasible(f"job {job} is {rows[0].state}; only a pending job can be held")
        await self._update(job, {"hold": True})

    async def release(self, job: int) -> None:
        """See `Backend.release`."""
        await self._update(job, {"hold": False}, tolerated=("already finished",))

    async def requeue(self, job: int) -> None:
        """See `Backend.requeue`."""
        if not (await self._agreed()).requeues:
            await super().requeue(job)
            return
        try:
            answer = await self._send("requeue", "GET", f"job/{int(job)}/requeue")
        except PenstockError as error:
            if _WAITS not in str(error):
                raise
            return
        self._check_results(answer, (_WAITS,))

    async def signal(self, job: int, number: int) -> None:
        """See `Backend.signal`."""
        seen = await self._look(job)
        if seen is None:
            raise NotFound(f"job {job} is not there")
        if not seen.running:
            raise Infeasible(f"job {job} is {seen.state}; only a running job takes a signal")
        if not seen.batch_host:
            raise Infeasible(f"job {job} has no batch script")
        query = {"signal": str(int(number)), "flags": "BATCH_JOB"}  # it does not know all by their names
        answer = await self._send("signal", "DELETE", f"job/{int(job)}", query=query)
        self._check_status(answer)

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
            changes["time_limit"] = requests.minutes(time_limit)
        if dependency is not None:
            changes["dependency"] = dependency or _NO_DEPENDENCY
        if priority is not None:
            changes["priority"] = requests.number(int(priority))
        if begin is not None:
            changes["begin_time"] = requests.begin_time(begin, self.now())
        if nodelist is not None:
            changes["required_nodes"] = list(nodelist)
        if reset_age:
            changes["flags"] = ["JOB_ACCRUE_TIME_RESET"]
        if nice is not None:
            changes["nice"] = int(nice)
        if nodes is not None:
            least, cpus = await self._numbers(job, int(nodes))
            changes |= {"minimum_nodes": least, "maximum_nodes": least, "minimum_cpus": cpus, "maximum_cpus": cpus}
        if reservation is not None:
            await self._pending(job, "be put into a reservation")
            changes["reservation"] = reservation
        if changes:
            await self._update(job, changes, tolerated=(_NOT_PERSISTENT,) if priority is not None else ())

    async def _update(self, job: int, changes: Mapping[str, object], tolerated: Sequence[str] = ()) -> None:
        try:
            answer = await self._send("update", "POST", f"job/{int(job)}", changes)
        except PenstockError as error:
            if not any(words in str(error) for words in tolerated):
                raise
            return
        self._check_results(answer, tolerated)

    def _check_results(self, answer: Mapping[str, Any], tolerated: Sequence[str]) -> None:
        """Of an array each task has a result. Where all went well with some, those that have ended are not held
        against it."""
        found = answer.get("results")
        results = [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []
        bad = [item for item in results if count(item.get("error_code"))]
        if len(bad) < len(results):
            tolerated = (*tolerated, "already finished")
        said = [f"{item.get('error')} {item.get('why') or ''}".strip() for item in bad]
        against = [words for words in said if not any(word in words for word in tolerated)]
        if against:
            raise judged("; ".join(dict.fromkeys(against)), changing=True)

    async def _scancel(self, which: str) -> None:
        """Cancel `JOB`, `ARRAY_TASK` or `ARRAY_[TASKS]`."""
        version = await self._agreed()
        if "[" in which and not version.cancels_several:
            await super()._scancel(which)
            return
        try:
            if "[" in which:
                answer = await self._send("cancel", "DELETE", "jobs/", {"jobs": [which], "signal": "KILL"})
            else:
                answer = await self._send("cancel", "DELETE", f"job/{which}")
        except PenstockError as error:
            if not any(words in str(error) for words in _DONE):
                raise
            return
        self._check_status(answer)

    def _check_status(self, answer: Mapping[str, Any]) -> None:
        """What became of each job that was sent a signal; not an error: one that has ended."""
        found = answer.get("status")
        bad = []
        for item in found if isinstance(found, list) else ():
            said = text(member(item, "error", "string")) or text(member(item, "error", "message"))
            if count(member(item, "error", "code")) and not any(words in said for words in _DONE):
                bad.append(said)
        if bad:
            raise judged("; ".join(dict.fromkeys(bad)), changing=True)

    # -- reservations -------------------------------------------------------------------------------------------

    async def _create_reservation(self, spec: ReservationSpec) -> None:
        if not (await self._agreed()).reserves:
            await super()._create_reservation(spec)
            return
        made = requests.reservation(spec)
        if any(item.name == spec.name for item in await self.reservations()):  # which it would change
            raise Infeasible(f"there is a reservation {spec.name} already")
        await self._send("reserve", "POST", "reservation", made)

    async def _shift_reservation(self, name: str, start: float, duration: float, nodes: Collection[str]) -> None:
        if not (await self._agreed()).reserves:
            await super()._shift_reservation(name, start, duration, nodes)
            return
        await self._send("move", "POST", "reservation", requests.shifted(name, start, duration, nodes))

    async def unreserve(self, name: str) -> None:
        """See `Backend.unreserve`."""
        if not (await self._agreed()).reserves:
            await super().unreserve(name)
            return
        try:
            await self._send("unreserve", "DELETE", f"reservation/{checked_name(name)}")
        except PenstockError as error:
            if "Requested reservation is invalid" not in str(error):
                raise

    # -- small things -------------------------------------------------------------------------------------------

    async def _send(
        self,
        label: str,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        submits: SubmissionKind | None = None,
        limit: float | None = None,
    ) -> Mapping[str, Any]:
        """Change something."""
        return await self._answer(
            label, method, "slurm", path, changing=True, query=query, body=body, submits=submits, limit=limit
        )

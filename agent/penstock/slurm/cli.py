"""The backend that speaks to a real Slurm through its commands.

Works with every release since 22.05, needs nothing but the client programs, and acts as the user it runs as. Every
request goes through `_run`. Looking is in `queries`, reading answers in `records` and
`refusals`; this module changes things.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import re
import tempfile
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path

from penstock.api import Allocation, Job, JobSpec, JobState
from penstock.errors import Infeasible, NotFound, NotNow, OutcomeUnknown, PenstockError
from penstock.slurm.commands import Finished
from penstock.slurm.parse import HostListError, compress_hosts, format_minutes
from penstock.slurm.queries import CliQueries, checked_name
from penstock.slurm.refusals import classify, message_of

__all__ = ["CliBackend"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_GRANTED = re.compile(r"^salloc: Granted job allocation ([0-9]+)", re.MULTILINE)
_ASKED = re.compile(r"^salloc: Pending job allocation ([0-9]+)", re.MULTILINE)
_SETTLE = 5.0  # seconds that Slurm may take until a resize shows in the job
_POLL = 0.2


class CliBackend(CliQueries):
    """One cluster through Slurm's commands, as one user. The options are those of `CliQueries`."""

    # -- submitting ---------------------------------------------------------------------------------------------

    async def submit(self, spec: JobSpec) -> int:
        """See `Backend.submit`.

        The job's environment is made anew: PATH, HOME, USER, LOGNAME, SHELL, LANG and `spec.environment`. It reaches
        sbatch as a file, so that values may hold anything and cannot change what sbatch itself does.
        """
        await self._check_size(spec.partition, spec.nodes)
        home = self._home()
        argv = ["sbatch", "--parsable", f"--job-name={checked_name(spec.name)}", f"--nodes={int(spec.nodes)}"]
        argv += _common(spec.time_limit, spec.partition, spec.account, spec.qos)
        argv += ["--requeue" if spec.requeue else "--no-requeue", "--kill-on-invalid-dep=no"]
        argv.append(f"--chdir={spec.workdir or home}")
        if spec.hold:
            argv.append("--hold")
        if spec.comment is not None:
            argv.append(f"--comment={spec.comment}")
        for option, value in (("dependency", spec.dependency), ("begin", spec.begin), ("output", spec.output)):
            if value:
                argv.append(f"--{option}={value}")
        with tempfile.TemporaryFile() as file:
            file.write(self._job_environment(spec, home))
            file.flush()
            file.seek(0)
            # ALL is the default, but 26.05 reads the file only where that is said. It exports the file and no more.
            argv += ["--export=ALL", f"--export-file={file.fileno()}"]
            done = await self._change(argv, stdin=spec.script.encode(), pass_fds=(file.fileno(),))
        job = done.stdout.strip().partition(";")[0]
        if not (job.isascii() and job.isdigit()):
            raise OutcomeUnknown(f"sbatch named no job: {done.stdout[:80]!r} {message_of(done.stderr)}")
        return int(job)

    async def allocate(self, spec: Allocation, patience: float) -> int:
        """See `Backend.allocate`."""
        name = checked_name(spec.name)
        await self._check_size(spec.partition, spec.nodes)
        argv = ["salloc", "--no-shell", f"--job-name={name}", f"--nodes={int(spec.nodes)}"]
        argv += _common(spec.time_limit, spec.partition, spec.account, spec.qos)
        if spec.expands is not None:
            argv.append(f"--dependency=expand:{int(spec.expands)}")
        known = set(await self.find(name))
        try:
            done = await self._run(argv, limit=max(patience, 0.1), changing=True, graceful=True)
        except (OutcomeUnknown, asyncio.CancelledError) as error:
            # salloc was killed before it could withdraw its request. Nobody waits for the nodes, so none may come.
            withdrawal = asyncio.shield(self._withdraw(name, None, known))
            if isinstance(error, asyncio.CancelledError):
                with contextlib.suppress(PenstockError):
                    await withdrawal
                raise
            granted = await withdrawal
            if granted is None:
                raise NotNow(f"no answer to the request for {spec.nodes} nodes; withdrawn") from error
            return granted
        text = done.stderr + done.stdout
        if (match := _GRANTED.search(text)) and (done.code == 0 or await self._holds_nodes(int(match[1]))):
            return int(match[1])
        if not done.expired:
            if "revoked" in text:
                raise NotNow(message_of(text))
            raise classify(text, changing=True)
        asked = _ASKED.search(text)
        granted = await self._withdraw(name, int(asked[1]) if asked else None, known)
        if granted is None:
            raise NotNow(f"{spec.nodes} nodes were not granted within {patience:g} s")
        return granted

    async def _withdraw(self, name: str, asked: int | None, known: set[int]) -> int | None:
        """Make sure that no request is left of an allocation that was given up; its id if it was granted meanwhile."""
        granted = None
        for job in [asked] if asked is not None else sorted(set(await self.find(name)) - known):
            if await self._holds_nodes(job):
                granted = job
            else:
                with contextlib.suppress(NotFound):
                    await self.cancel(job)
        return granted

    async def _holds_nodes(self, job: int) -> bool:
        seen = await self._look(job)
        return seen is not None and seen[0].running

    # -- resizing -----------------------------------------------------------------------------------------------

    async def merge(self, resizer: int, into: int) -> None:
        """See `Backend.merge`. A merged resizer ends COMPLETED and without nodes, which no other job does."""
        target, source = await asyncio.gather(self._look(into), self._look(resizer))
        if target is None:
            raise NotFound(f"job {into}, which should take the nodes of job {resizer}, is not there")
        if source is None or source[0].state.ended:
            await self._assert_merged(resizer, source and source[0], target[0])
            return
        if not target[0].running:
            raise Infeasible(f"job {into} is {target[0].state}; only a running job can take nodes")
        if source[0].pending:
            raise NotNow(f"job {resizer} has not been granted its nodes yet")
        moved = set(source[0].nodes)
        answer: PenstockError | None = None
        try:
            await self._change(["scontrol", "update", f"jobid={int(resizer)}", "NumNodes=0"])
        except PenstockError as error:
            # What counts is what the jobs look like, except where the answer leaves no doubt.
            if "already finished" not in str(error) and not isinstance(error, OutcomeUnknown):
                raise
            answer = error

        async def merged() -> bool:
            into_now, resizer_now = await asyncio.gather(self._look(into), self._look(resizer))
            gone = resizer_now is None or resizer_now[0].state.ended
            return gone and into_now is not None and moved <= set(into_now[0].nodes)

        if not await _soon(merged):
            raise OutcomeUnknown(f"job {resizer} was not seen to be merged into job {into}") from answer

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
        seen = await self._look(job)
        if seen is None:
            raise NotFound(f"job {job} is not there")
        now, batch_host = seen
        wanted = set(keep)
        if not now.running:
            raise Infeasible(f"job {job} is {now.state}; only a running job can be shrunk")
        if not wanted or not wanted <= set(now.nodes):
            raise Infeasible(f"job {job} has {compress_hosts(now.nodes)}; that does not hold {sorted(wanted)}")
        if batch_host in now.nodes and batch_host not in wanted:
            raise Infeasible(f"job {job} must keep {batch_host}, where its batch script runs")
        if wanted == set(now.nodes):
            return
        try:
            survivors = compress_hosts(wanted)
        except HostListError as error:
            raise Infeasible(str(error)) from error
        await self._change(["scontrol", "update", f"jobid={int(job)}", f"NodeList={survivors}"])

        async def shrunk() -> bool:
            seen = await self._look(job)
            return seen is not None and set(seen[0].nodes) == wanted

        if not await _soon(shrunk):
            raise OutcomeUnknown(f"job {job} was not seen to be shrunk to {survivors}")

    # -- changing -----------------------------------------------------------------------------------------------

    async def cancel(self, job: int) -> None:
        """See `Backend.cancel`. An id that only accounting knows has ended, so that is no error."""
        # Without -v scancel says nothing of an unknown id; its exit code is 0 with it, too.
        done = await self._run(["scancel", "-v", str(int(job))], changing=True)
        text = message_of(done.stderr)
        if not text and done.code == 0:
            return
        if "already completing or completed" in text or "already finished" in text:
            return
        error = classify(done.stderr, changing=True)
        if isinstance(error, NotFound) and await self._accounting([job], None, None):
            return
        raise error

    async def release(self, job: int) -> None:
        """See `Backend.release`. A job that has started or ended meanwhile was released: no error."""
        try:
            await self._change(["scontrol", "release", str(int(job))])
        except Infeasible as error:
            if "already finished" not in str(error):
                raise

    async def update(
        self,
        job: int,
        *,
        time_limit: float | None = None,
        dependency: str | None = None,
        priority: int | None = None,
        begin: str | None = None,
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
        if changes:
            await self._change(["scontrol", "update", f"jobid={int(job)}", *changes])

    # -- small things -------------------------------------------------------------------------------------------

    async def _change(self, argv: Sequence[str], *, stdin: bytes = b"", pass_fds: Sequence[int] = ()) -> Finished:
        done = await self._run(argv, changing=True, stdin=stdin, pass_fds=pass_fds)
        if done.code != 0:
            raise classify(done.stderr, changing=True)
        return done

    async def _check_size(self, partition: str | None, nodes: int) -> None:
        """Refuse more nodes than there are; with EnforcePartLimits=NO, the default, Slurm queues such jobs for ever."""
        if nodes < 1:
            raise Infeasible("a job needs at least one node")

        def too_many() -> bool:
            known = (self._partitions or {}).values()
            asked = [p for p in known if (p.name == partition if partition else p.default)]
            return bool(asked) and nodes > len(asked[0].nodes)

        fresh = self._partitions is None
        if fresh:
            await self.partitions()
        if too_many():
            if not fresh:  # the partition may have grown since
                await self.partitions()
            if fresh or too_many():
                raise Infeasible(f"partition {partition or 'by default'} has fewer than {nodes} nodes")

    def _home(self) -> str:
        with contextlib.suppress(KeyError):
            home = pwd.getpwnam(self._user).pw_dir
            if Path(home).is_dir():
                return home
        return tempfile.gettempdir()

    def _job_environment(self, spec: JobSpec, home: str) -> bytes:
        shell = "/bin/sh"
        with contextlib.suppress(KeyError):
            shell = pwd.getpwnam(self._user).pw_shell or shell
        # sbatch sets SLURM_JOB_NAME in its own environment only, which does not reach the job this way.
        values = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home, "USER": self._user, "LOGNAME": self._user}
        values |= {"SHELL": shell, "LANG": os.environ.get("LANG", "C.UTF-8"), "SLURM_JOB_NAME": spec.name}
        values.update(spec.environment)
        for key, value in values.items():
            if not _VARIABLE.fullmatch(key) or "\0" in value:
                raise Infeasible(f"not an environment variable: {key!r}")
        return b"".join(f"{key}={value}\0".encode(errors="surrogateescape") for key, value in values.items())


def _common(time_limit: float, partition: str | None, account: str | None, qos: str | None) -> list[str]:
    options = [f"--time={format_minutes(time_limit)}"]
    options += [f"--{k}={v}" for k, v in (("partition", partition), ("account", account), ("qos", qos)) if v]
    return options


async def _soon(condition: Callable[[], Awaitable[bool]]) -> bool:
    """Poll until the condition holds; False if it does not within some seconds."""
    deadline = time.monotonic() + _SETTLE
    while not await condition():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(_POLL)
    return True

"""The submitting half of `CliBackend`: batch jobs, allocations without a script, withdrawing, and
what Slurm says of a job to be.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from penstock.api import Allocation, JobSpec, Origin, StartEstimate, plural
from penstock.errors import Infeasible, NotFound, NotNow, OutcomeUnknown, PenstockError
from penstock.slurm import records
from penstock.slurm.asking import understood
from penstock.slurm.commands import CommandResult
from penstock.slurm.parse import array_text, format_minutes
from penstock.slurm.queries import CliQueries, checked_name
from penstock.slurm.refusals import classify, message_of, refused
from penstock.slurm.sbatch_options import DECIDED, spec_words
from penstock.values.documents import show

__all__ = ["CliSubmission", "checked_variables"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SUBMITTED = re.compile(r"^([0-9]{1,10})(?:;[^;\s]+)?$", re.MULTILINE | re.ASCII)
_GRANTED = re.compile(r"^salloc: Granted job allocation ([0-9]+)", re.MULTILINE)
_ASKED = re.compile(r"^salloc: Pending job allocation ([0-9]+)", re.MULTILINE)
# The largest that Slurm takes. A request whose priority is tied for the highest is granted as it comes in, ahead of
# those that wait: one that begins in a second is not, and takes its turn (seen on 22.05.8).
_LAST = ("--nice=2147483645", "--begin=now+1")


class CliSubmission(CliQueries):
    """What one user asks a cluster for through Slurm's commands. The options are those of `CliQueries`."""

    async def submit(self, spec: JobSpec) -> int:
        """See `Backend.submit`.

        With an origin sbatch runs as its submitter would have run it. Without one the job's environment is made anew:
        PATH, HOME, USER, LOGNAME, SHELL, LANG and `spec.environment`. It reaches sbatch as a file, so that values may
        hold anything and cannot change what sbatch itself does.
        """
        done = await (self._sbatch(spec) if spec.origin is None else self._sbatch_from(spec, spec.origin))
        if done.code != 0:
            raise classify(done.stderr, changing=True)
        # A site's wrapper may greet its users before.
        jobs = _SUBMITTED.findall(done.stdout)
        if len(jobs) != 1:
            raise OutcomeUnknown(f"sbatch named no job: {done.stdout[:80]!r} {message_of(done.stderr)}")
        return int(jobs[0])

    async def estimate(self, spec: JobSpec) -> StartEstimate:
        """See `Backend.estimate`. Nothing is known of a dependency on a job that Slurm has forgotten: up to 22.05 it is
        left out of account, from 23.02 on such a job is `Infeasible`."""
        done = await self._sbatch(spec, "--test-only")
        if done.code != 0:
            error = classify(done.stderr, changing=False)
            # Slurm says this of nodes that are reserved or down as well, and of more than there are we know.
            if "node configuration is not available" in str(error):
                raise NotNow(f"no start to be named for {plural(spec.nodes, 'node')}: {error}") from error
            raise error
        return understood("sbatch --test-only", lambda: records.estimate_from_text(done.stderr))

    async def _sbatch_from(self, spec: JobSpec, origin: Origin) -> CommandResult:
        """As its submitter: in their folder, with their environment, which sbatch hands on by the rules of `--export`.

        What it would read from there itself, and the agent decides by, is left out.
        """
        await self._check_size(spec.partition, spec.nodes)
        if not Path(origin.folder).is_dir():
            raise Infeasible(f"{origin.folder}, from where it was submitted, is no folder (any more)")
        told = {key: value for key, value in origin.environment.items() if key not in DECIDED}
        argv = self._sbatch_words(spec, spec.workdir or origin.folder)
        told.update(checked_variables(spec.environment))
        begun = replace(origin, environment=told)
        return await self._run(argv, changing=True, stdin=spec.script.encode(), origin=begun)

    async def _sbatch(self, spec: JobSpec, *test: str) -> CommandResult:
        await self._check_size(spec.partition, spec.nodes)
        home = self._home()
        argv = self._sbatch_words(spec, spec.workdir or home, *test)
        with tempfile.TemporaryFile() as file:
            file.write(self._job_environment(spec, home))
            file.flush()
            file.seek(0)
            # ALL is the default, but 26.05 reads the file only where that is said. It exports the file and no more.
            argv += ["--export=ALL", f"--export-file={file.fileno()}"]
            return await self._run(argv, changing=not test, stdin=spec.script.encode(), pass_fds=(file.fileno(),))

    def _sbatch_words(self, spec: JobSpec, workdir: str, *test: str) -> list[str]:
        checked_name(spec.name)
        return ["sbatch", *spec_words(spec, workdir), *test, "--parsable"]

    async def allocate(self, spec: Allocation, patience: float) -> int:
        """See `Backend.allocate`."""
        name = checked_name(spec.name)
        await self._check_size(spec.partition, spec.nodes)
        argv = ["salloc", "--no-shell", f"--job-name={name}", f"--nodes={int(spec.nodes)}"]
        argv += _common(spec.time_limit, spec.partition, spec.account, spec.qos)
        if spec.expands is not None:
            argv.append(f"--dependency=expand:{int(spec.expands)}")
        if spec.last:
            argv += _LAST
        if spec.exclusive:
            argv.append("--exclusive")
        if spec.gres is not None:
            argv.append(f"--gres={spec.gres}")
        if spec.constraint is not None:
            argv.append(f"--constraint={spec.constraint}")
        known = set(await self.find(name))
        try:
            done = await self._run(argv, limit=max(patience, 0.1), changing=True, graceful=True)
        except (OutcomeUnknown, asyncio.CancelledError) as error:
            granted = await self._unheard(name, known, error)
            if granted is None:
                raise NotNow(f"no answer to the request for {plural(spec.nodes, 'node')}; withdrawn") from error
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
            raise NotNow(f"{plural(spec.nodes, 'node')} not granted within {patience:g} s")
        return granted

    async def _unheard(self, name: str, known: set[int], error: BaseException) -> int | None:
        """As `_withdraw`, of a request whose answer was lost, or that nobody waits for any more: nobody would take the
        nodes, so none may come. Raises the latter `error` again."""
        withdrawal = asyncio.shield(self._withdraw(name, None, known))
        if isinstance(error, asyncio.CancelledError):
            with contextlib.suppress(PenstockError):
                await withdrawal
            raise error
        return await withdrawal

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
        return seen is not None and seen.running

    async def cancel(self, job: int, tasks: Collection[int] = ()) -> None:
        """See `Backend.cancel`. An id that only accounting knows has ended, so that is no error."""
        if tasks:
            await self._cancel_tasks(job, tasks)
            return
        try:
            await self._scancel(str(int(job)))
        except NotFound:
            seen = await self._look(job)
            if seen is not None and seen.array_task is not None:
                # 22.05 does not find a task of an array by its own id.
                await self._scancel(f"{seen.array_job}_{seen.array_task}")
            elif not await self._accounting([job], None, None):
                raise

    async def _cancel_tasks(self, job: int, tasks: Collection[int]) -> None:
        # No filter such as --state=PENDING: with one 22.05 cancels all that waits of an array.
        try:
            await self._scancel(f"{int(job)}_[{array_text(tasks)}]")
        except PenstockError as error:
            # 22.05 says this of an array of which none of these is left, too.
            known = await self._look(job) is not None or await self._accounting([job], None, None)
            if "Invalid job id" not in str(error) or not known:
                raise

    async def _scancel(self, which: str) -> None:
        # Without -v scancel says nothing of an unknown id; its exit code is 0 with it, too.
        done = await self._run(["scancel", "-v", which], changing=True)
        text = message_of(done.stderr)
        if not text and done.code == 0:
            return
        if "already completing or completed" not in text and "already finished" not in text:
            raise classify(done.stderr, changing=True)

    # -- small things -------------------------------------------------------------------------------------------

    async def _change(
        self, argv: Sequence[str], *, tolerated: Sequence[str] = (), extra: Mapping[str, str] | None = None
    ) -> None:
        """Change something. A refusal in which every line says one of `tolerated` is none."""
        done = await self._run(argv, changing=True, extra=extra)
        if done.code != 0:
            against = refused(done.stderr, tolerated)
            if against or not done.stderr.strip():
                raise classify(against, changing=True)

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
        values.update(checked_variables(spec.environment))
        return b"".join(f"{key}={value}\0".encode(errors="surrogateescape") for key, value in values.items())


def checked_variables(values: Mapping[str, str]) -> Mapping[str, str]:
    """The variables, if all are such. Raises `Infeasible`."""
    for key, value in values.items():
        if not _VARIABLE.fullmatch(key) or "\0" in value:
            raise Infeasible(f"not an environment variable: {show(key)}")
    return values


def _common(time_limit: float, partition: str | None, account: str | None, qos: str | None) -> list[str]:
    options = [f"--time={format_minutes(time_limit)}"]
    options += [f"--{k}={v}" for k, v in (("partition", partition), ("account", account), ("qos", qos)) if v]
    return options

"""Runs Slurm's commands: argument lists only, a clean environment, a time limit, nothing left behind, all counted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shutil import which

from penstock.api import Origin
from penstock.errors import Infeasible, OutcomeUnknown, SlurmUnavailable
from penstock.slurm.budget import RequestBudget, SubmissionKind
from penstock.slurm.meter import Meter
from penstock.slurm.refusals import unanswered

__all__ = ["PROGRAMS", "CommandResult", "CommandRunner"]

PROGRAMS = ("sacct", "sacctmgr", "salloc", "sbatch", "scancel", "scontrol", "squeue", "sshare")
"""What is run of Slurm."""

# An allocation without a script is what a running job grows by.
_SUBMISSIONS = {"sbatch": SubmissionKind.ASKED, "salloc": SubmissionKind.OWN}
_PATH = "/usr/local/bin:/usr/bin:/bin"
# Set by a job or a shell, these would turn what a command does (scontrol writes files when SLURM_JOBID is set).
_DROPPED = (
    "SLURM",
    "SBATCH_",
    "SALLOC_",
    "SRUN_",
    "SQUEUE_",
    "SINFO_",
    "SACCT_",
    "SCONTROL_",
    "SCANCEL_",
    "PMI_",
    "PMIX_",
)
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ", "LD_LIBRARY_PATH", "TMPDIR")
_NOT_STARTED = (126, 127)  # what runuser, setpriv, env and nsenter end with when there is no such program
_GRACE = 5.0  # seconds for a command to end after a signal


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended. `expired`: it was told to stop because its time was over."""

    code: int
    stdout: str
    stderr: str
    expired: bool = False


class CommandRunner:
    """Starts the commands of one backend.

    `prefix` stands before every command line (`runuser -u alice --`) and finds the program on PATH. `environment` is
    added to the minimal one. `budget` says how often Slurm may be asked (default: one of its own). `meter`
    counts calls, their outcomes and their time per command for the metrics.
    """

    def __init__(
        self,
        *,
        prefix: Sequence[str] = (),
        slurm_conf: str | None = None,
        environment: Mapping[str, str] | None = None,
        budget: RequestBudget | None = None,
    ) -> None:
        self.budget = budget or RequestBudget()
        # Found on this process's PATH: the one in `environment` is for Slurm's commands.
        self._prefix = (which(prefix[0]) or prefix[0], *prefix[1:]) if prefix else ()
        self._environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._environment.setdefault("PATH", _PATH)
        for name, value in (environment or {}).items():
            if not name.startswith(_DROPPED):
                self._environment[name] = value
        conf = slurm_conf or os.environ.get("SLURM_CONF")
        if conf:
            self._environment["SLURM_CONF"] = conf
        # Plain English and plain seconds, whatever the service's locale is.
        self._environment |= {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
        self.meter = Meter()
        self._running: set[asyncio.subprocess.Process] = set()

    @property
    def environment(self) -> Mapping[str, str]:
        """What the commands are run with."""
        return self._environment

    async def run(
        self,
        argv: Sequence[str],
        *,
        limit: float,
        changing: bool,
        service: str = "slurmctld",
        stdin: bytes = b"",
        extra: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        graceful: bool = False,
        label: str | None = None,
        origin: Origin | None = None,
        strays: str = "replace",
    ) -> CommandResult:
        """Run one command to its end. The one place that every request to Slurm passes.

        After `limit` seconds the whole process group is killed and reaped: `SlurmUnavailable`, or `OutcomeUnknown`
        when it might have changed something. `graceful` sends SIGTERM instead, gives it a few seconds and returns what
        it said, with `expired`. What the budget refuses is not run; `service` is who will answer. It runs in the folder
        and with the environment and umask of `origin`, which have to do for all that it runs; None: in ours. `strays`
        is what becomes of bytes that are no UTF-8, as `bytes.decode` names it.
        """
        label = label or argv[0]
        submits = None if "--test-only" in argv else _SUBMISSIONS.get(argv[0])
        ticket = await self.budget.admit(service, changing=changing, patience=limit, submits=submits)
        self.meter.begun(label)
        started = time.monotonic()
        outcome = "unanswered"
        try:
            end = "TERM" if graceful else "KILL" if changing else None
            process = await self._start(argv, extra or {}, pass_fds, end=end, origin=origin)
            self._running.add(process)
            try:
                done = await self._finish(process, argv[0], limit, changing, stdin, graceful, strays)
                if done.code == 0 or done.expired:
                    outcome = "ok"
                elif not unanswered(done.stderr):
                    outcome = "refused"
                return done
            finally:
                # Also on cancellation of the caller: no process outlives the call that started it.
                await asyncio.shield(_reap(process))
                self._running.discard(process)
        except (asyncio.CancelledError, Infeasible):
            outcome = "abandoned"  # given up or never started, which says nothing of Slurm
            raise
        finally:
            self.budget.answered(ticket, outcome != "unanswered")
            self.meter.ended(label, outcome, time.monotonic() - started)

    async def launch(self, argv: Sequence[str]) -> asyncio.subprocess.Process:
        """Start a process that stays, with pipes for its three streams. It ends with this one, `dismiss` or `close`.

        It is not counted: whoever asks it things counts them.
        """
        process = await self._start(argv, {}, (), end="TERM")
        self._running.add(process)
        return process

    async def dismiss(self, process: asyncio.subprocess.Process) -> None:
        """Kill and reap a process of `launch`."""
        await _reap(process)
        self._running.discard(process)

    async def close(self) -> None:
        """Kill and reap what still runs."""
        await asyncio.gather(*(_reap(process) for process in tuple(self._running)))

    async def _start(
        self,
        argv: Sequence[str],
        extra: Mapping[str, str],
        pass_fds: Sequence[int],
        *,
        end: str | None,
        origin: Origin | None = None,
    ) -> asyncio.subprocess.Process:
        # Behind a prefix there may be another root, where only the prefix can look for the program.
        program = argv[0] if self._prefix else which(argv[0], path=self._environment["PATH"])
        if program is None:
            raise SlurmUnavailable(_missing(argv[0]))
        # When the agent is killed, none may go on waiting (salloc in the queue) or trying: an sbatch that slurmctld
        # cannot take yet repeats itself for minutes, while the next agent finds no job and submits the stage again.
        setpriv = which("setpriv", path=self._environment["PATH"]) if end else None
        ends_with_us = (setpriv, "--pdeathsig", end, "--") if setpriv and end else ()
        environment = {**self._environment, **extra}
        if origin is not None:  # but the same Slurm
            ours = {key: value for key, value in self._environment.items() if key == "SLURM_CONF"}
            environment = {**origin.environment, **ours}
        try:
            return await asyncio.create_subprocess_exec(
                *self._prefix,
                *ends_with_us,
                program,
                *argv[1:],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=tempfile.gettempdir() if origin is None else origin.folder,
                env=environment,
                umask=-1 if origin is None or origin.umask is None else origin.umask,
                start_new_session=True,  # a process group of its own, which can be killed as a whole
                pass_fds=tuple(pass_fds),
            )
        except ValueError as error:  # a NUL byte in an argument
            raise Infeasible(f"{argv[0]}: an argument that no command can take: {error}") from error
        except OSError as error:
            raise SlurmUnavailable(f"{argv[0]} cannot be started: {error}") from error

    async def _finish(
        self,
        process: asyncio.subprocess.Process,
        name: str,
        limit: float,
        changing: bool,
        stdin: bytes,
        graceful: bool,
        strays: str,
    ) -> CommandResult:
        talk = asyncio.ensure_future(process.communicate(stdin))
        try:
            done, _ = await asyncio.wait({talk}, timeout=limit)
            expired = not done
            if expired and graceful:
                _signal(process, signal.SIGTERM)
                done, _ = await asyncio.wait({talk}, timeout=_GRACE)
            if not done:
                text = f"{name} gave no answer within {limit:g} s"
                raise OutcomeUnknown(text) if changing else SlurmUnavailable(text)
            out, err = talk.result()
        finally:
            if not talk.done():
                talk.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await talk
        assert process.returncode is not None
        if self._prefix and process.returncode in _NOT_STARTED:
            raise SlurmUnavailable(f"{_missing(name)} ({err.decode(errors='replace').strip()[:200]})")
        # Names made of bytes that are no UTF-8 must not break the parsing of everybody's rows.
        return CommandResult(process.returncode, out.decode(errors=strays), err.decode(errors=strays), expired)


def _missing(name: str) -> str:
    return f"the command {name} is not on PATH; are Slurm's client programs installed?"


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:  # the prefix changed the user: at least its own process can be told
        with contextlib.suppress(ProcessLookupError, PermissionError):
            process.send_signal(number)


async def _reap(process: asyncio.subprocess.Process) -> None:
    """Kill what is left of the command's process group and collect its exit status."""
    if process.returncode is None:
        _signal(process, signal.SIGKILL)
        # Also drains and closes the pipes, unless a stray grandchild holds them.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE)
    transport = getattr(process, "_transport", None)  # asyncio offers no public way to close the pipes
    if transport is not None:
        transport.close()

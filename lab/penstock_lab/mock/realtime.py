"""Real time and real processes: every simulated job runs its script on this host.

MPI inside jobs (MPICH's hydra, tried with 5.0.2): SLURM_JOB_ID makes mpiexec believe in Slurm, so it starts its proxies
with `srun`. A job's HYDRA_LAUNCHER_EXEC and PATH lead to the `srun` of this package, which starts them here and marks
each with its simulated node. mpiexec, `-ppn`, `-hosts n3,n4` and MPI_Comm_spawn with the info keys `host` and
`hosts` all work with node names that nobody can resolve, and each mpiexec or spawn is a step of its own.
HYDRA_LAUNCHER=fork in a job's environment works, too, spawn included; then everything runs "on" the batch host, and
a shrink finds nothing to kill. Neither HYDRA_RMK nor `-hosts localhost` is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pwd
import shutil
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path

from penstock.api import JobSpec, JobState, Step
from penstock_lab.mock import processes, srun
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.environment import job_environment, output_path
from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.model import Effect, Ended, Requeued, Resized, Signalled, Started

__all__ = ["RealTimeDriver"]

log = logging.getLogger(__name__)

# Opens the output as the job's user, never as ours, and becomes the script: $1 workdir, $2 output, $3 script.
_LAUNCH = 'cd "$1" || exit 1; exec >"$2" 2>&1 </dev/null || exit 1; exec "$3"'

# A kill is repeated while it hits somebody, because a process may have forked while the list was read.
_ATTEMPTS = 200

_AFTER_A_MISHAP = 1.0  # seconds: what went wrong may well go wrong again


class RealTimeDriver:
    """Drives an engine by the wall clock and runs its jobs below `folder` (a `Driver`; needs a running event loop).

    `path` is put in front of the jobs' PATH. A job that is ended from outside gets SIGTERM, and SIGKILL `kill_wait`
    seconds later. Its nodes are free at once, unlike in Slurm, where it would be COMPLETING meanwhile.
    """

    def __init__(self, engine: Engine, folder: Path, *, path: str = "", kill_wait: float = 2.0) -> None:
        self._engine = engine
        self._folder = folder
        self._path = f"{folder / 'bin'}:{path}" if path else str(folder / "bin")
        self._kill_wait = kill_wait
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._scripts: dict[str, asyncio.subprocess.Process] = {}
        self._waiters: dict[int, list[asyncio.Future[None]]] = defaultdict(list)
        for name, mode in (("jobs", 0o755), ("bin", 0o755), ("work", 0o1777)):
            (folder / name).mkdir(exist_ok=True)
            (folder / name).chmod(mode)
        launcher = folder / "bin" / "srun"
        launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{srun.__file__}" "$@"\n')
        launcher.chmod(0o755)

    # -- Driver ----------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def settle(self) -> None:
        """Let the engine catch up with the clock, act on what happened, and set the alarm for what comes next."""
        least = _AFTER_A_MISHAP
        try:
            self._engine.advance(time.time())
            while effects := self._engine.take_effects():
                for effect in effects:
                    self._try(effect)
                self._engine.advance(time.time())
            least = 0.001
        finally:
            self._set_alarm(least)

    def _set_alarm(self, least: float) -> None:
        """Settle again when something happens next, but not before so many seconds have passed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._engine.next_event()
        if due is not None:
            self._timer = asyncio.get_running_loop().call_later(max(due - time.time(), least), self.settle)

    async def pause(self, seconds: float) -> None:
        """Sleep."""
        await asyncio.sleep(seconds)

    async def granted(self, engine: Engine, job: int, patience: float) -> bool:
        """Wait until the job has started or ended, but no longer than `patience` seconds."""
        if engine.job(job).state is JobState.PENDING:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters[job].append(waiter)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(waiter, patience)
        return engine.records[job].state is JobState.RUNNING

    def steps(self, job: int) -> Iterable[Step]:
        """The steps that srun and mpiexec have made, by what really runs."""
        record = self._engine.records[job]
        if not record.state.holds_nodes:
            return []
        nodes: dict[str, set[str]] = defaultdict(set)
        mark = self._mark(record)
        for found in processes.find(lambda run: run == mark):
            if found.step.isascii() and found.step.isdigit():  # else the user's own doing
                nodes[found.step].add(found.node)
        return [Step(job, step, tuple(n for n in record.nodes if n in nodes[step])) for step in sorted(nodes, key=int)]

    async def close(self) -> None:
        """End all jobs, kill all their processes and wait until they are gone."""
        for job in [j for j in self._engine.jobs.values() if not j.state.ended]:
            self._engine.end(job, JobState.CANCELLED)
        self.settle()
        if self._timer is not None:
            self._timer.cancel()
        prefix = f"{self._folder}:"
        await self._exterminate(lambda run: run.startswith(prefix))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for name in ("jobs", "bin"):
            shutil.rmtree(self._folder / name, ignore_errors=True)

    # -- effects ---------------------------------------------------------------------------------------------------

    def _try(self, effect: Effect) -> None:
        """Act on the effect; a job that cannot have what it needs (a full disk) fails, and the others go on."""
        try:
            self._act(effect)
        except Exception:
            log.exception("%s", effect)
            job = self._engine.records[effect.job]
            if job.state.holds_nodes:
                self._engine.end(job, JobState.FAILED, 1)

    def _act(self, effect: Effect) -> None:
        log.info("%s", effect)
        job = self._engine.records[effect.job]
        match effect:
            case Started(_, nodes):
                self._prepare(job, nodes)
                if isinstance(job.spec, JobSpec):
                    self._spawn(self._run(job, job.spec, self._mark(job)))
                self._wake(effect.job)
            case Ended(_, state, nodes):
                if nodes:
                    asked = state not in (JobState.COMPLETED, JobState.FAILED)
                    self._spawn(self._clean_up(job, self._mark(job), self._kill_wait if asked else 0.0))
                self._wake(effect.job)
            case Requeued():
                self._kill_now(f"{self._folder}:{job.id}.{job.restarts - 1}", lambda _found: True)
                shutil.rmtree(self._job_folder(job), ignore_errors=True)  # it may be cancelled before it runs again
            case Resized(_, nodes, _gained, lost):
                (self._job_folder(job) / "nodes").write_text("\n".join(nodes))
                if lost:
                    self._kill_now(self._mark(job), lambda found: found.node in lost)
            case Signalled(_, number):
                script = self._scripts.get(self._mark(job))
                if script is not None:
                    with contextlib.suppress(ProcessLookupError):
                        script.send_signal(number)

    def _wake(self, job: int) -> None:
        for waiter in self._waiters.pop(job, []):
            if not waiter.done():
                waiter.set_result(None)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _job_folder(self, job: SimJob) -> Path:
        return self._folder / "jobs" / str(job.id)

    def _mark(self, job: SimJob) -> str:
        return f"{self._folder}:{job.id}.{job.restarts}"

    def _prepare(self, job: SimJob, nodes: tuple[str, ...]) -> None:
        folder = self._job_folder(job)
        shutil.rmtree(folder, ignore_errors=True)  # of a run before a requeue
        # The folder stays ours, so that the user cannot make us write through a link; srun counts its steps in `steps`.
        (folder / "steps").mkdir(parents=True)
        (folder / "nodes").write_text("\n".join(nodes))
        (folder / "mark").write_text(self._mark(job))
        script = job.spec.script if isinstance(job.spec, JobSpec) else ""
        (folder / "script").write_text(script, errors="surrogateescape")  # the bytes that the user wrote
        (folder / "script").chmod(0o700)
        if os.geteuid() == 0:
            for name in ("steps", "script"):
                os.chown(folder / name, job.uid, -1)

    async def _run(self, job: SimJob, spec: JobSpec, mark: str) -> None:
        """Run the batch script to its end and tell the engine."""
        if self._mark(job) != mark or job.state.ended:
            return  # it was requeued, or has ended, before this began
        try:
            self._scripts[mark] = process = await self._launch(job, spec, mark)
            code = await process.wait()
        except (OSError, ValueError) as e:  # ValueError: an environment that no process can have
            log.warning("job %s: %s", job.id, e)
            code = 1
        finally:
            self._scripts.pop(mark, None)
        if self._mark(job) == mark:
            code = 128 - code if code < 0 else code
            self._engine.advance(time.time())
            self._engine.end(job, JobState.FAILED if code else JobState.COMPLETED, code)
            self.settle()

    async def _launch(self, job: SimJob, spec: JobSpec, mark: str) -> asyncio.subprocess.Process:
        """Start the batch script as the job's user."""
        environment = job_environment(job, spec, self._engine.config, self._path) | {
            processes.MARK: mark,
            "PENSTOCK_MOCK_DIR": str(self._folder),
            "HYDRA_LAUNCHER_EXEC": str(self._folder / "bin" / "srun"),
        }
        user, group, groups = _identity(job.uid)
        return await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            _LAUNCH,
            "batch",
            spec.workdir or str(self._folder / "work"),
            output_path(job, spec),
            str(self._job_folder(job) / "script"),
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            user=user,
            group=group,
            extra_groups=groups,
        )

    async def _clean_up(self, job: SimJob, mark: str, grace: float) -> None:
        """Nothing of a job outlives it: SIGTERM, some time to react, SIGKILL."""
        await self._exterminate(lambda run: run == mark, grace)
        if self._mark(job) == mark:
            shutil.rmtree(self._job_folder(job), ignore_errors=True)

    async def _exterminate(self, runs: processes.Wanted, grace: float = 0.0) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        if grace:
            processes.kill(lambda _found: True, runs, signal.SIGTERM)
            while loop.time() < deadline and any(processes.find(runs)):
                await asyncio.sleep(0.05)
        for _ in range(_ATTEMPTS):
            if not processes.kill(lambda _found: True, runs, signal.SIGKILL):
                break
            await asyncio.sleep(0.02)

    def _kill_now(self, mark: str, wanted: Callable[[processes.Found], bool]) -> None:
        for _ in range(_ATTEMPTS):
            if not processes.kill(wanted, lambda run: run == mark, signal.SIGKILL):
                break
            time.sleep(0.005)  # "at once" is a promise to the caller, and a kill takes no longer than this


def _identity(uid: int) -> tuple[int | None, int | None, list[int] | None]:
    """User, group and further groups to run a job as; all None, our own, unless we are root and may choose."""
    if os.geteuid() != 0 or uid == 0:
        return None, None, None
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return uid, uid, []
    return uid, entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid)

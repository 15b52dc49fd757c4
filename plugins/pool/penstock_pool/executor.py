"""Runs tasks on a worker: each command in a session of its own, watched by a thread, measured by psutil.

A command is started from its argument list, without a shell, with no standard input. When it has ended, or is to end,
whatever it has left in its session ends with it. The member's promises are kept by `limits`; a task that takes more
memory than it asked for is killed and has failed. Knows nothing of Dask.
"""

from __future__ import annotations

import os
import resource
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from penstock_pool.guardian import Guardian
from penstock_pool.jobstart import JobStarter, NotStarted, StartedJob
from penstock_pool.limits import Shares, limit_data, pin_thread, visible_gpus
from penstock_pool.model import AttemptOutcome, Capacity, PoolTask, Use
from penstock_pool.output import Capture, output_path
from penstock_pool.sessions import signal_session
from penstock_pool.signals import Whom

__all__ = ["Ended", "TaskExecutor"]

_TERM_GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_JOB_GRACE = 30.0  # the same for jobs, as Slurm's KillWait usually is
_LOOK = 0.5  # seconds between looks whether a command has ended whose output is still open
_NOT_FOUND = 127


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended. `code` is the exit code, or minus the signal; None: it did not start."""

    task: int
    attempt: int
    outcome: AttemptOutcome
    code: int | None
    why: str
    use: Use = field(default_factory=Use)


@dataclass(slots=True)
class _Run:
    task: int
    attempt: int
    what: PoolTask
    started: float
    pid: int = 0
    kill: str = ""  # why it is to end, once it is
    outcome: AttemptOutcome = AttemptOutcome.CANCELLED  # and what that makes of it
    killed_at: float = 0.0
    job: StartedJob | None = None
    warned: bool = False
    signals: list[tuple[int, Whom]] = field(default_factory=list)
    cpu: float = 0.0
    cpu_at: float = 0.0
    memory: int = 0
    thread: threading.Thread | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class TaskExecutor:
    """The tasks of one worker. `ended` is called from other threads. `output` is the folder of their output files,
    `flood` how many bytes of each stream are kept; `jobs` starts those that are jobs."""

    def __init__(
        self, capacity: Capacity, output: Path, flood: int, ended: Callable[[Ended], None], jobs: JobStarter
    ) -> None:
        self._jobs = jobs
        self._output = output
        self._flood = flood
        self._ended = ended
        self._runs: dict[int, _Run] = {}
        self._lock = threading.Lock()
        self._gpu_variable, gpus = visible_gpus(os.environ)
        self._guardian = Guardian()
        self._shares = Shares(os.sched_getaffinity(0), capacity.cores, gpus)

    @property
    def running(self) -> int:
        """How many tasks run."""
        return len(self._runs)

    @property
    def cores(self) -> float:
        """Cores that the tasks which run were promised."""
        with self._lock:
            return sum(run.what.cores for run in self._runs.values())

    def start(self, number: int, attempt: int, task: PoolTask) -> None:
        """Run it in a thread of its own; its end is told in any case."""
        run = _Run(number, attempt, task, time.monotonic())
        with self._lock:
            self._runs[number] = run
        run.thread = threading.Thread(target=self._run, args=(run,), name=f"task-{number}", daemon=True)
        run.thread.start()

    def kill(self, number: int, attempt: int, outcome: AttemptOutcome, why: str) -> None:
        """End it: SIGTERM to its session, SIGKILL after some seconds. Its end is told with this outcome."""
        run = self._runs.get(number)
        if run is not None and run.attempt == attempt:
            self._end(run, outcome, why, _TERM_GRACE if run.what.job is None else _JOB_GRACE)

    def send(self, number: int, attempt: int, signal_number: int, whom: Whom) -> None:
        """Send a signal to some of its processes."""
        run = self._runs.get(number)
        if run is None or run.attempt != attempt:
            return
        with run.lock:
            if not run.pid:  # it is just being started
                run.signals.append((signal_number, whom))
                return
        signal_session(run.pid, signal_number, whom)

    def close(self, why: str, grace: float = _TERM_GRACE) -> None:
        """End all of them as lost and wait, `grace` seconds between SIGTERM and SIGKILL. Nothing is started after."""
        runs = list(self._runs.values())
        for run in runs:
            self._end(run, AttemptOutcome.LOST, why, grace)
        deadline = time.monotonic() + grace + _LOOK + 2.0
        for run in runs:
            if run.thread is not None:
                run.thread.join(max(deadline - time.monotonic(), 0.0))
        self._guardian.close()

    def measure(self) -> dict[int, float]:
        """CPU use of every running task since the last call (cores); ends those that take too much memory."""
        runs = {run.pid: run for run in list(self._runs.values()) if run.pid}
        cpu: dict[int, float] = dict.fromkeys(runs, 0.0)
        memory: dict[int, int] = dict.fromkeys(runs, 0)
        for process in psutil.process_iter():
            try:
                session = os.getsid(process.pid)
                if session not in runs:
                    continue
                cpu[session] += sum(process.cpu_times()[:4])  # its own and its ended children's
                memory[session] += process.memory_info().rss
            except (psutil.Error, OSError):
                continue
        now = time.monotonic()
        used = {}
        for pid, run in runs.items():
            if run.cpu_at:
                used[run.task] = max(cpu[pid] - run.cpu, 0.0) / max(now - run.cpu_at, 1e-3)
            run.cpu, run.cpu_at = cpu[pid], now
            run.memory = max(run.memory, memory[pid])
            allowed = run.what.memory
            if allowed is not None and memory[pid] > allowed:
                taken = f"it took {memory[pid] / 1e6:.0f} MB and had asked for {allowed / 1e6:.0f} MB"
                self._end(run, AttemptOutcome.FAILED if run.job is None else AttemptOutcome.MEMORY, taken)
        return used

    def _end(self, run: _Run, outcome: AttemptOutcome, why: str, grace: float = _TERM_GRACE) -> None:
        with run.lock:
            if run.kill:
                return
            run.kill, run.outcome, run.killed_at = why, outcome, time.monotonic() + grace
            pid = run.pid
        if pid:
            self._ask_to_end(run)

    def _ask_to_end(self, run: _Run) -> None:
        if run.job is not None and run.outcome is AttemptOutcome.CANCELLED:
            run.job.say("")
        signal_session(run.pid, signal.SIGTERM)

    def _run(self, run: _Run) -> None:
        with self._lock:
            cpus, gpus = self._shares.take(run.what.cores, run.what.gpus)
        try:
            ended = self._attempt(run, cpus, gpus)
        except Exception as e:  # whatever it is, the task must not be running for ever
            ended = Ended(
                run.task, run.attempt, AttemptOutcome.FAILED, None, f"the worker could not run it: {e}", Use()
            )
        finally:
            with self._lock:
                self._shares.give_back(cpus, gpus)
                if self._runs.get(run.task) is run:
                    del self._runs[run.task]
        self._ended(ended)

    def _attempt(self, run: _Run, cpus: list[int], gpus: list[str]) -> Ended:
        task = run.what
        if cpus:
            pin_thread(cpus)
        try:
            process = self._begin(run, gpus) if task.job is None else self._begin_job(run, gpus)
        except NotStarted as e:
            return Ended(run.task, run.attempt, AttemptOutcome.FAILED, e.code, str(e), Use())
        self._guardian.began(process.pid)
        with run.lock:
            run.pid = process.pid
            late = bool(run.kill)
        for number, whom in run.signals:
            signal_session(run.pid, number, whom)
        if late:
            self._ask_to_end(run)
        problem, cpu, memory, status = self._follow(run, process)
        self._guardian.ended(process.pid)
        # A process begins with its parent's size, and the kernel counts that: less than ours says nothing.
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        use = Use(time.monotonic() - run.started, cpu, max(memory if memory > own else 0, run.memory))
        code = os.waitstatus_to_exitcode(status)
        if run.job is not None:
            run.job.close()
        if run.kill:
            return Ended(run.task, run.attempt, run.outcome, code, run.kill, use)
        if run.job is not None and code == -signal.SIGKILL and task.memory is not None and use.memory > task.memory:
            why = f"it took {use.memory / 1e6:.0f} MB and had asked for {task.memory / 1e6:.0f} MB"
            return Ended(run.task, run.attempt, AttemptOutcome.MEMORY, code, why, use)
        if code != 0:
            why = f"exit code {code}" if code > 0 else f"killed by {_signal_name(-code)}"
            return Ended(run.task, run.attempt, AttemptOutcome.FAILED, code, problem or why, use)
        return Ended(run.task, run.attempt, AttemptOutcome.COMPLETE, 0, problem, use)

    def _begin(self, run: _Run, gpus: list[str]) -> subprocess.Popen[bytes]:
        task = run.what
        environment = self._environment(run, gpus)
        if problem := _obstacle(task, environment):
            raise NotStarted(problem, _NOT_FOUND)
        try:
            process = subprocess.Popen(
                task.argv,
                cwd=task.workdir,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as e:
            raise NotStarted(f"{task.argv[0]!r} cannot be started: {e.strerror}", _NOT_FOUND) from None
        if task.memory is not None:
            limit_data(process.pid, task.memory)
        return process

    def _begin_job(self, run: _Run, gpus: list[str]) -> subprocess.Popen[bytes]:
        # Its memory is measured alone: a job that takes too much is ended, where a task would be refused it.
        run.job = self._jobs.start(run.what, run.task, run.attempt, self._of_pool(run, gpus))
        return run.job.process

    def _keep_time(self, run: _Run) -> None:
        """Warn and end a job at its limit."""
        job, terms = run.job, run.what.job
        if job is None or terms is None or terms.limit is None or run.kill:
            return
        left = run.started + terms.limit - time.monotonic()
        if terms.signal and left < terms.before and not run.warned:
            run.warned = True
            signal_session(run.pid, terms.signal, Whom.BATCH if terms.batch else Whom.STEPS)
        if left < 0:
            job.say(" DUE TO TIME LIMIT")
            self._end(run, AttemptOutcome.TIMEOUT, "time limit", _JOB_GRACE)

    def _follow(self, run: _Run, process: subprocess.Popen[bytes]) -> tuple[str, float, int, int]:
        """Copy its output until it has ended; what went wrong, its CPU time, its memory, its wait status."""
        captures = []
        pidfd = _pidfd(process.pid)
        with selectors.DefaultSelector() as selector:
            for stream, kind in ((process.stdout, "out"), (process.stderr, "err")):
                if stream is None:  # a job's goes where it says
                    continue
                capture = Capture(stream.fileno(), output_path(self._output, run.task, run.attempt, kind), self._flood)
                captures.append(capture)
                selector.register(stream, selectors.EVENT_READ, capture)
            if pidfd is not None:
                selector.register(pidfd, selectors.EVENT_READ)
            while not _has_ended(process.pid):
                # Without a pidfd, one that has closed its output and goes on is looked at more often.
                for key, _events in selector.select(_LOOK if selector.get_map() else _LOOK / 10):
                    if key.data is not None and not key.data.pump():
                        selector.unregister(key.fileobj)
                self._keep_time(run)
                if run.kill and time.monotonic() > run.killed_at:
                    signal_session(process.pid, signal.SIGKILL)
        if pidfd is not None:
            os.close(pidfd)
        # Not yet waited for, so its number and its session's are still its own.
        signal_session(process.pid, signal.SIGKILL)
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)  # keeps Popen from waiting for it
        problem = ""
        for capture in captures:
            capture.pump()
            capture.close()
            problem = problem or capture.problem
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        return problem, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, status

    def _environment(self, run: _Run, gpus: list[str]) -> dict[str, str]:
        """The worker's own, with what the task says and what it may use."""
        threads = {"OMP_NUM_THREADS": str(max(int(run.what.cores), 1))}
        return {**os.environ, **self._of_pool(run, gpus), **threads, **run.what.environment}

    def _of_pool(self, run: _Run, gpus: list[str]) -> dict[str, str]:
        """Which task it is, and which GPUs it may use."""
        told = {"PENSTOCK_TASK": str(run.task), "PENSTOCK_ATTEMPT": str(run.attempt)}
        if gpus or self._gpu_variable in os.environ:
            told[self._gpu_variable] = ",".join(gpus)
        return told


def _obstacle(task: PoolTask, environment: Mapping[str, str]) -> str:
    """Why it cannot start; empty: it can, as far as one sees."""
    if not Path(task.workdir).is_dir():
        return f"its folder {task.workdir} is not there"
    for name in task.inputs:
        if not (Path(task.workdir) / name).exists():
            return f"its input {name} is not there"
    program = task.argv[0]
    if "/" in program:
        path = Path(task.workdir) / program
        if not path.exists():
            return f"no such command: {program}"
    elif shutil.which(program, path=environment.get("PATH")) is None:
        return f"no such command: {program}"
    return ""


def _pidfd(pid: int) -> int | None:
    """Readable when the process has ended; None on kernels before 5.3."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _has_ended(pid: int) -> bool:
    """Whether it has, without taking its status away."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

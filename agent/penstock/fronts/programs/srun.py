"""The srun of a job that runs as a task of a pool: its command runs here, in the task's cores. Outside of such a job
the real one is run."""

from __future__ import annotations

import os
import select
import signal
import time

from penstock.fronts.programs.path import guarded
from penstock.fronts.programs.process import become, say
from penstock.fronts.programs.step import POOL_JOB, STEPS, StepAsk, StepError, copy_environment, file_of, read_ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType

__all__ = ["front_srun"]

_PIECE = 1 << 16
_LOOK = 0.2  # seconds between looks at limits
_GRACE = 30.0  # seconds between SIGTERM and SIGKILL
_ELSEWHERE = "/tmp"  # noqa: S108 (as Slurm does)
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_NAMES = {9: "Killed", 15: "Terminated", 11: "Segmentation fault", 6: "Aborted", 2: "Interrupt", 1: "Hangup"}


def front_srun(real: str | None, words: Sequence[str], environ: dict[str, str]) -> int:
    """Run a command of a job; the exit code. Raises OSError where the real srun cannot be run."""
    job = environ.get(POOL_JOB, "")
    if not job or environ.get("SLURM_JOB_ID") != job:
        if real is None:
            raise FileNotFoundError(2, "there is no srun behind the front program")
        become(real, words, guarded(real, environ))
    try:
        ask = read_ask(words, environ)
        other = ask.words.value("jobid")
        if ask.only_says or other not in (None, job):
            if real is None:
                raise StepError("srun: error: there is no srun of Slurm's here")
            become(real, words, guarded(real, environ))
        return _Step(ask, environ).run()
    except StepError as e:
        say(2, f"{e}\n".encode(errors="surrogateescape"))
        return e.code


class _Copy:
    """One process of a step. `pipes`: what is read of it, and to which stream of ours it goes."""

    def __init__(self, rank: int, pid: int, pipes: dict[int, int]) -> None:
        self.rank = rank
        self.pid = pid
        self.pipes = pipes
        self.left: dict[int, bytes] = {}
        self.code: int | None = None


class _Step:
    """The copies of one command, until they have ended."""

    def __init__(self, ask: StepAsk, environ: dict[str, str]) -> None:
        self._ask = ask
        self._environ = environ
        self._node = environ.get("SLURMD_NODENAME", "")
        self._number = _next_step(environ.get(STEPS, ""))
        self._copies: list[_Copy] = []
        self._files: dict[str, int] = {}
        self._ending: float | None = None

    def run(self) -> int:
        for warning in self._ask.warnings:
            say(2, f"{warning}\n".encode())
        here = os.getcwd()
        folder = self._folder()
        for number in _PASSED_ON:
            signal.signal(number, self._pass_on)
        stdin = self._input()
        os.chdir(folder)
        for rank in range(self._ask.count):
            self._start(rank, stdin, here)
        self._follow()
        return self._told()

    def _folder(self) -> str:
        wanted = self._ask.words.value("chdir")
        if wanted is None:
            return os.getcwd()
        if os.path.isdir(wanted):
            return wanted
        text = (
            f"slurmstepd: error: couldn't chdir to `{wanted}': No such file or directory: going to {_ELSEWHERE} instead"
        )
        say(2, f"{text}\n".encode(errors="surrogateescape"))
        return _ELSEWHERE

    def _input(self) -> dict[int, int]:
        """A descriptor for the standard input of each rank; -1: nothing."""
        wanted = self._ask.words.value("input") or "all"
        ranks = range(self._ask.count)
        if wanted == "none":
            return {}
        if wanted.isdigit():
            return {int(wanted): 0}
        if wanted != "all":
            return {rank: self._opened(wanted, rank, os.O_RDONLY) for rank in ranks}
        if self._ask.count == 1:
            return {0: 0}
        # What comes is told to all of them, as each reads at its own pace: from a file of its own.
        return _copies_of_input(self._ask.count)

    def _opened(self, pattern: str, rank: int, flags: int) -> int:
        path = file_of(pattern, self._environ, self._number, rank)
        if path not in self._files or flags == os.O_RDONLY:
            try:
                self._files[path] = os.open(path, flags | os.O_CLOEXEC, 0o666)
            except OSError as e:
                raise StepError(f"srun: error: Could not open {path}: {e.strerror}") from e
        return self._files[path]

    def _output(self, option: str, rank: int, stream: int) -> int | None:
        """A descriptor that a stream of this rank goes to; None: it is read here, and told on."""
        wanted = self._ask.words.value(option)
        if option == "error" and wanted is None:
            # Where there is a file for the output alone, errors go there, too.
            wanted = self._ask.words.value("output")
        if wanted is None or wanted == "all":
            plain = self._ask.count == 1 and not self._ask.label
            return stream if plain else None
        if wanted == "none" or (wanted.isdigit() and int(wanted) != rank):
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        if wanted.isdigit():
            return stream
        append = (self._ask.words.value("open-mode") or "t").startswith("a")
        return self._opened(wanted, rank, os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if append else os.O_TRUNC))

    def _start(self, rank: int, stdin: dict[int, int], here: str) -> None:
        environ = copy_environment(self._ask, self._environ, self._number, rank)
        ends: dict[int, int] = {}
        pipes: dict[int, int] = {}
        for option, stream in (("output", 1), ("error", 2)):
            folder = os.getcwd()
            os.chdir(here)
            target = self._output(option, rank, stream)
            os.chdir(folder)
            if target is None:
                ours, target = os.pipe()
                pipes[ours] = stream
            ends[stream] = target
        ends[0] = stdin.get(rank, -1)
        # A signal in between would be taken by our handler in the child, or here before the copy is one that it is
        # passed on to, and be lost.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        pid = os.fork()
        if pid == 0:
            _be(self._ask.command, ends, environ, before)
        self._copies.append(_Copy(rank, pid, pipes))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for stream, target in ends.items():
            if stream and any(stream == of for of in pipes.values()) and target not in (1, 2):
                os.close(target)

    def _follow(self) -> None:
        """Tell on what they say until all have ended."""
        began = time.monotonic()
        first_end: float | None = None
        limited = self._ask.limit is not None or self._ask.patience is not None or self._ask.bad_exit
        while any(copy.code is None for copy in self._copies):
            self._read(_LOOK if limited or self._ask.count > 1 or self._ending is not None else None)
            now = time.monotonic()
            ended = [copy for copy in self._copies if copy.code is not None]
            if ended and first_end is None:
                first_end = now
            if self._ask.bad_exit and any(copy.code for copy in ended):
                self._end()
            if self._ask.limit is not None and now - began > self._ask.limit:
                self._end(" DUE TO TIME LIMIT")
            if self._ask.patience is not None and first_end is not None and now - first_end > self._ask.patience:
                self._end()
            if self._ending is not None and now > self._ending:
                self._signal(signal.SIGKILL)

    def _read(self, limit: float | None) -> None:
        pipes = {pipe: (copy, stream) for copy in self._copies for pipe, stream in copy.pipes.items()}
        if pipes:
            ready, _, _ = select.select(list(pipes), [], [], _LOOK if limit is None else limit)
            for pipe in ready:
                copy, stream = pipes[pipe]
                text = os.read(pipe, _PIECE)
                if not text:
                    os.close(pipe)
                    del copy.pipes[pipe]
                self._tell(copy, stream, text)
        waiting = [copy for copy in self._copies if copy.code is None and not copy.pipes]
        for copy in waiting:
            pid, status = os.waitpid(copy.pid, 0 if limit is None and len(self._copies) == 1 else os.WNOHANG)
            if pid:
                copy.code = os.waitstatus_to_exitcode(status)
        if waiting and not pipes and limit is not None and any(copy.code is None for copy in waiting):
            time.sleep(0.02)

    def _tell(self, copy: _Copy, stream: int, text: bytes) -> None:
        """Whole lines, so that those of several copies do not mix; at the end what is left."""
        whole = copy.left.pop(stream, b"") + text
        if not self._ask.words.has("unbuffered") or self._ask.label:
            at = len(whole) if not text else whole.rfind(b"\n") + 1
            whole, copy.left[stream] = whole[:at], whole[at:]
        if self._ask.label:
            whole = _labelled(whole, copy.rank)
        if whole:
            say(stream, whole)

    def _end(self, why: str = "") -> None:
        if self._ending is not None:
            return
        self._ending = time.monotonic() + _GRACE
        job = self._environ.get(POOL_JOB, "")
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S")
        text = f"slurmstepd: error: *** STEP {job}.{self._number} ON {self._node} CANCELLED AT {stamp}{why} ***\n"
        say(2, text.encode())
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        for copy in self._copies:
            if copy.code is None:
                try:
                    os.kill(copy.pid, number)
                except ProcessLookupError:
                    continue

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        self._signal(number)

    def _told(self) -> int:
        """Say how those ended that did not end well; the exit code."""
        by_code: dict[int, list[int]] = {}
        for copy in self._copies:
            if copy.code:
                by_code.setdefault(copy.code, []).append(copy.rank)
        for code, ranks in by_code.items():
            several = "tasks" if len(ranks) > 1 else "task"
            how = f"Exited with exit code {code}" if code > 0 else _NAMES.get(-code, f"Exited with signal {-code}")
            say(2, f"srun: error: {self._node}: {several} {_spans(ranks)}: {how}\n".encode())
        # A signal outweighs every exit code.
        return max((128 - code for code in by_code if code < 0), default=max(by_code, default=0))


def _be(command: list[str], ends: dict[int, int], environ: Mapping[str, str], mask: set[int | signal.Signals]) -> None:
    """Become a copy, in the child."""
    code = 1
    try:
        for number in (*_PASSED_ON, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream, target in ends.items():
            os.dup2(nothing if target < 0 else target, stream)
        program = _program(command[0], environ)
        os.execve(program, command, {**environ, "SLURM_TASK_PID": str(os.getpid())})
    except OSError as e:
        code = e.errno or 1
        os.write(2, f"slurmstepd: error: execve(): {command[0]}: {e.strerror}\n".encode(errors="surrogateescape"))
    finally:
        os._exit(code)


def _program(name: str, environ: Mapping[str, str]) -> str:
    """Where a program is, as Slurm looks for it: on the PATH that the copy has."""
    if "/" in name:
        return name
    for folder in environ.get("PATH", "").split(os.pathsep):
        found = os.path.join(folder or ".", name)
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    raise FileNotFoundError(2, "No such file or directory")


def _copies_of_input(count: int) -> dict[int, int]:
    content = b""
    try:
        while part := os.read(0, _PIECE):
            content += part
    except OSError:  # it is closed
        pass
    found = {}
    for rank in range(count):
        memory = os.memfd_create("input")
        left = memoryview(content)
        while left:
            left = left[os.write(memory, left) :]
        os.lseek(memory, 0, os.SEEK_SET)
        found[rank] = memory
    return found


def _spans(ranks: list[int]) -> str:
    """0, 1, 2, 5 as 0-2,5."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _next_step(counter: str) -> int:
    """The number of the next step of a job; several at once have each their own."""
    try:
        descriptor = os.open(counter, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return 0
    try:
        # Each appends a byte; where it has come to lie is the number.
        os.write(descriptor, b".")
        return os.lseek(descriptor, 0, os.SEEK_CUR) - 1
    finally:
        os.close(descriptor)


def _labelled(text: bytes, rank: int) -> bytes:
    """Each line with the number of its copy before it; a carriage return ends none."""
    *lines, rest = text.split(b"\n")
    return b"".join(b"%d: %s\n" % (rank, line) for line in lines) + (b"%d: %s" % (rank, rest) if rest else b"")

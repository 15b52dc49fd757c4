"""A farm of tasks for elastic jobs: a file of commands, one a line, run by workers that come and go.

    python -m dmr.elastic.farm head tasks.txt FOLDER        hands out, counts, and ends when all lines are done
    python -m dmr.elastic.farm worker FOLDER --slots 4      runs four at a time on this node

Both see the folder. A task is a file that is renamed from `todo/` to `doing/` to `done/`, so that one worker alone gets
it; POSIX has rename atomic, and so has NFS on its server. A task that is in `done/` is never run again, also by a head
that is started anew over the same folder: a farm that was killed goes on. A worker that is told to leave (SIGTERM)
takes no more tasks, and puts back in time what it has not ended by then. One that dies is found out by its
heartbeat, and its tasks are put back: such a task runs twice, so write its result in one step (`mv`).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["Head", "Worker", "main"]

_EACH: Final = 0.2
_BEAT: Final = 5.0
_SILENT: Final = 60.0
_MARGIN: Final = 5.0  # before the end of grace, of which it is a quarter at most


class Head:
    """Hands out the tasks of a file.

    Args:
        tasks: lines for `bash -c`; empty ones and comments (#) are left out.
        folder: of the farm.
        tries: how often a task that fails is run.
        slots: tasks that a node runs at a time, for what is told to `want`.
        want: a file that gets the number of nodes that there is work for.
        silent: seconds without a heartbeat after which a worker counts as dead.
    """

    def __init__(
        self,
        tasks: Sequence[str],
        folder: Path,
        *,
        tries: int = 3,
        slots: int = 1,
        want: Path | None = None,
        silent: float = _SILENT,
    ) -> None:
        self._folder = folder
        self._tries = tries
        self._slots = slots
        self._want = want
        self._silent = silent
        self._told = 0
        lines = [line for line in tasks if line.strip() and not line.lstrip().startswith("#")]
        self.count = len(lines)
        for name in ("todo", "doing", "done", "failed", "workers"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        known = {_number(p) for name in ("todo", "doing", "done", "failed") for p in (folder / name).iterdir()}
        for number, line in enumerate(lines):
            if f"{number:08d}" not in known:
                new = folder / f".new-{number:08d}"
                new.write_text(line + "\n")
                new.rename(folder / "todo" / f"{number:08d}.0")

    def look(self) -> tuple[int, int]:
        """Put back what the dead have left, and count: tasks that are not over, tasks that have failed."""
        now = self._now()
        alive = {p.name for p in (self._folder / "workers").iterdir() if now - _written(p) < self._silent}
        doing = sorted((self._folder / "doing").iterdir())
        for path in doing:
            task, _, worker = path.name.partition("@")
            if worker not in alive and now - _written(path) >= self._silent:
                with contextlib.suppress(FileNotFoundError):  # it has ended just now
                    path.rename(self._folder / "todo" / task)
        failed = 0
        for path in sorted((self._folder / "failed").iterdir()):
            tries = path.name.partition(".")[2]
            if int(tries) < self._tries:
                path.rename(self._folder / "todo" / path.name)
            else:
                failed += 1
        over = sum(1 for _ in (self._folder / "done").iterdir()) + failed
        left = self.count - over
        self._tell(left)
        return left, failed

    def _now(self) -> float:
        """The clock of the file system, which the heartbeats are written by."""
        mark = self._folder / ".now"
        mark.touch()
        os.utime(mark)
        return _written(mark)

    def _tell(self, left: int) -> None:
        wanted = max(1, -(-left // self._slots))
        if self._want is not None and wanted != self._told:
            new = self._want.with_name(self._want.name + ".new")
            new.write_text(f"{wanted}\n")
            new.replace(self._want)
            self._told = wanted


@dataclass
class _Task:
    name: str
    path: Path
    popen: subprocess.Popen[bytes]


@dataclass
class Worker:
    """Runs tasks of a farm, `slots` at a time; `grace` is how many seconds it has when it is told to leave."""

    folder: Path
    slots: int = 1
    grace: float = 30.0
    name: str = field(
        default_factory=lambda: f"{os.environ.get('SLURMD_NODENAME') or socket.gethostname()}-{os.getpid()}"
    )
    leaves_at: float | None = None
    running: list[_Task] = field(default_factory=list)
    _beaten: float = float("-inf")

    def leave(self, *_: object) -> None:
        """Take no more tasks; what runs may end within grace."""
        if self.leaves_at is None:
            self.leaves_at = time.monotonic() + self.grace - min(_MARGIN, self.grace / 4)

    def step(self) -> bool:
        """One look at all; whether there is anything left to do for this worker."""
        now = time.monotonic()
        if now - self._beaten >= _BEAT:
            beat = self.folder / "workers" / self.name
            with contextlib.suppress(FileNotFoundError):  # the head has not begun
                beat.touch()
                os.utime(beat)
                self._beaten = now
        for task in list(self.running):
            code = task.popen.poll()
            if code is not None:
                self.running.remove(task)
                self._over(task, code)
        if self.leaves_at is not None:
            if now >= self.leaves_at:
                self._put_back()
            return bool(self.running)
        while len(self.running) < self.slots and self._take():
            pass
        return True

    def _take(self) -> bool:
        try:
            names = sorted(entry.name for entry in os.scandir(self.folder / "todo"))
        except FileNotFoundError:  # the head has not begun
            return False
        for name in names:
            path = self.folder / "doing" / f"{name}@{self.name}"
            try:
                (self.folder / "todo" / name).rename(path)
            except FileNotFoundError:  # another worker was quicker
                continue
            os.utime(path)
            line = path.read_text()
            environ = {**os.environ, "PENSTOCK_TASK": str(int(_number(path)))}
            popen = subprocess.Popen(["bash", "-c", line], stdin=subprocess.DEVNULL, env=environ, process_group=0)
            self.running.append(_Task(name, path, popen))
            return True
        return False

    def _over(self, task: _Task, code: int) -> None:
        number, _, tries = task.name.partition(".")
        target = f"done/{task.name}" if code == 0 else f"failed/{number}.{int(tries) + 1}"
        if code:
            print(f"farm: task {int(number)} failed on {self.name} (exit {code})", flush=True)
        with contextlib.suppress(FileNotFoundError):  # it was thought dead, and another one runs it
            task.path.rename(self.folder / target)

    def _put_back(self) -> None:
        for task in self.running:
            if task.popen.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(task.popen.pid, signal.SIGKILL)
                task.popen.wait()
                with contextlib.suppress(FileNotFoundError):
                    task.path.rename(self.folder / "todo" / task.name)
            else:
                self._over(task, task.popen.returncode)
        self.running.clear()


def _number(path: Path) -> str:
    return path.name.partition(".")[0]


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("-inf")


def _slots() -> int:
    return len(os.sched_getaffinity(0))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the head or a worker; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m dmr.elastic.farm", description="A farm of tasks.")
    kinds = parser.add_subparsers(dest="kind", required=True)
    head = kinds.add_parser("head", help="hand out the lines of a file")
    head.add_argument("tasks", type=Path)
    head.add_argument("folder", type=Path)
    head.add_argument("--tries", type=int, default=3, help="how often a task that fails is run (3)")
    head.add_argument("--slots", type=int, default=0, help="tasks at a time on a node (its cores)")
    worker = kinds.add_parser("worker", help="run tasks")
    worker.add_argument("folder", type=Path)
    worker.add_argument("--slots", type=int, default=0, help="tasks at a time (the cores of this node)")
    worker.add_argument("--grace", type=float, default=30.0, help="seconds that it has to leave (30)")
    options = parser.parse_args(arguments)
    if options.kind == "head":
        return _head(options)
    one = Worker(options.folder, options.slots or _slots(), options.grace)
    signal.signal(signal.SIGTERM, one.leave)
    with _alarm() as rest:
        while one.step():
            rest(_EACH)
    return 0


@contextlib.contextmanager
def _alarm() -> Iterator[Callable[[float], None]]:
    """What waits so many seconds, or until a child ends or a signal comes: a task shorter than that loses no time."""
    woken, ring = socket.socketpair()
    with woken, ring:
        woken.setblocking(False)
        ring.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only what is handled rings
        signal.set_wakeup_fd(ring.fileno(), warn_on_full_buffer=False)

        def rest(seconds: float) -> None:
            select.select([woken], [], [], seconds)
            with contextlib.suppress(BlockingIOError):
                woken.recv(4096)

        try:
            yield rest
        finally:
            signal.set_wakeup_fd(-1)


def _head(options: argparse.Namespace) -> int:
    try:
        lines = options.tasks.read_text().split("\n")  # form feeds and the like are part of a command
    except OSError as error:
        print(f"farm: {options.tasks} cannot be read: {error.strerror}", file=sys.stderr)
        return 2
    want = os.environ.get("PENSTOCK_ELASTIC_WANT")
    head = Head(
        lines,
        options.folder,
        tries=options.tries,
        slots=options.slots or _slots(),
        want=Path(want) if want else None,
    )
    print(f"farm: {head.count} tasks", flush=True)
    while True:
        left, failed = head.look()
        if left <= 0:
            print(f"farm: all over, {head.count - failed} done, {failed} failed", flush=True)
            return 1 if failed else 0
        time.sleep(_EACH * 5)


if __name__ == "__main__":
    sys.exit(main())

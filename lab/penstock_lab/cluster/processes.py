"""Starting a cluster's processes, finding them again after any crash, ending them. Never by name alone."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from penstock.errors import PenstockError
from penstock_lab.cluster.users import RunAs

__all__ = [
    "MARK",
    "NODE_MARK",
    "Process",
    "find",
    "kill_all",
    "of_users",
    "other_clusters",
    "start",
    "stop",
    "tail",
    "wait_for",
]

# Every daemon carries the cluster's folder in its environment, and slurmstepd inherits it from slurmd. So processes
# are found even if the command that started them died before it could record them.
MARK = "PENSTOCK_CLUSTER"
NODE_MARK = "PENSTOCK_CLUSTER_NODE"

# Keeps the handles of daemons that this very process started, so that they are reaped and not reported as leaked.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True)
class Process:
    """A process, safe against the reuse of its number.

    `ticks` is its start in the kernel's count since boot, which no correction of the clock moves; `started` is the
    time of day in seconds, for comparing with what daemons say of themselves.
    """

    pid: int
    ticks: int
    started: float

    @property
    def alive(self) -> bool:
        """Whether exactly this process runs."""
        if (child := _children.get(self.pid)) is not None:
            child.poll()
        state, ticks = _stat(self.pid)
        return ticks == self.ticks and state not in ("Z", "X")


def _stat(pid: int) -> tuple[str, int]:
    """State and start of a process from /proc; ("", -1) if there is none."""
    try:
        # The second field, the name in parentheses, may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, IndexError, ValueError):
        return "", -1


def start(argv: list[str], env: Mapping[str, str], log: Path, cwd: Path, run_as: RunAs) -> Process:
    """Start a daemon in the foreground mode it has, in a session of its own, with all output in `log`."""
    started = time.time()
    with log.open("ab") as output:
        child = subprocess.Popen(
            argv,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            umask=0o022,
            start_new_session=True,
            **run_as,
        )
    _children[child.pid] = child
    return Process(child.pid, _stat(child.pid)[1], started)


def tail(log: Path, lines: int = 8) -> str:
    """The last lines of a log, indented."""
    try:
        text = log.read_text(errors="replace").splitlines()[-lines:]
    except OSError:
        text = []
    return "\n".join(f"    {line}" for line in text) or "    (its log is empty)"


def wait_for(ready: Callable[[], bool], name: str, process: Process, log: Path, limit: float) -> None:
    """Wait until `ready`; PenstockError with the end of the log if the process ends or the limit (seconds) passes."""
    deadline = time.monotonic() + limit
    while not ready():
        if not process.alive:
            raise PenstockError(f"{name} ended while starting; the end of its log:\n{tail(log)}")
        if time.monotonic() > deadline:
            raise PenstockError(f"{name} was not ready within {limit:.0f} s; the end of its log:\n{tail(log)}")
        time.sleep(0.03)


def _all() -> Iterator[psutil.Process]:
    """The processes of this machine, without those of containers: their users, folders and marks are others than ours,
    whatever they are called."""
    here = _namespace(os.getpid())
    return (process for process in psutil.process_iter() if _namespace(process.pid) == here)


def _namespace(pid: int) -> str:
    """That of process numbers; empty for a process that is gone, or of which nothing can be seen."""
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _environ(process: psutil.Process) -> dict[str, str]:
    try:
        # slurmstepd writes its title over the first variables: an empty one (where psutil stops) is not the end.
        entries = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return {os.fsdecode(key): os.fsdecode(value) for key, found, value in (e.partition(b"=") for e in entries) if found}


def _belongs(env: Mapping[str, str], root: Path, conf: Path) -> bool:
    if env.get(MARK) == str(root):
        return True
    # A task of a job has its user's environment. A shell with SLURM_CONF alone is somebody's who only looks.
    return env.get("SLURM_CONF") == str(conf) and "SLURMD_NODENAME" in env


def find(root: Path, conf: Path, uids: Iterable[int] = (), node: str | None = None) -> list[psutil.Process]:
    """All processes of the cluster in `root`: daemons, job steps, tasks, and what they started.

    `uids` are users that exist for clusters only: what they run with this cluster's SLURM_CONF counts as well.
    With `node`, only the processes of that node.
    """
    own, only = set(uids), []
    for process in _all():
        env = _environ(process)
        try:
            hers = bool(own) and env.get("SLURM_CONF") == str(conf) and process.uids().real in own
        except psutil.Error:
            continue
        if not (hers or _belongs(env, root, conf)):
            continue
        if node is not None and node not in (env.get(NODE_MARK), env.get("SLURMD_NODENAME")):
            continue
        only.append(process)
    found = {p.pid: p for p in only}
    for process in only:
        try:
            found.update((p.pid, p) for p in process.children(recursive=True))
        except psutil.Error:
            continue
    # A `down` that runs inside a job of the cluster must not end itself.
    for process in (psutil.Process(), *psutil.Process().parents()):
        found.pop(process.pid, None)
    return list(found.values())


def of_users(uids: Iterable[int]) -> list[psutil.Process]:
    """All processes of these users."""
    own, found = set(uids), []
    for process in _all():
        try:
            if process.uids().real in own:
                found.append(process)
        except psutil.Error:
            continue
    return found


def other_clusters(root: Path) -> set[str]:
    """Folders of other clusters that run on this machine."""
    marks = (_environ(process).get(MARK) for process in _all())
    return {mark for mark in marks if mark and mark != str(root)}


def kill_all(look: Callable[[], list[psutil.Process]], limit: float = 15.0) -> int:
    """Kill what `look` finds until it finds nothing; how many there were. Nothing is worth a soft ending here."""
    deadline = time.monotonic() + limit
    total = 0
    while victims := [p for p in look() if _running(p)]:
        # The look alone may take longer than that on a busy machine, so there is at least one attempt.
        if total and time.monotonic() > deadline:
            raise PenstockError(f"processes that cannot be ended: {', '.join(str(p.pid) for p in victims)}")
        total += len(victims)
        for victim in victims:
            try:
                victim.kill()
            except psutil.NoSuchProcess:
                continue
        # Not psutil.wait_procs: where process 1 does not reap, that would wait for zombies.
        patience = time.monotonic() + 2
        while any(_running(victim) for victim in victims) and time.monotonic() < patience:
            time.sleep(0.01)
    return total


def _running(process: psutil.Process) -> bool:
    if (child := _children.get(process.pid)) is not None:
        child.poll()
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def stop(process: Process, limit: float = 30.0) -> None:
    """End one daemon in an orderly way, or by force after the limit (seconds)."""
    if not process.alive:
        return
    handle = psutil.Process(process.pid)
    try:
        handle.terminate()
        deadline = time.monotonic() + limit
        while process.alive:
            if time.monotonic() > deadline:
                handle.kill()
            time.sleep(0.03)
    except psutil.NoSuchProcess:
        return

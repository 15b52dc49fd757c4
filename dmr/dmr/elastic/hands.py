"""What an elastic job does with its nodes, done by commands: the door through which processes are started and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from dmr.elastic import lines
from dmr.elastic.words import (
    PROGRAM,
    ElasticNode,
    ElasticPlan,
    Event,
    HasEnded,
    Instruction,
    Join,
    KillNodes,
    Leave,
    Left,
    Notified,
    Notify,
    Ready,
    RunProgram,
    Signal,
    Wanted,
)
from dmr.mortal import end_with_parent

__all__ = ["Commands", "Hands"]

_EACH: Final = 1.0  # seconds between two looks whether a node is ready
_PATIENCE: Final = 60.0  # for the notification command
_TAIL: Final = 65536


class Hands(Protocol):
    """What carries out the instructions that are about nodes."""

    def do(self, instructions: Sequence[Instruction]) -> None:
        """Begin these."""
        ...

    def look(self) -> list[Event]:
        """What has happened since the last look."""
        ...

    def close(self) -> None:
        """End what still runs."""
        ...


@dataclass
class _Process:
    """What was started for a host; `asks`: the command under way that says whether it is ready."""

    member: ElasticNode
    popen: subprocess.Popen[bytes]
    output: Path | None
    since: float
    offset: int = 0  # of what it writes, in its output
    ready: bool = False
    asks: subprocess.Popen[bytes] | None = None
    asked: float = 0.0
    killed: float | None = None


class Commands:
    """Runs the commands of a plan, by bash on this node and by srun on others.

    Args:
        plan: with the commands.
        environ: of the batch script.
        job: its number.
        folder: where outputs and what programs may need to know of the nodes are written.
    """

    def __init__(self, plan: ElasticPlan, environ: Mapping[str, str], job: int, folder: Path) -> None:
        self._plan = plan
        self._job = job
        self._folder = folder.absolute()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._want = self._folder / "want"
        self._want.unlink(missing_ok=True)
        own = {
            "PENSTOCK_ELASTIC_JOB": str(job),
            "PENSTOCK_ELASTIC_HEAD": socket.gethostname(),
            "PENSTOCK_ELASTIC_FIRST": environ.get("SLURMD_NODENAME", ""),
            "PENSTOCK_ELASTIC_PORT": str(_free_port()),
            "PENSTOCK_ELASTIC_FOLDER": str(self._folder),
            "PENSTOCK_ELASTIC_WANT": str(self._want),
            "PENSTOCK_ELASTIC_MIN": str(plan.minimum),
            "PENSTOCK_ELASTIC_MAX": str(plan.maximum),
            "PENSTOCK_ELASTIC_PYTHON": sys.executable,
        }
        self._environ = {**environ, **own}
        self._elsewhere = {**lines.cleaned(environ), **own}
        self._running: dict[str, _Process] = {}
        self._notifying: tuple[subprocess.Popen[bytes], float] | None = None
        self._leaving: subprocess.Popen[bytes] | None = None
        self._helpers: list[subprocess.Popen[bytes]] = []
        self._failed: list[Event] = []
        self._wanted = 0
        self._saved: float | None = None  # when the checkpoint was written that was there at the last start

    # -- doing -------------------------------------------------------------------------------------------------------

    def do(self, instructions: Sequence[Instruction]) -> None:
        """See `Hands`."""
        for one in instructions:
            match one:
                case RunProgram(members=members, again=again):
                    self._run(members, again)
                case Join(member=member):
                    output = self._folder / f"{member.host}.out"
                    argv = lines.srun(member, self._plan.join, str(output))
                    self._start(member, argv, {**self._elsewhere, "PENSTOCK_HOST": member.host}, output)
                case Notify(event=event, members=members):
                    environ = {**self._environ, **lines.resize(event, members, self._job)}
                    self._notifying = (_bash(self._plan.notify, environ), time.monotonic() + _PATIENCE)
                case Leave(members=members, seconds=seconds):
                    environ = {**self._environ, **lines.resize("shrink", members, self._job, seconds)}
                    self._leaving = _bash(self._plan.leave, environ)
                case Signal(members=members):
                    self._signal(members, self._plan.signal)
                case KillNodes(members=members):
                    for member in members:
                        if (process := self._running.get(member.host)) and process.killed is None:
                            process.killed = time.monotonic()
                    self._signal(members, int(signal.SIGKILL))

    def _run(self, members: Sequence[ElasticNode], again: bool) -> None:
        hosts = self._folder / "hosts"
        hosts.write_text("".join(f"{m.host}\n" for m in members))
        shell = self._folder / "rsh"
        shell.write_text(lines.remote_shell(members))
        shell.chmod(0o755)
        environ = {
            **self._environ,
            "PENSTOCK_ELASTIC_HOSTS": lines.hosts_of(members),
            "PENSTOCK_ELASTIC_NODES": str(len(members)),
            "PENSTOCK_ELASTIC_RSH": str(shell),
        }
        if self._plan.again:  # one program over several jobs, of which mpiexec knows nothing
            environ |= {
                "HYDRA_HOST_FILE": str(hosts),
                "HYDRA_LAUNCHER": "ssh",
                "HYDRA_LAUNCHER_EXEC": str(shell),
                "OMPI_MCA_plm_rsh_agent": str(shell),
                "OMPI_MCA_plm": "rsh",
                "PRTE_MCA_plm_ssh_agent": str(shell),
                "PRTE_MCA_plm": "ssh",
            }
            self._saved = self._written()
        line = self._plan.again if again else self._plan.start
        self._start(ElasticNode(PROGRAM, self._job), ["bash", "-c", line], environ, None)

    def _start(self, member: ElasticNode, argv: list[str], environ: Mapping[str, str], output: Path | None) -> None:
        offset = output.stat().st_size if output is not None and output.exists() else 0
        try:
            popen = subprocess.Popen(
                argv,
                env=environ,
                stdin=subprocess.DEVNULL,
                process_group=0,
                preexec_fn=end_with_parent,
            )
        except OSError as error:
            print(f"elastic: {argv[0]} cannot be started: {error}", file=sys.stderr, flush=True)
            self._failed.append(HasEnded(member.host, 127))
            return
        self._running[member.host] = _Process(member, popen, output, time.monotonic(), offset)

    def _signal(self, members: Sequence[ElasticNode], number: int) -> None:
        companions: set[int] = set()
        for member in members:
            process = self._running.get(member.host)
            if process is None:
                continue
            if member.job != self._job:
                companions.add(member.job)
            elif member.host == PROGRAM:
                # A signal to save is for mpiexec alone, which passes it on to the ranks: its srun's would end by it.
                send = os.kill if self._plan.again and number != signal.SIGKILL else os.killpg
                with contextlib.suppress(ProcessLookupError):
                    send(process.popen.pid, number)
            else:  # srun ends its step on SIGTERM, and passes on others
                with contextlib.suppress(ProcessLookupError):
                    process.popen.send_signal(signal.SIGTERM if number == signal.SIGKILL else number)
        for job in sorted(companions):  # srun would end its step at once on SIGTERM, which Slurm passes on as it is
            argv = ["scancel", f"--signal={signal.Signals(number).name[3:]}", str(job)]
            with contextlib.suppress(OSError):
                self._helpers.append(_quietly(argv, self._elsewhere))

    # -- looking -----------------------------------------------------------------------------------------------------

    def look(self) -> list[Event]:
        """See `Hands`."""
        events, self._failed = self._failed, []
        self._helpers = [helper for helper in self._helpers if helper.poll() is None]
        for host, process in list(self._running.items()):
            code = process.popen.poll()
            if code is not None:
                del self._running[host]
                _end(process.asks)
                events.append(self._end_of(host, code if code >= 0 else 128 - code))
            elif not process.ready and self._is_ready(process):
                process.ready = True
                events.append(Ready(host))
            elif process.killed is not None and time.monotonic() - process.killed > _EACH * 10:
                process.popen.kill()
        if self._notifying is not None:
            events += self._notified(*self._notifying)
        if self._leaving is not None and self._leaving.poll() is not None:
            self._leaving = None
            events.append(Left())
        return [*events, *self._wants()]

    def _notified(self, popen: subprocess.Popen[bytes], deadline: float) -> list[Event]:
        code = popen.poll()
        if code is None and time.monotonic() < deadline:
            return []
        self._notifying = None
        if code is None:
            _end(popen)
            return [Notified(False, f"no answer within {_PATIENCE:g} s")]
        return [Notified(code == 0, f"exit {code}" if code else "")]

    def _end_of(self, host: str, code: int) -> HasEnded:
        if host != PROGRAM or not self._plan.again:
            return HasEnded(host, code)
        now = self._written()
        saved = not self._plan.checkpoint or (now is not None and now != self._saved)
        finished = False
        if self._plan.finished and code == 0:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                done = subprocess.run(
                    ["bash", "-c", self._plan.finished], env=self._environ, timeout=_PATIENCE, check=False
                )
                finished = done.returncode == 0
        return HasEnded(host, code, saved, finished)

    def _written(self) -> float | None:
        if not self._plan.checkpoint:
            return None
        try:
            found = Path(self._plan.checkpoint).stat()
        except OSError:
            return None
        return found.st_mtime if found.st_size else None

    def _is_ready(self, process: _Process) -> bool:
        now = time.monotonic()
        by_command = self._plan.ready and (process.member.host != PROGRAM or self._plan.again)
        if not by_command and (process.output is None or not self._plan.ready_line):
            return now - process.since >= self._plan.settle
        if not by_command and process.output is not None:
            return self._plan.ready_line in _tail(process.output, process.offset)
        if process.asks is not None:
            code = process.asks.poll()
            if code is None:
                return False
            process.asks = None
            return code == 0
        if now - process.asked >= _EACH:
            process.asked = now
            environ = {**self._environ, "PENSTOCK_HOST": process.member.host}
            process.asks = _bash(self._plan.ready, environ)
        return False

    def _wants(self) -> list[Event]:
        try:
            text = self._want.read_text().strip()
        except OSError:
            return []
        wanted = int(text) if text.isascii() and text.isdigit() else self._wanted
        if wanted == self._wanted:
            return []
        self._wanted = wanted
        return [Wanted(wanted)]

    def close(self) -> None:
        """See `Hands`."""
        for process in self._running.values():
            _end(process.asks)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.popen.pid, signal.SIGKILL if process.member.host == PROGRAM else signal.SIGTERM)
        for helper in (self._leaving, self._notifying[0] if self._notifying else None):
            _end(helper)


def _bash(line: str, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["bash", "-c", line], env=environ, stdin=subprocess.DEVNULL, process_group=0)


def _quietly(argv: list[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    nothing = subprocess.DEVNULL  # a companion that has ended meanwhile is no news
    return subprocess.Popen(argv, env=environ, stdin=nothing, stdout=nothing, stderr=nothing)


def _end(popen: subprocess.Popen[bytes] | None) -> None:
    if popen is not None and popen.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGKILL)
        popen.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        port: int = one.getsockname()[1]
        return port


def _tail(path: Path, offset: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(offset, path.stat().st_size - _TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""

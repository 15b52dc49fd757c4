"""Jobs of Slurm: submitted once each through Penstock's front program, followed by a file that each leaves at its end.

A look at the queue serves all jobs, and is only for those that leave no such file: killed, cancelled, out of time.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["JobsAtSlurm", "SlurmRefused"]

_LOOK: Final = 10.0  # seconds between looks at the queue
_GRACE: Final = 15.0  # seconds in which a file may still come of a job that is over
_LIMIT: Final = 120.0
_OVER: Final = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
)  # fmt: skip
_GONE: Final = "GONE"  # from the queue, and what became of it is not known


class SlurmRefused(Exception):
    """Slurm has not taken the job, or cannot be asked; the text is what it said."""


class JobsAtSlurm:
    """The jobs of one workflow; their files are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ids: dict[str, str] = {}  # by name
        self._over: dict[str, tuple[str, float]] = {}  # state and when it was seen, by id
        self._looked = 0.0
        self._programs: str | None = None

    def __len__(self) -> int:
        return len(self._ids)

    def number(self, name: str) -> str | None:
        """Slurm's number of a job of ours; None for what is none."""
        return self._ids.get(name)

    def log(self, name: str) -> Path:
        """What the job has written."""
        return self._folder / f"{name}.log"

    def submit(
        self, name: str, command: Sequence[str], options: Sequence[str], title: str, after: Sequence[str] = ()
    ) -> str:
        """Submit the job and give its number; `after`: numbers of jobs that have to be done before. Raises
        SlurmRefused."""
        self._folder.mkdir(parents=True, exist_ok=True)
        script, end = self._folder / f"{name}.sh", shlex.quote(str(self._end(name)))
        script.write_text(
            f"#!/bin/sh\nrm -f {end}\n{shlex.join(command)}\ncode=$?\n"
            f"echo $code >{end}.new && mv {end}.new {end}\nexit $code\n",
            encoding="utf-8",
        )
        words = ["sbatch", "--parsable", f"--job-name={title}", f"--comment={name}", "--export=ALL"]
        words += [f"--output={self.log(name)}", f"--chdir={Path.cwd()}", *options]
        if after:
            words += ["--kill-on-invalid-dep=yes", f"--dependency=afterok:{':'.join(after)}"]
        told = self._run([*words, str(script)])
        number = told.strip().splitlines()[-1].partition(";")[0] if told.strip() else ""
        if not number.isdecimal():
            raise SlurmRefused(f"sbatch said no number: {told.strip()[:200]!r}")
        self._ids[name] = number
        return number

    def done(self, name: str) -> bool:
        """Whether the job of an earlier run of Snakemake has ended well."""
        return self._code(name) == 0

    def adopt(self, name: str) -> bool:
        """Whether the job of an earlier run of Snakemake is in the queue; it is followed then. Raises SlurmRefused."""
        for line in self._run(["squeue", "--me", "-h", "-o", "%i|%T|%k"]).splitlines():
            number, state, comment = [*line.split("|", 2), "", ""][:3]
            if name in comment.split() and state not in _OVER:
                self._ids[name] = number
                return True
        return False

    def ended(self, names: Iterable[str]) -> dict[str, str]:
        """Which of the jobs have ended: "" for those that went well, else why not. Raises SlurmRefused."""
        found, open_ = {}, []
        for name in names:
            code = self._code(name)
            if code is None:
                open_.append(name)
            else:
                found[name] = "" if code == 0 else f"exit code {code}"
        if open_ and time.monotonic() - self._looked > _LOOK:
            self._look(open_)
            self._looked = time.monotonic()
        for name in open_:
            state, seen = self._over.get(self._ids[name], ("", 0.0))
            if state and time.monotonic() - seen > _GRACE and self._code(name) is None:
                found[name] = f"Slurm says {state}" if state != _GONE else "it has left Slurm's queue without an end"
        return found

    def cancel(self, names: Iterable[str]) -> None:
        """Have jobs end; one that has ended is none of our business."""
        if numbers := [self._ids[name] for name in names if name in self._ids]:
            with suppress(SlurmRefused):
                self._run(["scancel", *numbers])

    def forget(self, name: str, *, keep_log: bool) -> None:
        """The job is done with."""
        self._ids.pop(name, None)
        for path in (self._end(name), self._folder / f"{name}.sh", *(() if keep_log else (self.log(name),))):
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def _look(self, names: Sequence[str]) -> None:
        states = self._states([self._ids[name] for name in names])
        for name in names:
            number = self._ids[name]
            state = states.get(number, _GONE)
            if state in _OVER or state == _GONE:
                self._over.setdefault(number, (state, time.monotonic()))
            else:
                self._over.pop(number, None)  # it was requeued

    def _states(self, numbers: Sequence[str]) -> Mapping[str, str]:
        told = self._run(["squeue", "--me", "-h", "-t", "all", "-o", "%i|%T"])
        rows = (line.partition("|") for line in told.splitlines())
        return {number: state.strip() for number, _, state in rows if number in numbers}

    def _code(self, name: str) -> int | None:
        try:
            return int(self._end(name).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    def _end(self, name: str) -> Path:
        return self._folder / f"{name}.exit"

    def _run(self, words: Sequence[str]) -> str:
        """What one of Slurm's commands says, through the front program, which tries again while Slurm is busy."""
        if self._programs is None:
            asked = [sys.executable, "-m", "penstock", "shim", "--path"]
            done = subprocess.run(asked, capture_output=True, text=True)
            self._programs = done.stdout.strip() if done.returncode == 0 else ""
        program = str(Path(self._programs) / words[0]) if self._programs else words[0]
        try:
            done = subprocess.run([program, *words[1:]], capture_output=True, text=True, timeout=_LIMIT)
        except (OSError, subprocess.TimeoutExpired) as e:
            raise SlurmRefused(f"{words[0]}: {e}") from None
        if done.returncode != 0:
            raise SlurmRefused(f"{words[0]}: {' '.join(done.stderr.split())[:500] or f'exit code {done.returncode}'}")
        return done.stdout

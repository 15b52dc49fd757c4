"""Starts a job of the pool on its member: the script that was kept, its environment, and the files it names."""

from __future__ import annotations

import contextlib
import getpass
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.errors import StoreError
from penstock.fronts.programs.step import STEPS
from penstock_pool.filenames import error_name, input_name, output_name
from penstock_pool.jobenv import job_environment
from penstock_pool.jobfiles import JobFiles
from penstock_pool.jobqueue import job_number
from penstock_pool.model import PoolTask

__all__ = ["NO_FILES", "JobStarter", "NotStarted", "StartedJob"]

NO_FILES: Final = 53
"""What Slurm shows as the signal of a job whose files could not be opened."""
_ELSEWHERE: Final = "/tmp"  # noqa: S108 (as Slurm does)


class NotStarted(Exception):
    """A job that could not be started, with the code that it ends with (of a signal: negative)."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@dataclass(slots=True)
class StartedJob:
    """A job's process, and where what is said about it goes (a descriptor, until `close`). `steps` counts its steps."""

    process: subprocess.Popen[bytes]
    errors: int
    job: int
    node: str
    steps: Path

    def say(self, text: str) -> None:
        """Write a line of ours behind what it has written itself."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S")
        line = f"slurmstepd: error: *** JOB {self.job} ON {self.node} CANCELLED AT {stamp}{text} ***\n"
        with contextlib.suppress(OSError):
            os.write(self.errors, line.encode())

    def close(self) -> None:
        """It has ended."""
        os.close(self.errors)
        with contextlib.suppress(OSError):
            self.steps.unlink(missing_ok=True)


class JobStarter:
    """`node` is Slurm's name of this member's node, `cluster` that of the cluster, `scratch` a folder of the member."""

    def __init__(self, files: JobFiles, node: str, cluster: str, scratch: Path) -> None:
        self._scratch = scratch
        self._files = files
        self._node = node
        self._cluster = cluster

    def start(self, task: PoolTask, number: int, attempt: int, extra: Mapping[str, str]) -> StartedJob:
        """Start it, with the variables `extra` besides. Raises NotStarted."""
        terms = task.job
        assert terms is not None
        user = getpass.getuser()
        try:
            environment = job_environment(
                task,
                number,
                self._files.environment(terms.environment),
                node=self._node,
                attempt=attempt,
                user=(os.getuid(), os.getgid(), user),
                cluster=self._cluster,
            )
        except StoreError as e:
            raise NotStarted(str(e), -NO_FILES) from None
        names = (terms, number, task.workdir, self._node, user)
        output, error = output_name(*names), error_name(*names)
        opened: list[int] = []
        try:
            opened.append(os.open(input_name(*names), os.O_RDONLY | os.O_CLOEXEC))
            opened.append(_open(output, terms.umask, append=terms.append))
            if error and error != output:
                opened.append(_open(error, terms.umask, append=terms.append))
        except OSError as e:
            _close(opened)
            raise NotStarted(f"{e.filename}: {e.strerror}", -NO_FILES) from None
        workdir = task.workdir
        if not Path(workdir).is_dir():
            _tell(opened[-1], f"slurmstepd: error: couldn't chdir to `{workdir}': going to {_ELSEWHERE} instead\n")
            workdir = _ELSEWHERE
        script = str(self._files.script(terms.script))
        steps = self._scratch / f"steps-{number}.{attempt}"
        try:
            process = subprocess.Popen(
                [script, *task.argv[1:]],
                cwd=workdir,
                env={**environment, **extra, STEPS: str(steps)},
                stdin=opened[0],
                stdout=opened[1],
                stderr=opened[-1],
                start_new_session=True,
                umask=terms.umask,
            )
        except OSError as e:
            _tell(opened[-1], f"slurmstepd: error: execve(): {task.argv[0]}: {e.strerror}\n")
            _close(opened)
            raise NotStarted(f"{task.argv[0]!r} cannot be started: {e.strerror}", e.errno or 1) from None
        errors = opened.pop()
        _close(opened)
        return StartedJob(process, errors, job_number(number, terms), self._node, steps)


def _open(path: str, umask: int, *, append: bool) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (0 if append else os.O_TRUNC)
    return os.open(path, flags, 0o666 & ~umask)


def _tell(descriptor: int, text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, text.encode(errors="surrogateescape"))


def _close(descriptors: list[int]) -> None:
    for one in descriptors:
        os.close(one)

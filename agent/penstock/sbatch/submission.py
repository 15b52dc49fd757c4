"""Runs the real sbatch: as the user, with the user's environment, and with what it says passed on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from penstock.errors import NotPermitted, PenstockError
from penstock.shim.path import Refused, beheaded, find, guarded
from penstock.shim.process import become, first_environment

__all__ = ["HandedOn", "Submitted", "hand_on", "in_queue", "pass_on", "script_lines", "script_path", "submit"]

_ID: Final = re.compile(rb"^([0-9]{1,10})(;[^;\s]+)?\s*$", re.MULTILINE)
_NAMED: Final = re.compile(rb"^(?:Submitted batch job )?([0-9]{1,10})\n", re.MULTILINE)
_STANDARD: Final = 2  # the descriptors up to here are inherited as they are
_SQUEUE: Final = 20.0  # seconds
_LONGEST_HEAD: Final = 1_000_000  # characters of a script that are looked through for directives


@dataclass(frozen=True, slots=True)
class Submitted:
    """What sbatch said with `--parsable`: the job, and the cluster as ";name" or "". Without a job: its text.

    `process` is sbatch itself, which with `--wait` goes on until the job has ended.
    """

    job: int | None
    cluster: str
    text: bytes
    process: subprocess.Popen[bytes]

    def end(self) -> int:
        """Wait for sbatch to end; its exit code."""
        return self.process.wait()


@dataclass(frozen=True, slots=True)
class HandedOn:
    """sbatch as it was called, whose words are passed on: the `job` that it has named, None for none."""

    job: int | None
    process: subprocess.Popen[bytes]
    answer: BinaryIO

    def end(self) -> int:
        """Say what more it says, and wait for its end; its exit code."""
        with self.answer:
            while more := _said(self.answer):
                _say(more)
        code = self.process.wait()
        return code if code >= 0 else 128 - code


def pass_on(words: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Become sbatch with these words, as if it had been called itself."""
    told = {**_environment(), **environment}
    program = _program(told)
    sys.stdout.flush()
    become(program, words, guarded(program, told))


def submit(
    words: Sequence[str],
    stdin: bytes | None,
    environment: Mapping[str, str],
    workdir: str | None = None,
    descriptors: Sequence[int] = (),
) -> Submitted:
    """Run sbatch with these words (`--parsable` among them) until it has named the job. Raises PenstockError.

    `stdin` None: it reads what this process would; it finds these `descriptors`, too.
    """
    process, ours = _started(words, environment, stdin is not None, workdir, descriptors)
    if stdin is not None:
        assert process.stdin is not None
        try:
            process.stdin.write(stdin)
            process.stdin.close()
        except BrokenPipeError:
            pass  # sbatch has refused its options; its exit code tells
    text = b""
    with ours:
        while not (found := _ID.search(text)) or not text.endswith(b"\n"):
            if not (more := _said(ours)):
                break
            text += more
    found = _ID.search(text)
    if found is None:
        return Submitted(None, "", text, process)
    return Submitted(int(found[1]), (found[2] or b"").decode(errors="replace"), text, process)


def hand_on(words: Sequence[str], environment: Mapping[str, str], descriptors: Sequence[int] = ()) -> HandedOn:
    """Run sbatch with these words and say what it says, until it has named the job. Raises PenstockError."""
    sys.stdout.flush()
    process, ours = _started(words, environment, False, None, descriptors)
    text = b""
    while not (found := _NAMED.search(text)) and (more := _said(ours)):
        _say(more)
        text += more
    return HandedOn(None if found is None else int(found[1]), process, ours)


def _started(
    words: Sequence[str], environment: Mapping[str, str], piped: bool, workdir: str | None, descriptors: Sequence[int]
) -> tuple[subprocess.Popen[bytes], BinaryIO]:
    """sbatch, and what it says."""
    # A terminal instead of a pipe: with --wait sbatch would keep a pipe's text back until the job has ended.
    ours, theirs = os.openpty()
    raw = termios.tcgetattr(theirs)
    raw[1] &= ~termios.OPOST  # what it says is passed on as it is
    termios.tcsetattr(theirs, termios.TCSANOW, raw)
    try:
        told = {**_environment(), **environment}
        program = _program(told)
        process = subprocess.Popen(
            ["sbatch", *words],
            executable=program,
            stdin=subprocess.PIPE if piped else None,
            stdout=theirs,
            env=guarded(program, told),
            cwd=workdir,
            pass_fds=[number for number in descriptors if number > _STANDARD],
        )
    except OSError as e:
        os.close(ours)
        raise PenstockError(f"sbatch cannot be run in {workdir or '.'}: {e.strerror}") from e
    except PenstockError:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return process, os.fdopen(ours, "rb", buffering=0)


def _said(answer: BinaryIO) -> bytes:
    """More of what it says; empty at its end."""
    try:
        return answer.read(4096)
    except OSError:  # the other end is closed
        return b""


def _say(text: bytes) -> None:
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def in_queue(*, job: int | None = None, name: str | None = None) -> frozenset[int]:
    """The numbers (of arrays the whole array's) of this user's jobs in the queue that have this name; or this `job`,
    also after its end, as long as Slurm has not forgotten it. Empty where squeue does not answer."""
    which = ["-t", "all", "-j", str(job)] if name is None else ["--name", name]
    try:
        done = subprocess.run(
            ["squeue", "-h", "--me", "-o", "%F", *which],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SQUEUE,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return frozenset()
    return frozenset(int(word) for word in done.stdout.split() if word.isdigit())


def script_lines(name: str, folder: str | None = None) -> list[str]:
    """The beginning of a script, found as sbatch finds it: where it is named, else on PATH. Empty when it cannot be
    read, which sbatch will say better."""
    try:
        with script_path(name, folder).open(encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST_HEAD).splitlines()
    except OSError:
        return []


def script_path(name: str, folder: str | None = None) -> Path:
    """Where sbatch finds a script of this name, if there is one."""
    here = Path(folder or ".") / name
    path = here if "/" in name or here.is_file() else shutil.which(name, mode=os.F_OK | os.R_OK)
    return Path(path or name)


def _environment() -> dict[str, str]:
    """That of the caller, without front programs on PATH: it is the job's, too."""
    environ = first_environment()
    try:
        environ["PATH"] = beheaded(environ.get("PATH", os.defpath))
    except Refused as e:
        raise NotPermitted(str(e)) from e
    return environ


def _program(environ: Mapping[str, str]) -> str:
    """The real sbatch: neither a front program, nor a script that has called us."""
    program = find("sbatch", environ)
    if program is None:
        raise PenstockError("sbatch is not on PATH; are Slurm's client programs installed?")
    return program

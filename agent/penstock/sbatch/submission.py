"""Runs the real sbatch: as the user, with the user's environment, and with what it says passed on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.errors import NotPermitted, PenstockError
from penstock.fronts.programs.memory import cluster_name
from penstock.fronts.programs.once import patience
from penstock.fronts.programs.path import Refused, beheaded, find, guarded
from penstock.fronts.programs.process import become, first_environment
from penstock.fronts.programs.room import room_for
from penstock.fronts.programs.submit import SbatchAnswer, submit_once
from penstock.sbatch.job import SbatchJob
from penstock.slurm.option_words import SbatchWords, read_words, script_words
from penstock.slurm.parse import ParseError, parse_time
from penstock.values.lines import split_lines

__all__ = ["HandedOn", "Submitted", "as_seen", "hand_on", "in_queue", "only_say", "submit", "submit_job"]

_SQUEUE: Final = 20.0  # seconds


@dataclass(frozen=True, slots=True)
class Submitted:
    """What sbatch said with `--parsable`: the job, and the cluster as ";name" or "". Without a job: its text.

    With `--wait` sbatch goes on until the job has ended.
    """

    job: int | None
    cluster: str
    text: bytes
    answer: SbatchAnswer

    @property
    def ended(self) -> bool:
        """Whether sbatch has."""
        return self.answer.ended

    def end(self) -> int:
        """Wait for sbatch to end; its exit code."""
        return _shell_code(self.answer.end(tell=False))


@dataclass(frozen=True, slots=True)
class HandedOn:
    """sbatch as it was called, whose words are passed on: the `job` that it has named, None for none."""

    job: int | None
    answer: SbatchAnswer

    def end(self) -> int:
        """Say what more it says, and wait for its end; its exit code."""
        return _shell_code(self.answer.end())


def only_say(line: SbatchWords, *, ours: bool = False) -> int:
    """Run sbatch with words with which it submits nothing; the exit code. Where something of `ours` is to be said
    after it, it need not be there; else this process becomes sbatch, and PenstockError is raised without one."""
    told = _environment()
    sys.stdout.flush()
    if not ours:
        program = _program(told)
        become(program, line.words(), guarded(program, told))
    try:
        program = _program(told)
        done = subprocess.run([program, *line.words()], env=guarded(program, told), check=False)
        return _shell_code(done.returncode)
    except (PenstockError, OSError):
        return 0


def submit(words: Sequence[str], script: bytes, environment: Mapping[str, str]) -> Submitted:
    """Run sbatch with these words (`--parsable` among them) and this script until it has named the job, once, however
    often it has to be tried. Raises PenstockError."""
    options = script_words(split_lines(script.decode(errors="replace")))
    return _named(_submitted(read_words(words), options, environment, stdin=script))


def submit_job(job: SbatchJob, added: Sequence[str], environment: Mapping[str, str]) -> Submitted:
    """The same with a job of its owner's and these options, `--parsable` among them; sbatch is not to be quiet."""
    return _named(_of_owner(job.loud, added, environment))


def hand_on(job: SbatchJob, added: Sequence[str], environment: Mapping[str, str], own: Path | None) -> HandedOn:
    """Run sbatch with a job as its owner has written it and these options, and say what it says, until it has named
    the job. Raises PenstockError.

    `own`: the user's own folder, where those that wait for room in the queue stand in line; None: it stands in none.
    """
    sys.stdout.flush()
    answer = _of_owner(job, added, environment, own)
    _say(2, answer.errors)
    _say(1, answer.output)
    return HandedOn(answer.job, answer)


def _of_owner(
    job: SbatchJob, added: Sequence[str], environment: Mapping[str, str], own: Path | None = None
) -> SbatchAnswer:
    line = job.line.adding(*added)
    return _submitted(line, job.known_script, environment, job.stdin, job.workdir, job.descriptors, own)


def _named(answer: SbatchAnswer) -> Submitted:
    _say(2, answer.errors)
    return Submitted(answer.job, f";{answer.cluster}" if answer.cluster else "", answer.output, answer)


def _submitted(
    line: SbatchWords,
    script: SbatchWords | None,
    environment: Mapping[str, str],
    stdin: bytes | None = None,
    workdir: str | None = None,
    descriptors: Sequence[int] = (),
    waiting: Path | None = None,
) -> SbatchAnswer:
    told = {**_environment(), **environment}
    program = _program(told)
    given = -1
    try:
        if stdin is not None:
            given = os.memfd_create("script")
            with os.fdopen(os.dup(given), "wb") as file:
                file.write(stdin)
        elif 0 in descriptors:
            given = os.dup(0)
        source = None if given < 0 else given
        limit = patience(told.get("PENSTOCK_SHIM_PATIENCE"))
        own = None if waiting is None else str(waiting)
        in_line = room_for(own, cluster_name(told), line, script, told)
        return submit_once(program, line, script, told, limit, stdin=source, workdir=workdir, in_line=in_line)
    except OSError as e:
        raise PenstockError(f"sbatch cannot be run in {workdir or '.'}: {e.strerror}") from e
    finally:
        if given >= 0:
            os.close(given)


def _shell_code(code: int) -> int:
    return code if code >= 0 else 128 - code


def _say(stream: int, text: bytes) -> None:
    out = sys.stdout if stream == 1 else sys.stderr
    out.flush()
    out.buffer.write(text)
    out.buffer.flush()


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


def as_seen(job: int) -> tuple[str, float | None]:
    """What Slurm calls a job of this user, and when it was submitted (epoch s), which together with its number make it
    one job; ("", None) where squeue does not say."""
    try:
        done = subprocess.run(
            ["squeue", "-h", "--me", "-t", "all", "-j", str(job), "-o", "%V %j"],
            env={**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"},  # local time is ambiguous twice a year
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SQUEUE,
            check=True,
        )
        line = done.stdout.decode(errors="replace").partition("\n")[0]  # an array's tasks have a line each
        time, _, name = line.partition(" ")
        return name, parse_time(time)
    except (OSError, subprocess.SubprocessError, ParseError):
        return "", None


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

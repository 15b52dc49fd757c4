"""Runs the real sbatch: as the user, with the user's environment, and with what it says passed on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.errors import PenstockError

__all__ = ["Submitted", "pass_on", "script_lines", "submit"]

_ID: Final = re.compile(rb"^([0-9]{1,10})(;[^;\s]+)?\s*$", re.MULTILINE)
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


def pass_on(words: Sequence[str], stdin: bytes | None, environment: Mapping[str, str]) -> int:
    """Run sbatch with these words as if it had been called itself; its exit code."""
    program = _program()
    sys.stdout.flush()
    if stdin is None:
        os.execve(program, ["sbatch", *words], {**os.environ, **environment})  # noqa: S606
    done = subprocess.run(
        ["sbatch", *words], executable=program, input=stdin, env={**os.environ, **environment}, check=False
    )
    return done.returncode


def submit(
    words: Sequence[str], stdin: bytes | None, environment: Mapping[str, str], workdir: str | None = None
) -> Submitted:
    """Run sbatch with these words (`--parsable` among them) until it has named the job. Raises PenstockError."""
    # A terminal instead of a pipe: with --wait sbatch would keep a pipe's text back until the job has ended.
    ours, theirs = os.openpty()
    try:
        process = subprocess.Popen(
            ["sbatch", *words],
            executable=_program(),
            stdin=subprocess.PIPE if stdin is not None else None,
            stdout=theirs,
            env={**os.environ, **environment},
            cwd=workdir,
        )
    except OSError as e:
        os.close(ours)
        raise PenstockError(f"sbatch cannot be run in {workdir or '.'}: {e.strerror}") from e
    finally:
        os.close(theirs)
    if stdin is not None:
        assert process.stdin is not None
        try:
            process.stdin.write(stdin)
            process.stdin.close()
        except BrokenPipeError:
            pass  # sbatch has refused its options; its exit code tells
    text = b""
    with os.fdopen(ours, "rb", buffering=0) as answer:
        while not (found := _ID.search(text)) or not text.endswith(b"\n"):
            try:
                more = answer.read(4096)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            text += more
    text = text.replace(b"\r\n", b"\n")
    found = _ID.search(text)
    if found is None:
        return Submitted(None, "", text, process)
    return Submitted(int(found[1]), (found[2] or b"").decode(errors="replace"), text, process)


def script_lines(name: str, folder: str | None = None) -> list[str]:
    """The beginning of a script, found as sbatch finds it: where it is named, else on PATH. Empty when it cannot be
    read, which sbatch will say better."""
    here = Path(folder or ".") / name
    path = str(here) if "/" in name or here.is_file() else shutil.which(name, mode=os.F_OK | os.R_OK)
    try:
        with open(path or name, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read(_LONGEST_HEAD).splitlines()
    except OSError:
        return []


def _program() -> str:
    program = shutil.which("sbatch")
    if program is None:
        raise PenstockError("sbatch is not on PATH; are Slurm's client programs installed?")
    return program

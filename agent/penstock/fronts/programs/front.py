"""A front program: finds the real one behind it, and serves what it was called for."""

from __future__ import annotations

import os
import sys

from penstock.fronts.programs.path import Refused, beheaded, check, find
from penstock.fronts.programs.plainjson import loads
from penstock.fronts.programs.process import end_as, first_environment, signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["main"]

_NO_PROGRAM = 127  # as a shell
_NOT_RUN = 126


def main(program: str, folder: str) -> NoReturn:
    """Run `program` with this process's words; `folder` is where the front program lies."""
    for number in (signal.SIGPIPE, signal.SIGINT):  # as Slurm's own
        signal.signal(number, signal.SIG_DFL)
    try:
        environ = first_environment()
        check(folder)
        environ["PATH"] = os.environ["PATH"] = beheaded(environ.get("PATH", os.defpath))
        real = find(program, environ)
        if real is None and program != "srun":
            raise Refused(f"there is no {program} behind the front program in {folder}", _NO_PROGRAM)
        if real is not None and environ.get("_") == os.path.join(folder, program):  # a shell's word for what it runs
            environ["_"] = real
        code = _serve(program, real, environ, folder)
    except Refused as e:
        sys.stderr.write(f"penstock: {e}\n")
        code = e.code
    except OSError as e:
        sys.stderr.write(f"penstock: {program} cannot be run: {e.strerror}\n")
        code = _NOT_RUN
    sys.stderr.flush()
    end_as(code)


def _serve(program: str, real: str | None, environ: dict[str, str], folder: str) -> int:
    if program == "srun":
        from penstock.fronts.programs.srun import front_srun

        return front_srun(real, sys.argv[1:], environ)
    assert real is not None
    if program == "sbatch":
        from penstock.fronts.programs.sbatch import front_sbatch

        return front_sbatch(real, sys.argv[1:], environ, _settings(folder), folder)
    from penstock.fronts.programs.relay import front_command

    return front_command(program, real, sys.argv[1:], environ, _settings(folder), folder)


def _settings(folder: str) -> dict[str, str]:
    try:
        with open(os.path.join(folder, "settings.json"), encoding="utf-8") as file:
            found: dict[str, str] = loads(file.read())
        return found
    except ValueError as e:
        raise Refused(f"{folder} is damaged: `penstock shim` makes it anew", 1) from e

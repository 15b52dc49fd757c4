"""A front program: finds the real one behind it, and runs it."""

from __future__ import annotations

import os
import sys

from penstock.shim.path import Refused, beheaded, check, find, guarded
from penstock.shim.process import become, first_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["main"]

_NO_PROGRAM = 127  # as a shell


def main(program: str, folder: str) -> NoReturn:
    """Run `program` with this process's words; `folder` is where the front program lies."""
    try:
        environ = first_environment()
        check(folder)
        environ["PATH"] = beheaded(environ.get("PATH", os.defpath))
        if os.path.dirname(environ.get("_", "")) == folder:  # a shell's word for what it runs
            del environ["_"]
        real = find(program, environ)
        if real is None:
            raise Refused(f"there is no {program} behind the front program in {folder}", _NO_PROGRAM)
        become(real, sys.argv[1:], guarded(real, environ))
    except Refused as e:
        sys.stderr.write(f"penstock: {e}\n")
        sys.exit(e.code)

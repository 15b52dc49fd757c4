"""Compiles the C sources beside it, where there is a C compiler.

hatch_build.py runs this file by itself, when a wheel is built: it imports nothing of the agent.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

__all__ = ["BUILT", "compile_into"]

BUILT: Final = "_kernel.so.1"  # not a name that Python would import
_HERE: Final = Path(__file__).parent
_SECONDS: Final = 300.0
# No operation on numbers is joined with another or left out: what the reference does, to the last bit.
_FLAGS: Final = ("-std=c11", "-O2", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno", "-g0")


def compile_into(folder: Path, *more: str) -> str | None:
    """Compile to `BUILT` in a folder, with the compiler that `CC` names, or `cc`, and `more` of its options. Why there
    is none now, if so."""
    words = shlex.split(os.environ.get("CC", "cc"))
    target = folder / BUILT
    new = target.with_suffix(f".{os.getpid()}")
    command = [*words, *_FLAGS, *more, "-o", str(new), *(str(source) for source in sorted(_HERE.glob("*.c"))), "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as e:
        return f"no C compiler: {e}"
    if done.returncode:
        new.unlink(missing_ok=True)
        return f"{words[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}"
    new.replace(target)  # whoever has loaded the one before keeps it
    return None


def _is_current() -> bool:
    """Whether what lies beside the sources was made of them."""
    built = _HERE / BUILT
    return built.exists() and all(built.stat().st_mtime >= source.stat().st_mtime for source in _HERE.glob("*.[ch]"))


if __name__ == "__main__":
    sys.exit(None if _is_current() else compile_into(_HERE))

"""Whether lines of a shell start the mpiexec of MPICH or Intel MPI (hydra), which ends on SIGUSR2.

Open MPI's mpiexec and srun pass USR1 and USR2 on to the program. hydra passes USR1 on and dies of USR2 (MPICH 5.0.2,
impi-rt 2021.18.1), and the program with it: nothing is saved.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from typing import Final

__all__ = ["complaint"]

_CALLED: Final = re.compile(
    r"(?<![\w./$}-])((?:[^\s;|&\"'()`<>=]*/)?(?:mpiexec(?:\.hydra|\.mpich)?|mpirun))(?![\w./-])"
)
_LOADED: Final = re.compile(r"^[ \t]*(?:module|ml|spack)[ \t]+(?!unload|rm|del|-)(.*)", re.MULTILINE)
_MPI: Final = re.compile(r"\S*(?:mpi|mvapich|oneapi)\S*", re.IGNORECASE)
_OPEN: Final = re.compile(r"open-?mpi|ompi", re.IGNORECASE)
_COMMENT: Final = re.compile(r"^\s*#.*$", re.MULTILINE)
_SAYS: Final = ("HYDRA", "Intel(R) MPI")
_PATIENCE: Final = 10.0  # seconds


def complaint(number: int, lines: str, environ: Mapping[str, str]) -> str | None:
    """What is to be said of a program that these lines start and that is to save itself on this signal; None: nothing.

    mpiexec is looked for as a shell would with this PATH, and asked for its `--version`; where the lines load an MPI
    first (`module load impi`), its name says which.
    """
    if number != signal.SIGUSR2:
        return None
    found = _hydra_in(_COMMENT.sub("", lines), environ)
    if found is None:
        return None
    return f"{found} is that of MPICH or Intel MPI: it ends on USR2, and the program with it; save on USR1 instead"


def _hydra_in(text: str, environ: Mapping[str, str]) -> str | None:
    loaded = [name for line in _LOADED.findall(text) for name in _MPI.findall(line)]
    for word in dict.fromkeys(_CALLED.findall(text)):
        name = word.rpartition("/")[2]
        if name in ("mpiexec.hydra", "mpiexec.mpich"):
            return str(word)
        if loaded and name == word:
            if not _OPEN.search(loaded[-1]):
                return f"{word} of {loaded[-1]}"
        elif _is_hydra(os.path.expandvars(word), environ):
            return str(word)
    return None


def _is_hydra(word: str, environ: Mapping[str, str]) -> bool:
    program = shutil.which(word, path=environ.get("PATH"))
    if program is None:
        return False
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return any(said in done.stdout + done.stderr for said in _SAYS)

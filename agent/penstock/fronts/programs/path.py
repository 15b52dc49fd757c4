"""The real program behind the front programs, found on PATH; and that none of them is called for ever."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["GUARD", "MARKER", "PROGRAMS", "Refused", "beheaded", "check", "find", "guarded", "is_front"]

PROGRAMS = ("sbatch", "squeue", "sacct", "scancel", "scontrol")
MARKER = ".penstock-front"
"""A file of this name makes a folder one of front programs."""
GUARD = "PENSTOCK_FRONT"
"""PID.START:PROGRAM:PROGRAM: which programs a process took for Slurm's own and ran, that are scripts."""
_MOST_PARENTS = 64


class Refused(Exception):
    """What is on PATH is not to be run; `code` is what the command ends with."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def is_front(folder: str) -> bool:
    """Whether this is a folder of front programs."""
    return os.path.lexists(os.path.join(folder, MARKER))


def check(folder: str) -> None:
    """Raises Refused where others than the caller and root can say what runs as the caller."""
    try:
        found = os.stat(folder)
    except OSError as e:
        raise Refused(f"{folder}: {e.strerror}", 4) from e
    if found.st_uid not in (os.geteuid(), 0):
        text = f"{folder} is a folder of front programs of another user (id {found.st_uid}): take it out of PATH"
        raise Refused(f'{text}, and use your own: eval "$(penstock shim)"', 4)
    if found.st_mode & 0o022:
        raise Refused(f"{folder} holds front programs, and others can write to it: chmod go-w {folder}", 4)


def beheaded(path: str) -> str:
    """PATH without any folder of front programs. Raises Refused where one is somebody else's."""
    kept = []
    for folder in path.split(os.pathsep):
        if folder and is_front(folder):
            check(folder)
        else:
            kept.append(folder)
    return os.pathsep.join(kept)


def find(program: str, environ: Mapping[str, str]) -> str | None:
    """The absolute path of the real program on a PATH that is `beheaded`. A script that has called us is none."""
    passed = frozenset(_callers(environ.get(GUARD, "")))
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        found = os.path.join(os.path.abspath(folder or "."), program)
        if found not in passed and os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    return None


def guarded(program: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment to run this program with. A script may call us again (`exec penstock sbatch "$@"`, named sbatch):
    it finds there that it is not what we look for. Slurm's own programs call nobody, and jobs are spared that."""
    kept = {key: value for key, value in environ.items() if key != GUARD}
    if not _is_script(program):
        return kept
    passed = [*_callers(environ.get(GUARD, "")), program]
    me = os.getpid()
    return {**kept, GUARD: os.pathsep.join((f"{me}.{_begun(me)[1]}", *passed))}


def _is_script(program: str) -> bool:
    try:
        with open(program, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def _callers(told: str) -> Iterable[str]:
    """The programs in GUARD, if who has set it is this process, before it became what it is, or one above it. Not in a
    job, which inherits the environment of who submitted it."""
    who, _, programs = told.partition(os.pathsep)
    pid, _, begun = who.partition(".")
    if not programs or not pid.isdigit():
        return ()
    process = os.getpid()
    for _ in range(_MOST_PARENTS):
        parent, since = _begun(process)
        if process == int(pid):
            return programs.split(os.pathsep) if since == begun else ()
        if parent <= 0:
            break
        process = parent
    return ()


def _begun(process: int) -> tuple[int, str]:
    """The parent of a process, and when it began in the kernel's words; 0 and "" where that cannot be read."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[1]), fields[19].decode()
    except (OSError, ValueError, IndexError):
        return 0, ""

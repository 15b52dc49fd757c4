"""Makes the folder of front programs: written whole, never changed, called after what is in it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.errors import StoreError, UserError
from penstock.fronts.programs.path import MARKER, PROGRAMS
from penstock.host.files import sync

__all__ = ["MODULES", "OLDEST", "SETTINGS", "front_folder", "interpreter"]

MODULES: Final = (
    "__init__.py",
    "fronts/__init__.py",
    "fronts/programs/__init__.py",
    "fronts/programs/again.py",
    "fronts/programs/agent.py",
    "fronts/programs/divide.py",
    "fronts/programs/front.py",
    "fronts/programs/memory.py",
    "fronts/programs/once.py",
    "fronts/programs/path.py",
    "fronts/programs/plainjson.py",
    "fronts/programs/pooled.py",
    "fronts/programs/pools.py",
    "fronts/programs/process.py",
    "fronts/programs/relay.py",
    "fronts/programs/room.py",
    "fronts/programs/rules.py",
    "fronts/programs/sbatch.py",
    "fronts/programs/script.py",
    "fronts/programs/srun.py",
    "fronts/programs/step.py",
    "fronts/programs/submit.py",
    "slurm/__init__.py",
    "slurm/error_texts.py",
    "slurm/minutes.py",
    "slurm/name_patterns.py",
    "slurm/option_table.py",
    "slurm/option_words.py",
    "values/__init__.py",
    "values/lines.py",
)
"""What the front programs load of this package."""
OLDEST: Final = (3, 9)
"""The oldest Python that can run them."""
SETTINGS: Final = "settings.json"
_SYSTEM: Final = "/usr/bin/python3"
_LIBRARY: Final = ".lib"
_TASK: Final = "task"
"""The folder in it that only jobs of pools have on PATH: with an srun of their own."""
_LONGEST: Final = 120  # characters of an interpreter's path, which old kernels cut
_PACKAGE: Final = Path(__file__).parents[2]
_PROGRAM: Final = """\
#!{python} -IS
# Penstock's front of {program}: it runs the next {program} on PATH. `penstock shim --off` takes it out of PATH.
import sys

sys.path.insert(0, {library!r})
from penstock.fronts.programs.front import main

main({program!r}, {folder!r})
"""


def interpreter() -> str:
    """The Python to run them with: the system's, which stays, else the one that runs this. Raises UserError."""
    own = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    oldest = ".".join(map(str, OLDEST))
    for python in (_SYSTEM, own):
        if any(c.isspace() for c in python) or len(python) > _LONGEST:
            continue  # cannot stand in the first line of a script
        test = f"import sys, json; sys.exit(sys.version_info < {OLDEST})"
        with suppress(OSError, subprocess.SubprocessError):
            if subprocess.run([python, "-IS", "-c", test], capture_output=True, timeout=20).returncode == 0:
                return python
    raise UserError(f"the front programs need a Python of {oldest} or newer: neither {_SYSTEM} nor {own} will do")


def front_folder(root: Path, settings: Mapping[str, object], python: str) -> Path:
    """The folder below `root` that holds the front programs with these settings; made where it is not there.

    Raises StoreError where it cannot be written.
    """
    library = {f"{_LIBRARY}/penstock/{name}": (_PACKAGE / name).read_text(encoding="utf-8") for name in MODULES}
    content = {**library, SETTINGS: json.dumps(dict(settings), sort_keys=True), MARKER: "penstock\n"}
    told = json.dumps([content, python, str(root), _PROGRAM, PROGRAMS], sort_keys=True)
    folder = root / hashlib.sha256(told.encode()).hexdigest()[:16]
    texts = {"python": python, "library": str(folder / _LIBRARY), "folder": str(folder)}
    content.update({program: _PROGRAM.format(program=program, **texts) for program in PROGRAMS})
    content |= {f"{_TASK}/srun": _PROGRAM.format(program="srun", **texts), f"{_TASK}/{MARKER}": "penstock\n"}
    try:
        if not _whole(folder, content):
            _write(folder, content)
    except OSError as e:
        raise StoreError(f"{e.filename or folder}: {e.strerror}") from e
    return folder


def _whole(folder: Path, content: Mapping[str, str]) -> bool:
    """Whether it is there as it was written."""
    try:
        found = folder.lstat()
        mine = found.st_uid == os.geteuid() and not found.st_mode & 0o022
        return mine and all((folder / name).read_text(encoding="utf-8") == text for name, text in content.items())
    except (OSError, UnicodeError):
        return False


def _write(folder: Path, content: Mapping[str, str]) -> None:
    root = folder.parent
    root.mkdir(mode=0o711, parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=root))
    try:
        for name, text in content.items():
            path = fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755 if name in (*PROGRAMS, f"{_TASK}/srun") else 0o644)
        for inner in (fresh, *(path for path in fresh.rglob("*") if path.is_dir())):
            inner.chmod(0o755)
        with suppress(FileNotFoundError):
            folder.rename(fresh / ".damaged")
        try:
            fresh.rename(folder)
        except OSError:
            if not _whole(folder, content):  # else another `penstock shim` has made it at the same time
                raise
        shutil.rmtree(folder / ".damaged", ignore_errors=True)
        sync(root)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)

"""Slurm's, munge's and MariaDB's programs: where they are, and which release."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from penstock.errors import PenstockError, UserError
from penstock.fronts.programs.path import GUARD

__all__ = ["PATH", "check_programs", "parse_version", "path_for", "slurm_version", "user_programs", "version_pair"]

# Debian keeps daemons in sbin, which an ordinary user's PATH lacks.
PATH = os.pathsep.join(
    dict.fromkeys([*os.get_exec_path(), "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"])
)

_PACKAGE_OF = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "sinfo": "slurm-client",
    "sacctmgr": "slurm-client",
    "scontrol": "slurm-client",
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
}
_INSTALL = "apt-get install slurm-wlm slurmdbd slurm-wlm-mysql-plugin slurm-wlm-basic-plugins munge mariadb-server"


def path_for(uid: int, gid: int) -> str:
    """PATH for this user: without folders that the caller (root) alone can enter, such as those in its home. Shells and
    tools stumble over them in different ways."""
    return os.pathsep.join(folder for folder in PATH.split(os.pathsep) if uid == 0 or _enters(Path(folder), uid, gid))


_OF_USERS = ("sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol", "sdiag", "sinfo",
             "sprio", "squeue", "sreport", "srun", "sshare", "sstat", "strigger")  # fmt: skip
_PROGRAM = """\
#!/bin/bash
# A throw-away cluster is known by SLURM_CONF alone, and some tools drop that in their jobs. (dash loses functions.)
export SLURM_CONF="${{SLURM_CONF:-{conf}}}"
unset {guard}
exec -a {name} {program} "$@"
"""


def user_programs(conf: Path, *, own: bool) -> dict[str, str]:
    """For each of Slurm's commands for users the text of one that says which cluster it speaks to. `own`: they are this
    host's, not those of another release in a file system of its own."""
    found = {name: shutil.which(name, path=PATH) if own else f"/usr/bin/{name}" for name in _OF_USERS}
    return {
        name: _PROGRAM.format(name=name, conf=conf, guard=GUARD, program=shlex.quote(path))
        for name, path in found.items()
        if path is not None
    }


def _enters(folder: Path, uid: int, gid: int) -> bool:
    for place in (folder, *folder.parents):
        try:
            found = place.stat()
        except PermissionError:
            return False
        except OSError:  # it is not there, which is no harm
            continue
        bit = 0o100 if found.st_uid == uid else 0o010 if found.st_gid == gid else 0o001
        if not found.st_mode & bit:
            return False
    return True


def check_programs() -> None:
    """UserError naming the missing programs and Debian's packages of them."""
    missing = [name for name in _PACKAGE_OF if shutil.which(name, path=PATH) is None]
    if missing:
        packages = ", ".join(dict.fromkeys(_PACKAGE_OF[name] for name in missing))
        raise UserError(f"missing {', '.join(missing)} (Debian packages: {packages}); on Debian run: {_INSTALL}")


def slurm_version() -> str:
    """The release of the installed controller, like "22.05.8"."""
    program = shutil.which("slurmctld", path=PATH) or "slurmctld"
    done = subprocess.run([program, "-V"], capture_output=True, text=True, timeout=10, check=False)
    return parse_version(done.stdout, f"{program} -V: {done.stderr.strip()}")


def parse_version(text: str, what: str) -> str:
    """The release in the answer to -V; PenstockError, beginning with `what`, if there is none."""
    found = re.search(r"\d+\.\d+\.\d+\S*", text)
    if found is None:
        raise PenstockError(f"{what} says no version: {text.strip()!r}")
    return found.group()


def version_pair(version: str) -> tuple[int, int]:
    """(22, 5) of "22.05.8"."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)

"""The users of a cluster: the one that runs Slurm, two ordinary ones and an Operator, made and removed by root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from penstock.errors import PenstockError, UserError
from penstock.host.files import locked
from penstock_lab.cluster.programs import PATH

__all__ = [
    "PEOPLE",
    "SLURM_USER",
    "Identity",
    "RunAs",
    "ensure_users",
    "identity",
    "made_uids",
    "remove_users",
    "users_lock",
]

SLURM_USER = "penstock-slurm"
PEOPLE = {"alice": "pst-alice", "bob": "pst-bob", "operator": "pst-operator"}
# Marks in /etc/passwd the users that are ours to remove, whichever cluster made them.
_GECOS = "Penstock throw-away cluster"
_LIMIT = 30.0


class RunAs(TypedDict, total=False):
    """The arguments of subprocess that make a command run as somebody else."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True)
class Identity:
    """A user of this machine."""

    name: str
    uid: int
    gid: int

    def run_as(self) -> RunAs:
        """Arguments of subprocess that drop to this user and its one group; none when the caller already is it."""
        if os.geteuid() == self.uid:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def identity(name: str | None = None) -> Identity:
    """The named user, or the caller."""
    try:
        entry = pwd.getpwuid(os.geteuid()) if name is None else pwd.getpwnam(name)
    except KeyError as error:
        raise PenstockError(f"user {name or os.geteuid()} has no entry in passwd") from error
    return Identity(entry.pw_name, entry.pw_uid, entry.pw_gid)


@contextmanager
def users_lock() -> Iterator[None]:
    """Hold off other clusters of root while users are made or removed; leaves no file and ends with the process."""
    held = "another cluster is making or removing users for too long; try again"
    with locked(Path("/etc"), os.O_RDONLY | os.O_DIRECTORY, held, _LIMIT):
        yield


def _ours(name: str) -> bool:
    try:
        return pwd.getpwnam(name).pw_gecos == _GECOS
    except KeyError:
        return False


def _run(argv: list[str]) -> None:
    program = shutil.which(argv[0], path=PATH)
    if program is None:
        raise UserError(f"missing {argv[0]} (Debian package: passwd)")
    argv = [program, *argv[1:]]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_LIMIT, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise PenstockError(f"{argv[0]} failed: {done.stderr.strip() or done.returncode}")


def ensure_users(homes: Path) -> None:
    """Make those users that are not there yet (root only; hold `users_lock`)."""
    for name in (SLURM_USER, *PEOPLE.values()):
        try:
            pwd.getpwnam(name)
        except KeyError:
            person = name != SLURM_USER
            home, shell = (str(homes / name), "/bin/bash") if person else ("/nonexistent", "/usr/sbin/nologin")
            place = ["--no-create-home", "--home-dir", home, "--shell", shell]
            _run(["useradd", "--system", "--user-group", "--comment", _GECOS, *place, name])


def made_uids() -> set[int]:
    """Numbers of the users that clusters made: whatever they run, they run for a cluster."""
    return {identity(name).uid for name in (*PEOPLE.values(), SLURM_USER) if _ours(name)}


def remove_users() -> None:
    """Remove those users that a cluster made (root only; hold `users_lock`, and know that no cluster uses them)."""
    for name in (*PEOPLE.values(), SLURM_USER):
        if _ours(name):
            _run(["userdel", name])

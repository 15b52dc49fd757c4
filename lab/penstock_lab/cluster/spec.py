"""What a cluster shall be like: the options of `penstock cluster up`, checked before anything is written."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import UserError
from penstock.host.homes import own_state

__all__ = ["MAX_NODES", "RELEASES", "SELECTS", "ClusterSpec", "check_folder", "default_folder"]

MAX_NODES = 256
SELECTS = ("linear", "cons_tres")
# Releases of Debian whose Slurm can be run beside the installed one.
RELEASES = ("trixie", "sid")
ROOT_FOLDER = Path("/var/tmp/penstock-cluster")  # noqa: S108 (its owner is checked before it is used)

# The longest Unix socket below the folder is slurmstepd's, `spool/n256/n256_<job>.<step>`; the kernel's limit is 107.
_MAX_FOLDER = 64
# Slurm's configuration files have no quoting: a blank ends a value, `#` begins a comment, `%` is replaced.
_SAFE_PATH = re.compile(r"/[A-Za-z0-9._/+@-]+")
_SAFE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


def default_folder() -> Path:
    """Where a cluster lives unless told otherwise; root's must be reachable by the ordinary users of the cluster."""
    if os.geteuid() == 0:
        return ROOT_FOLDER
    return own_state() / "cluster"


def check_folder(folder: Path) -> Path:
    """The folder as an absolute path that Slurm can use; UserError when it cannot."""
    path = folder.expanduser()
    path = path.parent.resolve() / path.name
    if not _SAFE_PATH.fullmatch(str(path)):
        raise UserError(f"--dir {path}: Slurm's files allow only letters, digits and . _ + @ - in a path")
    if len(str(path)) > _MAX_FOLDER:
        raise UserError(f"--dir {path}: too long for Unix sockets ({len(str(path))} characters, at most {_MAX_FOLDER})")
    return path


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Options of a throw-away cluster. Times are in seconds.

    `folder` and `join` default to None: the usual place, and an accounting database of its own. `release` names the
    Debian release whose Slurm is run, None the Slurm that is installed. `isolated` nodes have a host name, an address
    and a network of their own. `age_counts`: within minutes a waiting job gains much by its age, as it does within days
    elsewhere; `accrue_always` has that, too. `enforce`: Slurm holds users to their associations, limits and QOS, and
    the Operator has the association that the guide gives to the service user (docs/install.md). `scheduling` are
    SchedulerParameters in place of the short periods that spare tests their waits. `jwt`: Slurm takes tokens
    (auth/jwt), which `scontrol token` makes, beside munge; its plug-in has to be there. `nodes_have`: what the lines of
    the first nodes in slurm.conf say besides, in the place of `cpus` where they say `CPUs=`. `extra` are lines that end
    slurm.conf as they are (tests of a site's settings), `beside` files that are copied into its folder (a
    job_submit.lua, an epilog).
    """

    nodes: int = 8
    folder: Path | None = None
    name: str | None = None
    join: Path | None = None
    release: str | None = None
    isolated: bool = False
    accrue_always: bool = False
    age_counts: bool = False
    contain: bool = False
    enforce: bool = False
    expansion: bool = True
    select: str = "linear"
    min_job_age: int = 300
    cpus: int = 2
    slurmd_timeout: int = 30
    scheduling: str = ""
    jwt: bool = False
    nodes_have: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    beside: tuple[Path, ...] = ()

    def check(self) -> None:
        """Raise UserError for the first option that cannot be."""
        if not 1 <= self.nodes <= MAX_NODES:
            raise UserError(f"--nodes {self.nodes}: must be between 1 and {MAX_NODES}")
        if self.select not in SELECTS:
            raise UserError(f"--select {self.select}: must be one of {', '.join(SELECTS)}")
        if self.release is not None and self.release not in RELEASES:
            raise UserError(f"--release {self.release}: must be one of {', '.join(RELEASES)}")
        if self.release is not None and os.geteuid() != 0:
            raise UserError("--release: only root can run another release of Slurm; it needs a file system of its own")
        if self.isolated and os.geteuid() != 0:
            raise UserError("--isolated: only root can give the nodes networks of their own; leave it out or use sudo")
        if self.min_job_age < 2:
            raise UserError(f"--min-job-age {self.min_job_age}: must be at least 2 seconds, Slurm's own minimum")
        if self.name is not None and not _SAFE_NAME.fullmatch(self.name):
            raise UserError(
                f"--name {self.name}: must be a lower-case letter, then letters, digits, _ or - (32 at most)"
            )
        if self.cpus < 1 or self.slurmd_timeout < 1:
            raise UserError("cpus and slurmd_timeout must be at least 1")
        if any("\n" in line for line in (*self.extra, *self.nodes_have)):
            raise UserError("extra, nodes_have: one line of slurm.conf per item")
        if len(self.nodes_have) > self.nodes:
            raise UserError(f"nodes_have: for {len(self.nodes_have)} nodes, but there are {self.nodes}")
        for file in self.beside:
            if not file.is_file():
                raise UserError(f"beside {file}: no such file")

    @property
    def node_names(self) -> tuple[str, ...]:
        """n1, n2, …"""
        return tuple(f"n{i}" for i in range(1, self.nodes + 1))

"""Where things lie inside a cluster's folder, its lock, and the ports it uses."""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import NotNow, PenstockError, UserError
from penstock.host.files import is_named, lock

__all__ = ["Layout", "believe", "folder_lock", "reserved_ports"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths below one cluster's folder."""

    root: Path

    @property
    def state_file(self) -> Path:
        """What is recorded of the cluster; its presence makes the folder one of ours."""
        return self.root / "cluster.json"

    @property
    def etc(self) -> Path:
        """The configuration files."""
        return self.root / "etc"

    @property
    def slurm_conf(self) -> Path:
        """What SLURM_CONF names."""
        return self.etc / "slurm.conf"

    @property
    def run(self) -> Path:
        """Sockets that every user may reach."""
        return self.root / "run"

    @property
    def munge_socket(self) -> Path:
        """The cluster's own munge."""
        return self.run / "munge.sock"

    @property
    def munge(self) -> Path:
        """Munge's key and seed, for its owner only."""
        return self.root / "munge"

    @property
    def jwt_key(self) -> Path:
        """What tokens are signed with, for its owner only; there where the cluster takes tokens."""
        return self.munge / "jwt.key"

    @property
    def database(self) -> Path:
        """MariaDB's data and socket, for its owner only."""
        return self.root / "db"

    @property
    def database_socket(self) -> Path:
        """MariaDB listens here and nowhere else."""
        return self.database / "db.sock"

    @property
    def database_init(self) -> Path:
        """What MariaDB runs at every start."""
        return self.etc / "mariadb.sql"

    @property
    def saved(self) -> Path:
        """The controller's StateSaveLocation."""
        return self.root / "state"

    @property
    def spool(self) -> Path:
        """The nodes' SlurmdSpoolDir, one folder each."""
        return self.root / "spool"

    @property
    def logs(self) -> Path:
        """One log per daemon."""
        return self.root / "log"

    @property
    def homes(self) -> Path:
        """Home folders of the cluster's ordinary users."""
        return self.root / "home"

    @property
    def joined(self) -> Path:
        """One symbolic link per cluster that shares this one's accounting and munge."""
        return self.root / "joined"

    @property
    def mount_point(self) -> Path:
        """An empty folder, on which only a cluster of another Slurm release mounts, and only for itself."""
        return self.root / "root"

    @property
    def network(self) -> Path:
        """An empty folder, on which only the holder of an isolated cluster's network mounts, and only for itself."""
        return self.root / "net"

    @property
    def hosts(self) -> Path:
        """What is /etc/hosts inside an isolated cluster."""
        return self.etc / "hosts"

    @property
    def bin(self) -> Path:
        """Slurm's commands for a shell of root outside such a cluster."""
        return self.root / "bin"

    @property
    def programs(self) -> Path:
        """Slurm's commands for ordinary users, which find this cluster also where a tool drops SLURM_CONF."""
        return self.root / "programs"

    def log(self, daemon: str) -> Path:
        """The log of one daemon."""
        return self.logs / f"{daemon}.log"


def _mine(path: Path) -> bool:
    """Whether the path is a real folder of the caller: in /var/tmp anybody may have put something there first."""
    return path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.geteuid()


def believe(path: Path) -> None:
    """Raises UserError for a folder of somebody else than the caller or root: what is recorded in it decides what the
    caller runs."""
    if path.is_symlink() or (path.exists() and path.stat().st_uid not in (os.geteuid(), 0)):
        raise UserError(f"{path}: not a folder that belongs to you or root")


@contextmanager
def folder_lock(path: Path, *, create: bool) -> Iterator[bool]:
    """Hold the folder for this command alone; yields False if it is not there (and `create` is not set).

    The lock is on the folder itself, so that nothing is left over, and it ends with the process that holds it.
    """
    while True:
        if create:
            try:
                path.mkdir(mode=0o755, parents=True, exist_ok=True)
            except FileExistsError as error:
                raise UserError(f"--dir {path}: not a folder") from error
            except OSError as error:
                raise UserError(f"--dir {path}: {error.strerror}") from error
        elif not path.exists():
            yield False
            return
        if not _mine(path):
            raise UserError(f"--dir {path}: not a folder that belongs to you")
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        try:
            lock(fd)
            if is_named(fd, path):
                yield True
                return
        except BlockingIOError as error:
            raise NotNow(f"another `penstock cluster` command is at work in {path}; try again") from error
        finally:
            os.close(fd)


def _candidates() -> list[int]:
    """Ports outside the range from which the kernel takes those of outgoing connections, in random order."""
    try:
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        low = 32768
    ports = list(range(10000, low)) if low > 12000 else list(range(10000, 60000))
    random.shuffle(ports)
    return ports


@contextmanager
def reserved_ports(count: int) -> Iterator[list[int]]:
    """Free TCP ports, kept from others until the daemons listen on them.

    A bound socket that does not listen keeps everyone away who does not set SO_REUSEADDR, this function included;
    Slurm's daemons set it, so they can still take theirs.
    """
    with ExitStack() as held:
        ports: list[int] = []
        for port in _candidates():
            if len(ports) == count:
                break
            holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                holder.bind(("0.0.0.0", port))  # noqa: S104 (never listens)
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            except OSError as error:
                holder.close()
                if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                    raise
                continue
            held.enter_context(holder)
            ports.append(port)
        if len(ports) < count:
            raise PenstockError(f"no {count} free TCP ports on this machine")
        yield ports

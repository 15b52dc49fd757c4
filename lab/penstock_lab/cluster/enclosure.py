"""The inside of a cluster of another Slurm release: a mount namespace whose root is that release's file system.

One process, the holder, makes the namespace and stays in it; every daemon and command enters it. Nothing is mounted
where the rest of the machine could see it, so nothing is left to unmount: the mounts end with the last process inside,
after a crash as well. The root is a small tmpfs; `/usr` is the cached tree's, read-only; users, host names and devices
are the machine's; and the cluster's folder, /tmp, /var/tmp and this Python lie at the same paths as outside.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import PenstockError
from penstock_lab.cluster.processes import Process
from penstock_lab.cluster.programs import PATH
from penstock_lab.cluster.rootfs import SystemTree
from penstock_lab.cluster.users import Identity

__all__ = ["ENCLOSURE", "Enclosure", "drop_to", "enter", "holder", "shared_paths"]

ENCLOSURE = "enclosure"  # its holder's name among the daemons

_COMMANDS = (
    *("sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol", "scrontab", "sdiag"),
    *("sinfo", "sprio", "squeue", "sreport", "srun", "sshare", "sstat", "strigger"),
)
# Arguments: the cached tree, an empty folder, an /etc/hosts if not the machine's, then the paths to share.
_SCRIPT = """
set -eu
tree=$1 new=$2 hosts=${3:-/run/host/etc/hosts}
shift 3
mount -t tmpfs -o mode=755,size=256m penstock "$new"
cd "$new"
mkdir dev home old opt proc root run run/host run/host/etc srv sys tmp usr var var/cache var/lib var/log var/tmp
chmod 1777 tmp var/tmp
ln -s usr/bin usr/lib usr/sbin .
[ ! -d "$tree/usr/lib64" ] || ln -s usr/lib64 .
ln -s ../run var/run
for folder in dev proc sys; do mount --rbind "/$folder" "$folder"; done
mount --bind "$tree/usr" usr
mount -o remount,bind,ro usr
cp -a "$tree/etc" .
mount --bind /etc run/host/etc
mount -o remount,bind,ro run/host/etc
for file in group gshadow hostname localtime passwd resolv.conf shadow timezone; do
    ln -sfn "/run/host/etc/$file" "etc/$file"
done
ln -sfn "$hosts" etc/hosts
for path; do
    [ ! -d "$path" ] || mkdir -p ".$path"
    mount --bind "$path" ".$path"
done
pivot_root . old
cd /
umount -l old
rmdir old
: >run/ready
exec sleep infinity
"""


@dataclass(frozen=True, slots=True)
class Enclosure:
    """The namespace that the holder process holds."""

    holder: Process

    @property
    def ready(self) -> bool:
        """Whether the holder has made it."""
        return Path(f"/proc/{self.holder.pid}/root/run/ready").exists()

    def mounts(self) -> list[str]:
        """nsenter's argument that leads inside."""
        if not self.holder.alive:
            raise PenstockError("the cluster's file system is gone with its holder; bring the cluster up again")
        return [f"--mount=/proc/{self.holder.pid}/ns/mnt"]

    def commands(self) -> dict[str, str]:
        """Scripts by name with which a shell of root outside runs Slurm's commands inside, in the same folder."""
        inside = f"/proc/{self.holder.pid}/root"
        return {
            name: f'#!/bin/sh\ncd=$PWD\n[ -d "{inside}$cd" ] || cd=/\n'
            f'exec nsenter --mount=/proc/{self.holder.pid}/ns/mnt --wdns="$cd" -- /usr/bin/{name} "$@"\n'
            for name in _COMMANDS
        }


def enter(namespaces: Iterable[str], who: Identity, folder: Path = Path("/"), prepare: Sequence[str] = ()) -> list[str]:
    """What to put before a command so that it runs in these namespaces (nsenter's arguments), as this user and in this
    folder (root only); `prepare` comes before it and still runs as root.

    Each program becomes the next one, so signals reach the command itself.
    """
    if os.geteuid() != 0:
        raise PenstockError("only root can run commands inside a cluster that is isolated or of another Slurm release")
    nsenter = shutil.which("nsenter", path=PATH) or "nsenter"
    return [nsenter, *namespaces, f"--wdns={folder}", "--", *prepare, *drop_to(who)]


def drop_to(who: Identity) -> list[str]:
    """What to put before a command so that it runs as this user with its one group; nothing for root."""
    if who.uid == 0:
        return []
    return ["setpriv", f"--reuid={who.uid}", f"--regid={who.gid}", "--clear-groups", "--"]


def holder(tree: SystemTree, mount_point: Path, shared: Iterable[Path], hosts: Path | None = None) -> list[str]:
    """The command line of the process that makes and keeps an enclosure. `mount_point` is an empty folder.

    `hosts`, below one of the shared paths, is its /etc/hosts; None: the machine's.
    """
    paths = [Path("/tmp"), Path("/var/tmp"), *shared]  # noqa: S108 (jobs work there, as they do outside)
    for path in paths:
        _make_room(tree, path)
    unshare = shutil.which("unshare", path=PATH) or "unshare"
    argv = [unshare, "--mount", "--propagation", "private", "--", "/bin/sh", "-c", _SCRIPT, "penstock"]
    return [*argv, str(tree.root), str(mount_point), str(hosts or ""), *map(str, paths)]


def shared_paths() -> list[Path]:
    """This Python, its virtual environment and Penstock itself, as far as every user can reach them outside, too."""
    base = Path(sys.base_prefix)
    if base == Path("/usr"):
        executable = Path(sys.executable)
        found = [Path(sysconfig.get_path("stdlib")), executable.resolve()]
        if (link := Path("/usr/bin/python3")).resolve() == executable.resolve():
            found.append(link)  # which is what a virtual environment refers to
    else:
        found = [base]
    if sys.prefix != sys.base_prefix:
        found.append(Path(sys.prefix))
    for name in ("penstock", "penstock_plugins", "penstock_lab", "dmr"):
        spec = find_spec(name)
        found += [Path(folder).parent for folder in (spec and spec.submodule_search_locations) or ()]
    return [path for path in dict.fromkeys(found) if path.exists() and _open_to_all(path)]


def _open_to_all(path: Path) -> bool:
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.parents))


def _make_room(tree: SystemTree, path: Path) -> None:
    """Below /usr, which is read-only inside, a path to mount on must be there before."""
    if not path.is_relative_to("/usr"):
        return
    place = tree.root / path.relative_to("/")
    if place.exists() or place.is_symlink():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        place.mkdir(exist_ok=True)
    else:
        place.touch()

"""On which kind of file system a folder lies, and what that means for a database in it. Linux."""

from __future__ import annotations

import errno
import re
from typing import Final

from penstock.errors import ConfigError, StoreError

__all__ = ["FAILING", "is_network", "is_volatile", "mount_of", "unusable"]

FAILING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE})
"""The errors of a disk that is full or fails, and may do again later: those of nobody's configuration."""

# Those whose clients do not share memory, which SQLite's write-ahead log needs.
_NETWORK: Final = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs"}
    | {"nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "virtiofs", "wekafs"}
    | {"fuse.beegfs", "fuse.ceph", "fuse.glusterfs", "fuse.juicefs", "fuse.s3fs", "fuse.sshfs"}
)
_VOLATILE: Final = frozenset({"tmpfs", "ramfs"})


def unusable(error: OSError) -> type[ConfigError | StoreError]:
    """Whose error this is of a path that the configuration names: the configuration's, or that of a failing disk."""
    return StoreError if error.errno in FAILING else ConfigError


def is_network(kind: str) -> bool:
    """Whether other hosts may have a file system of this kind mounted, too."""
    return kind.lower() in _NETWORK


def is_volatile(kind: str) -> bool:
    """Whether what is in it is gone when the host starts anew."""
    return kind.lower() in _VOLATILE


def mount_of(path: str, mountinfo: str) -> tuple[str, str]:
    """(mount point, kind) of the file system of an absolute path without links, from `/proc/self/mountinfo`."""
    found = ("", "unknown")
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(found[0]):  # of two at one point the later one is seen
            found = (point, after.split(" ", 1)[0])
    return found

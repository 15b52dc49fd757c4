"""What `penstock doctor` sees of a folder."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.core.findings import Folder, Trouble
from penstock.host.filesystems import mount_of

__all__ = ["folder_at"]


def folder_at(path: Path) -> Folder | Trouble:
    """That folder, or the nearest above it that is there."""
    try:
        real = path.expanduser().resolve()
        there = next(folder for folder in (real, *real.parents) if folder.exists())
        status, space = there.stat(), os.statvfs(there)
        mount, kind = mount_of(str(there), Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        return Trouble(f"{path}: {error.strerror}")
    if not there.is_dir():
        return Trouble(f"{there} is no folder")
    writable = os.access(there, os.W_OK | os.X_OK)
    free = space.f_bavail * space.f_frsize
    return Folder(str(there), there == real, writable, mount, kind, status.st_mode & 0o7777, status.st_uid, free)

"""Taking a cluster down. It can be repeated, and cleans up after a crash at any point."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from penstock.errors import UserError
from penstock_lab.cluster import database, network, processes, users
from penstock_lab.cluster.daemons import Daemons
from penstock_lab.cluster.layout import Layout, believe, folder_lock
from penstock_lab.cluster.spec import check_folder, default_folder
from penstock_lab.cluster.state import is_ours, load

__all__ = ["clean", "down", "joined"]


def down(folder: Path | None = None) -> bool:
    """End the cluster in this folder and remove every trace of it, running or crashed; False if there was none.

    Clusters that joined it end first, for they cannot go on without it.
    """
    layout = Layout(check_folder(folder or default_folder()))
    if not layout.root.exists() and not layout.root.is_symlink():
        return False
    with folder_lock(layout.root, create=False) as held:
        if not held or not is_ours(layout):
            return False
        clean(layout)
    return True


def joined(folder: Path | None = None) -> dict[str, Path]:
    """The clusters that share this one's accounting and end with it: their folders by name."""
    links = Layout(check_folder(folder or default_folder())).joined
    return {link.name: link.readlink() for link in sorted(links.iterdir())} if links.is_dir() else {}


def clean(layout: Layout) -> None:
    """End every process of the cluster, running, half-started or orphaned; then its users and its folder.

    What joined it goes first: it could not tell a new slurmdbd in this place from the one that it knows.
    """
    for folder in joined(layout.root).values():
        down(folder)
    try:
        state = load(layout)
    except UserError:
        state = None  # of another release; its processes and folder are known without
    if state is not None and state.spec.join is not None:
        _leave(Layout(state.spec.join), state.name, layout.root)
    root = os.geteuid() == 0
    uids = users.made_uids() if root else set()
    processes.kill_all(lambda: processes.find(layout.root, layout.slurm_conf, uids))
    network.remove_link(layout.root)
    if root:
        with users.users_lock():
            if not processes.other_clusters(layout.root):
                # What is left of them has no sign of any cluster (a shell of theirs), but keeps userdel from working.
                processes.kill_all(lambda: processes.of_users(uids))
                users.remove_users()
    _remove(layout)


def _leave(base: Layout, name: str, root: Path) -> None:
    """Take a cluster off the books of the one that it joined.

    Not where that one's folder is somebody else's by now, whose settings would be followed, or the name another's.
    """
    link = base.joined / name
    try:
        believe(base.root)
        if not link.is_symlink() or link.readlink() != root:
            return
        shared = load(base)
    except UserError:
        return
    if shared is not None and shared.owner == os.geteuid() and Daemons(base, shared).alive("slurmdbd"):
        database.forget(Daemons(base, shared), name)
    link.unlink()


def _remove(layout: Layout) -> None:
    """Remove the folder, the record last: without it nobody would know, after a kill, that the rest is ours."""
    for path in layout.root.iterdir():
        if path == layout.state_file:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    layout.state_file.unlink(missing_ok=True)
    layout.root.rmdir()

"""Whose state this is: an agent of a whole site keeps its own in a folder of its user's, and the users keep theirs
elsewhere.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from penstock.config import Config
from penstock.errors import NotPermitted, StoreError
from penstock.host.homes import own_state
from penstock.host.logins import login

__all__ = [
    "DATABASE",
    "LEASE",
    "acts_path",
    "check_root",
    "denied",
    "is_readable",
    "ledger_path",
    "own_folder",
    "owner",
    "state_path",
]

DATABASE = "penstock.db"
"""What the agent's state file is called in its folder."""
LEASE = "agent.lease"
"""What the lease of its holder is called there, where several hosts see it."""
_ACTS = "acts.db"


def state_path(config: Config) -> Path:
    """Where the agent's state file is, or would be."""
    return config.agent.state_dir / DATABASE


def own_folder(config: Config) -> Path:
    """Where what belongs to the caller alone is kept (pools, bags, the ledger): the state folder, but where that is
    another user's the place that an agent of the caller's own would have. Root is at home in every state folder.

    Raises ConfigError where that place is not known.
    """
    folder = config.agent.state_dir
    return folder if os.geteuid() == 0 or _may_be_mine(folder) else own_state()


def ledger_path(config: Config) -> Path:
    """Where the caller's ledger of slots is, or would be."""
    return config.provision.ledger or own_folder(config) / "ledger.db"


def acts_path(config: Config) -> Path:
    """Where that is, or would be. Raises ConfigError."""
    folder = own_folder(config)
    if os.geteuid() == 0 and owner(folder) != 0:  # what root makes there its owner could not open
        folder = own_state()
    return folder / _ACTS


def _may_be_mine(folder: Path) -> bool:
    """Whether an agent of the caller's could have this folder, there already or not (see `leadership`)."""
    for there in (folder, *folder.parents):
        try:
            found = there.stat()
        except FileNotFoundError:
            continue
        except OSError:
            return False
        if there == folder and found.st_uid == os.geteuid():
            return True
        # A folder of root's, or that in which it would be made.
        foreign = there == folder and found.st_uid != 0
        return not foreign and os.access(there, os.W_OK | os.X_OK, effective_ids=True)
    return False


def owner(path: Path) -> int | None:
    """The user id of the owner of a file, or of the nearest folder above it that can be seen."""
    for there in (path, *path.parents):
        with suppress(OSError):
            return there.stat().st_uid
    return None


def denied(path: Path, error: OSError, what: str) -> NotPermitted | StoreError:
    """The error for what could not be done ("... cannot be read"); it names the owner of another's state."""
    whose = owner(path)
    if isinstance(error, PermissionError) and whose not in (None, os.geteuid()):
        return NotPermitted(f"{what}: it is the state of user {login(whose)}, not of {login(os.geteuid())}")
    return StoreError(f"{what}: {error.strerror}")


def is_readable(path: Path) -> bool:
    """Whether a file is there. Raises NotPermitted or StoreError where the caller may not see that, or not read it."""
    try:
        path.stat()
        if os.access(path, os.R_OK, effective_ids=True):
            return True
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise denied(path, error, f"{path} cannot be read") from error


def check_root(config: Config, path: Path) -> None:
    """Raises NotPermitted for root where a file is in, or would be made for, another user's state: what root makes
    there its owner can never open."""
    if os.geteuid() != 0:
        return
    folder = config.agent.state_dir
    for there in (path, folder) if path.parent == folder or not path.exists() else (path,):
        if there.exists() and (whose := there.stat().st_uid) != 0:
            raise NotPermitted(f"{there} belongs to user {login(whose)}, not to root: do it as that user")

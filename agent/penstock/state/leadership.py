"""Who may write the state: one process at a time, on one host by a lock of the kernel, among several by a lease.

The lock is exact and costs nothing, but ends at the host; the lease (`penstock.state.lease`) holds among hosts, and
takes a beat every few seconds. Which of them is needed is a question of the file system, unless `agent.shared` says.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from penstock.config import DEFAULT, SITE, Config, origins, own_file
from penstock.errors import ConfigError, StateHeld, StoreError
from penstock.host.files import open_locked
from penstock.host.filesystems import is_network, mount_of, unusable
from penstock.state.connection import Holder
from penstock.state.lease.files import in_use, published
from penstock.state.lease.holder import Lease
from penstock.state.lease.machine import Card
from penstock.state.ownership import DATABASE, acts_path, state_path
from penstock.state.store import Store

__all__ = [
    "Leadership",
    "Lock",
    "hold_state",
    "is_shared",
    "last_at_work",
    "lock_state",
    "open_acts",
    "open_store",
]

_LOCK = "agent.lock"


class _ForeignFolder(ConfigError):
    """The state folder belongs to another user."""


class Leadership(Protocol):
    """The right to write the state, until it is closed or lost."""

    on_lost: Callable[[], None]
    """Called once, by any thread, when somebody else has taken over."""

    @property
    def lost(self) -> str:
        """How it was lost; empty while it is held."""
        ...

    def why_not(self) -> str | None:
        """Why nothing may be done to Slurm for now; None: go on."""
        ...

    def check(self) -> None:
        """Raises NotNow or LeaseLost when nothing may be done."""
        ...

    def advertise(self, address: str) -> None:
        """Show other hosts where commands are answered."""
        ...

    def close(self) -> None:
        """Let the next one have it."""
        ...


class Lock:
    """Held by one process of this host (descriptor -1: of a state that nobody else can have)."""

    lost = ""

    def __init__(self, descriptor: int = -1) -> None:
        self._descriptor = descriptor
        self.on_lost: Callable[[], None] = lambda: None

    def why_not(self) -> str | None:
        """The kernel takes it from nobody. The file's time shows when it was asked for last; see `last_at_work`."""
        if self._descriptor >= 0:
            with suppress(OSError):  # a full disk; it is for people alone
                os.utime(self._descriptor)
        return None

    def check(self) -> None:
        """Nothing is in the way."""

    def advertise(self, address: str) -> None:
        """Nobody looks."""

    def close(self) -> None:
        """Let the next one have it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_shared(config: Config, folder: Path | None = None) -> bool:
    """Whether other hosts may see the state folder (or another): as `agent.shared` says, else by its file system, or
    because some host has had a lease on it (the folder may be local to the host that serves it to others)."""
    if config.agent.shared != "auto":
        return config.agent.shared == "yes"
    folder = folder or config.agent.state_dir
    return in_use(folder) or is_network(_kind(folder))


def _kind(folder: Path) -> str:
    try:
        real = folder.expanduser().resolve()
        there = next(path for path in (real, *real.parents) if path.exists())
        return mount_of(str(there), Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace"))[1]
    except OSError:
        return "unknown"


def hold_state(
    config: Config,
    role: str,
    *,
    wait: float = 0.0,
    tell: Callable[[Card | None], None] = lambda _by: None,
    config_path: Path | None = None,
) -> Leadership:
    """The right to write the state, as an agent, a tick or a command.

    Raises StateHeld when somebody else has it, and still after `wait` seconds (where a lease is needed; `tell` is
    called once with who has it); ConfigError when the folder cannot be used, StoreError when it does not answer.
    `config_path` is the file that the configuration was read from; None: the one that `load` finds.
    """
    try:
        return _hold(config, role, wait, tell)
    except _ForeignFolder as e:
        raise _ForeignFolder(f"{e}{_whose(config_path)}") from e


def _whose(config_path: Path | None) -> str:
    """Who has named the state folder, and what a user is to do whom the site's configuration holds by mistake."""
    try:
        origin = origins(config_path)["agent", "state_dir"]
    except ConfigError:  # it has changed since
        return ""
    if origin == DEFAULT:
        return ""
    if not origin.startswith(f"{SITE}:"):
        return f"; it is set by {origin}"
    if os.geteuid() == 0:
        return f"; it is set by {origin}, the site's configuration: `systemctl start penstock` starts the site's agent"
    return (
        f"; it is set by {origin}, the site's configuration, which holds for you as you have none of your own. The "
        f"site's agent serves you, so that you need none; for one of your own make {own_file()}, which may be empty"
    )


def _hold(config: Config, role: str, wait: float, tell: Callable[[Card | None], None]) -> Leadership:
    folder = config.agent.state_dir
    if not is_shared(config):
        try:
            return Lock(lock_state(folder))
        except BlockingIOError as e:
            raise StateHeld(f"another agent already runs on {folder} (or a tick)") from e
    make_folder(folder)
    # Where it serves everybody, everybody's commands have to find it.
    mode = 0o644 if config.agent.serve == "all" else 0o600
    return Lease(folder, folder / DATABASE, role, patience=config.agent.lease, wait=wait, mode=mode, tell=tell)


def open_store(config: Config, leadership: Leadership) -> Store:
    """The state, for whoever holds it."""
    holder: Holder | None = leadership if isinstance(leadership, Lease) else None
    return Store(state_path(config), holder)


def open_acts(config: Config) -> Store:
    """What all processes of a user share, which needs no holder: the journal of their commands, and what is left of the
    submissions. Made where there is none. Raises StoreError or ConfigError."""
    path = acts_path(config)
    make_folder(path.parent)
    return Store(path, shared=is_shared(config, path.parent))


def lock_state(folder: Path) -> int:
    """One agent, or one `penstock tick`, per state folder; the lock ends with the process, however it ends.

    Raises BlockingIOError when somebody else has it, ConfigError when the folder cannot be used, StoreError when its
    disk is full or fails.
    """
    make_folder(folder)
    try:
        return open_locked(folder / _LOCK)
    except BlockingIOError:
        raise
    except OSError as e:
        raise _unusable(folder, e) from e


def last_at_work(folder: Path) -> float | None:
    """When an agent or a tick last began a pass on this state (epoch s), by the clock of its host; None: not known."""
    card = published(folder)
    instants = [] if card is None else [card.at]
    with suppress(OSError):
        instants.append((folder / _LOCK).stat().st_mtime)
    return max(instants, default=None)


def make_folder(folder: Path) -> None:
    """Make the state folder, or see that it can be used as it is. Raises ConfigError or StoreError when not."""
    try:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        _check_folder(folder)
    except OSError as e:
        raise _unusable(folder, e) from e


def _unusable(folder: Path, error: OSError) -> ConfigError | StoreError:
    return unusable(error)(f"`agent.state_dir`: {folder} cannot be used: {error.strerror}")


def _check_folder(folder: Path) -> None:
    """Who can write there can put links where the agent writes, and another socket where the users knock."""
    found = folder.stat()
    if found.st_uid not in (os.geteuid(), 0):
        raise _ForeignFolder(f"`agent.state_dir`: {folder} belongs to another user than the agent's")
    if found.st_mode & 0o022:
        raise ConfigError(f"`agent.state_dir`: others than its owner can write to {folder}: chmod go-w it")

"""The agent's state file, opened by a command that only looks."""

from __future__ import annotations

from penstock.config import Config
from penstock.errors import StoreError
from penstock.state.ownership import is_readable, state_path
from penstock.state.store import Store

__all__ = ["open_state"]


def open_state(config: Config) -> Store:
    """The agent's state file, for looking at, beside a running agent or not. Raises StoreError, NotPermitted."""
    path = state_path(config)
    if not is_readable(path):
        raise StoreError(f"there is no state file {path}: no agent has run yet")
    return Store.read_only(path)

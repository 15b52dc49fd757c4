"""The caller's own folders, where no configuration names others."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.errors import ConfigError

__all__ = ["home", "own_state"]


def home() -> Path:
    """The caller's home. Raises ConfigError where neither `HOME` nor the site's directory tells it."""
    try:
        return Path.home()
    except RuntimeError:
        raise ConfigError(
            f"the home of user id {os.geteuid()} is not known here: set HOME, or name the folders in the configuration"
        ) from None


def own_state() -> Path:
    """Where a user's state is kept: `$XDG_STATE_HOME/penstock`, else in the home. Raises ConfigError like `home`."""
    given = os.environ.get("XDG_STATE_HOME", "")
    return (Path(given) if given.startswith("/") else home() / ".local" / "state") / "penstock"

"""The oldest Penstock whose files this one goes on with. Pure."""

from __future__ import annotations

from typing import Final

__all__ = ["FIRST"]

FIRST: Final = "commit fd8d5927 (version 0.2.0.dev0)"
"""As it is named to people."""

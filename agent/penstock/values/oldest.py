"""The oldest Penstock whose files, and the documents in them, this one goes on with. Pure."""

from __future__ import annotations

from typing import Final

__all__ = ["FIRST", "before_first"]

FIRST: Final = "commit fd8d5927 (version 0.2.0.dev0)"
"""As it is named to people."""


def before_first() -> str:
    """What is wrong with a document that an older one has stored, whatever the version of its file."""
    return f"it was stored by a Penstock from before {FIRST}"

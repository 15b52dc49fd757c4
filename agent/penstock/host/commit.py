"""Which commit this Penstock was made of: a file in what was built, or git in a checkout.

hatch_build.py runs this file by itself, to write that file: it imports nothing of the agent.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

__all__ = ["commit", "from_checkout"]

_PACKAGE: Final = Path(__file__).parents[1]
_ASK: Final = ("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
_SECONDS: Final = 10.0


def commit() -> str | None:
    """The commit's hash, shortened, with "-dirty" where files differ from it; None where nobody knows."""
    try:
        return (_PACKAGE / "commit.txt").read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return from_checkout()


def from_checkout() -> str | None:
    """What git says of the source that this file lies in; None where it lies elsewhere, or git says nothing."""
    root = _PACKAGE.parents[1]
    # An environment may lie in somebody's repository, which is another one.
    if _PACKAGE.parent.name != "agent" or not (root / ".git").exists():
        return None
    try:
        asked = subprocess.run(
            ["git", "-C", root, *_ASK], capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip() or None if asked.returncode == 0 else None

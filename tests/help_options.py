"""What `sbatch --help` and `srun --help` list."""

from __future__ import annotations

import re

__all__ = ["help_options"]

_LINE = re.compile(r"^\s+(?:-(\w),? )?\s*--([a-z][a-z0-9-]*)", re.MULTILINE)


def help_options(text: str) -> dict[str, str]:
    """By the full names the short letters ("": none)."""
    return {name: letter for letter, name in _LINE.findall(text)}

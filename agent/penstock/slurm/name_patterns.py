"""Slurm's patterns for the names of a job's files (`man sbatch` and `man srun`, "filename pattern"). Pure, and without
imports of this project: front programs read it."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NO_TASK", "filled"]

NO_TASK = "4294967294"
"""What %a is for a job that is no task of an array."""
_PATTERN = re.compile(r"%(\d*)([%A-Za-z])")
_NUMBERS = "AJabjnst"
_WIDEST = 10


def filled(pattern: str, values: Mapping[str, str]) -> str:
    """The pattern with the value of each letter in its place, numbers as wide as it says; letters that have none, and
    all where a backslash is in it, are left as they are."""
    if "\\" in pattern:
        return pattern.replace("\\", "")

    def fill(match: re.Match[str]) -> str:
        value = values.get(match[2])
        if value is None:
            return match[0]
        width = min(int(match[1] or "0"), _WIDEST)
        return value.zfill(width) if match[2] in _NUMBERS and value.isdigit() else value

    return _PATTERN.sub(fill, pattern)

"""`--dependency` as conditions on jobs, of the pool's and of Slurm's. Pure."""

from __future__ import annotations

import re
from typing import Final

from penstock.pool.terms import AfterJob

__all__ = ["read_dependency"]

_KINDS: Final = ("after", "afterany", "afterok", "afternotok", "aftercorr")
_JOB: Final = re.compile(r"([0-9]{1,11})(?:_(?:([0-9]{1,9})|\*))?(?:\+([0-9]{1,6}))?", re.ASCII)


def read_dependency(text: str) -> tuple[tuple[AfterJob, ...], bool]:
    """The conditions, and whether one of them is enough. Raises ValueError for what Slurm would not take, or a pool
    does not know."""
    if not text.strip():
        return (), False
    one = "?" in text
    if one and "," in text:
        raise ValueError("all of them, or one of them: , and ? do not go together")
    found = []
    for part in re.split(r"[,?]", text):
        kind, colon, jobs = part.strip().partition(":")
        kind = kind.lower()
        if kind == "singleton" and not colon:
            found.append(AfterJob(kind))
            continue
        if _JOB.fullmatch(kind):  # a bare number
            kind, jobs = "afterany", part.strip()
        if kind not in _KINDS or not jobs:
            raise ValueError(f"no dependency of a pool's job: {part[:60]}")
        for word in jobs.split(":"):
            match = _JOB.fullmatch(word)
            if match is None or (match[3] is not None and kind != "after"):
                raise ValueError(f"no job: {word[:60]}")
            task = None if match[2] is None else int(match[2])
            found.append(AfterJob(kind, int(match[1]), task, 60.0 * int(match[3] or 0)))
    return tuple(found), one

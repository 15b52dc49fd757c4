"""What a job is called outside of Snakemake, so that a Snakemake that is started again knows it. Pure.

    pool:snakemake-FINGERPRINT-RUN-NUMBER

The fingerprint says what is run on which inputs: a job that is found again counts only if that is still the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = ["POOL", "SLURM", "ExternalName", "fingerprint", "name_from"]

POOL: Final = "pool"
SLURM: Final = "slurm"
_PREFIX: Final = "snakemake"


@dataclass(frozen=True, slots=True)
class ExternalName:
    """`where` it is (`POOL`, `SLURM`), what it does, in which run of Snakemake, and the how manieth it was there."""

    where: str
    fingerprint: str
    run: str
    number: int

    @property
    def name(self) -> str:
        """What the pool or Slurm is told."""
        return f"{_PREFIX}-{self.fingerprint}-{self.run}-{self.number}"

    def __str__(self) -> str:
        return f"{self.where}:{self.name}"


def name_from(text: str | None) -> ExternalName | None:
    """The name that `str` made; None for what is none of ours."""
    where, _, name = (text or "").partition(":")
    parts = name.split("-")
    if where not in (POOL, SLURM) or len(parts) != 4 or parts[0] != _PREFIX or not parts[3].isdecimal():
        return None
    return ExternalName(where, parts[1], parts[2], int(parts[3]))


def fingerprint(words: Iterable[str], inputs: Iterable[tuple[str, int, int]]) -> str:
    """Of what is run, and of its inputs: path, time of change (ns), size (bytes)."""
    digest = hashlib.sha256()
    for word in words:
        digest.update(word.encode(errors="surrogateescape") + b"\0")
    for path, changed, size in inputs:
        digest.update(f"\1{path}\0{changed}\0{size}".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]

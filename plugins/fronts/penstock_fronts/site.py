"""What an answer depends on besides the look: the site, who asks, and with which variables. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["Asker", "ShimSite"]


@dataclass(frozen=True, slots=True)
class ShimSite:
    """`cluster` is Slurm's name of this one, `alone` whether accounting knows no other. `private`: PrivateData hides
    something. `hidden`: jobs of some partitions are shown to their users, or with `--all`, alone. `federated`: squeue
    and sacct may speak of other clusters by themselves. `past_ids`: no job has a number as large."""

    cluster: str
    release: tuple[int, ...]
    alone: bool = False
    private: bool = False
    hidden: bool = False
    federated: bool = False
    past_ids: int = 2**32


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks. `environ`: those of the caller's variables that Slurm's commands read; `same_zone`: times are written
    as in the look; `uid_of` finds a user's number; `date` is when the answer is given, as `date` writes it, and
    `midnight` when that day began (ISO)."""

    uid: int
    environ: Mapping[str, str] = field(default_factory=dict)
    same_zone: bool = True
    uid_of: Callable[[str], int | None] = lambda _name: None
    date: str = ""
    midnight: str = ""

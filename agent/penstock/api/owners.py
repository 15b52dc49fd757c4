"""What Slurm lets the owner of a job have: limits of associations and QOS. Standard library only; exported by `api`.

Times are seconds. TRES are counted as Slurm counts them (nodes, cpus, MB of memory, GRES); `…Mins` are TRES-minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["HolderKind", "Limit", "LimitHolder", "Owner"]


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose limits hold for a job: what Slurm goes by. Any of the four may be empty where the job has none."""

    user: str
    account: str
    partition: str
    qos: str


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit, by the name that `sacctmgr modify … set` takes it ("MaxTRESPerUser"), and the TRES that it counts
    ("node", "cpu", "gres/gpu"; empty where it counts none).

    `used` is how much of it is in use now, of all jobs that it counts; None where it is not known, or where the limit
    counts each job alone (MaxWall, MaxTRESPerJob). Of GrpTRESMins it is what was used, and what jobs that run may yet
    use by their time limits.
    """

    name: str
    value: float
    tres: str = ""
    used: float | None = None

    @property
    def per_job(self) -> bool:
        """Whether it counts each job alone."""
        return self.name in _PER_JOB


_PER_JOB = frozenset({"MaxWall", "MaxTRESPerJob", "MaxTRESPerNode", "MaxTRESMinsPerJob"})


class HolderKind(StrEnum):
    """What has limits."""

    QOS = "qos"
    ASSOCIATION = "association"


@dataclass(frozen=True, slots=True)
class LimitHolder:
    """A QOS or an association with its limits; what it does not limit is not among them.

    `name` is for people: "QOS normal", "account physics", "user alice of account physics". `flags` are a QOS's, as
    Slurm writes them; `factor` is its LimitFactor, by which limits of associations are multiplied, `usage` its
    UsageFactor, by which the minutes are that its jobs take. `unknown` says why limits may be missing; empty: all of
    them are there.
    """

    kind: HolderKind
    name: str
    limits: tuple[Limit, ...] = ()
    flags: frozenset[str] = frozenset()
    factor: float = 1.0
    usage: float = 1.0
    unknown: str = ""

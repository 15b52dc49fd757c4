"""What slurmctld shows to whom (PrivateData), of what an Operator sees. Pure.

It is what a user's own `squeue -a`, `scontrol -a show nodes`, `partition` and `reservations` would show: with `-a`
hidden partitions, and those of other groups (AllowGroups), are shown to everybody, as Slurm has it. Operators,
administrators, root and SlurmUser see all. Read in the sources of 22.05.8 and 26.05.3 (`_hide_job_user_rec`,
`_slurm_rpc_dump_nodes`, `_slurm_rpc_dump_partitions`, `_validate_user_access`), and compared on real Slurm. Where the
rule has more to it than is known here (labels of the MCS plug-in, accounts of a reservation), less is shown than Slurm
would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from penstock.api import Job, Reservation
from penstock.slurm.parse import parse_config

__all__ = ["OVERSEERS", "Privacy", "Viewer", "coordinators_from_text", "privacy_from_config"]

_ROOT = 0
OVERSEERS = frozenset({"Operator", "Administrator"})
"""The levels of accounting from which on a user sees all."""
_HIDING = frozenset({"jobs", "nodes", "partitions", "reservations"})
_ENFORCED = frozenset({"associations", "limits", "qos", "safe", "wckeys", "all"})  # all of these need associations


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks."""

    uid: int
    user: str


@dataclass(frozen=True, slots=True)
class Privacy:
    """A cluster's rule at one moment.

    `private` is PrivateData in small letters. `labels`: the MCS plug-in decides of others' jobs, instead of accounts.
    `associations`: jobs need an association, by which reservations are then judged. `privileged` are the login names
    that see all; `coordinators` have the accounts whose jobs they see, those below them included. `cluster` is Slurm's
    name of it.
    """

    cluster: str
    private: frozenset[str] = frozenset()
    labels: bool = False
    associations: bool = False
    privileged: frozenset[str] = frozenset()
    coordinators: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def hides(self) -> bool:
        """Whether it matters who looks."""
        return bool(self.private & _HIDING)

    def sees_all(self, viewer: Viewer) -> bool:
        """Whether nothing is hidden from them."""
        return viewer.uid == _ROOT or viewer.user in self.privileged

    def refused(self, viewer: Viewer) -> tuple[str, ...]:
        """What Slurm refuses them as a whole: "nodes", "partitions"."""
        if self.sees_all(viewer):
            return ()
        return tuple(name for name in ("nodes", "partitions") if name in self.private)

    def sees_all_jobs(self, viewer: Viewer) -> bool:
        """Whether they see everybody's jobs."""
        return self.sees_all(viewer) or "jobs" not in self.private

    def jobs(self, viewer: Viewer, jobs: Iterable[Job]) -> list[Job]:
        """Those of these jobs that they see."""
        if self.sees_all_jobs(viewer):
            return list(jobs)
        accounts = frozenset[str]() if self.labels else self.coordinators.get(viewer.user, frozenset())
        return [job for job in jobs if job.uid == viewer.uid or (job.account and job.account in accounts)]

    def sees_all_reservations(self, viewer: Viewer) -> bool:
        """Whether they see every reservation."""
        return self.sees_all(viewer) or "reservations" not in self.private

    def reservations(self, viewer: Viewer, reservations: Iterable[Reservation]) -> list[Reservation]:
        """Those of these reservations that they see: those that name them, and where associations count no account."""
        if self.sees_all_reservations(viewer):
            return list(reservations)
        return [r for r in reservations if viewer.user in r.users and not (self.associations and r.accounts)]


def privacy_from_config(text: str) -> Privacy:
    """The rule as `scontrol show config` has it, which says of people only who SlurmUser is. Raises KeyError."""
    settings = parse_config(text)
    words = {key: _words(settings.get(key, "")) for key in ("PrivateData", "MCSParameters", "AccountingStorageEnforce")}
    plugin = settings.get("MCSPlugin", "mcs/none").removeprefix("mcs/")
    return Privacy(
        cluster=settings["ClusterName"],
        private=words["PrivateData"] - {"none"},
        labels=plugin not in ("", "none") and any(word.startswith("privatedata") for word in words["MCSParameters"]),
        associations=bool(_ENFORCED & words["AccountingStorageEnforce"]),
        privileged=frozenset({"root", settings.get("SlurmUser", "").partition("(")[0]} - {""}),
    )


def coordinators_from_text(text: str) -> tuple[frozenset[str], dict[str, frozenset[str]]]:
    """Operators and administrators, and who coordinates which accounts, from the rows User|AdminLevel|Coord of
    `sacctmgr -nP show user withcoord`. Raises ValueError."""
    oversee, coordinators = set(), {}
    for line in text.splitlines():
        cells = line.strip().split("|")
        if len(cells) != 3:
            raise ValueError(f"not a user, a level and accounts: {line[:80]!r}")
        user, level, accounts = cells
        if level in OVERSEERS:
            oversee.add(user)
        if accounts:
            coordinators[user] = frozenset(accounts.split(","))
    return frozenset(oversee), coordinators


def _words(text: str) -> frozenset[str]:
    return frozenset(word for part in text.lower().replace("|", ",").split(",") if (word := part.strip()))

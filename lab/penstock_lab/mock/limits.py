"""Limits of QOS and associations in the simulated Slurm, of nodes and wall time: who is held to them, and what is used.

As in Slurm a limit of the partition's QOS goes before one of the job's QOS, and that before the association's; group
limits of associations hold on every level up to the root.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.api import HolderKind, Limit, LimitHolder, Owner, OwnerLimits, Partition
from penstock.errors import Infeasible
from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.model import ClusterConfig, NodeLimits, PartitionConfig

__all__ = ["Enforcement"]

_ROOT = "root"
# What Slurm says of a job that waits for a limit, of a QOS and of an association.
_REASONS = {
    "MaxWall": "MaxWallDurationPerJobLimit",
    "MaxTRESPerJob": "MaxNodePerJobLimit",
    "MaxTRESPerUser": "MaxNodePerUserLimit",
    "GrpTRES": "GrpNodeLimit",
}


class Enforcement:
    """Whom a cluster holds to which limits; what is used is counted from the jobs that run.

    Both mappings are the cluster's own, which change as it does.
    """

    def __init__(
        self, config: ClusterConfig, partitions: Mapping[str, PartitionConfig], running: Mapping[int, SimJob]
    ) -> None:
        self._config = config
        self._partitions = partitions
        self._running = running

    def account_of(self, user: str, account: str | None) -> str:
        """The account that a request is charged to. `Infeasible` where the user has none, or not that one."""
        members = self._config.members
        own = [name for name, users in members.items() if user in users]
        if account is None:
            account = own[0] if own else "default"
        if members and "associations" in self._config.enforced and account not in own:
            raise Infeasible("Invalid account or account/partition combination specified")
        return account

    def obstacle(self, job: SimJob) -> str | None:
        """Why the job may not start now, in Slurm's word for it; None: it may."""
        return self._against(job, job.least)

    def room(self, job: SimJob, most: int) -> int:
        """With how many nodes, up to `most`, the job may start; it may with its fewest."""
        return next((n for n in range(most, job.least, -1) if self._against(job, n) is None), job.least)

    def of(self, owner: Owner, partition: Partition | None) -> OwnerLimits:
        """What `Reader.limits` says of an owner."""
        members = self._config.members
        associated = not members or owner.user in members.get(owner.account, ())
        qos, associations = self._holders(owner.user, owner.account, owner.partition, owner.qos)
        why = []
        if not associated:
            associations = associations[1:]
            why.append(f"no association of user {owner.user} with account {owner.account or '(none)'} is shown")
        if partition is None:
            why.append(f"there is no partition {owner.partition!r}")
        return OwnerLimits(owner, partition, qos, associations, associated, "; ".join(why))

    def _against(self, job: SimJob, nodes: int) -> str | None:
        if "limits" not in self._config.enforced:
            return None
        qos, associations = self._holders(job.user, job.account, job.partition, job.qos)
        settled: set[str] = set()
        for holder in (*qos, *associations):
            for limit in holder.limits:
                if limit.name in settled:
                    continue
                wanted = job.time_limit if limit.name == "MaxWall" else (limit.used or 0.0) + nodes
                if wanted > limit.value:
                    return f"{'QOS' if holder.kind is HolderKind.QOS else 'Assoc'}{_REASONS[limit.name]}"
            if holder.kind is HolderKind.QOS:
                settled |= {limit.name for limit in holder.limits}
        return None

    def _holders(
        self, user: str, account: str, partition: str, qos: str
    ) -> tuple[tuple[LimitHolder, ...], tuple[LimitHolder, ...]]:
        config = self._config
        place = self._partitions.get(partition)
        names = dict.fromkeys(name for name in (place.qos if place else "", qos) if name)

        def in_qos(name: str) -> Callable[[SimJob], bool]:
            return lambda job: name in (job.qos, self._partitions[job.partition].qos)

        found = tuple(
            _holder(
                HolderKind.QOS,
                f"QOS {name}",
                config.qos_limits.get(name, NodeLimits()),
                self._used(in_qos(name)),
                self._used(lambda job, name=name: job.user == user and in_qos(name)(job)),  # type: ignore[misc]
            )
            for name in names
        )
        own = self._used(lambda job: job.user == user and job.account == account)
        chain = [
            _holder(
                HolderKind.ASSOCIATION,
                f"user {user} of account {account}",
                config.user_limits.get(user, NodeLimits()).over(config.account_limits.get(account, NodeLimits())),
                own,
            )
        ]
        for name in dict.fromkeys((account, _ROOT)):
            used = self._used(lambda job, name=name: name in (job.account, _ROOT))  # type: ignore[misc]
            chain.append(
                _holder(
                    HolderKind.ASSOCIATION,
                    f"account {name}",
                    NodeLimits(group=config.account_limits.get(name, NodeLimits()).group),
                    used,
                )
            )
        return found, tuple(chain)

    def _used(self, counts: Callable[[SimJob], bool]) -> int:
        return sum(len(job.nodes) for job in self._running.values() if counts(job))


def _holder(kind: HolderKind, name: str, limits: NodeLimits, used: int, by_user: int = 0) -> LimitHolder:
    found = []
    if limits.max_wall is not None:
        found.append(Limit("MaxWall", limits.max_wall))
    if limits.max_nodes is not None:
        found.append(Limit("MaxTRESPerJob", limits.max_nodes, "node"))
    if limits.per_user is not None and kind is HolderKind.QOS:
        found.append(Limit("MaxTRESPerUser", limits.per_user, "node", by_user))
    if limits.group is not None:
        found.append(Limit("GrpTRES", limits.group, "node", used))
    return LimitHolder(kind, name, tuple(found))

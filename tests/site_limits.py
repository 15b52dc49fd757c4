"""Limits of accounts, users and QOS that a test sets on a cluster, taken back at its end."""

from __future__ import annotations

from penstock_lab.cluster import Cluster

__all__ = ["ACCOUNT", "SiteLimits"]

ACCOUNT = "penstock"
"""The account that the cluster's ordinary users have."""


class SiteLimits:
    """What an administrator sets by sacctmgr and scontrol; each call returns when slurmctld knows of it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._set: list[tuple[tuple[str, ...], str]] = []
        self._added: list[str] = []

    def qos(self, name: str, **limits: str) -> None:
        """Limits of a QOS ("MaxWall": "3"), which is made if it is not there and may then be used by the account."""
        if name != "normal" and name not in self._added:
            self.cluster.administer("add", "qos", name)
            # 24.11 passes on what the account above gets to the users of this one in its database alone.
            self.cluster.administer("modify", "account", ACCOUNT, "set", f"qos+={name}")
            self._added.append(name)
        self._modify(("qos", name), limits)

    def account(self, name: str = ACCOUNT, **limits: str) -> None:
        """Limits of an account's association."""
        self._modify(("account", name), limits)

    def user(self, who: str, account: str = ACCOUNT, **limits: str) -> None:
        """Limits of a user's association with an account."""
        self._modify(("user", self.cluster.user(who).name, f"account={account}"), limits)

    def partition(self, **settings: str) -> None:
        """Settings of the partition `batch`; the limits among them are lifted at the end."""
        words = [f"{name}={value}" for name, value in settings.items()]
        self.cluster.run_as("root", ["scontrol", "update", "PartitionName=batch", *words], check=True)

    def restore(self) -> None:
        """Take back all that was set."""
        self.partition(MaxNodes="UNLIMITED", MaxTime="UNLIMITED", QoS="")
        for where, name in reversed(self._set):
            self._apply(where, {name: "-1"})
        for name in self._added:
            self.cluster.administer("modify", "account", ACCOUNT, "set", f"qos-={name}")
            self.cluster.administer("delete", "qos", name)
        self._set.clear()
        self._added.clear()

    def _modify(self, where: tuple[str, ...], limits: dict[str, str]) -> None:
        for name, value in limits.items():
            # Of a limit by TRES the one that was set is taken back: node=4 by node=-1.
            tres = ",".join(f"{item.partition('=')[0]}=-1" for item in value.split(",")) if "=" in value else "-1"
            self._set.append((where, f"{name}={tres}"))
        self._apply(where, limits)

    def _apply(self, where: tuple[str, ...], limits: dict[str, str]) -> None:
        words = [name if "=" in name else f"{name}={value}" for name, value in limits.items()]
        kind, name, *more = where
        self.cluster.administer("modify", kind, "where", f"name={name}", *more, "set", *words)

"""The nodes: who has them, which are out of order, and when those that run now will be free by their time limits."""

from __future__ import annotations

import math

from penstock.errors import NotFound
from penstock.future.bits import BitProfile, NodeBits
from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.model import ClusterConfig

__all__ = ["Machine"]


class Machine:
    """The nodes of one cluster. `out_of_order` says DOWN or DRAIN of those that take no jobs."""

    def __init__(self, config: ClusterConfig, now: float) -> None:
        self.bits = NodeBits(config.node_names)
        self.within = {p.name: self.bits.mask(config.nodes_of(p)) for p in config.partitions}
        members = {p.name: frozenset(config.nodes_of(p)) for p in config.partitions}
        self.partitions_of = {n: tuple(p for p, inside in members.items() if n in inside) for n in config.node_names}
        self.owner: dict[str, int] = {}
        self.idle_since = dict.fromkeys(config.node_names, now)  # of nodes that somebody has: since when it was before
        self.out_of_order: dict[str, str] = {}
        self.down = 0  # the same as a set
        self._profile = BitProfile(self.bits.all, now)  # running jobs only, so that it need not be made anew

    def take(self, job: SimJob, mask: int, now: float) -> None:
        """The job gets these nodes, which are free, beside those it has."""
        gained = self.bits.named(mask)
        job.nodes, job.mask = job.nodes + gained, job.mask | mask
        for name in gained:
            self.owner[name] = job.id
        self.extend(job, now)

    def give_back(self, job: SimJob, mask: int, now: float) -> None:
        """The job loses these of its nodes."""
        self._profile.open(mask, now, job.claimed)
        for name in self.bits.named(mask):
            del self.owner[name]
            self.idle_since[name] = now
        job.mask &= ~mask

    def extend(self, job: SimJob, now: float) -> None:
        """The limit of the running job may have changed."""
        if job.claimed > now:
            self._profile.open(job.mask, now, job.claimed)
        # A job whose limit was lowered to this very instant still has its nodes until its event is processed.
        job.claimed = max(job.limit_at, math.nextafter(now, math.inf))
        self._profile.block(job.mask, now, job.claimed)

    def profile(self, now: float) -> BitProfile:
        """Which nodes are free when, as far as running jobs and nodes out of order are concerned; the caller's own."""
        self._profile.forget(now)
        profile = self._profile.copy()
        if self.out_of_order:
            profile.block(self.down, now)
        return profile

    def mark(self, name: str, trouble: str | None) -> None:
        """Take a node out of service (DOWN, DRAIN) or, with None, back in."""
        if name not in self.bits.names:
            raise NotFound(f"Invalid node name specified: {name}")
        self.out_of_order.pop(name, None)
        if trouble is not None:
            self.out_of_order[name] = trouble
        self.down = self.bits.mask(self.out_of_order)

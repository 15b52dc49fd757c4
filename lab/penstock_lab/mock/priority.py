"""priority/multifactor: what a job's place in the queue is made of (Slurm's priority_multifactor documentation).

    priority = 1 + weight_age * min(age / max_age, 1) + size + partition + qos + fairshare
    size       weights.size * nodes / all nodes, or with favor_small (all - nodes) / all
    partition  weights.partition * its priority / the largest of all partitions
    qos        weights.qos * its priority / the largest of all QOS, or without a weight its priority itself
    fairshare  weights.fairshare * 2 ** -(use / share): use is the account's part of all node-seconds, which decay with
               half_life, share its part of all shares (the classic algorithm, on one level: accounts)

A job's nice value is taken off, down to a priority of 1.

priority/basic is 4294901760 minus the job's place in the order of submission or, once held, of release.

Only age and use change while a job waits. Two jobs that both still age keep their order, so a job's place is a number
that does not depend on the time: `constant`, from which weight_age * now / max_age is missing on both sides.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from itertools import count

from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.model import ClusterConfig, PriorityType

__all__ = ["Priorities"]

_BASIC_TOP = 4294901760.0


class Priorities:
    """Works out priorities, and keeps the books on use."""

    def __init__(self, config: ClusterConfig, now: float) -> None:
        self._config = config
        self._weights = config.weights
        self._nodes = len(config.node_names)
        self._qos_top = max([*config.qos.values(), 0]) or 1
        self._partition_top = max([p.priority for p in config.partitions] + [0]) or 1
        self._partitions = {p.name: p.priority / self._partition_top for p in config.partitions}
        self._basic = config.priority is PriorityType.BASIC
        self._slope = 0.0 if self._basic else config.weight_age / config.max_age
        self._ranks = count(1)
        self._simple = not (self._weights.size or self._weights.partition or self._weights.fairshare)
        self._use: dict[str, float] = defaultdict(float)
        self._use_at = now
        self._factors: dict[str, float] = {}
        self._next_calculation = now

    def of(self, job: SimJob, now: float) -> float:
        """The job's priority at this time; 0 while it is held."""
        if job.held:
            return 0.0
        if job.fixed_priority is not None:
            return float(job.fixed_priority)
        since = self._since(job)
        until = job.start if job.start is not None else now
        if self._basic:
            return max(_BASIC_TOP - job.rank - job.nice, 1.0)
        age = 0.0 if since is None else min(max(until - since, 0.0) / self._config.max_age, 1.0)
        return max(1.0 + int(self._config.weight_age * age) + self._rest(job) - job.nice, 1.0)

    def aged_at(self, job: SimJob) -> float:
        """From when on the job's priority does not rise any more; -inf when it never does."""
        since = self._since(job)
        if job.fixed_priority is not None or since is None or not self._slope:
            return -math.inf
        return since + self._config.max_age

    def constant(self, job: SimJob, aged: bool) -> float:
        """What a job's place goes by, among those that still age, or among those that do not any more."""
        if job.fixed_priority is not None:
            return float(job.fixed_priority)
        if self._basic:
            return _BASIC_TOP - job.rank - job.nice
        if aged:
            return 1.0 + (self._config.weight_age if self._slope else 0.0) + self._rest(job) - job.nice
        return 1.0 + self._rest(job) - job.nice - self._slope * (self._since(job) or 0.0)

    def rank(self, job: SimJob) -> None:
        """Under priority/basic: put the job behind all others."""
        job.rank = next(self._ranks)

    def gained(self, now: float) -> float:
        """What is missing from the `constant` of those that still age."""
        return self._slope * now

    def used(self, account: str, node_seconds: float, now: float) -> None:
        """A job of the account has had so many node-seconds."""
        if self._weights.fairshare:
            self._decay(now)
            self._use[account] += node_seconds

    def due(self, now: float) -> bool:
        """Whether it is time to work fair-share out anew: by then the books have to be up to date."""
        return bool(self._weights.fairshare) and now >= self._next_calculation

    def recalculated(self, now: float) -> bool:
        """Work fair-share out anew if it is time for that; whether it was."""
        if not self.due(now):
            return False
        self._next_calculation = now + self._weights.calc_period
        self._decay(now)
        total = sum(self._use.values())
        shares = self._weights.shares
        every = sum(shares.get(account, 1.0) for account in self._use)
        self._factors = {
            account: 2.0 ** -((use / total) / (shares.get(account, 1.0) / every)) if total else 1.0
            for account, use in self._use.items()
        }
        return True

    def shares(self) -> Mapping[str, float]:
        """The factors as they were worked out last; none under priority/basic."""
        return {} if self._basic else dict(self._factors)

    def _since(self, job: SimJob) -> float | None:
        return job.submit if self._config.accrue_always else job.accrued

    def _rest(self, job: SimJob) -> float:
        """Everything but age."""
        number = self._config.qos.get(job.qos, 0)
        if self._simple and self._weights.qos is None:
            return number
        weights = self._weights
        part = (self._nodes - job.num_nodes if weights.favor_small else job.num_nodes) / self._nodes
        return (
            (number if weights.qos is None else weights.qos * number / self._qos_top)
            + weights.size * part
            + weights.partition * self._partitions[job.partition]
            + weights.fairshare * self._factors.get(job.account, 1.0)
        )

    def _decay(self, now: float) -> None:
        faded = 0.5 ** ((now - self._use_at) / self._weights.half_life)
        self._use_at = now
        for account in self._use:
            self._use[account] *= faded

"""What is done to the allocations of a pool in Slurm, by the executor of whoever's pool it is."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from penstock.api import Decision, JobSpec, Reason, Verb
from penstock.core.acts import KnownJob, SubmitJob
from penstock.core.executor import Concern, Executor, Payload
from penstock.state.pools import POOL_JOBS
from penstock_pool.auto.choose import AllocationShape
from penstock_pool.auto.order import AutoAllocation, AutoOrder
from penstock_pool.folder import PoolFolder

__all__ = ["AutoActs", "allocation_spec"]


class AutoActs:
    """On the allocations of one pool."""

    def __init__(self, executor: Executor, folder: PoolFolder, order: AutoOrder) -> None:
        self.executor = executor
        self.subject = f"pool {folder.name}"
        self.prefix = f"{POOL_JOBS}{folder.name}-"
        self._folder = folder
        self._order = order

    async def submit(self, allocation: AutoAllocation) -> int:
        """Ask for it; the job's number. Raises as `Executor.act`."""
        spec = allocation_spec(self._folder, self._order, allocation.name, allocation.shape)
        payload: Payload = {"name": spec.name, "nodes": spec.nodes, "time_limit": spec.time_limit}
        job = await self.executor.act(SubmitJob(spec), self.subject, payload, self._concern(allocation))
        text = f"job {job}: {allocation.why}"
        details = {"job": job, "nodes": spec.nodes, "limit": spec.time_limit}
        self.executor.record(Decision(Verb.SUBMIT, self.subject, (Reason("allocation", text),), details))
        return job

    async def cancel(self, allocation: AutoAllocation, why: str) -> None:
        """Take it back. Raises as `Executor.act`."""
        assert allocation.job is not None
        known = KnownJob.named(allocation.job, os.geteuid(), allocation.name)
        await self.executor.cancel(known, self.subject, self._concern(allocation, ends=True))
        told = Reason("not-needed", f"job {allocation.job}: {why}")
        self.executor.record(Decision(Verb.CANCEL, self.subject, (told,), {"job": allocation.job}))

    def log(self, job: int) -> Path:
        """Where a job of the pool's writes."""
        return Path(str(_log_file(self._folder)).replace("%j", str(job)))

    def say(self, verb: Verb, code: str, text: str) -> None:
        """Keep why something is left, or let go."""
        self.executor.record(Decision(verb, self.subject, (Reason(code, text),)))

    def _concern(self, allocation: AutoAllocation, *, ends: bool = False) -> Concern:
        order, partitions = self._order, tuple(allocation.shape.partition.split(","))
        return Concern("pool", os.geteuid(), partitions, (order.account,), (order.qos,), ends)


def allocation_spec(folder: PoolFolder, order: AutoOrder, name: str, shape: AllocationShape) -> JobSpec:
    """A job that joins the pool, and ends when it has nothing to do there."""
    join = ["env", f"PENSTOCK_POOL__FOLDER={folder.path.parent}", order.python, "-m", "penstock", "pool", "join"]
    join += ["--pool", folder.name, "--idle", f"{order.idle:g}s", "--give-back"]
    whole = () if order.cores is not None or "--exclusive" in order.options else ("--exclusive",)
    return JobSpec(
        name,
        f"#!/bin/sh\nexec {shlex.join(join)}\n",
        shape.nodes,
        shape.limit,
        partition=shape.partition or None,
        account=order.account or None,
        qos=order.qos or None,
        workdir=order.workdir,
        output=str(_log_file(folder)),
        cpus=None if order.cores is None else str(order.cores),
        options=(*whole, *order.options),
    )


def _log_file(folder: PoolFolder) -> Path:
    return folder.output / "allocation-%j.log"

"""What is done to the jobs of a bag in Slurm, by the executor of whoever's bag it is."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TypeVar

from penstock.api import Decision, JobSpec, Reason, Verb
from penstock.core.acts import CancelJob, HoldJob, KnownJob, ReleaseJob, SlurmAct, SubmitJob
from penstock.core.executor import Concern, Executor, Payload
from penstock_planning.broker.bags import Array, BagRun
from penstock_planning.broker.clusters import ClusterView

__all__ = ["BagActs"]

T = TypeVar("T")


class BagActs:
    """On the arrays of one bag."""

    def __init__(self, executor: Executor, run: BagRun) -> None:
        self._executor = executor
        self._run = run

    async def submit(self, view: ClusterView, spec: JobSpec) -> int:
        """Send an array; its id."""
        payload: Payload = {"name": spec.name, "cluster": view.cluster, "tasks": spec.array}
        concern = self._concern(view, spec.partition or "", spec.qos, ends=False)
        job = await self._do(SubmitJob(spec), payload, concern)
        told = Reason("placed", f"array {spec.name} (job {job}) goes to {spec.partition} of {view.cluster}")
        self._executor.record(Decision(Verb.SUBMIT, f"bag {self._run.id}", (told,)))
        return job

    async def hold(self, view: ClusterView, array: Array, partition: str) -> None:
        """Keep what waits of it from starting, so that some of it can be taken back."""
        concern = self._concern(view, partition, array.qos, ends=False)
        await self._do(HoldJob(_job(array)), _payload(array), concern)

    async def release(self, view: ClusterView, array: Array) -> None:
        """Let go what was held."""
        concern = self._concern(view, "", array.qos, ends=True)
        await self._do(ReleaseJob(_job(array), hold=True), _payload(array), concern)

    async def cancel(self, view: ClusterView, array: Array, tasks: Collection[int] = ()) -> None:
        """End it, or these of its tasks alone."""
        job, concern = array.job, self._concern(view, "", array.qos, ends=True)
        await self._do(CancelJob(_job(array), tuple(tasks)), _payload(array), concern)
        text = f"{len(tasks)} of its jobs would end sooner elsewhere" if tasks else "the bag is cancelled"
        told = Reason("withdrawn" if tasks else "cancelled", f"array {array.name} (job {job}): {text}")
        self._executor.record(Decision(Verb.CANCEL, f"bag {self._run.id}", (told,)))

    async def _do(self, act: SlurmAct[T], payload: Payload, on: Concern) -> T:
        return await self._executor.act(act, f"bag {self._run.id}", payload, on)

    def _concern(self, view: ClusterView, partition: str, qos: str | None, *, ends: bool) -> Concern:
        accounts = (self._run.bag.options.get("account") or "",)
        cluster = view.cluster if view.addressed else ""  # numbers are a cluster's own
        return Concern("select", os.geteuid(), (partition,), accounts, (qos or "",), ends, cluster)


def _payload(array: Array) -> Payload:
    return {"name": array.name, "cluster": array.cluster, "job": array.job}


def _job(array: Array) -> KnownJob:
    assert array.job is not None
    return KnownJob.named(array.job, os.geteuid(), array.name)

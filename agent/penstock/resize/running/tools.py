"""What all that serves malleable jobs works with, in one hand."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.api import Job
from penstock.core.executor import Executor
from penstock.host.clock import Clock
from penstock.resize.running.registry import Registry
from penstock.resize.running.rights import Rights
from penstock.resize.running.settings import MalleableSettings
from penstock.slurm.base import Reader

__all__ = ["Tools", "WithTools"]


@dataclass(frozen=True, slots=True)
class Tools:
    """The cluster, the way to change it, the jobs, and what they may have."""

    backend: Reader
    executor: Executor
    registry: Registry
    clock: Clock
    settings: MalleableSettings
    rights: Rights


class WithTools:
    """One that works with them."""

    def __init__(self, tools: Tools) -> None:
        self._backend, self._executor, self._registry = tools.backend, tools.executor, tools.registry
        self._clock, self._settings, self._rights = tools.clock, tools.settings, tools.rights

    def _companions(self, job: Job) -> tuple[int, ...]:
        """The numbers of the jobs that hold nodes for it."""
        return tuple(companion.job for companion in self._registry.jobs[job.id].companions)

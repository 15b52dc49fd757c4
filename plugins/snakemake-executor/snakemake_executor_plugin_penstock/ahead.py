"""Jobs that are in Slurm's queue before Snakemake asks for them, each behind those that it needs. Pure: which ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from snakemake_executor_plugin_penstock.graph import UnknownGraph, parents_of
from snakemake_executor_plugin_penstock.naming import ExternalName
from snakemake_executor_plugin_penstock.needs import JobNeeds, open_resources, unknown

__all__ = ["Ahead", "JobAhead"]


@dataclass(frozen=True, slots=True)
class JobAhead:
    """A job in the queue: what it is called, its number, and what was asked for."""

    name: ExternalName
    number: str
    asked: JobNeeds

    def enough(self, needs: JobNeeds) -> bool:
        """Whether that covers what the job is known to need by now."""
        return (
            self.asked.cores >= needs.cores
            and self.asked.gpus >= needs.gpus
            and _covers(self.asked.memory, needs.memory)
            and _covers(self.asked.seconds, needs.seconds)
        )


class Ahead:
    """Up to so many levels below the jobs that run."""

    def __init__(self, levels: int) -> None:
        self._levels = levels
        self._jobs: dict[Any, JobAhead] = {}

    def take(self, job: Any) -> JobAhead | None:  # noqa: ANN401
        """The job, which has been asked for by now."""
        return self._jobs.pop(job, None)

    def all(self) -> list[JobAhead]:
        """Those that have not been asked for yet."""
        return list(self._jobs.values())

    def each(
        self,
        dag: Any,  # noqa: ANN401
        running: Mapping[Any, str],
        wanted: Callable[[Any], bool],
        submit: Callable[[Any, Mapping[str, Any], Sequence[str]], JobAhead | None],
    ) -> None:
        """Have what comes next submitted: `running` are numbers of jobs, `wanted` are those that become jobs of Slurm;
        `submit` is given job, resources and the numbers of those that it waits for. Raises UnknownGraph."""
        level: Iterable[Any] = list(running)
        for _ in range(self._levels):
            below = _children(dag, level)
            for job in below:
                if job in self._jobs or job in running or not _can_be_ahead(dag, job) or not wanted(job):
                    continue
                parents = parents_of(dag, job)
                numbers = [running.get(p) or (self._jobs[p].number if p in self._jobs else "") for p in parents]
                if not parents or not all(numbers) or any(map(_may_change, parents)):
                    continue
                resources = open_resources(job.resources)
                if unknown(resources):
                    continue
                if (made := submit(job, resources, numbers)) is not None:
                    self._jobs[job] = made
            level = [job for job in below if job in self._jobs]

    def drop(self, dag: Any, job: Any) -> dict[Any, JobAhead]:  # noqa: ANN401
        """Forget the jobs after one that has failed; which they were."""
        lost: dict[Any, JobAhead] = {}
        todo = [job]
        while todo:
            try:
                children = _children(dag, [todo.pop()])
            except UnknownGraph:
                return lost
            for child in children:
                if (found := self._jobs.pop(child, None)) is not None:
                    lost[child] = found
                    todo.append(child)
        return lost


def _children(dag: Any, jobs: Iterable[Any]) -> list[Any]:  # noqa: ANN401
    try:
        return list(dict.fromkeys(child for job in jobs for child in list(dag.depending[job])))
    except (AttributeError, KeyError, TypeError) as e:
        raise UnknownGraph(str(e)) from e


def _can_be_ahead(dag: Any, job: Any) -> bool:  # noqa: ANN401
    """Whether it is run as a job of its own."""
    return not (_may_change(job) or job.is_local or job.rule.norun or not dag.needrun(job))


def _may_change(job: Any) -> bool:  # noqa: ANN401
    """Whether the graph after it may be another one when it has ended, or it may be run together with others."""
    return bool(job.is_group() or job.is_checkpoint or job.rule.group)


def _covers(asked: float | None, needed: float | None) -> bool:
    return asked is None or needed is None or asked >= needed

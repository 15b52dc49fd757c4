"""Jobs of a user's own script that depend on one another: what `penstock sbatch` remembers, and tells the agent.

The job is in the queue, as Slurm was told, before anything here is done; what goes wrong here is a note at most.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.config import Config
from penstock.console.door import ask_or_leave
from penstock.errors import LeftAlone, PenstockError
from penstock.resize.commands.molding import first_size, tell_shapes
from penstock.sbatch.commands.telling import note, record_handed_on, tell_changed
from penstock.sbatch.job import SbatchJob
from penstock.sbatch.remembered import Remembered, SubmittedJobs, cluster_name
from penstock.sbatch.submission import as_seen, hand_on, in_queue
from penstock.slurm.dependencies import jobs_named, renamed, singleton
from penstock.state.ownership import acts_path

__all__ = ["Chaining", "PlainJob"]

_TIMEOUT: Final = 10.0  # s: who submits a job does not wait for a busy agent
_HINT: Final = "no agent runs here: the next `penstock tick` follows this chain of jobs (let cron run it)"


@dataclass(frozen=True, slots=True)
class Chaining:
    """The jobs that this user has submitted by `penstock sbatch`, to look at and to add to; the user's `own` folder."""

    config: Config
    own: Path
    jobs: SubmittedJobs

    @classmethod
    def of(cls, config: Config) -> Chaining:
        """Those of the caller on this host's cluster. Raises ConfigError where the caller has no place of its own."""
        own = acts_path(config).parent
        return cls(config, own, SubmittedJobs(own, cluster_name(os.environ)))

    def numbered(self, dependency: str) -> str:
        """The dependency with the numbers of jobs that it names by their names; what is not known stays."""

        def number(word: str) -> int | None:
            known = None if word.isdecimal() else self.jobs.latest(word)
            # Of one that it has forgotten Slurm does not know how it ended.
            return known.job if known is not None and in_queue(job=known.job) else None

        return renamed(dependency, number)

    def submitted(self, job: int, name: str, stage: str, dependency: str, order: Mapping[str, Any]) -> None:
        """Remember a job, and have it followed with those that it depends on. Raises PenstockError where that cannot
        be."""
        mine = Remembered(job, name, stage, time.time(), dependency, order)
        near = in_queue(name=name) - {job} if singleton(dependency) else frozenset()
        known = [k for number in (*jobs_named(dependency), *sorted(near)) if (k := self.jobs.get(number)) is not None]
        self.jobs.add(mine)
        if known:
            called, born = as_seen(job)
            new = {**_link(mine), "near": sorted(near), "called_in_slurm": called, "born": born}
            links = [*map(_link, {k.job: k for k in known}.values()), new]
            with contextlib.suppress(LeftAlone):  # all is off
                ask_or_leave(self.config, "follow", {"links": links}, timeout=_TIMEOUT, hint=_HINT)

    def remember(
        self, job: int, name: str, stage: str, dependency: str, order: Mapping[str, Any] | None = None
    ) -> None:
        """Know a stage that is registered, so that others may depend on it."""
        with contextlib.suppress(PenstockError):
            self.jobs.add(Remembered(job, name, stage, time.time(), dependency, order or {}))


@dataclass(frozen=True, slots=True)
class PlainJob:
    """A job that names no workflow: submitted exactly as by sbatch, and then followed, where it is one of a chain."""

    config: Config
    job: SbatchJob

    def submit(self, environment: Mapping[str, str]) -> int:
        """See `Placing`."""
        config, job = self.config, self.job
        size = first_size(config, job, environment)
        said = record_handed_on(config, job.stage or "", quiet=job.quiet)
        chaining, numbered = None, job.dependency
        try:
            chaining = Chaining.of(config)
            numbered = chaining.numbered(job.dependency)
        except PenstockError as e:
            said = said or job.quiet or note(f"jobs that depend on this one are not followed: {e}")
        # A job's name is the one thing of a dependency that Slurm would not understand.
        by_number = () if numbered == job.dependency else (f"--dependency={numbered}",)
        done = hand_on(job, (*size.options, *by_number), environment, None if chaining is None else chaining.own)
        if not job.followable:
            if size.molded:
                note("the job keeps its size: its number is not known, or it went to another cluster")
            return done.end()
        if done.job is not None:
            tell_changed(config, done.job)
            if size.molded:
                tell_shapes(config, job.asked, done.job, job.folder)
        if chaining is not None and done.job is not None:
            try:
                chaining.submitted(done.job, job.name, job.stage or job.name, numbered, job.order(*size.options))
            except PenstockError as e:
                if not said:
                    note(f"job {done.job} is not followed as one of a chain: {e}")
        return done.end()


def _link(job: Remembered) -> dict[str, Any]:
    return {
        "called": job.stage,
        "job": job.job,
        "dependency": job.dependency,
        "at": job.at,
        "order": dict(job.order),
    }

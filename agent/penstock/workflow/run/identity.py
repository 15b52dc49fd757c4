"""Which job is a stage's: a number alone is no identity. Pure.

A slurmctld that crashed has lost its last seconds, and gives the numbers of these out again, to anybody. So a stage
keeps, beside the number, the submission time of the look that first showed its job, and the name that it was given.
Slurm moves the submission time when a job is requeued, and counts that; so another time is the same job only where it
has been requeued since and has the name. Anything else under the number is another job: it is left alone, and
what was the stage's is gone. Where a plug-in of the site has changed the name, a job that was submitted when ours was
is believed to be ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from penstock.api import AccountingRecord, Job
from penstock.core.acts import KnownJob
from penstock.workflow.state import WorkflowRun

__all__ = [
    "JobClaim",
    "Recognition",
    "claims",
    "first_submission",
    "known_job",
    "outlived",
    "recognise",
    "records_of",
]


_SUBMITTED_WITHIN: Final = 60.0
"""Seconds that sbatch may take to answer."""


class Recognition(Enum):
    """What the rows of a job's number are to it. ASK: its name says."""

    OURS = auto()
    ANOTHER = auto()
    ASK = auto()


@dataclass(frozen=True, slots=True)
class JobClaim:
    """What a run knows of one of its jobs. `unique`: no other job was ever given this name. `sent` is when it was in
    the queue by our clock, at the latest; infinite where that is not known."""

    number: int
    submit: float | None
    name: str
    restarts: int
    unique: bool
    sent: float = math.inf

    def answers(self, rows: Sequence[Job | AccountingRecord]) -> bool:
        """Whether these rows, which do not have its name, may be ours all the same: they were submitted when sbatch
        submitted ours, by the clocks of both hosts."""
        return self.submit is None and any(self.sent - _SUBMITTED_WITHIN <= row.submit <= self.sent for row in rows)

    def requeued(self, rows: Sequence[Job]) -> bool:
        """Whether a requeue may have moved the submission time of what these rows show."""
        return self.submit is not None and any(row.restarts > self.restarts for row in rows)


def claims(run: WorkflowRun) -> Iterator[JobClaim]:
    """All jobs that the run looks at: of its stages, and those that it has given up."""
    for stage in run.stages:
        if stage.job is not None:
            sent = stage.submitted if stage.own is None else stage.own.registered
            sent = math.inf if sent is None else sent
            yield JobClaim(stage.job, stage.born, stage.called, stage.restarts, not run.owned, sent)
    for number in run.discarded:
        born, called = run.given_up.get(number, (None, ""))
        yield JobClaim(number, born, called, 0, not run.owned)


def recognise(claim: JobClaim, rows: Sequence[Job]) -> Recognition:
    """Whether these rows, all that a look shows under the number, are the job that the run means."""
    if claim.submit is None:
        # A job of a release that kept no names is believed to be what its number says.
        return Recognition.ASK if claim.name else Recognition.OURS
    if any(row.submit == claim.submit for row in rows):
        return Recognition.OURS
    if claim.unique and claim.name:
        return Recognition.ASK
    if claim.requeued(rows):
        return Recognition.ASK if claim.name else Recognition.OURS
    return Recognition.ANOTHER


def first_submission(born: float | None, rows: Sequence[Job]) -> float:
    """What to know a job by after a look that shows these rows of it: of an array the earliest, as those of its tasks
    that were requeued have later ones."""
    submitted = [row.submit for row in rows]
    if born is not None and any(row.array_job is not None for row in rows):
        submitted.append(born)
    return min(submitted)


def records_of(claim: JobClaim, record: AccountingRecord) -> bool:
    """Whether accounting's record of the number is of the job that the run means."""
    if record.submit == claim.submit or claim.answers([record]):
        return True
    if claim.name:
        return record.name == claim.name
    return claim.submit is None or record.submit > claim.submit


def outlived(claim: JobClaim, record: AccountingRecord) -> bool:
    """Whether accounting's record of the number is of a later job, which has it only because ours was lost."""
    since = claim.sent if claim.submit is None else claim.submit
    return record.submit > since and not records_of(claim, record)


def known_job(run: WorkflowRun, number: int, me: int) -> KnownJob:
    """What the executor is to look for before it changes one of the run's jobs; `me` is the agent's uid."""
    claim = next((one for one in claims(run) if one.number == number), None)
    uid = run.uid if run.owned else me
    if claim is None:
        return KnownJob(number, uid)
    return KnownJob(number, uid, claim.submit, claim.name, claim.restarts)

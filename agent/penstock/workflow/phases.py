"""Words for where workflows and their stages are, and for who puts their jobs into the queue."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Kept", "RunPhase", "StagePhase", "Submitter"]


class Submitter(StrEnum):
    """Who puts the jobs of a workflow into the queue.

    AGENT: the agent, each when it is due. OWNER: their owner has put all of them there, most of them kept back, and the
    agent lets each go when it is due: so it may serve users whom it cannot act as. SLOT: each has a slot of its own,
    held for it, and is put into that as soon as those before it are in the queue.
    """

    AGENT = "agent"
    OWNER = "owner"
    SLOT = "slot"


class Kept(StrEnum):
    """How a job was kept back for the agent when its owner submitted it.

    BEGIN: by a begin time that does not come (`reading.FAR`), which is brought forward to let it go. HOLD: by a hold of
    its owner's, as release 0.1.0 did; when an Operator lifts that, an administrator's hold of the same moment goes with
    it.
    """

    NOT = ""
    BEGIN = "begin"
    HOLD = "hold"


class StagePhase(StrEnum):
    """Where a stage's job is."""

    WAITING = "waiting"  # not asked for yet; of an owner's: in the queue, kept back
    INTENDED = "intended"  # a Submit was given out; the executor has it until it reports
    SUBMITTED = "submitted"  # in the queue, held until its dependency has been read back
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"  # COMPLETED
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether nothing more happens to the stage."""
        return self in (StagePhase.DONE, StagePhase.FAILED, StagePhase.CANCELLED)

    @property
    def live(self) -> bool:
        """Whether the stage has a job in Slurm as far as is known."""
        return self in (StagePhase.SUBMITTED, StagePhase.QUEUED, StagePhase.RUNNING)


class RunPhase(StrEnum):
    """Where a workflow is. FAILING and CANCELLING wait for its live jobs to be gone."""

    ACTIVE = "active"
    FAILING = "failing"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether nothing more happens to the workflow."""
        return self in (RunPhase.COMPLETED, RunPhase.FAILED, RunPhase.CANCELLED)

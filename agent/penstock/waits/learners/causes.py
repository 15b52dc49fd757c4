"""Why a job waits, from Slurm's reason codes: for its turn in the queue, or for something that says nothing of that.

The codes are those of Slurm 22.05 to 26.05 (job_reason_codes.html); `squeue` writes some with blanks, some with
underscores, and puts details behind a comma.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from penstock.api import Job, JobState, Node
from penstock.values.waits import Known, Observation

__all__ = ["Cause", "cause_of", "hindrance", "learnable", "noted"]


class Cause(StrEnum):
    """What keeps a job waiting besides its turn."""

    HOLD = "hold"
    LICENCE = "licence"
    LIMIT = "limit"
    """Of an association, a QOS, a partition or an array: the job waits for other jobs of its own kind."""
    RESERVED = "reserved"
    """A maintenance or another reservation keeps the nodes."""
    NODES = "nodes"
    """Nodes or partitions are down, or nodes are being powered up."""
    REQUEUED = "requeued"
    """It was preempted or requeued: this is not its first wait."""
    OTHER = "other"


_TURN: Final = frozenset({"", "None", "Priority", "Resources", "SchedDefer", "Prolog", "Cleaning"})
# Jobs that wait so are not eligible yet, and their waits are counted from when they are.
_NOT_YET: Final = frozenset({"Dependency", "DependencyNeverSatisfied", "BeginTime"})
_EXACT: Final = {
    "Licenses": Cause.LICENCE,
    "JobHoldMaxRequeue": Cause.HOLD,
    "JobArrayTaskLimit": Cause.LIMIT,
    "InvalidAccount": Cause.LIMIT,
    "InvalidQOS": Cause.LIMIT,
    "PartitionNodeLimit": Cause.LIMIT,
    "PartitionTimeLimit": Cause.LIMIT,
    "Reservation": Cause.RESERVED,
    "ReservationDeleted": Cause.RESERVED,
    "NodeDown": Cause.NODES,
    "PartitionDown": Cause.NODES,
    "PartitionInactive": Cause.NODES,
}
_PREFIXES: Final = {"JobHeld": Cause.HOLD, "Assoc": Cause.LIMIT, "QOS": Cause.LIMIT, "Account": Cause.LIMIT}
_LICENCE_LIMITS: Final = ("AssocGrpLicense", "AssocMaxLicense", "QOSGrpLicense", "QOSMaxLicense", "MaxLicense")


def cause_of(reason: str) -> Cause | None:
    """What this reason code says; None when the job waits for its turn, or is not eligible yet."""
    code, _, detail = reason.replace("_", " ").partition(",")
    code = code.strip().strip("()")
    if code in _TURN or code in _NOT_YET:
        return None
    # "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": its turn, mostly.
    if code.startswith("Nodes required for job"):
        return None
    if code == "ReqNodeNotAvail":
        return Cause.RESERVED if "eserved" in detail else Cause.NODES
    if code.startswith(_LICENCE_LIMITS):
        return Cause.LICENCE
    if code.startswith("Max") and "Per" in code:  # MaxJobsPerAccount and its like, of a QOS
        return Cause.LIMIT
    return _EXACT.get(code) or next((c for prefix, c in _PREFIXES.items() if code.startswith(prefix)), Cause.OTHER)


def noted(before: str | None, seen: Cause | None) -> str | None:
    """What is known of a wait that hinders it, after another look: what was seen first, but for a requeue, which
    outweighs all else."""
    return seen.value if seen is not None and (before is None or seen is Cause.REQUEUED) else before


def hindrance(job: Job, nodes: Mapping[str, Node]) -> Cause | None:
    """What keeps this job besides its turn as it is seen now; None: nothing. `nodes` by name."""
    if job.restarts:
        return Cause.REQUEUED
    if job.state is JobState.CONFIGURING:
        # Slurm sets the start anew when nodes that had to be powered up are there: the boot is part of the wait.
        booting = any("POWER" in nodes[name].state for name in job.nodes if name in nodes)
        return Cause.NODES if booting else None
    if not job.pending or job.eligible is None:
        return None
    return cause_of(job.reason)


def learnable(observation: Observation, cause: Cause | None) -> Observation:
    """What is left to learn of a wait that `cause` had a part in: the queue alone would have taken that long at most;
    nothing of a job that was requeued, and of one that waits still."""
    if cause is None or observation.known in (Known.AT_MOST, Known.NOTHING):
        return observation if cause is not Cause.REQUEUED else Observation.nothing()
    if cause is Cause.REQUEUED or observation.known is Known.MORE_THAN:
        return Observation.nothing()
    return Observation.at_most(observation.seconds)

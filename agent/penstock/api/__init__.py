"""The words that every part of Penstock speaks, and the Protocols of its policies. Standard library only.

Times are seconds since the epoch (float), durations are seconds, sizes of jobs are whole nodes unless a name says
`processes`. All values are immutable; a decision carries its reasons.
"""

from __future__ import annotations

from penstock.api.cluster import (
    ASLEEP,
    License,
    Node,
    OwnerLimits,
    Partition,
    Reservation,
    ReservationSpec,
    SiteConfig,
    Snapshot,
    release_name,
)
from penstock.api.jobs import (
    FAR,
    AccountingRecord,
    Allocation,
    Geometry,
    Job,
    JobSpec,
    JobState,
    JobTexts,
    NodeNeeds,
    Origin,
    StartEstimate,
    Step,
)
from penstock.api.owners import HolderKind, Limit, LimitHolder, Owner
from penstock.api.policies import (
    Decision,
    JointPolicy,
    Offer,
    RanksQueue,
    Reason,
    ResizePolicy,
    ResizeVerdict,
    Verb,
    is_joint,
)
from penstock.texts import plural

__all__ = [
    "ASLEEP",
    "FAR",
    "AccountingRecord",
    "Allocation",
    "Decision",
    "Geometry",
    "HolderKind",
    "Job",
    "JobSpec",
    "JobState",
    "JobTexts",
    "JointPolicy",
    "License",
    "Limit",
    "LimitHolder",
    "Node",
    "NodeNeeds",
    "Offer",
    "Origin",
    "Owner",
    "OwnerLimits",
    "Partition",
    "RanksQueue",
    "Reason",
    "Reservation",
    "ReservationSpec",
    "ResizePolicy",
    "ResizeVerdict",
    "SiteConfig",
    "Snapshot",
    "StartEstimate",
    "Step",
    "Verb",
    "is_joint",
    "plural",
    "release_name",
]

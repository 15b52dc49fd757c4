"""What a word of squeue means for a server that runs as a job: regular expressions as batchspawner takes them. Pure.

batchspawner's own know four words, and a job of any other is gone for it: a server that was suspended for a while, or
whose job was resized, was forgotten while it ran.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PENDING_RE", "RUNNING_RE", "UNKNOWN_RE"]

PENDING_RE: Final = (
    r"^(?:PENDING|CONFIGURING|POWER_UP_NODE|REQUEUED|REQUEUE_FED|REQUEUE_HOLD|RESV_DEL_HOLD|SPECIAL_EXIT)\b"
)
RUNNING_RE: Final = r"^(?:RUNNING|COMPLETING|RESIZING|SIGNALING|STOPPED|SUSPENDED)\b"
"""It holds its nodes."""
UNKNOWN_RE: Final = (
    r"^(?!(?:BOOT_FAIL|CANCELLED|COMPLETED|DEADLINE|FAILED|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|REVOKED|STAGE_OUT|TIMEOUT)\b)"
    r"[A-Z][A-Z_]+\b|^slurm_load_jobs error: (?!Invalid job id)"
)
"""A word of a newer Slurm, which says nothing about the end, or no answer but that there is no such job."""

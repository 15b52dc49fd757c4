"""What Slurm's error messages mean: final, forbidden, or for now. The texts are those of slurm_errno.c."""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.errors import (
    Infeasible,
    NoCluster,
    NotFound,
    NotNow,
    NotPermitted,
    OutcomeUnknown,
    PenstockError,
    SlurmUnavailable,
)

__all__ = ["classify", "message_of", "refused", "unanswered"]

# Said of -M before the line that a cluster which is down gets as well; nothing was sent to any controller then.
_NO_CLUSTER = ("known by database",)
_NOT_FOUND = ("invalid job id specified",)
_FORBIDDEN = ("access/permission denied", "access denied", "invalid user id", "operation not permitted")
# The request may have reached the controller before the connection broke.
_LOST_ANSWER = (
    "socket timed out",
    "zero bytes were transmitted",
    "received zero length message",
    "unexpected message received",
    "insane message length",
    "message receive failure",
    "(receive failure)",
    "(shutdown failure)",
    "communication shutdown failure",
)
# The request never arrived.
_UNREACHABLE = (
    "unable to contact slurm",
    "can't be reached now",
    "communication connection failure",
    "connection refused",
    "connection reset",
    "connection timed out",
    "message send failure",
    "standby mode",
    "unable to connect to database",
    "failed to open persistent connection",
    "rate limit",
)
# The request was not accepted.
_UNAVAILABLE = (
    "resource temporarily unavailable",
    "protocol authentication error",
    "authentication credential",
    "failed to connect to authentication agent",
    "munge",
    "problem talking to the database",
    "unable to create job record, try again",
    "slurm temporarily unable to accept job",
    "i/o error writing script",
    "slurm internal error",
    "cannot allocate memory",
    "could not establish a configuration source",
)
# Accepted form, refused at this moment.
_NOT_NOW = (
    "try again",
    "requested nodes are busy",
    "submitjob",  # AssocMaxSubmitJobLimit, QOSMaxSubmitJobPerUserLimit: too many in the queue right now
    "prologslurmctld is still running",
    "required node not available",
    "requested reservation not usable now",
    "requested reservation is in use",
    "job is current suspended",
)
# Everything else that slurm_errno.c says about a request. What is in none of these lists is not known to be final.
_FINAL = (
    "invalid",
    "not permitted",
    "not permit",
    "job step already exists",
    "job dependency problem",
    "circular job dependency",
    "violates accounting/qos policy",
    "more processors requested",
    "requested node configuration is not available",
    "requested partition configuration not available",
    "requested nodes not in this partition",
    "requested operation",
    "requested more tasks",
    "requested time limit",
    "no partition specified",
    "node count specification",
    "size specification",
    "disabled",
    "in down state",
    "partition not available",
    "parameter too long",
    "denied",
    "duplicate reservation name",
    "must be specified",
    "error parsing",
    "already finished",
    "already started",
    "no longer pending",
    "held state",
    "revoked",
    "not pending nor running",
    "job is not running",
    "job is pending execution",
    "job script not specified",
    "does not look like a batch script",
    "script contains",
    "exceeds",
    "no changes specified",
    "unrecognized option",
    "only batch jobs",
    "not supported",
    "no job",
)
_NOISE = re.compile(
    r"^(?:scancel: Terminating job|salloc: Pending job allocation|salloc: job|salloc: Granted|Session terminated).*$",
    re.MULTILINE,
)


def message_of(stderr: str) -> str:
    """The error as one line for people, without progress messages."""
    lines = (line.strip() for line in _NOISE.sub("", stderr).splitlines())
    return "; ".join(dict.fromkeys(line for line in lines if line))[:500]


def unanswered(stderr: str) -> bool:
    """Whether the messages of a failed command say that nobody answered, or that Slurm wants fewer requests."""
    text = stderr.lower()
    nowhere = any(word in text for word in _NO_CLUSTER)
    return not nowhere and any(word in text for group in (_LOST_ANSWER, _UNREACHABLE) for word in group)


def refused(stderr: str, tolerated: Sequence[str]) -> str:
    """What of a failed command's messages stands against it: all lines but those that say one of `tolerated`.

    scontrol names the tasks of an array that it treats alike. Where all went well with some ("7_1-3: No error"), those
    that have ended are not held against it.
    """
    lines = [line for line in stderr.splitlines() if line.strip()]
    if any(": No error" in line for line in lines):
        tolerated = (*tolerated, ": No error", "Job has already finished")
    return "\n".join(line for line in lines if not any(word in line for word in tolerated))


def classify(stderr: str, *, changing: bool) -> PenstockError:
    """The error that a failed command's messages stand for. `changing`: the command would have changed something."""
    message = message_of(stderr) or "a Slurm command failed without a message"
    text = message.lower()

    def says(*groups: tuple[str, ...]) -> bool:
        return any(word in text for group in groups for word in group)

    if says(_NO_CLUSTER):
        return NoCluster(message)
    if says(_LOST_ANSWER):
        return OutcomeUnknown(message) if changing else SlurmUnavailable(message)
    if says(_UNREACHABLE, _UNAVAILABLE):
        return SlurmUnavailable(message)
    if says(_NOT_NOW):
        return NotNow(message)
    if says(_NOT_FOUND):
        return NotFound(message)
    if says(_FORBIDDEN):
        return NotPermitted(message)
    if says(_FINAL):
        return Infeasible(message)
    # An unknown text must neither end a workflow for ever nor make a change happen twice.
    return OutcomeUnknown(message) if changing else SlurmUnavailable(message)

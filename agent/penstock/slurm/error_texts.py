"""What Slurm's error messages are of: the texts of slurm_errno.c by kind. Pure.

Nothing is imported here: the front programs, which start for every command, read these too.
"""

from __future__ import annotations

__all__ = [
    "BUSY",
    "FINAL",
    "FORBIDDEN",
    "LOST_ANSWER",
    "NOT_FOUND",
    "NOT_NOW",
    "NO_CLUSTER",
    "UNAVAILABLE",
    "UNKNOWN",
    "UNREACHABLE",
    "errors_in",
    "kind_of",
    "submit_limit",
    "unanswered",
]

NO_CLUSTER = "no cluster"
LOST_ANSWER = "lost answer"
UNREACHABLE = "unreachable"
UNAVAILABLE = "unavailable"
NOT_NOW = "not now"
NOT_FOUND = "not found"
FORBIDDEN = "forbidden"
FINAL = "final"
UNKNOWN = "unknown"
"""The kinds, in the order in which they are looked for: the first that has a text of the message counts."""
BUSY = (LOST_ANSWER, UNREACHABLE, UNAVAILABLE)
"""What may go well when it is tried again: nobody has judged the request."""

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
    "requested reservation overlaps with another reservation",
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
    "cli_filter plugin terminated with error",
)
_KINDS = (
    (NO_CLUSTER, _NO_CLUSTER),
    (LOST_ANSWER, _LOST_ANSWER),
    (UNREACHABLE, _UNREACHABLE),
    (UNAVAILABLE, _UNAVAILABLE),
    (NOT_NOW, _NOT_NOW),
    (NOT_FOUND, _NOT_FOUND),
    (FORBIDDEN, _FORBIDDEN),
    (FINAL, _FINAL),
)


# Where a command says how its request went. What it says besides may be the words of a site's plug-in, which mean
# nothing here ("try again", "munge"), or what -v adds.
_VERDICTS = (
    "batch job submission failed: ",
    "job submit/allocate failed: ",
    "unable to allocate resources: ",
    "allocation failure: ",
)
_OF_A_JOB = " for job "
_CLI_FILTER = "cli_filter plugin terminated"
# What slurmctld answers where a job_submit plug-in refuses without a code of Slurm's: it has judged the request.
_REFUSED = "unspecified error"
# The limit is named on a line of its own.
_LIMITS, _MAY_SUBMIT = "violates accounting/qos policy", "submitjob"


def kind_of(message: str) -> str:
    """The kind of a failed command's messages: of the line that says how it went where there is one."""
    text = message.lower()
    verdict = _verdict(text)
    if (verdict or text).strip().startswith(_REFUSED):
        return FINAL
    if submit_limit(message):
        return NOT_NOW
    text = verdict or text
    return next((kind for kind, words in _KINDS if any(word in text for word in words)), UNKNOWN)


def submit_limit(message: str) -> str:
    """The limit of how many jobs there may be in the queue by which a submission was refused; "": none."""
    if _LIMITS not in _verdict(message.lower()):
        return ""
    said = [line.rpartition("error: ")[2].split() for line in message.split("\n")]
    return next((words[0] for words in said if len(words) == 1 and _MAY_SUBMIT in words[0].lower()), "")


def unanswered(stderr: str) -> bool:
    """Whether the messages of a failed command say that nobody answered, or that Slurm wants fewer requests."""
    text = _verdict(stderr.lower()) or stderr.lower()
    nowhere = any(word in text for word in _NO_CLUSTER)
    return not nowhere and any(word in text for group in (_LOST_ANSWER, _UNREACHABLE) for word in group)


def errors_in(messages: str) -> str:
    """The lines of a failed command's messages that may say how it went: with -v there is much besides."""
    if _verdict(messages.lower()):
        return messages
    errors = [line for line in messages.split("\n") if "error:" in line or "fatal:" in line]
    return "\n".join(errors) or messages


def _verdict(text: str) -> str:
    """What the last line that says how the request went says, in small letters; "": there is none."""
    for line in reversed(text.split("\n")):
        for before in _VERDICTS:
            if before in line:
                return line.partition(before)[2].strip()
        said, found, job = line.rpartition(_OF_A_JOB)
        if _CLI_FILTER in line or (found and job.strip().isdigit() and ": error: " not in line):
            return said.strip() or line.strip()
    return ""

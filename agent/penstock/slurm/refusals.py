"""What Slurm's error messages mean: final, forbidden, or for now. The texts are in `error_texts`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

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
from penstock.slurm import error_texts as texts
from penstock.slurm.error_texts import unanswered

__all__ = ["classify", "message_of", "refused", "unanswered"]

_ERRORS: Final[Mapping[str, type[PenstockError]]] = {
    texts.NO_CLUSTER: NoCluster,
    texts.UNREACHABLE: SlurmUnavailable,
    texts.UNAVAILABLE: SlurmUnavailable,
    texts.NOT_NOW: NotNow,
    texts.NOT_FOUND: NotFound,
    texts.FORBIDDEN: NotPermitted,
    texts.FINAL: Infeasible,
}

_NOISE = re.compile(
    r"^(?:scancel: Terminating job|salloc: Pending job allocation|salloc: job|salloc: Granted|Session terminated).*$",
    re.MULTILINE,
)


def message_of(stderr: str) -> str:
    """The error as one line for people, without progress messages."""
    lines = (line.strip() for line in _NOISE.sub("", stderr).splitlines())
    return "; ".join(dict.fromkeys(line for line in lines if line))[:500]


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
    kind = texts.kind_of(_NOISE.sub("", stderr))
    # An unknown text must neither end a workflow for ever nor make a change happen twice.
    if kind in (texts.LOST_ANSWER, texts.UNKNOWN):
        return OutcomeUnknown(message) if changing else SlurmUnavailable(message)
    return _ERRORS[kind](message)

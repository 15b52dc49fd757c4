"""What slurmrestd's answers that are no answers mean: an error by the error tree of a backend. Pure.

It names Slurm's own errors, in the words in which the commands print them, so `refusals` judges them. What is no JSON
comes from something in between, or from a slurmrestd that is at its end: nobody has judged the request then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.errors import Infeasible, NotPermitted, OutcomeUnknown, PenstockError, SlurmUnavailable
from penstock.slurm.refusals import classify

__all__ = ["RestRefusal", "complaint", "doubts_token", "error_of", "judged", "refuses_token", "unreadable"]

_SAYS_NOTHING: Final = frozenset({"", "unspecified error", "no error", "success"})
# Of a signal that slurmctld did not hear slurmrestd says 1, and takes that for EPERM (24.11).
_FAILED: Final = 1
# A job_submit plug-in of the site has refused without a code of Slurm's; slurmrestd drops the words that it had.
_REFUSED: Final = -1
# slurmctld's words for a token that has expired, is of another user, or was signed with another key.
_TOKEN: Final = ("protocol authentication error", "authentication credential", "authentication failure")
_NO_DATABASE: Final = "unable to connect to database"
_MALFORMED: Final = (
    "unexpected json",
    "rfc7320",
    "failure parsing",
    "data conversion",
    "unable to parse",
    "unexpected key",
)
_LONGEST: Final = 500


class RestRefusal(Exception):
    """The server has judged the request and said no; `status` is HTTP's, `text` in Slurm's words, on one line."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


def complaint(document: Mapping[str, Any]) -> str:
    """What the errors of an answer say; empty: it has none."""
    found = document.get("errors")
    if not isinstance(found, list):
        return ""
    return "; ".join(dict.fromkeys(filter(None, (_one(item) for item in found))))[:_LONGEST] or ""


def _one(item: object) -> str:
    if not isinstance(item, Mapping):
        return " ".join(str(item).split())
    named = " ".join(str(item.get("error") or "").split())
    more = " ".join(str(item.get("description") or "").split())
    if item.get("error_number") == _FAILED:
        return f"{more or 'it failed'}, and slurmrestd does not say why"
    if item.get("error_number") == _REFUSED and named.lower() == "unspecified error":
        return f"{named} ({more or 'refused'}; where a job_submit plug-in refuses, slurmrestd drops its words)"
    if named.lower() in _SAYS_NOTHING:
        return more or named or "an error without a word"
    # The description may hold what the request said; Slurm's own words come first, and decide.
    return f"{named} ({more})" if more and more != named else named


def refuses_token(status: int, text: str) -> bool:
    """Whether it is the token that was not accepted."""
    return status == 401 or any(words in text.lower() for words in _TOKEN)


def doubts_token(text: str) -> bool:
    """Whether it may be the token: slurmrestd says the same (502, 7000) of a slurmdbd that is away and of one that does
    not accept the token."""
    return _NO_DATABASE in text.lower()


def unreadable(status: int, kind: str, *, changing: bool) -> PenstockError:
    """An answer that is not slurmrestd's. `kind` is its media type."""
    if status in (401, 407):
        return NotPermitted(f"what stands before slurmrestd refuses the request (HTTP {status})")
    text = f"HTTP {status} and {kind or 'nothing'} instead of slurmrestd's JSON"
    return OutcomeUnknown(text) if changing else SlurmUnavailable(text)


def judged(text: str, *, changing: bool) -> PenstockError:
    """The error that Slurm's words stand for."""
    # What follows in brackets may hold what the request said.
    first = text.partition(" (")[0]
    if any(words in text.lower() for words in _MALFORMED):
        return Infeasible(text)
    return type(classify(first, changing=changing))(text)


def error_of(refused: RestRefusal, *, changing: bool) -> PenstockError:
    """As `judged`; a token that was refused is for people to mend."""
    if refuses_token(refused.status, refused.text):
        text = f"Slurm does not accept the token, or whom it is for: {refused.text}"
        if refused.status == 401:
            text += " (where the site has munge, slurmrestd takes tokens only if it was started with SLURM_JWT=daemon)"
        return NotPermitted(text)
    return judged(refused.text, changing=changing)

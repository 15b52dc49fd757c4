"""What a squeue, sacct, scancel or scontrol is for, and when it may be run again. Pure.

What asks can always be repeated. What changes is repeated when it did not reach Slurm; when its answer was lost, only
if done twice is as done once: to cancel, hold or release a job, and to set what a job has. Not to send it a signal, to
requeue it, or to add to what it has.
"""

from __future__ import annotations

from penstock.slurm.error_texts import BUSY, LOST_ANSWER, errors_in, kind_of
from penstock.values.lines import split_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ASKS",
    "CHANGES",
    "OTHER",
    "SCANCEL_LETTERS",
    "SQUEUE_LETTERS",
    "done_before",
    "may_repeat",
    "purpose",
    "touched",
    "unanswered_text",
    "without_errors",
]

ASKS, CHANGES, OTHER = "asks", "changes", "other"
_SAFE = ("hold", "holdu", "uhold", "release", "update")
_ONLY_ONCE = ("requeue", "requeuehold", "resume", "suspend", "notify", "top")
SQUEUE_LETTERS = "A:ahi:j::lL:n:M:O:o:p:Pq:R:rs::S:t:u:U:vVw:"
SCANCEL_LETTERS = "A:bfHin:p:Qq:R:s:t:u:vVw:M:"
"""The commands' short options, as getopt has them: a colon behind one that takes a value."""
_DONE = ("already completing or completed", "already finished", "No error")


def purpose(program: str, words: Sequence[str]) -> str:
    """What it is for; OTHER is run as it is, once."""
    if program == "squeue":
        return OTHER if _has(words, "i", "--iterate", SQUEUE_LETTERS) else ASKS
    if program == "sacct":
        return ASKS
    if program == "scancel":
        return OTHER if _has(words, "i", "--interactive", SCANCEL_LETTERS) else CHANGES
    verb = _verb(words)
    if verb == "show":
        return ASKS
    return CHANGES if verb in _SAFE or verb in _ONLY_ONCE else OTHER


def unanswered_text(text: str) -> bool:
    """Whether a failed command says that nobody has judged its request."""
    return kind_of(errors_in(text)) in BUSY


def may_repeat(program: str, words: Sequence[str], text: str, changes: bool) -> bool:
    """Whether to run it again, after what it has said."""
    if not changes or kind_of(errors_in(text)) != LOST_ANSWER:
        return True
    if program == "scancel":
        signals = (("s", "--signal"), ("b", "--batch"), ("f", "--full"))
        return not any(_has(words, letter, name, SCANCEL_LETTERS) for letter, name in signals)
    adds = any("=+" in word or "=-" in word or "+=" in word or "-=" in word for word in words)
    return _verb(words) in _SAFE and not adds


def done_before(text: str) -> bool:
    """Whether a repetition says no more than that it has been done, as the answer that was lost would have. Its
    exit code is 0 for `scancel` all the same, in some releases."""
    lines = [line for line in split_lines(errors_in(text)) if line.strip()]
    return bool(lines) and all(any(word in line for word in _DONE) for line in lines)


def without_errors(text: str) -> str:
    """What `scancel -v` says besides that it has been done: that it cancels. Tools read it there."""
    errors = split_lines(errors_in(text))
    return "".join(line + "\n" for line in split_lines(text) if line not in errors)


def touched(words: Sequence[str]) -> list[int]:
    """The jobs that are named, of arrays the whole array, each once. More than there are do no harm."""
    found: dict[int, None] = {}
    for word in words:
        for part in word.rpartition("=")[2].lstrip("[").split(","):
            digits = part[: len(part) - len(part.lstrip("0123456789"))]
            if digits and len(digits) <= 20 and digits.isascii():
                found[int(digits)] = None
    return list(found)


def _verb(words: Sequence[str]) -> str:
    """scontrol's command; "" for none."""
    taken = False
    for word in words:
        if taken:
            taken = False
        elif word in ("-M", "--clusters", "--cluster", "-u", "--uid"):
            taken = True
        elif not word.startswith("-"):
            return word.lower()
    return ""


def _has(words: Sequence[str], letter: str, name: str, letters: str) -> bool:
    """Whether an option may be there; `letters` are the command's, as getopt has them. The value of a long option
    that looks like this one is taken for it."""
    value = False
    for word in words:
        if value:
            value = False
        elif word.startswith("--"):
            given = word.partition("=")[0]
            if len(given) > 3 and name.startswith(given):
                return True
        elif word.startswith("-"):
            for at, one in enumerate(word[1:], 2):
                if one == letter:
                    return True
                if f"{one}:" in letters:  # the rest is its value, or the next word
                    value = at == len(word) and f"{one}::" not in letters
                    break
    return False

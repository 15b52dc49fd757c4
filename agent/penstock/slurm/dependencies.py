"""What sbatch's `--dependency` says: which jobs it names, and what of it a workflow can say as `after=`. Pure.

    afterok:12:13,afterany:9      all of these
    afterok:12?afterok:13         any of these

Slurm judges it; here it is only looked through, and what is not understood stays as it was written. A job may be named
instead of numbered, which Slurm does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["beside", "jobs_named", "needed", "renamed", "singleton"]

# A job, an array's task or tasks, and with `after` minutes.
_NUMBER: Final = re.compile(r"([0-9]{1,10})(_(?:[0-9]+|\*|\[[0-9,\-]+\]))?(\+[0-9]+)?", re.ASCII)
_JOB: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_MINUTES: Final = re.compile(r"(.+?)(\+[0-9]+)", re.ASCII)
_NEEDS: Final = "afterok"
# A comma inside [1,3] parts no terms.
_PARTS: Final = re.compile(r"([,?])(?![^\[]*\])")


def jobs_named(text: str) -> tuple[int, ...]:
    """The numbers of all jobs in it, of arrays those of the whole array; each once, in their order."""
    found = (_NUMBER.fullmatch(word) for _kind, words in _terms(text) for word in words)
    return tuple(dict.fromkeys(int(match[1]) for match in found if match is not None))


def needed(text: str) -> tuple[int, ...]:
    """The jobs that must all have completed before: what `after=` says of stages. Not those of which any will do, nor
    tasks of arrays."""
    if "?" in text:
        return ()
    found = (word for kind, words in _terms(text) if kind == _NEEDS for word in words)
    return tuple(dict.fromkeys(int(word) for word in found if _JOB.fullmatch(word)))


def beside(text: str, jobs: tuple[int, ...]) -> str:
    """What it says besides that these jobs (of `needed`) must have completed; "" for nothing."""
    if "?" in text:
        return text
    numbers = frozenset(map(str, jobs))
    kept = []
    for kind, words in _terms(text):
        left = [word for word in words if not (kind == _NEEDS and word in numbers)]
        if left or not words:
            kept.append(":".join((kind, *left)))
    return ",".join(kept)


def singleton(text: str) -> bool:
    """Whether it waits for all earlier jobs of the same name."""
    return any(kind == "singleton" for kind, _words in _terms(text))


def renamed(text: str, number: Callable[[str], int | None]) -> str:
    """The same with the job that `number` gives for a word (a job's number or name) in its place; None: as it is."""

    def one(word: str) -> str:
        if (match := _NUMBER.fullmatch(word)) is not None:
            new = number(match[1])
            return word if new is None else f"{new}{match[2] or ''}{match[3] or ''}"
        if (new := number(word)) is not None:
            return str(new)
        timed = _MINUTES.fullmatch(word)
        new = number(timed[1]) if timed is not None else None
        return word if new is None or timed is None else f"{new}{timed[2]}"

    out = []
    for part in _PARTS.split(text):
        kind, colon, rest = part.partition(":")
        if colon:
            part = f"{kind}:{':'.join(map(one, rest.split(':')))}"
        out.append(one(part) if _NUMBER.fullmatch(part) else part)
    return "".join(out)


def _terms(text: str) -> Iterator[tuple[str, list[str]]]:
    """Its terms: the kind, and the words for jobs. A bare number means `afterany`."""
    for part in _PARTS.split(text)[::2]:
        kind, colon, rest = part.strip().partition(":")
        if _NUMBER.fullmatch(kind):
            yield "afterany", [kind, *(rest.split(":") if colon else ())]
        elif kind:
            yield kind.lower(), rest.split(":") if colon else []

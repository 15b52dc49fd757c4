"""Parts a command line of squeue, sacct, scancel or scontrol by whose jobs it names: Slurm's, or a pool's. Pure."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["FIRST_JOB", "Divided", "divided", "job_of_word"]

FIRST_JOB = 5_000_000_000
"""From here on numbers are of jobs of pools: no job of Slurm has one as large, those of a federation have 32 bits."""
_ONE = r"[0-9]{1,11}(?:_(?:[0-9]{1,9}|\*|\[[0-9,:%-]+\]))?(?:\+[0-9]+)?(?:\.[A-Za-z0-9]+)?"
_LIST = re.compile(rf"{_ONE}(?:,{_ONE})*", re.ASCII)
_PART = re.compile(_ONE, re.ASCII)
_SHORT = re.compile(r"(-[A-Za-z]*j)(.*)", re.ASCII | re.DOTALL)
_LONG = re.compile(r"(--jobs?|--jo?)(?:(=)(.*))?", re.ASCII | re.DOTALL)
_NAMED = re.compile(r"((?:job|jobid)=)(.*)", re.ASCII | re.IGNORECASE | re.DOTALL)
_TAKES_VALUE = re.compile(
    r"-[A-Za-z]*[AMRnpqstuw]|--(?:account|clusters?|jobname|name|nodelist|partition|qos|reservation|signal|state|uid|user"
    r"|wckey)",
    re.ASCII,
)


class Divided:
    """`ours` are the words for the pools, with the jobs that they name; `theirs` those for Slurm. Each is None where
    nothing is left for it. `listing`: no job was named, so it is about all, of both."""

    def __init__(self, ours: list[str] | None, theirs: list[str] | None, jobs: list[int], *, listing: bool) -> None:
        self.ours = ours
        self.theirs = theirs
        self.jobs = jobs
        self.listing = listing


class _Piece:
    """One or two words: `before` (a word of its own), and `joined` to the text. `jobs`: the text is a list of jobs."""

    def __init__(self, text: str, *, before: str = "", joined: str = "", jobs: bool = False) -> None:
        self.text = text
        self.jobs = jobs and _LIST.fullmatch(text) is not None
        self._before = [before] if before else []
        self._joined = joined

    def words(self, text: str) -> list[str]:
        """The words again, with this text."""
        return [*self._before, self._joined + text]


def divided(program: str, words: Sequence[str]) -> Divided:
    """The parts of a command line."""
    ours: list[str] = []
    theirs: list[str] = []
    mine: list[str] = []
    others: list[str] = []
    for piece in (_of_options if program in ("squeue", "sacct") else _of_words)(list(words)):
        if not piece.jobs:
            ours += piece.words(piece.text)
            theirs += piece.words(piece.text)
            continue
        parts = _PART.findall(piece.text)
        for wanted, kept, named in ((True, ours, mine), (False, theirs, others)):
            here = [part for part in parts if (job_of_word(part) >= FIRST_JOB) is wanted]
            kept += piece.words(",".join(here)) if here else []
            named += here
    if not mine and not others:
        return Divided(list(words), list(words), [], listing=True)
    jobs = [job_of_word(part) for part in mine]
    return Divided(ours if mine else None, theirs if others else None, jobs, listing=False)


def job_of_word(word: str) -> int:
    """The number in a word for a job or a task of it."""
    return int(re.split(r"[_.+]", word)[0])


def _of_options(left: list[str]) -> Iterator[_Piece]:
    """squeue's and sacct's words: jobs are the value of an option, or (squeue) the word at the end."""
    while left:
        word = left.pop(0)
        short = None if word.startswith("--") else _SHORT.fullmatch(word)
        long = _LONG.fullmatch(word)
        if short is not None and short[2]:
            yield _Piece(short[2], joined=short[1], jobs=True)
        elif long is not None and long[2]:
            yield _Piece(long[3], joined=f"{long[1]}=", jobs=True)
        elif (short is not None or long is not None) and left and not left[0].startswith("-"):
            yield _Piece(left.pop(0), before=word, jobs=True)
        else:
            numbers = _LIST.fullmatch(word) and any(job_of_word(part) >= FIRST_JOB for part in _PART.findall(word))
            yield _Piece(word, jobs=bool(numbers))


def _of_words(left: list[str]) -> Iterator[_Piece]:
    """scancel's and scontrol's words: jobs are words that are no option, nor the value of one."""
    while left:
        word = left.pop(0)
        named = _NAMED.fullmatch(word)
        if named is not None:
            yield _Piece(named[2], joined=named[1], jobs=True)
        elif _TAKES_VALUE.fullmatch(word) and left:
            yield _Piece(left.pop(0), before=word)
        else:
            yield _Piece(word, jobs=not word.startswith("-"))

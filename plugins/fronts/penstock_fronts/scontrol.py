"""What `scontrol show job` says, from a look at all jobs. Pure.

A record is free text: who writes two line feeds into a comment can make it look like two. So a record is cut out
only where squeue, whose text cannot be forged, agrees on where it begins and on where the next one does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock_fronts.rows import Table
from penstock_fronts.site import Asker, ShimSite
from penstock_fronts.words import CommandAnswer, Through, parse_words

__all__ = ["ScontrolAsk", "answer", "read"]

_LONGS: Final = {
    "autocomplete": ("autocomplete", 1), "all": ("a", 0), "cluster": ("M", 1), "clusters": ("M", 1),
    "details": ("d", 0), "federation": ("federation", 0), "future": ("F", 0), "help": ("h", 0), "hide": ("hide", 0),
    "json": ("json", 2), "local": ("local", 0), "oneliner": ("o", 0), "quiet": ("Q", 0), "sibling": ("sibling", 0),
    "uid": ("u", 1), "usage": ("h", 0), "verbose": ("v", 0), "version": ("V", 0), "yaml": ("yaml", 2),
}  # fmt: skip
_ID: Final = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)
_START: Final = re.compile(r"JobId=(\d+) ", re.ASCII)


@dataclass(frozen=True, slots=True)
class ScontrolAsk:
    """`job`: one; None: all. `line`: a record is a line (`-o`)."""

    job: int | None
    line: bool = False


def read(words: Sequence[str], environ: Mapping[str, str], site: ShimSite) -> ScontrolAsk:
    """What the command asks for. Raises `Through` for all but `show job`."""
    options, others = parse_words(words, "adhM:FoQu:vV", _LONGS)
    if any(name.startswith("SCONTROL_") or name in ("SLURM_CLUSTERS", "SLURM_BITSTR_LEN") for name in environ):
        raise Through("a variable is set that changes what scontrol says")
    if site.federated or site.hidden:
        raise Through("it depends on who asks what scontrol shows")
    if any(option.name not in ("o", "local") for option in options):
        raise Through("an option that is not served")
    if len(others) == 2 and others[1].startswith("job="):
        others = [others[0], *others[1].split("=", 1)]
    if others[:1] != ["show"] or len(others) not in (2, 3) or others[1] not in ("job", "jobs", "jobid"):
        raise Through("not served")
    job = None
    if len(others) == 3:
        if _ID.fullmatch(others[2]) is None or int(others[2]) >= site.past_ids:
            raise Through("not the number of a job")
        job = int(others[2])
    return ScontrolAsk(job, any(option.name == "o" for option in options))


def answer(ask: ScontrolAsk, look: str, queue: Table, asker: Asker) -> CommandAnswer:
    """What scontrol prints: `look` is its text of all jobs, `queue` what `squeue -r` just had. Raises `Through`."""
    if not asker.same_zone:
        raise Through("times in another zone, or in a format of the caller's")
    if ask.job is None:
        return CommandAnswer(look)
    return CommandAnswer(_record(ask, look, queue))


def _record(ask: ScontrolAsk, look: str, queue: Table) -> str:
    records = _pieces(look, "\n" if ask.line else "\n\n")
    rows = {row["A"]: row for row in queue.rows}
    numbers = [match[1] if (match := _START.match(record)) else "" for record in records]
    wanted = str(ask.job)
    if wanted not in numbers or wanted not in rows:
        raise Through("a job that the look does not show", frozenset([int(wanted)]))
    at = numbers.index(wanted)
    if rows[wanted]["i"] != wanted:
        raise Through("a job of several tasks or parts")
    for record, number in zip(records[at : at + 2], numbers[at : at + 2], strict=True):
        if numbers.count(number) != 1 or not _begins(record, rows.get(number), ask.line):
            raise Through("a record that squeue does not bear out")
    lines = records[at].rstrip("\n").split("\n")[1:]
    if lines if ask.line else not all(line.startswith("   ") for line in lines):
        raise Through("a record with line feeds in it")
    return records[at]


def _pieces(text: str, end: str) -> list[str]:
    *pieces, last = text.split(end)
    return [piece + end for piece in pieces] + ([last] if last else [])


def _begins(record: str, row: Mapping[str, str] | None, line: bool) -> bool:
    """Whether a record begins here, as squeue has its job."""
    if row is None:
        return False
    between = " " if line else "\n   "
    names = re.escape(f"JobName={row['j']}{between}UserId={row['u']}({row['U']}) ")
    return re.match(rf"JobId={row['A']} ([A-Za-z]+=[^ ]* )*{names}", record) is not None

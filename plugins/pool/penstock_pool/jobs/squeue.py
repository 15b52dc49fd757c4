"""What squeue says of a pool's jobs: which, and in what order, beyond what `penstock_fronts.squeue` reads. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.slurm.parse import parse_limit
from penstock_fronts import squeue
from penstock_fronts.rows import Table
from penstock_fronts.site import Asker, ShimSite
from penstock_fronts.words import CommandAnswer, Option, Through
from penstock_pool.jobs.amounts import UNITS
from penstock_pool.jobs.nodes import nodes_of
from penstock_pool.jobs.rows import FURTHER

__all__ = ["PoolSqueue", "answer", "read"]

_ASKS_FOR_HELP: Final = frozenset(["help", "helpFormat", "helpformat", "helpstate", "usage", "V"])
_PASSED_OVER: Final = frozenset(["P", "v"])
_OF_NO_POOL: Final = frozenset(["L", "R"])  # licences and reservations, which no job of a pool has
_VARIABLES: Final = frozenset(["SQUEUE_PRIORITY", "SQUEUE_SORT"])
_FORMATS: Final = frozenset(["SQUEUE_FORMAT", "SQUEUE_FORMAT2"])
_START: Final = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"

_FURTHER: Final = {name: name for name in FURTHER} | {"b": "gres"}

Row = Mapping[str, str]
Key = Callable[[Row], object]


@dataclass(frozen=True, slots=True)
class PoolSqueue:
    """What is asked for. `ask` says what is shown; `ids` are jobs and their tasks (None: of all). `sort` are keys with
    whether they are reversed, the last first. `nodes`: on one of these (None: anywhere). `cluster` is to be named
    before the heading. `unit`: that of memory, as `amount` says. `nothing`: it is about no job of a pool."""

    ask: squeue.SqueueAsk
    ids: Sequence[tuple[int, int | None]] | None
    sort: Sequence[tuple[Key, bool]]
    nodes: frozenset[str] | None
    cluster: str
    unit: str | None
    nothing: bool


def read(words: Sequence[str], environ: Mapping[str, str], site: ShimSite) -> PoolSqueue:
    """What the command asks for. Raises `Through`."""
    options, others = squeue.options_of(words)
    names = {option.name for option in options}
    last = {option.name: option.value or "" for option in options}
    starts, helps = "start" in names, bool(names & _ASKS_FOR_HELP)
    own = {"S", "start", "w", "M", "noconvert"} | _ASKS_FOR_HELP | _PASSED_OVER | _OF_NO_POOL
    kept = [option for option in options if option.name not in own]
    known = {name: value for name, value in environ.items() if name not in _VARIABLES}
    if starts:
        known = {name: value for name, value in known.items() if name not in _FORMATS}
        if not names & {"o", "O"}:
            kept = [*(option for option in kept if option.name != "l"), Option("o", _START)]
        if "t" not in names and "SQUEUE_STATES" not in environ:
            kept.append(Option("t", "PENDING"))
    ask = squeue.asked(kept, others, known, site, _FURTHER)
    clusters = [part for part in last.get("M", "").split(",") if part]
    if "M" in names and (len(clusters) != 1 or clusters[0] == "all"):
        raise Through("several clusters")
    elsewhere = bool(clusters) and site.cluster not in ("", clusters[0])
    return PoolSqueue(
        replace(ask, ids=None, as_found=True, date="l" in names and ask.header),
        ask.ids,
        _sort(last.get("S", environ.get("SQUEUE_SORT", "S" if starts else "P,t,-p"))),
        frozenset(nodes_of(last["w"])) if "w" in names else None,
        clusters[0] if clusters else "",
        "" if "noconvert" in names else None,
        elsewhere or helps or bool(names & _OF_NO_POOL),
    )


def answer(asked: PoolSqueue, look: Table, asker: Asker, *, beside: bool) -> CommandAnswer:
    """What squeue prints of a look that has the jobs which are asked for. `beside`: what Slurm says stands before it.
    Raises `Through`."""
    ask = asked.ask
    if not asker.same_zone and any(one.letter == "eligibletime" for one in ask.fields):
        raise Through("times in another zone, or in a format of the caller's")
    rows = [] if asked.nothing else list(look.rows)
    if asked.nodes is not None:
        rows = [row for row in rows if row["N"] in asked.nodes]
    for key, reverse in asked.sort:
        rows.sort(key=key, reverse=reverse)  # type: ignore[arg-type]
    table = replace(look, rows=tuple(rows))
    if beside:
        return squeue.answer(replace(ask, header=False, date=False), table, asker)
    said = squeue.answer(replace(ask, date=False), table, asker)
    before = (f"{asker.date}\n" if ask.date else "") + (f"CLUSTER: {asked.cluster}\n" * bool(asked.cluster))
    return replace(said, out=before * ask.header + said.out)


def _sort(text: str) -> list[tuple[Key, bool]]:
    """The keys of `-S`, as squeue reads them: from its end."""
    found: list[tuple[Key, bool]] = []
    for sign, name in reversed(re.findall(r"([-+,]*)(cluster|[^-+,])", text, re.IGNORECASE)):
        if name.lower() != "cluster" and name not in _ALIKE + "".join(_KEYS):
            raise Through(f"Invalid sort specification: {name}")
        if name == "S":  # what has no start is last in either order
            found += [(_KEYS["S"], sign.endswith("-")), (lambda row: row["S"] == "N/A", False)]
        elif name in _KEYS:
            found.append((_KEYS[name], sign.endswith("-")))
    return found


def _text(name: str) -> Key:
    return lambda row: "" if row[name] in ("(null)", "n/a") else row[name]


def _number(name: str) -> Key:
    return lambda row: float(row[name])


def _span(name: str) -> Key:
    def seconds(row: Row) -> float:
        limit = parse_limit(row[name])
        return math.inf if limit is None else limit

    return seconds


def _moment(name: str) -> Key:
    return lambda row: "" if row[name] == "N/A" else row[name]


def _memory(row: Row) -> float:
    return float(row["m"].rstrip(UNITS)) * 1024.0 ** (UNITS.find(row["m"][-1]) + 1)


def _natural(name: str) -> Key:
    """n2 before n10."""
    return lambda row: [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", row[name])]


def _id(row: Row) -> tuple[int, int]:
    return int(row["F"]), int(row["K"]) if row["K"].isdecimal() else -1


_ALIKE: Final = "bcdDfgGhHIJnOpQuUvz"
"""What all jobs of a pool have alike, or squeue does not sort by."""
_KEYS: Final[Mapping[str, Key]] = {
    "B": _natural("N"), "C": _number("C"), "e": _moment("e"), "i": _id, "j": _text("j"), "l": _span("l"),
    "L": _span("L"), "m": _memory, "M": _span("M"), "N": _natural("N"), "P": _text("P"), "S": lambda row: row["S"],
    "t": _text("t"), "T": _text("T"), "V": _moment("V"),
}  # fmt: skip

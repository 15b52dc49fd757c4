"""What squeue says, from a look at the queue. Pure.

The look has every job in the order in which squeue sorts them, with all fields as squeue writes them. Since squeue's
sort is stable, some of the rows are in the order in which squeue would print these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.fronts.programs.again import SQUEUE_LETTERS
from penstock.slurm.states import SHORT_STATES
from penstock_fronts.rows import Table
from penstock_fronts.site import Asker, ShimSite
from penstock_fronts.squeue_format import (
    DEFAULT,
    LETTERS,
    LONG,
    TIMES,
    Field,
    parse_format,
    parse_long_format,
    write_row,
)
from penstock_fronts.words import CommandAnswer, Option, Through, parse_words

__all__ = ["SqueueAsk", "answer", "asked", "options_of", "read"]

_LONGS: Final = {
    "accounts": ("A", 1), "all": ("a", 0), "array": ("r", 0), "array-unique": ("array-unique", 0),
    "autocomplete": ("autocomplete", 1), "cluster": ("M", 1), "clusters": ("M", 1),
    "expand-patterns": ("expand-patterns", 0), "Format": ("O", 1), "format": ("o", 1), "federation": ("federation", 0),
    "help": ("help", 0), "helpstate": ("helpstate", 0), "helpformat": ("helpformat", 0),
    "helpFormat": ("helpFormat", 0), "hide": ("hide", 0), "iterate": ("i", 1), "jobs": ("j", 2), "local": ("local", 0),
    "long": ("l", 0), "licenses": ("L", 1), "me": ("me", 0), "name": ("n", 1), "noconvert": ("noconvert", 0),
    "node": ("w", 1), "nodes": ("w", 1), "nodelist": ("w", 1), "noheader": ("h", 0), "notme": ("notme", 0),
    "only-job-state": ("only-job-state", 0), "partitions": ("p", 1), "priority": ("P", 0), "qos": ("q", 1),
    "reservation": ("R", 1), "running-over": ("running-over", 1), "running-under": ("running-under", 1),
    "sib": ("sibling", 0), "sibling": ("sibling", 0), "sort": ("S", 1), "start": ("start", 0), "steps": ("s", 2),
    "states": ("t", 1), "usage": ("usage", 0), "user": ("u", 1), "users": ("u", 1), "verbose": ("v", 0),
    "version": ("V", 0), "json": ("json", 2), "yaml": ("yaml", 2),
}  # fmt: skip
# Variables that change what squeue does, besides those that `read` knows.
_STRANGE: Final = (
    "SQUEUE_SORT", "SQUEUE_FEDERATION", "SQUEUE_PRIORITY", "SQUEUE_SIB", "SQUEUE_SIBLING", "SQUEUE_LICENSES",
    "SQUEUE_ARRAY_UNIQUE", "SLURM_CLUSTERS", "SLURM_BITSTR_LEN",
)  # fmt: skip
_KNOWN: Final = frozenset(
    ["SQUEUE_ALL", "SQUEUE_ARRAY", "SQUEUE_LOCAL", "SQUEUE_FORMAT", "SQUEUE_FORMAT2", "SQUEUE_ACCOUNT", "SQUEUE_NAMES",
     "SQUEUE_PARTITION", "SQUEUE_QOS", "SQUEUE_STATES", "SQUEUE_USERS"]
)  # fmt: skip

_BASES: Final = frozenset(list(SHORT_STATES)[:12])
_USUAL: Final = frozenset(["PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STAGE_OUT"])
_NO_TEXT: Final = "(null)"
_NOBODY: Final = "nobody"  # as whom squeue shows users whom nobody knows
_ENDED: Final = _BASES - _USUAL
_ID: Final = re.compile(r"0*([1-9][0-9]{0,9})(?:_(0|[1-9][0-9]{0,8}))?", re.ASCII)
_HET: Final = re.compile(r"(\d+)\+\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class SqueueAsk:
    """What a squeue command asks for. None as a filter: any.

    `ids`: jobs and their tasks (None: all of the job). `everything`: also what is hidden (`-a`); `array`: each task
    for itself (`-r`); `states` in long words, empty: all. `state_alone`: `--only-job-state`. `as_found`: the look's own
    order is as good as squeue's.
    """

    fields: Sequence[Field]
    header: bool = True
    date: bool = False
    everything: bool = False
    array: bool = False
    state_alone: bool = False
    as_found: bool = False
    ids: Sequence[tuple[int, int | None]] | None = None
    users: Sequence[str] | None = None
    me: bool = False
    not_me: bool = False
    states: frozenset[str] | None = None
    names: Sequence[str] | None = None
    partitions: Sequence[str] | None = None
    accounts: Sequence[str] | None = None
    qos: Sequence[str] | None = None


@dataclass
class _Words:
    """What the options say, before the environment and defaults."""

    flags: set[str] = field(default_factory=set)
    values: dict[str, str] = field(default_factory=dict)


def read(words: Sequence[str], environ: Mapping[str, str], site: ShimSite) -> SqueueAsk:
    """What the command asks for. Raises `Through`."""
    return asked(*options_of(words), environ, site)


def options_of(words: Sequence[str]) -> tuple[list[Option], list[str]]:
    """The command's options, and the other words. Raises `Through`."""
    return parse_words(words, SQUEUE_LETTERS, _LONGS)


def asked(
    options: Sequence[Option],
    others: Sequence[str],
    environ: Mapping[str, str],
    site: ShimSite,
    more: Mapping[str, str] | None = None,
) -> SqueueAsk:
    """What these ask for; `more`: further names of `-O`, and letters of `-o`, with the field that
    each is. Raises `Through`."""
    strange = next((name for name in environ if _unknown(name)), None)
    if strange is not None:
        raise Through(f"{strange} is set")
    if site.federated:
        raise Through("squeue may ask other clusters of a federation")
    said = _Words()
    for option in options:
        _take(said, option.name, option.value)
    if others:
        if "j" not in said.flags or len(others) > 1:
            raise Through(f"a word that is no option: {others[-1]}")
        said.values["j"] = others[0]
    return _asked(said, environ, site, more or {})


def _unknown(name: str) -> bool:
    return name in _STRANGE or (name.startswith("SQUEUE_") and name not in _KNOWN)


def _take(said: _Words, name: str, value: str | None) -> None:
    match name, value:
        case ("U", str()):
            said.values["A"] = value
        case ("A" | "n" | "p" | "q" | "t" | "u", str()):
            said.values[name] = value
            said.flags |= {"a"} if name == "p" else set()
            said.flags -= {"me"} if name == "u" else set()
        case ("o" | "O", str()):
            if ("O" if name == "o" else "o") in said.values:
                raise Through("-o and -O together")
            said.values[name] = value
        case ("j", _):
            said.flags.add("j")
            if value is not None:
                said.values["j"] = value
        case ("me", _):
            said.flags.add("me")
            said.values.pop("u", None)
        case ("hide", _):
            said.flags.discard("a")
        case ("a" | "h" | "l" | "r" | "local" | "notme" | "only-job-state", _):
            said.flags.add(name)
        case _:
            raise Through(f"an option that is not served: {name}")


_NEWER: Final = {"notme": (23, 2), "only-job-state": (24, 5)}


def _asked(said: _Words, environ: Mapping[str, str], site: ShimSite, more: Mapping[str, str]) -> SqueueAsk:
    flags, values = said.flags, said.values
    for flag, since in _NEWER.items():
        if flag in flags and site.release < since:
            raise Through(f"this release has no --{flag}")
    if "l" in flags and "o" in values:
        raise Through("-l and -o together")
    for letter, variable in (
        ("A", "SQUEUE_ACCOUNT"), ("n", "SQUEUE_NAMES"), ("p", "SQUEUE_PARTITION"), ("q", "SQUEUE_QOS"),
        ("t", "SQUEUE_STATES"),
    ):  # fmt: skip
        if letter not in values and variable in environ:
            values[letter] = environ[variable]
            flags |= {"a"} if letter == "p" else set()
    if "me" not in flags and "u" not in values and "SQUEUE_USERS" in environ:
        values["u"] = environ["SQUEUE_USERS"]
    if "SQUEUE_ALL" in environ:
        flags.add("a")
    ask = SqueueAsk(
        _fields(flags, values, environ, more),
        header="h" not in flags,
        date="l" in flags and "h" not in flags,
        everything="a" in flags or "j" in values,
        array="r" in flags or "SQUEUE_ARRAY" in environ,
        state_alone="only-job-state" in flags,
        ids=_ids(values["j"], site.past_ids) if "j" in values else None,
        users=_list(values, "u"),
        me="me" in flags,
        not_me="notme" in flags,
        states=_states(values["t"]) if "t" in values else None,
        names=_list(values, "n"),
        partitions=_list(values, "p"),
        accounts=_list(values, "A"),
        qos=_list(values, "q"),
    )
    return _alone(ask, flags, values) if ask.state_alone else ask


def _alone(ask: SqueueAsk, flags: set[str], values: Mapping[str, str]) -> SqueueAsk:
    """`--only-job-state`, whose answer has nothing but numbers and states."""
    if flags - {"only-job-state", "h", "local"} or values.keys() - {"o", "O", "t"}:
        raise Through("--only-job-state with more than states and a format")
    fields = ask.fields if values.keys() & {"o", "O"} else parse_format("%.18i %.2t")
    if any(one.letter not in ("", "i", "t", "T") for one in fields):
        raise Through("--only-job-state with a field that it does not know")
    return replace(ask, fields=fields)


def _fields(
    flags: set[str], values: Mapping[str, str], environ: Mapping[str, str], more: Mapping[str, str]
) -> list[Field]:
    if "o" in values:
        return parse_format(values["o"], more)
    if "O" in values:
        return parse_long_format(values["O"], more)
    if "l" not in flags and "SQUEUE_FORMAT" in environ:
        return parse_format(environ["SQUEUE_FORMAT"], more)
    if "l" not in flags and "SQUEUE_FORMAT2" in environ:
        return parse_long_format(environ["SQUEUE_FORMAT2"], more)
    return parse_format(LONG if "l" in flags else DEFAULT)


def _list(values: Mapping[str, str], name: str) -> list[str] | None:
    """The parts of a list; those of an empty one are none, and a filter that lets nothing pass."""
    if name not in values:
        return None
    parts = [part for part in values[name].split(",") if part]
    if _NO_TEXT in parts:
        raise Through("a name that looks like a missing one")
    return parts


def _ids(text: str, past: int) -> list[tuple[int, int | None]]:
    found: list[tuple[int, int | None]] = []
    for part in text.split(","):
        match = _ID.fullmatch(part)
        if match is None or int(match[1]) >= past:
            raise Through(f"not the number of a job: {part[:40]}")
        found.append((int(match[1]), None if match[2] is None else int(match[2])))
    return found


def _states(text: str) -> frozenset[str]:
    if text.lower() == "all":
        return frozenset()
    found = set()
    for part in (part for part in text.split(",") if part):
        word = part.upper()
        known = [name for name, short in SHORT_STATES.items() if word in (name, short)]
        if not known:
            raise Through(f"a state that is not served: {part}")
        found.add(known[0])
    if not found:
        raise Through("an empty list of states")
    return frozenset(found)


def answer(ask: SqueueAsk, look: Table, asker: Asker) -> CommandAnswer:
    """What squeue prints. Raises `Through`."""
    if not asker.same_zone and (ask.date or any(one.letter in TIMES for one in ask.fields)):
        raise Through("times in another zone, or in a format of the caller's")
    rows = _filtered(ask, look.rows, asker)
    lines, fields = [asker.date + "\n"] if ask.date else [], list(ask.fields)
    if ask.header:
        lines.append(write_row(fields, look.header, heading=True))
    lines += [write_row(fields, row) for row in rows]
    return CommandAnswer("".join(lines))


def _filtered(ask: SqueueAsk, rows: Sequence[Mapping[str, str]], asker: Asker) -> list[Mapping[str, str]]:
    if ask.ids is not None:
        rows = _of_ids(ask, rows)
    for wanted, letter, same in (
        (ask.users and _uids(ask.users, rows, asker), "U", False),
        ([str(asker.uid)] if ask.me else None, "U", False),
        (ask.accounts, "a", True),
        (ask.qos, "q", True),
        (ask.names, "j", True),
    ):
        if wanted is not None:
            rows = _matching(rows, letter, wanted, same)
    if ask.not_me:
        rows = [row for row in rows if row["U"] != str(asker.uid)]
    if ask.partitions is not None:
        rows = [row for row in rows if not set(row["P"].split(",")).isdisjoint(ask.partitions)]
    kept = [row for row in rows if _state_wanted(ask.states, row["T"])]
    if (ask.accounts is not None or ask.qos is not None) and any("[" in row["i"] for row in rows):
        raise Through("waiting tasks of an array that may differ in what is filtered by")
    if ask.ids is not None and len(ask.ids) == 1 and not ask.as_found:
        _distinct(kept)
    return kept


def _matching(
    rows: Iterable[Mapping[str, str]], letter: str, wanted: Sequence[str], folded: bool
) -> list[Mapping[str, str]]:
    fold: Callable[[str], str] = _folded if folded else str
    among = {fold(one) for one in wanted}
    return [row for row in rows if fold(row[letter]) in among]


def _folded(text: str) -> str:
    """As strcasecmp compares bytes in the C locale."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)


def _uids(users: Sequence[str], rows: Sequence[Mapping[str, str]], asker: Asker) -> list[str]:
    # Those whom squeue has looked up need not be looked up again.
    known: dict[str, set[str]] = {}
    for row in rows:
        known.setdefault(row["u"], set()).add(row["U"])
    found = []
    for user in users:
        seen = known.get(user, set())
        uid = next(iter(seen)) if len(seen) == 1 and not user.isdigit() and user != _NOBODY else None
        if uid is None:
            number = asker.uid_of(user)
            if number is None:
                raise Through(f"no user that is known here: {user}")
            uid = str(number)
        found.append(uid)
    return found


def _of_ids(ask: SqueueAsk, rows: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    assert ask.ids is not None
    whole = {str(job) for job, task in ask.ids if task is None}
    tasks = {f"{job}_{task}" for job, task in ask.ids if task is not None}
    found, seen = [], set()
    for row in rows:
        het = _HET.fullmatch(row["i"])
        names = {row["A"], row["F"], *([het[1]] if het else [])}
        mine = names & whole
        if row["i"] in tasks:
            mine.add(row["i"])
        if "[" in row["i"] and any(task.startswith(row["F"] + "_") for task in tasks):
            raise Through("tasks of an array that wait together")
        if mine:
            found.append(row)
            seen |= mine
    missing = (whole | tasks) - seen
    if missing:
        numbers = frozenset(int(name.partition("_")[0]) for name in missing)
        raise Through(f"jobs that the look does not show: {', '.join(sorted(missing)[:5])}", numbers)
    return found


def _distinct(rows: Sequence[Mapping[str, str]]) -> None:
    """Of one array, or one job of several parts, squeue is told in another order, which shows where the
    sort makes no difference."""
    if len({(row["P"], row["t"], row["Q"], row["S"]) for row in rows}) < len(rows):
        raise Through("tasks of one array in an order that is not known")


def _state_wanted(wanted: frozenset[str] | None, state: str) -> bool:
    if wanted is not None and not wanted:
        return True
    if state not in SHORT_STATES:
        raise Through(f"a job in a state that is not served: {state}")
    if wanted is None:
        if state in _USUAL:
            return True
        if state in _ENDED:
            return False
        raise Through(f"a job that is {state}")
    if state in wanted:
        return True
    # A job may have several marks, of which one is shown.
    if state not in _BASES and wanted - _BASES:
        raise Through(f"a job that is {state}, and may be more")
    return False


assert set(TIMES) < set(LETTERS)

"""What `scancel` and `scontrol` are asked to do to jobs of a pool: their words. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.fronts.programs.again import SCANCEL_LETTERS
from penstock_fronts.words import Through, parse_words
from penstock_pool.signals import KILL, TERM, Whom, signal_number

__all__ = ["CancelAsk", "ControlAsk", "JobName", "read_cancel", "read_control"]

_LONGS: Final = {
    "account": ("A", 1), "admin-comment": ("other", 1), "autocomplete": ("other", 1), "batch": ("b", 0),
    "cluster": ("M", 1), "clusters": ("M", 1), "ctld": ("ctld", 0), "cron": ("other", 0), "full": ("f", 0),
    "help": ("other", 0), "hurry": ("H", 0), "interactive": ("i", 0), "jobname": ("n", 1), "name": ("n", 1),
    "me": ("me", 0), "nodelist": ("w", 1), "partition": ("p", 1), "qos": ("q", 1), "quiet": ("Q", 0),
    "reservation": ("R", 1), "sibling": ("other", 1), "signal": ("s", 1), "state": ("t", 1), "usage": ("other", 0),
    "user": ("u", 1), "verbose": ("v", 0), "version": ("V", 0), "wckey": ("other", 1),
}  # fmt: skip
_PASSED_OVER: Final = frozenset(["ctld", "H", "v"])
_FILTERS: Final = frozenset("Anpqtu")
_ID: Final = re.compile(r"([1-9][0-9]{0,10})(?:_(?:([0-9]{1,9})|\[([0-9,:-]+)\]))?", re.ASCII)
_VERBS: Final = ("hold", "uhold", "release", "requeue", "requeuehold")

JobName = tuple[int, int | None]
"""A job, and a task of it or None."""


@dataclass(frozen=True, slots=True)
class CancelAsk:
    """`ids`: these; none: all that `filters` (by their letters) let pass. `signal`: 0 to end them, else to send it to
    `whom`."""

    ids: tuple[JobName, ...]
    filters: Mapping[str, str]
    signal: int = 0
    whom: Whom = Whom.STEPS
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class ControlAsk:
    """`show` these (none: all), each on one `line`; or a `verb` to be done to these."""

    verb: str
    ids: tuple[JobName, ...]
    line: bool = False


def read_cancel(words: Sequence[str]) -> CancelAsk:
    """What a scancel asks for. Raises Through for what is not served."""
    options, others = parse_words(words, SCANCEL_LETTERS, _LONGS)
    filters: dict[str, str] = {}
    number, flags = 0, set()
    for option in options:
        if option.name in _FILTERS and option.value is not None:
            filters[option.name] = option.value
        elif option.name == "s" and option.value is not None:
            number = signal_number(option.value) or 0
            if not number:
                raise Through(f"Unknown job signal: {option.value}")
        elif option.name in ("b", "f", "Q", "me"):
            flags.add(option.name)
        elif option.name not in _PASSED_OVER:
            raise Through(f"an option that is not served: {option.name}")
    if "me" in flags:
        filters["me"] = ""
    ids = tuple(name for word in others for part in _parts(word) for name in _names(part))
    if not ids and not filters:
        raise Through("no job")
    whom = Whom.BATCH if "b" in flags else Whom.ALL if "f" in flags else Whom.STEPS
    # Without a signal of its own it ends them all the same.
    end = number in (0, KILL) and not flags & {"b"}
    return CancelAsk(ids, filters, 0 if end else number or TERM, whom, quiet="Q" in flags)


def read_control(words: Sequence[str]) -> ControlAsk:
    """What a scontrol asks for. Raises Through for what is not served."""
    options, others = parse_words(words, "adhM:FoQu:vV", {"oneliner": ("o", 0), "all": ("a", 0), "details": ("d", 0)})
    if any(option.name not in ("o", "a", "d", "Q", "v") for option in options):
        raise Through("an option that is not served")
    verb = others[0].lower() if others else ""
    line = any(option.name == "o" for option in options)
    rest = [word.partition("=")[2] if word.lower().startswith("job=") else word for word in others[1:]]
    if verb == "show":
        if not rest or (rest[0].lower() not in ("job", "jobs", "jobid") and not others[1].lower().startswith("job=")):
            raise Through("not served")
        named = rest if others[1].lower().startswith("job=") else rest[1:]
        return ControlAsk("show", tuple(name for word in named for p in _parts(word) for name in _names(p)), line)
    if verb not in _VERBS or not rest:
        raise Through(f"scontrol {verb or 'without a command'} is not served")
    return ControlAsk(verb, tuple(name for word in rest for part in _parts(word) for name in _names(part)))


def _parts(word: str) -> list[str]:
    """A list in one word; commas inside brackets part nothing."""
    return [part for part in re.split(r",(?![^\[]*\])", word) if part]


def _names(text: str) -> list[JobName]:
    match = _ID.fullmatch(text)
    if match is None:
        raise Through(f"not the number of a job: {text[:40]}")
    job = int(match[1])
    if match[3] is None:
        return [(job, None if match[2] is None else int(match[2]))]
    found: list[JobName] = []
    for part in match[3].split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) - int(first) > 10_000:
            raise Through(f"not tasks of an array: {text[:40]}")
        found += [(job, task) for task in range(int(first), int(last or first) + 1)]
    return found

"""What bounds the agent and the commands, whatever happens: pure functions from what was seen to what is wrong with it.

What is paused or not allowed is left alone, nobody submits more than the cap, no user has more than the site's limits
leave, every act is in the audit trail once, and nothing stays of what is over. Times are seconds since the epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = [
    "Allowed",
    "Entry",
    "LeftAloneSpan",
    "Record",
    "Row",
    "Span",
    "audited",
    "feature_of",
    "left_alone",
    "nothing_left",
    "within_cap",
    "within_limits",
]

_HOUR = 3600.0
# What ends, gives back, or brings to its end what is under way is done whatever is paused.
_ENDS = frozenset({"cancel", "unreserve", "drop request", "shrink", "merge", "extend", "put off"})
_SUBMITS = {"submit": "jobs", "expand": "jobs for growth"}
_HELD = frozenset({"RUNNING", "SUSPENDED", "CONFIGURING", "RESIZING"})


@dataclass(frozen=True, slots=True)
class Entry:
    """An act in a journal: its `number` in the `book` (the agent's, or that of a user's commands), and how it went."""

    book: str
    number: int
    verb: str
    subject: str
    state: str  # open, done, failed, unknown, interrupted
    at: float
    closed: float | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A command of a user, from its start to its end."""

    user: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class LeftAloneSpan:
    """What was to be left alone from `begin`, when that was confirmed, until `end`, when somebody began to lift it:
    these `features` in this book."""

    book: str
    features: Collection[str]
    begin: float
    end: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a user may have at a time: nodes in all, nodes of a job, and the longest time limit (s)."""

    nodes: int
    job: int
    wall: float


@dataclass(frozen=True, slots=True)
class Row:
    """A job in one look at the queue; `limit` in seconds."""

    job: int
    user: str
    state: str
    nodes: int
    limit: float


@dataclass(frozen=True, slots=True)
class Record:
    """An act in the audit trail: of which entry of which book."""

    book: str
    intent: int
    verb: str
    outcome: str


def feature_of(entry: Entry) -> str | None:
    """The feature that an act is of; None: it ends or gives back, and belongs to none."""
    kind = entry.subject.split(" ", 1)[0]
    if entry.verb in _ENDS or (entry.verb == "release" and kind in ("bag", "job")):
        return None
    return {"workflow": "workflows", "hold": "slots", "request": "slots", "bag": "select", "job": "malleable"}.get(kind)


def left_alone(entries: Iterable[Entry], spans: Sequence[LeftAloneSpan], commands: Sequence[Span] = ()) -> list[str]:
    """Nothing was begun while it was paused or not allowed. A command that had begun before asked then: what it does
    is excused."""
    wrong = []
    for entry in entries:
        feature = feature_of(entry)
        for span in spans:
            if span.book != entry.book or feature not in span.features or not span.begin < entry.at < span.end:
                continue
            if not any(s.user == entry.book and s.begin <= span.begin and entry.at <= s.end for s in commands):
                wrong.append(
                    f"{entry.verb} {entry.subject} ({entry.book}'s {entry.number}) was begun "
                    f"{entry.at - span.begin:.3f} s after {feature} were to be left alone: {span.why}"
                )
                break
    return wrong


def within_cap(entries: Iterable[Entry], cap: int, user: str) -> list[str]:
    """No more submissions of one user in any hour than the cap, for growth and for all else. What the budget refused
    was no submission."""
    known, wrong = list(entries), []
    for verb, what in _SUBMITS.items():
        times = sorted(e.at for e in known if e.verb == verb and e.state != "failed")
        for first, begin in enumerate(times):
            if first + cap < len(times) and times[first + cap] - begin < _HOUR:
                count = sum(begin <= at < begin + _HOUR for at in times)
                wrong.append(f"{user} submitted {count} {what} in the hour from {begin:.0f} on, more than {cap}")
                break
    return wrong


def within_limits(look: Iterable[Row], allowed: Mapping[str, Allowed]) -> list[str]:
    """In one look at the queue: no job of a user runs with more nodes or a longer time limit than its user may have,
    and all of them together, resizers and companions too, have no more nodes than that."""
    wrong = []
    held: defaultdict[str, list[Row]] = defaultdict(list)
    for row in look:
        if row.state in _HELD and row.user in allowed:
            held[row.user].append(row)
    for user, rows in held.items():
        bound = allowed[user]
        for row in rows:
            if row.limit > bound.wall:
                wrong.append(f"job {row.job} of {user} may run for {row.limit:.0f} s, more than {bound.wall:.0f} s")
            if row.nodes > bound.job:
                wrong.append(f"job {row.job} of {user} has {row.nodes} nodes, more than {bound.job}")
        if (total := sum(row.nodes for row in rows)) > bound.nodes:
            told = ", ".join(f"{row.job}: {row.nodes}" for row in rows)
            wrong.append(f"{user} has {total} nodes ({told}), more than {bound.nodes}")
    return wrong


def audited(
    entries: Iterable[Entry], records: Iterable[Record], excused: Sequence[tuple[float, float]] = ()
) -> list[str]:
    """Every act that Slurm was asked for is in the audit trail once, and the other way round.

    What failed may have been refused before it was asked. What is open still is a killed command's, and is told by the
    first command that comes an hour later. `excused` are the times in which the trail could not be written.
    """
    known = {(e.book, e.number): e for e in entries}
    told: defaultdict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in records:
        told[record.book, record.intent].append(record)
    wrong = [
        f"the audit trail has {r.verb}, {book}'s {number}, which no journal knows"
        for (book, number), (r, *_) in told.items()
        if (book, number) not in known
    ]
    for key, entry in known.items():
        found = told.get(key, [])
        name = f"{entry.verb} {entry.subject} ({entry.book}'s {entry.number}, {entry.state})"
        late = entry.at if entry.closed is None else entry.closed
        if (
            not found
            and entry.state not in ("failed", "open")
            and not any(a <= late and entry.at <= b for a, b in excused)
        ):
            wrong.append(f"{name} is not in the audit trail")
        if len(found) > 1:
            wrong.append(f"{name} is in the audit trail {len(found)} times")
        wrong += [f"{name} is {r.verb} in the audit trail" for r in found if r.verb != entry.verb]
    return wrong


def nothing_left(
    reservations: Iterable[str], holds: Mapping[str, Iterable[str]], bags: Mapping[str, Iterable[str]]
) -> list[str]:
    """When all is over no reservation is left, and no slot or bag of any user that is not settled."""
    wrong = [f"reservation {name} is left" for name in reservations]
    wrong += [f"slot {one} of {user} is not settled" for user, many in holds.items() for one in many]
    wrong += [f"bag {one} of {user} is not finished" for user, many in bags.items() for one in many]
    return wrong

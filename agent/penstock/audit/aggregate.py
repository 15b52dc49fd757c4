"""Repeated refusals: the first few are records of their own, the others are counted. Pure, and bounded in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from penstock.audit.record import Record

__all__ = ["Repeats"]

_Key = tuple[str, str, int | None, str, str, str]
_OTHERS: Final = "others"


@dataclass(slots=True)
class _Repeat:
    began: float
    written: int
    counted: int = 0
    first: float = 0.0
    last: Record | None = None


class Repeats:
    """Lets `first` alike records of any `interval` (s) through, and makes one record of those beyond.

    Alike are those of one requester, door, verb, outcome and reason. Beyond `most` kinds the rest are counted together,
    by reason alone: whoever has many names cannot fill the memory either.
    """

    def __init__(self, first: int = 5, interval: float = 300.0, most: int = 1000) -> None:
        self._first, self._interval, self._most = first, interval, most
        self._seen: dict[_Key, _Repeat] = {}

    def take(self, record: Record) -> list[Record]:
        """What is to be written now that this has happened: sums that are due, and the record itself or nothing."""
        due = self.due(record.at)
        key = _key(record)
        found = self._seen.get(key)
        if found is None and len(self._seen) >= self._most:
            key = (record.kind.value, "", None, _OTHERS, record.outcome.value, record.code)
            # The first few of many strangers are no more telling than the others.
            found = self._seen.setdefault(key, _Repeat(record.at, self._first))
        if found is None:
            found = self._seen[key] = _Repeat(record.at, 0)
        if found.written < self._first:
            found.written += 1
            return [*due, record]
        if not found.counted:
            found.first = record.at
        found.counted += record.count
        found.last = record
        return due

    def due(self, now: float) -> list[Record]:
        """The sums of those whose interval is over (or whose clock was set back), which begin anew with it."""
        over = [key for key, it in self._seen.items() if not 0 <= now - it.began < self._interval]
        return [s for key in over if (s := _sum(key, self._seen.pop(key))) is not None]

    def rest(self) -> list[Record]:
        """The sums of all, whether due or not."""
        sums = [_sum(key, it) for key, it in self._seen.items()]
        self._seen.clear()
        return [s for s in sums if s is not None]

    def __len__(self) -> int:
        return len(self._seen)


def _key(record: Record) -> _Key:
    return (
        record.kind.value,
        record.door.value,
        record.uid,
        record.verb,
        record.outcome.value,
        record.code,
    )


def _sum(key: _Key, repeat: _Repeat) -> Record | None:
    last = repeat.last
    if last is None or not repeat.counted:
        return None
    found = replace(
        last,
        count=repeat.counted,
        since=repeat.first,
        text=f"{repeat.counted} more like this, the last of which: {last.text}" if last.text else "",
        request="",
    )
    if key[3] == _OTHERS:
        text = f"{repeat.counted} more of many requesters, for whom there was no room to count them apart"
        return replace(
            found,
            verb=_OTHERS,
            uid=None,
            user="",
            owner=None,
            job=None,
            subject="",
            text=text,
            details=MappingProxyType({}),
        )
    # Of several jobs none is the one.
    return replace(found, owner=None, job=None, subject="") if repeat.counted > 1 else found

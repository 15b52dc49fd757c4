"""Times of an accounting dump, which may be local ones: an hour that a clock shows twice is settled by the other times.

Seconds since the epoch need no zone; `penstock history command` has sacct print those. Pure but for the zone of this
machine, which is asked where no other is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo
from itertools import product
from typing import Final

from penstock.slurm.parse import ParseError, parse_time

__all__ = ["Times"]

_SECONDS: Final = {f":{second:02d}": second for second in range(60)} | {"": 0}
_UNSET: Final = 2 * 86400
"""Some programs write 1970 where no time is set, each in its own zone."""
_REMEMBERED: Final = 200_000  # minutes: four months


class Times:
    """Reads times that stand in `zone` (None: this machine's) unless they say something else.

    `local` tells whether any did, `doubtful` whether one was read since it was last set to False that the clock shows
    twice (when summer time ends): it was taken for the first of the two.
    """

    def __init__(self, zone: tzinfo | None = None) -> None:
        self.local = False
        self.doubtful = False
        self._zone = zone
        self._minutes: dict[str, tuple[int, int]] = {}

    def read(self, text: str) -> int | None:
        """Seconds since the epoch; None for "not yet". Raises ParseError."""
        return self._told(text, 0)

    def _told(self, text: str, fold: int) -> int | None:
        at = int(text) if text.isdigit() and text.isascii() else self._read(text, fold)
        return None if at is None or at < _UNSET else at

    def _read(self, text: str, fold: int) -> int | None:
        both = self._minutes.get(text[:16])
        second = _SECONDS.get(text[16:])
        if both is None or second is None:
            seconds = parse_time(text, self._zone, fold)
            if seconds is None or second is None:
                return None if seconds is None else int(seconds)
            both = self._learn(text[:16])
        if both[0] != both[1]:
            self.doubtful = True
        return both[fold] + second

    def _learn(self, minute: str) -> tuple[int, int]:
        early, late = (parse_time(minute, self._zone, fold) for fold in (0, 1))
        if early is None or late is None:
            raise ParseError("not a time", minute)
        self.local = True
        if len(self._minutes) >= _REMEMBERED:
            self._minutes.clear()
        # In the hour that is left out in spring both are the wrong way round; no clock ever showed it.
        both = self._minutes[minute] = (int(early), max(int(early), int(late)))
        return both

    def settle(self, texts: Sequence[str], ran: int | None) -> list[int | None]:
        """The times of one job in the order in which they come, read such that they do; `ran` is how long it ran (s).

        Of several ways that make sense the one counts in which start and end (the last two) are as far apart as it ran.
        """
        ways = [sorted({self._told(text, 0), self._told(text, 1)}, key=lambda at: at or 0) for text in texts]

        def wrong(way: Iterable[int | None]) -> tuple[bool, int]:
            found = list(way)
            known = [at for at in found if at is not None]
            start, end = found[-2:]
            off = 0 if ran is None or start is None or end is None else abs(end - start - ran)
            return known != sorted(known), off

        return list(min(product(*ways), key=wrong))

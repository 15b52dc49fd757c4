"""When a job that is submitted now starts: for certain by time limits, and likely, with a band that is right nine times
in ten. Pure.

    guaranteed   where the plan by everybody's time limits puts it behind all who wait, if nobody comes before it
    likely       the median of its starts in drawn futures (`draws`)
    band         from the 5 % to the 95 % point of them, widened by what the bands of earlier jobs would have needed

Drawn futures are too much alike, and bands from them alone hold seven or eight in ten. So each is judged once its job
has started, by how many of its own halves (median to end) the start lies outside. The 9 in 10 point of the latest 200
of these is what the next one is widened by: split conformal prediction (Romano, Patterson and Candes, *Conformalized
Quantile Regression*, NeurIPS 2019), on the latest instead of a fixed set, because queues change.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.future.drawn import Arrivals, OwnJob, Span
from penstock.future.draws import Draw, Drawing
from penstock.future.past import QueuePast
from penstock.future.present import Present
from penstock.future.replay import HORIZON, replay, replay_queue

__all__ = [
    "FUTURES",
    "SURE",
    "Band",
    "Misses",
    "band_of",
    "drawn_starts",
    "guaranteed_start",
    "guaranteed_starts",
    "likely_starts",
    "queue_starts",
]

FUTURES: Final = 40
"""Drawn for a band."""
_FEWEST: Final = 20
SURE: Final = 0.9
_KEPT: Final = 200
_ENOUGH: Final = 20
"""Judged bands from which on the next one is widened by them."""
_AT_FIRST: Final = 1.0
"""As long as fewer are judged it is widened by so many halves: more than the logs of CTC and SDSC needed."""
_LEAST: Final = 60.0
"""Seconds that half a band counts as at least: rounds of Slurm's scheduler, below which nothing is foreseen."""
_ALL: Final = 1_000_000
"""Jobs that a look at the queue considers: in the long run Slurm reaches all."""
_VERSION: Final = 1


class Band(NamedTuple):
    """Instants (s) between which a job starts in nine of ten cases, and the median. Infinite: not within 30 days."""

    low: float
    likely: float
    high: float


class _Certain:
    """The future in which all run as long as they may, and nobody comes."""

    def __init__(self, present: Present) -> None:
        self.ends = np.array([job.end for job in present.running])
        self.runs = np.array([job.limit for job in present.waiting])

    def arrivals(self, part: int) -> Arrivals | None:
        """See `replay.Drawn`."""
        return None


def guaranteed_start(present: Present, nodes: int, limit: float) -> Generator[int, None, float]:
    """When a job of so many nodes and seconds starts by everybody's time limits; see `replay` for the parts."""
    (start,) = yield from guaranteed_starts(present, [OwnJob(nodes, limit, limit)])
    return start


def guaranteed_starts(
    present: Present, jobs: Sequence[OwnJob], by_submission: bool = False
) -> Generator[int, None, list[float]]:
    """The same of jobs of which some come after others."""
    spans = yield from replay(present, _Certain(present), jobs, by_submission=by_submission, depth=_ALL)
    return [span.start for span in spans]


def likely_starts(
    present: Present, past: QueuePast, nodes: int, limit: float, seed: int = 0, work: float = math.inf
) -> Generator[int, None, list[float]]:
    """When such a job starts in each of 40 drawn futures, ascending; see `drawn_starts`."""
    own = [OwnJob(nodes, limit, limit)]
    found = yield from drawn_starts(Drawing(present, past, seed), lambda _draw: own, work=work)
    return found[0] if found else []


def queue_starts(
    drawing: Drawing, places: Sequence[int], work: float = math.inf, futures: int = FUTURES
) -> Generator[int, None, list[list[float]]]:
    """When each of those who wait at these places of `Present.waiting` starts; see `drawn_starts`."""
    return (
        yield from _drawn(drawing, lambda draw: replay_queue(drawing.present, draw, places, depth=_ALL), work, futures)
    )


def drawn_starts(
    drawing: Drawing,
    jobs: Callable[[Draw], Sequence[OwnJob]],
    by_submission: bool = False,
    work: float = math.inf,
    futures: int = FUTURES,
) -> Generator[int, None, list[list[float]]]:
    """When each job starts in each of so many drawn futures, ascending; `jobs` says how long they run in one. There are
    fewer futures where they take more `work` than that (about 2 microseconds each), and none at all (an empty list)
    where it is not enough for 20, or all: a deep queue."""
    return (
        yield from _drawn(
            drawing,
            lambda draw: replay(drawing.present, draw, jobs(draw), by_submission=by_submission, depth=_ALL),
            work,
            futures,
        )
    )


def _drawn(
    drawing: Drawing, follow: Callable[[Draw], Generator[int, None, list[Span]]], work: float, futures: int
) -> Generator[int, None, list[list[float]]]:
    fewest = min(futures, _FEWEST)
    found: list[list[Span]] = []
    spent = 0
    while len(found) < futures and (spent < work or len(found) < fewest):
        parts, here = follow(drawing.draw(len(found))), 0
        while True:
            try:
                done = next(parts)
            except StopIteration as end:
                found.append(end.value)
                break
            here += done
            if here > work / fewest:
                return []
            yield done
        spent += here
    return [sorted(span.start for span in spans) for spans in zip(*found, strict=True)]


def band_of(starts: Sequence[float], now: float, wider: float = 0.0) -> Band:
    """The band of ascending starts, each half longer by so many times its length, and not before now."""
    low, likely, high = (starts[min(int(share * len(starts)), len(starts) - 1)] for share in (0.05, 0.5, 0.95))
    if likely == math.inf:
        return Band(low, likely, likely)
    below, above = max(likely - low, _LEAST), max(high - likely, _LEAST)
    return Band(min(max(low - wider * below, now), likely), likely, max(high + wider * above, likely))


class Misses:
    """What the latest bands would have had to be wider by to hold the starts that came; negative: narrower."""

    def __init__(self) -> None:
        self._known: deque[float] = deque(maxlen=_KEPT)

    def __len__(self) -> int:
        return len(self._known)

    def judge(self, band: Band, start: float) -> None:
        """A job has started of which this band was expected, not widened."""
        if band.likely == math.inf:
            self._known.append(1.0 if start < band.low else 0.0)
            return
        below = (band.low - start) / max(band.likely - band.low, _LEAST)
        above = (start - band.high) / max(band.high - band.likely, _LEAST) if band.high < math.inf else below
        self._known.append(min(max(below, above), HORIZON))

    @property
    def wider(self) -> float:
        """By how many of its halves the next band is widened."""
        count = len(self._known)
        if count < _ENOUGH:
            return _AT_FIRST
        place = math.ceil(SURE * (count + 1)) - 1  # of n + 1 equally likely places, as conformal prediction has it
        return sorted(self._known)[min(place, count - 1)]

    def to_state(self) -> dict[str, Any]:
        """JSON-able."""
        return {"version": _VERSION, "misses": [round(miss, 4) for miss in self._known]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `to_state` gave. ValueError, and no change, when it is damaged or newer."""
        try:
            if state["version"] != _VERSION:
                raise ValueError(f"it has version {state['version']!r}, this release reads {_VERSION}")
            known = [float(miss) for miss in state["misses"]]
        except (KeyError, TypeError, ValueError) as e:
            raise ValueError(f"what bands of starts missed: {e!r}") from e
        if not all(map(math.isfinite, known)):
            raise ValueError("what bands of starts missed: it has values that are not finite")
        self._known = deque(known, maxlen=_KEPT)

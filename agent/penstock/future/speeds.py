"""How quick programs are on which size: what each run measures of itself, and what runs of one program have measured.

A **run** is one life of a job. What it has measured itself counts for it. Until it was seen on two sizes, the last run
of its program that was counts in proportion; without one it is taken to scale perfectly.

A **program** is what an owner runs under one name by one command (`Offer.program`), with so many processes on a node.
Where that is not known, it is what has the same limits.

**No belief lasts.** A larger size that is not believed to be worth its nodes is tried again while nodes idle: by a run
that knows nothing of itself half a minute after it came to its size, and after twice that for each run before it in
a row which found the larger size useless, an hour at most; by a run that knows better after as long again as it had run
when it came to its size, ten minutes at least. So a run tries ever more rarely.

The core keeps a policy's `Memory` in the state file, where the policy has one as its attribute `memory`. At most 2,000
programs are remembered, for 90 days; where there are more, the owner of most loses the one that ran least lately.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.api import Job, Offer, Snapshot

__all__ = ["SCALES_AT_ALL", "USELESS", "Memory", "ProgramSpeeds", "Speeds", "measured_by", "memory_of", "read_program"]

SCALES_AT_ALL: Final = 0.05
"""How well a program has to scale for a larger size to be worth idle nodes (see `Speeds.scaling`)."""
USELESS: Final = 0.02
"""A size that scales worse was measured to be useless. Less than the above: measurements vary."""
_SETTLED: Final = 20.0
"""Seconds on a size after which what a run says of it is no first impression."""
_FIRST_TRIAL: Final = 30.0
_LONGEST_BELIEF: Final = 3600.0
_NAMELESS_BELIEF: Final = 60.0  # s; of a script from stdin only the job's name is known, which may be any program's
_NEXT_TRIAL: Final = 600.0
_PROGRAMS: Final = 2000
_DAYS: Final = 90 * 86400.0
_RUNS: Final = 10_000
_SIZES: Final = 64  # of a run; what a program says of itself may be anything
_SHORTEST, _LONGEST = 1e-6, 1e9  # s of a step
_USED_ANEW: Final = 6 * 3600.0  # s after which it is worth to write down that a program still runs
_VERSION: Final = 1


class _Measured(NamedTuple):
    """Seconds of a step on a size, and since when the run had that size when it had it last."""

    seconds: float
    at: float


@dataclass(slots=True)
class ProgramSpeeds:
    """What is known of one program: seconds of a step by size (processes) as its last run measured them that was seen
    on two sizes, how many runs in a row found the larger size useless, and when it was last seen to run."""

    curve: dict[int, float] = field(default_factory=dict)
    in_vain: int = 0
    used: float = 0.0
    nameless: bool = False

    @property
    def patience(self) -> float:
        """Seconds for which a run believes that a larger size is useless before it has tried."""
        longest = _NAMELESS_BELIEF if self.nameless else _LONGEST_BELIEF
        return float(min(_FIRST_TRIAL * 2.0 ** min(max(self.in_vain - 1, 0), 20), longest))


class Speeds:
    """Seconds of a step by size, as measured; what it would be on other sizes is worked out by Amdahl's law.

    `like` is the run's program, which counts as long as only one size was measured; `began` when the run began.
    """

    def __init__(self, like: ProgramSpeeds | None = None, began: float = 0.0) -> None:
        self._measured: dict[int, _Measured] = {}  # the size that it has comes last
        self.like = like
        self.began = began

    def saw(self, offer: Offer, now: float = 0.0) -> bool:
        """Take up what the application says of its present size; whether it is one that it did not have just before."""
        if not offer.step_seconds or not math.isfinite(offer.step_seconds):
            return False
        seconds = min(max(offer.step_seconds, _SHORTEST), _LONGEST)
        new = next(reversed(self._measured), None) != offer.size
        at = now if new else self._measured[offer.size].at
        self._measured.pop(offer.size, None)
        self._measured[offer.size] = _Measured(seconds, at)
        if len(self._measured) > _SIZES:
            del self._measured[next(iter(self._measured))]
        if self.like is not None and len(self._measured) > 1:
            self.like.curve = self.measured
        return new

    @property
    def measured(self) -> dict[int, float]:
        """Seconds of a step by size, of the sizes that this run has had."""
        return {size: one.seconds for size, one in self._measured.items()}

    @property
    def known(self) -> bool:
        """Whether sizes can be compared at all."""
        return len(self._measured) > 1 or (self.like is not None and len(self.like.curve) > 1)

    def at(self, size: int) -> float:
        """Seconds of a step on that size, compared to others; perfect scaling where nothing is known."""
        if size in self._measured:
            return self._measured[size].seconds
        if len(self._measured) > 1:
            return _amdahl(self.measured, size)
        mine, (seconds, _) = next(iter(self._measured.items()), (1, (1.0, 0.0)))
        if self.like is not None and len(self.like.curve) > 1:
            return seconds * _amdahl(self.like.curve, size) / _amdahl(self.like.curve, mine)
        return seconds * mine / size

    def scaling(self, size: int, larger: int) -> float:
        """How much of the gain of perfect scaling it has on a larger size: 1 perfect, 0 none."""
        return (1 - self.at(larger) / self.at(size)) / (1 - size / larger)

    def tries(self, now: float) -> bool:
        """Whether it is time to try a larger size although that is not believed to be worth it (see the module)."""
        if not self._measured:
            return False
        came = next(reversed(self._measured.values())).at
        if len(self._measured) > 1:
            return now - came >= max(_NEXT_TRIAL, came - self.began)
        return self.like is not None and now - came >= self.like.patience

    def useless(self, sizes: Iterable[int], now: float) -> int | None:
        """To which of these sizes it can go down from that which it has, because it was measured to run as well there;
        None where it runs better as it is, or has not measured both long enough."""
        if len(self._measured) < 2:
            return None
        size, (_, came) = next(reversed(self._measured.items()))
        if now - came < _SETTLED or min(self._measured) >= size:
            return None
        found = None
        for smaller in sorted((s for s in sizes if s < size), reverse=True):
            if self.scaling(smaller, found or size) >= USELESS:
                break
            found = smaller
        return found

    def verdict(self) -> bool | None:
        """Whether the largest size that it has had was of use, against the smallest; None where it had one only."""
        if len(self._measured) < 2:
            return None
        return self.scaling(min(self._measured), max(self._measured)) >= SCALES_AT_ALL

    def to_list(self) -> list[list[float]]:
        """For the store: [size, seconds, at] of each size, in their order."""
        return [[size, *one] for size, one in self._measured.items()]

    def restore(self, told: Iterable[tuple[int, float, float]]) -> None:
        """What `to_list` gave. Raises ValueError, TypeError where it is none."""
        for size, seconds, at in told:
            self._measured[_whole(size, 1)] = _Measured(_seconds(seconds), float(at))


def _amdahl(measured: Mapping[int, float], size: int) -> float:
    """seconds = serial + parallel / size, through the two measured sizes that are furthest apart."""
    low, high = min(measured), max(measured)
    slow, fast = measured[low], measured[high]
    parallel = min(max((slow - fast) / (1 / low - 1 / high), 0.0), slow * low)
    return slow - parallel / low + parallel / size


@dataclass(slots=True)
class _Run:
    """One life of a job, under the key of its program."""

    start: float | None
    key: str
    speeds: Speeds


class Memory:
    """The speeds of all jobs and programs that a policy was shown, from pass to pass."""

    def __init__(self) -> None:
        self._runs: dict[int, _Run] = {}
        self._programs: dict[str, ProgramSpeeds] = {}
        self._changed: set[str] = set()
        self._seen_at: float | None = None

    def of(self, offer: Offer, snapshot: Snapshot) -> Speeds:
        """Those of the job that makes this offer, with what it says now."""
        if snapshot.taken_at != self._seen_at:
            self._seen_at = snapshot.taken_at
            self._end(snapshot)
        job, now = snapshot.jobs[offer.job], snapshot.taken_at
        key = _key(offer, job)
        run = self._runs.get(offer.job)
        if run is None or not _same(run, job):
            run = self._runs[offer.job] = _Run(job.start, key, Speeds(began=now if job.start is None else job.start))
        program = self._program(key, now)
        if run.key != key or run.speeds.like is not program:  # only now it is known which program it is
            run.key, run.speeds.like = key, program
            self._changed.add(key)
        if run.speeds.saw(offer, now):
            self._changed.add(key)
        return run.speeds

    def measured(self, job: Job) -> Speeds | None:
        """Those of a running job that has itself measured two sizes or more; None of others."""
        run = self._runs.get(job.id)
        return run.speeds if run is not None and _same(run, job) and len(run.speeds.measured) > 1 else None

    def _program(self, key: str, now: float) -> ProgramSpeeds:
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = ProgramSpeeds(used=now, nameless=" ?" in key)
            self._bound(now)
        elif not 0 <= now - program.used < _USED_ANEW:
            program.used = now
            self._changed.add(key)
        return program

    def _end(self, snapshot: Snapshot) -> None:
        """Runs that are over say whether their larger sizes were of use."""
        for number, run in list(self._runs.items()):
            job = snapshot.jobs.get(number)
            if job is not None and not job.state.ended and _same(run, job):
                continue
            del self._runs[number]
            if (useful := run.speeds.verdict()) is not None and run.speeds.like is not None:
                run.speeds.like.in_vain = 0 if useful else run.speeds.like.in_vain + 1
            self._changed.add(run.key)
        for number in list(self._runs)[: max(len(self._runs) - _RUNS, 0)]:
            del self._runs[number]

    def _bound(self, now: float) -> None:
        """Forget programs that were not seen to run for long, and of too many those of the owner of most."""
        for key in [key for key, program in self._programs.items() if now - program.used > _DAYS]:
            self._forget(key)
        while len(self._programs) > _PROGRAMS:
            of_owner = Counter(map(_owner, self._programs))
            owner, _ = of_owner.most_common(1)[0]
            mine = [key for key in self._programs if _owner(key) == owner]
            self._forget(min(mine, key=lambda key: self._programs[key].used))

    def _forget(self, key: str) -> None:
        del self._programs[key]
        self._changed.add(key)

    # -- the store ---------------------------------------------------------------------------------------------------

    def changes(self) -> dict[str, dict[str, Any] | None]:
        """What has changed since this was last asked for: a document by key, None where it is to be forgotten. Seconds
        alone are no change: they are other ones at each check."""
        changed, self._changed = self._changed, set()
        runs: dict[str, list[list[Any]]] = {}
        for number, run in self._runs.items():
            if run.key in changed and run.speeds.measured:
                runs.setdefault(run.key, []).append([number, run.start, run.speeds.to_list()])
        return {
            key: _document(self._programs.get(key), runs.get(key, []))
            for key in sorted(changed)
            if not key.partition(" ")[2].startswith("=")
        }

    def recall(self, documents: Mapping[str, Mapping[str, Any]]) -> Collection[str]:
        """Take up what `changes` gave; the keys of what cannot be read. What was seen since counts more."""
        unreadable = []
        for key, document in documents.items():
            try:
                program, runs = read_program(document)
            except (ValueError, TypeError, KeyError):
                unreadable.append(key)
                continue
            program.nameless = " ?" in key
            program = self._programs.setdefault(key, program)
            for number, start, speeds in runs:
                speeds.like = program
                self._runs.setdefault(number, _Run(start, key, speeds))
        if self._programs:
            self._bound(max(program.used for program in self._programs.values()))
        return unreadable


def memory_of(policy: object) -> Memory | None:
    """That of a policy that learns."""
    memory = getattr(policy, "memory", None)
    return memory if isinstance(memory, Memory) else None


def measured_by(policy: object, job: Job) -> Speeds | None:
    """What a running job has measured itself, where the policy learns and it had two sizes or more."""
    memory = memory_of(policy)
    return None if memory is None else memory.measured(job)


def _document(program: ProgramSpeeds | None, runs: list[list[Any]]) -> dict[str, Any] | None:
    """None of a program of which there is nothing to be known."""
    if program is None or not (program.curve or runs):
        return None
    curve = [[size, seconds] for size, seconds in program.curve.items()]
    return {"version": _VERSION, "curve": curve, "in_vain": program.in_vain, "used": program.used, "runs": runs}


def read_program(document: Mapping[str, Any]) -> tuple[ProgramSpeeds, list[tuple[int, float | None, Speeds]]]:
    """What is stored of a program, and of its runs (job, start, speeds). Raises ValueError, TypeError, KeyError where
    it is of no such kind."""
    if document["version"] != _VERSION:
        raise ValueError(f"speeds of version {document['version']!r} are not known here")
    curve = {_whole(size, 1): _seconds(seconds) for size, seconds in document["curve"]}
    program = ProgramSpeeds(curve, _whole(document["in_vain"], 0), float(document["used"]))
    runs = []
    for job, start, told in document["runs"]:
        speeds = Speeds(began=float(start or 0.0))
        speeds.restore(told)
        runs.append((_whole(job, 1), None if start is None else float(start), speeds))
    return program, runs


def _whole(value: object, least: int) -> int:
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{value!r} is no whole number from {least} on")
    return value


def _seconds(value: float) -> float:
    if not _SHORTEST <= value <= _LONGEST:
        raise ValueError(f"{value!r} are no seconds of a step")
    return float(value)


def _same(run: _Run, job: Job) -> bool:
    return run.start is None or job.start is None or abs(run.start - job.start) < 1.0


def _key(offer: Offer, job: Job) -> str:
    """Of a program: its owner, what it is, and how many processes it has on a node. One that is only known by its
    limits is not stored."""
    if offer.program:
        return f"{job.uid} {offer.program}:{offer.per_node}"
    limits = (offer.minimum, offer.maximum, offer.factor, offer.preferred or 0, offer.per_node)
    return f"{job.uid} ={':'.join(map(str, limits))}"


def _owner(key: str) -> str:
    return key.partition(" ")[0]

"""What malleable jobs do to the others in the queue, on the simulated Slurm: pairs that differ in nothing else.

The paper's jobs in random order, half of them malleable and submitted as `penstock sbatch` does. Each pair has the same
submissions twice: these jobs malleable, under the shipped policy or the one that reorders, and kept at the size that
they started on. All others are rigid, at their maximum. Once as crowded as the paper's workloads, where all come within
minutes, and once so that the machine is rarely full.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from penstock.host import logs
from penstock_lab.intervals import Interval, mean_of
from penstock_lab.papers.dmr.drive import drive
from penstock_lab.papers.dmr.workload import Version, workload

__all__ = ["JOBS", "LOADS", "POLICIES", "SEEDS", "Loss", "Row", "judged", "measure", "pair"]

JOBS: Final = 40
SEEDS: Final = 20
LOADS: Final = {"crowded": 1.0, "calm": 25.0}
"""By how much times between submissions are stretched."""
POLICIES: Final = ("throughput", "shortest")
_LATE: Final = 60.0
_VERSION: Final = Version(moldable=True, share=0.5, factor=1, up_to="preferred")


@dataclass(frozen=True, slots=True)
class Loss:
    """One pair: the others' mean delay (s, below 0: they begin earlier), which part of them began more than a minute
    later, by how much the latest of them; and by how much earlier the malleable jobs ended (mean, s)."""

    delay: float
    late: float
    most: float
    gain: float


@dataclass(frozen=True, slots=True)
class Row:
    """All pairs under one policy and load, with 95 % intervals over pairs."""

    policy: str
    load: str
    pairs: int
    delay: Interval
    late: Interval
    most: float
    gain: Interval

    def row(self) -> dict[str, object]:
        """For programs."""
        spans = {"delay_s": self.delay, "late": self.late, "gain_s": self.gain}
        found: dict[str, object] = {"policy": self.policy, "load": self.load, "pairs": self.pairs, "most_s": self.most}
        for name, span in spans.items():
            found |= {name: span.value, f"{name}_low": span.low, f"{name}_high": span.high}
        return found


def measure(
    seeds: Sequence[int] = range(1, SEEDS + 1), tell: Callable[[str], None] = lambda text: None
) -> dict[tuple[str, str], list[Loss]]:
    """All pairs by policy and load."""
    logs.configure("critical", "text")
    found: dict[tuple[str, str], list[Loss]] = {}
    for load, stretch in LOADS.items():
        for seed in seeds:
            for policy in POLICIES:
                found.setdefault((policy, load), []).append(loss := pair(seed, stretch, policy=policy))
                told = f"the others begin {loss.delay:+.0f} s later, {loss.late:.0%} by over a minute"
                tell(f"{policy}, {load}, pair {seed}: {told}")
    return found


def pair(seed: int, stretch: float = 1.0, jobs: int = JOBS, policy: str = "throughput") -> Loss:
    """One of them."""
    entries = [replace(e, submit=e.submit * stretch) for e in workload(jobs, _VERSION, seed)]
    elastic = asyncio.run(drive(entries, policy))
    kept = asyncio.run(drive([replace(e, malleable=False) for e in entries], policy))
    before = {r.name: r for r in kept.ran}
    delays = [r.start - before[r.name].start for r in elastic.ran if not r.malleable]
    gains = [before[r.name].end - r.end for r in elastic.ran if r.malleable]
    return Loss(fmean(delays), fmean(d > _LATE for d in delays), max(delays), fmean(gains))


def judged(policy: str, load: str, found: Sequence[Loss]) -> Row:
    """What the pairs of one policy and load say together."""
    return Row(
        policy,
        load,
        len(found),
        mean_of([loss.delay for loss in found]),
        mean_of([loss.late for loss in found]),
        max(loss.most for loss in found),
        mean_of([loss.gain for loss in found]),
    )

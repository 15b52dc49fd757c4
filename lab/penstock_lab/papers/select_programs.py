"""How wrong run times of real programs are predicted from one setting of this machine to another, and what the learned
correction makes of it.

Three small programs (on processors, on memory, on both) run under three core limits: one core, two cores with two
workers, and half a core. What a program needs is measured on one core as `penstock profile` does it without hardware
counters, in CPU time; the other settings are resources that offer so many cores at a rate. Every setting runs in turn
in each round, so that what else the machine does meets them alike. The correction has seen the short runs of earlier
rounds alone, never the long ones that it is judged by.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Final

from penstock.errors import UserError
from penstock_lab.intervals import Interval, mean_of
from penstock_planning.select.accuracy import over, ranked_right
from penstock_planning.select.consumables import Capability, Consumable, Parallel, Requirement, Resource, Task
from penstock_planning.select.correction import Corrections
from penstock_planning.select.cost import run_time
from penstock_planning.select.speedup import Amdahl

__all__ = ["ROUNDS", "SETTINGS", "WORK", "Row", "Run", "judged", "measure"]

ROUNDS: Final = 10
WORK: Final[Mapping[str, int]] = {"compute": 100, "memory": 40, "mixed": 80}
"""Pieces of a short run, some tenths of a second on one core."""
_LONGER: Final = 3
_CLOCK: Final = 1e9
"""What a core is said to do a second: one machine, so that it cancels."""


@dataclass(frozen=True, slots=True)
class Setting:
    """So many workers on as many cores, each of which has so much of its core."""

    workers: int
    part: float = 1.0


SETTINGS: Final[Mapping[str, Setting]] = {
    "one core": Setting(1),
    "two cores": Setting(2),
    "half a core": Setting(1, 0.5),
}


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a program: pieces of work, seconds, and CPU seconds of all workers."""

    program: str
    setting: str
    round: int
    work: int
    seconds: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Row:
    """Long runs of a program in a setting: mean seconds, and by how many per cent predictions are off in the mean of
    their amounts, with and without the correction."""

    program: str
    setting: str
    runs: int
    seconds: float
    before: Interval
    after: Interval

    def row(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def measure(rounds: int, tell: Callable[[str], None]) -> list[Run]:
    """Every program in every setting, short and long, in turn. UserError on a machine of one core."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < max(setting.workers for setting in SETTINGS.values()):
        raise UserError("--part programs: needs two cores")
    found = []
    for number in range(rounds):
        for program, work in WORK.items():
            for name, setting in SETTINGS.items():
                for pieces in (work, _LONGER * work):
                    found.append(_run(program, name, setting, number, pieces, cores))
        tell(f"programs: round {number + 1} of {rounds}")
    return found


def _run(program: str, name: str, setting: Setting, number: int, work: int, cores: list[int]) -> Run:
    on = ",".join(map(str, cores[: setting.workers]))
    words = [sys.executable, "-m", "penstock_lab.papers.select_kernels", program, str(work), str(setting.workers), on]
    beside = ["--beside"] if setting.part < 1 else []
    done = subprocess.run([*words, *beside], capture_output=True, text=True, check=True)
    seconds, cpu = map(float, done.stdout.split())
    return Run(program, name, number, work, seconds, cpu)


def judged(runs: list[Run]) -> tuple[list[Row], dict[str, float]]:
    """A row per program and setting, over all rounds but the first; and of each way to predict the share of pairs of
    settings that it ranks right, over the programs."""
    rows = []
    ranked: dict[str, list[float]] = {"before": [], "after": []}
    for program, short in WORK.items():
        mine = [run for run in runs if run.program == program]
        per_piece = fmean(r.cpu / r.work for r in mine if r.work == short and r.setting == "one core")
        learned = Corrections()
        errors: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in SETTINGS}
        for number in range(max(run.round for run in mine) + 1):
            now = [run for run in mine if run.round == number]
            if number:
                told: dict[str, dict[str, float]] = {"before": {}, "after": {}, "really": {}}
                for run in (run for run in now if run.work != short):
                    plain = _predicted(run, per_piece)
                    corrected = plain * learned.factor(program, run.setting)
                    errors[run.setting][0].append(abs(over(plain, run.seconds)))
                    errors[run.setting][1].append(abs(over(corrected, run.seconds)))
                    for how, seconds in zip(told, (plain, corrected, run.seconds), strict=True):
                        told[how][run.setting] = seconds
                for how in ranked:
                    ranked[how].append(ranked_right(told[how], told["really"]))
            for run in (run for run in now if run.work == short):
                learned.observe(program, run.setting, _predicted(run, per_piece), run.seconds)
        for name, (before, after) in errors.items():
            seconds = fmean(r.seconds for r in mine if r.setting == name and r.work != short and r.round)
            rows.append(Row(program, name, len(before), seconds, mean_of(before), mean_of(after)))
    return rows, {how: fmean(each) for how, each in ranked.items()}


def _predicted(run: Run, per_piece: float) -> float:
    """The run time (s) by the model of the product."""
    setting = SETTINGS[run.setting]
    needs = Requirement(Consumable.of("compute"), run.work * per_piece * _CLOCK)
    task = Task(run.program, ((needs,),), Parallel(setting.workers, Amdahl()))
    return run_time(task, Resource(run.setting, (Capability(Consumable.of("compute"), setting.part * _CLOCK),)))

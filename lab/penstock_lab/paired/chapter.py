"""The chapter `pairs` of `penstock bench asa`: what submitting ahead gains over the plain chain in the same queue."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.host import files
from penstock_lab.intervals import Interval
from penstock_lab.paired.table import Row, by_rule, by_workflow, regret, rows
from penstock_lab.paired.windows import AUTO, PLAIN, Case, Window, read, run
from penstock_lab.papers.report import Chapter, Goal, Table
from penstock_lab.papers.site import FAIR_SHARE, LOGS, MACHINES, RULES

__all__ = ["FILE", "Protocol", "measure", "pairs"]

FILE: Final = "pairs.jsonl"
"""In the folder of the report: a window a line, which a second run does not measure again."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """What is run: so many windows of each machine under each rule with each seed."""

    windows: int = 8
    seeds: int = 5
    machines: tuple[str, ...] = (*MACHINES, *LOGS)
    rules: tuple[str, ...] = (*RULES, FAIR_SHARE)

    @property
    def cases(self) -> list[Case]:
        """All, a seed of everything before the next."""
        seeds = range(1, self.seeds + 1)
        return [Case(machine, rule, seed) for seed in seeds for rule in self.rules for machine in self.machines]


def pairs(out: Path | None, tell: Callable[[str], None], protocol: Protocol | None = None) -> Chapter:
    """Each window's chain in every way from one instant on."""
    protocol = protocol or Protocol()
    windows = measure(protocol, None if out is None else out / FILE, tell)
    found = rows(windows)
    text = (
        f"{len(windows)} windows of a simulated queue, 27 hours apart: HPC2n and UPPMAX with jobs of Lublin's model, "
        f"CTC SP2 and SDSC SP2 with those of their logs, {protocol.seeds} seeds, {len(protocol.rules)} rules of "
        "priority. At the instant of each window the whole simulation is forked, and the same chain (Montage, BLAST, "
        "Statistics, or four equal stages of an hour; run times are drawn once) is submitted in each way; others' jobs "
        "arrive at the same times and run as long in every fork. Figures are ratios to the plain chain, `sbatch "
        "--dependency=afterok` for all stages at once: of the means over all windows with their 95 % interval (windows "
        "resampled), and of single windows' makespans the median and the 95th percentile. Later waits are the "
        "perceived waits of all jobs but the first. The best merge in hindsight runs neighbouring stages in one job, "
        "chosen for each window when all merges have been seen: of all, and of those that take at most 1.01 of the "
        "plain chain's core-hours. Of chains of more than five stages not all merges are tried. A goal is reached "
        "or missed where the whole interval lies on one side of it."
    )
    return Chapter(
        "pairs",
        "Paired with the plain chain",
        text,
        [row.row() for row in found],
        [_table("Ratios to the plain chain", found), *_of_workflows(windows)],
        _goals(windows),
    )


def _table(title: str, found: Sequence[Row]) -> Table:
    columns = ("rule", "way", "windows", "makespan", "median", "95th pct", "later waits", "core-hours")
    cells = [
        [
            row.rule,
            row.way,
            f"{row.windows}",
            _told(row.makespan),
            f"{row.median:.3f}",
            f"{row.p95:.3f}",
            _told(row.waits),
            _told(row.used),
        ]
        for row in found
    ]
    return Table(title, columns, cells)


def _of_workflows(windows: Sequence[Window]) -> Iterator[Table]:
    """Where dependent jobs do not age, which is where there is most to gain."""
    for workflow, those in by_workflow([w for w in windows if w.case.rule == RULES[0]]).items():
        found = [row for row in rows(those) if row.way in AUTO or row.waits is None]
        yield _table(f"Of these, {workflow}", found)


def measure(protocol: Protocol, path: Path | None, tell: Callable[[str], None]) -> list[Window]:
    """All windows, those of the file first; each new one is added to it before the next begins. UserError for a file
    that is not of such a run."""
    wanted = {(case, number) for case in protocol.cases for number in range(protocol.windows)}
    found = {} if path is None else {(w.case, w.number): w for w in read(path)}
    if path is not None and path.exists():
        # without a line that was cut off
        files.replace(path, "".join(_line(window) for window in found.values()), mode=None)
    for case in protocol.cases:
        done = frozenset(number for each, number in found if each == case)
        for window in run(case, protocol.windows, done):
            found[case, window.number] = window
            if path is not None:
                with path.open("a", encoding="utf-8") as file:
                    file.write(_line(window))
            tell(f"{len(wanted & found.keys())}/{len(wanted)} {case.machine} {case.rule}, seed {case.seed}")
    return [found[each] for each in sorted(wanted, key=lambda e: (protocol.cases.index(e[0]), e[1]))]


def _line(window: Window) -> str:
    return json.dumps(window.told()) + "\n"


def _told(interval: Interval | None) -> str:
    return "" if interval is None else interval.told()


def _goals(windows: Sequence[Window]) -> list[Goal]:
    found = []
    for row in rows(windows):
        if row.way not in AUTO or row.used is None or row.waits is None:
            continue
        found += [
            Goal(row.rule, f"makespan of {row.way}, over the {PLAIN}'s, upper end", row.makespan.high, 1.02),
            Goal(row.rule, "the same, mean", row.makespan.value, 1.0),
            Goal(row.rule, "core-hours over the same, upper end", row.used.high, 1.01),
        ]
        if AUTO[row.way][1] and row.rule == "default":
            found += [
                Goal.of(row.rule, f"makespan of {row.way}, over the {PLAIN}'s", row.makespan, 0.8),
                Goal.of(row.rule, "later waits over the same", row.waits, 0.55),
            ]
    for rule, those in by_rule(windows).items():
        for way in AUTO:
            found.append(Goal.of(rule, f"regret of {way}", regret(those, way), 1.03))
    return found

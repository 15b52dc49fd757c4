"""A series of windows on file: taken up where it was cut off, gone on with, and told in the end.

Each window is a line as soon as it is measured. Windows of a machine and a seed are a fixed time apart, the first when
the machine has filled up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import click

from penstock.host import files, logs
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.speedup import Work
from penstock_lab.paired.windows import others, read_lines
from penstock_lab.papers.drive import let_arrive
from penstock_lab.papers.site import Machine, cluster

__all__ = ["ToldWindow", "keep", "series_command", "taken_up", "undone"]

_DAY: Final = 86400.0
_FIRST, _APART = 3 * _DAY, 27 * 3600.0  # each at another time of the day


class ToldWindow(Protocol):
    """What was measured at one instant of one queue."""

    @property
    def machine(self) -> str:
        """Whose queue it is."""
        ...

    @property
    def seed(self) -> int:
        """That of the others' jobs."""
        ...

    @property
    def number(self) -> int:
        """Its place in the series."""
        ...

    def told(self) -> dict[str, Any]:
        """For a line of a file."""
        ...


W = TypeVar("W", bound=ToldWindow)


def taken_up(out: Path, of: Callable[[Mapping[str, Any]], W]) -> list[W]:
    """The windows of a file, which is made where there is none, and loses a line that was cut off."""
    found = read_lines(out, of)
    files.replace(out, "".join(map(_line, found)), mode=None)
    return found


def keep(out: Path, window: ToldWindow) -> None:
    """One more."""
    with out.open("a", encoding="utf-8") as file:
        file.write(_line(window))


def _line(window: ToldWindow) -> str:
    return json.dumps(window.told()) + "\n"


def undone(
    machine: Machine, rule: str, seed: int, windows: int, done: frozenset[int], tail: float
) -> Iterator[tuple[int, Engine]]:
    """The windows of a machine and a seed that are not done yet: the number of each, and the queue at its instant. For
    `tail` seconds after the last one others' jobs arrive."""
    logs.configure("error", "text")
    last = max((n for n in range(windows) if n not in done), default=-1)
    engine = Engine(cluster(machine, rule), 0.0, duration=lambda _spec: Work(math.inf))
    let_arrive(engine, others(machine, (_FIRST + _APART * last + tail) / _DAY, seed))
    for number in range(last + 1):
        engine.advance(_FIRST + _APART * number)
        engine.take_effects()
        if number not in done:
            yield number, engine


def series_command(
    of: Callable[[Mapping[str, Any]], W],
    known: Sequence[str],
    default: int,
    measured: Callable[[str, int, int, frozenset[int], int], Iterator[W]],
    report: Callable[[Sequence[W]], Iterator[str]],
) -> click.Command:
    """The command of a series over the machines `known`, with so many windows by default: `measured` gives those of a
    machine, a seed and a number of windows but for the ones done, with so many forks at once."""

    @click.command()
    @click.option("--out", type=click.Path(path_type=Path), required=True, help="The file of windows.")
    @click.option("--windows", type=click.IntRange(1), default=default, show_default=True)
    @click.option("--seeds", type=click.IntRange(1), default=2, show_default=True)
    @click.option("--machine", "machines", multiple=True, type=click.Choice(sorted(known)))
    @click.option("--at-once", type=click.IntRange(1), default=2, show_default=True, help="Forks that run at once.")
    def main(out: Path, windows: int, seeds: int, machines: tuple[str, ...], at_once: int) -> None:
        """Measure what the file does not have yet, and print the tables."""
        found = {(w.machine, w.seed, w.number): w for w in taken_up(out, of)}
        for seed in range(1, seeds + 1):
            for machine in machines or sorted(known):
                done = frozenset(number for m, s, number in found if (m, s) == (machine, seed))
                for window in measured(machine, seed, windows, done, at_once):
                    found[machine, seed, window.number] = window
                    keep(out, window)
        for line in report(list(found.values())):
            click.echo(line)

    return main

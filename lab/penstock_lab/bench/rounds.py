"""Rounds on throw-away clusters, some side by side: each is a line of a file, and a second run goes on behind them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from penstock_lab.paired.series import ToldWindow, keep, taken_up

__all__ = ["STOPPED", "rounds_command", "say"]

STOPPED: Final = threading.Event()
"""Somebody wants this to end: clusters are taken down whoever does."""

W = TypeVar("W", bound=ToldWindow)


def say(text: str) -> None:
    """Progress, to standard error."""
    print(f"{time.strftime('%H:%M:%S')} load {os.getloadavg()[0]:.1f}: {text}", file=sys.stderr, flush=True)


def rounds_command(
    of: Callable[[Mapping[str, Any]], W],
    one_round: Callable[..., W],
    report: Callable[[Sequence[W]], Iterator[str]],
    *options: Callable[[Callable[..., None]], Callable[..., None]],
) -> click.Command:
    """The command that measures rounds by their seeds, from 1 on; what further `options` say is for `one_round`."""

    @click.option("--out", type=click.Path(path_type=Path), required=True, help="The file of rounds.")
    @click.option("--rounds", type=click.IntRange(1), default=8, show_default=True)
    @click.option("--at-once", type=click.IntRange(1), default=2, show_default=True, help="Rounds side by side.")
    def main(out: Path, rounds: int, at_once: int, **more: Any) -> None:
        """Measure what the file does not have yet, and print the tables."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: STOPPED.set())
        found = {window.seed: window for window in taken_up(out, of)}
        lock = threading.Lock()

        def one(seed: int) -> None:
            if STOPPED.is_set():
                return
            try:
                window = one_round(seed, **more)
            except (Exception, SystemExit) as error:  # what waits in vain ends so; the others go on
                say(f"round {seed} failed: {error!r}")
                return
            with lock:
                found[seed] = window
                keep(out, window)

        with ThreadPoolExecutor(at_once) as threads:
            list(threads.map(one, [seed for seed in range(1, rounds + 1) if seed not in found]))
        for line in report(list(found.values())) if found else ():
            click.echo(line)

    for option in options:
        main = option(main)
    return click.command()(main)

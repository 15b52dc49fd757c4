"""Accounting asked now: the line of `sacct`, one call for each slice of time, read while it is printed."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from typing import Final

from penstock.errors import SlurmUnavailable, UserError
from penstock.slurm.rows import draw_mark
from penstock_lab.history.sacct import ENVIRONMENT, command

__all__ = ["slices", "told"]

_MOST_ERROR: Final = 2000


def slices(since: int, until: int, length: int) -> Iterator[tuple[int, int]]:
    """The span in slices of so many seconds, oldest first."""
    for begin in range(since, until, length):
        yield begin, min(begin + length, until)


def told(begin: int, end: int, cluster: str, patience: float) -> Generator[tuple[int, bytes], None, None]:
    """The lines that sacct prints of the jobs that were there between two times (s since the epoch).

    UserError where there is no sacct, SlurmUnavailable where it fails or takes longer than `patience` seconds.
    """
    argv = command(draw_mark(), _text(begin), _text(end), cluster)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SACCT_")}
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                argv, env=kept | ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
            )
        except OSError as e:
            raise UserError(f"sacct cannot be run here: {e.strerror or e}; give a dump instead") from None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(patience, give_up)
        timer.start()
        try:
            assert process.stdout is not None
            yield from enumerate(process.stdout, 1)
            code = process.wait()
        finally:
            timer.cancel()
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        errors.seek(0)
        said = " ".join(errors.read(_MOST_ERROR).decode("utf-8", "replace").split())
        if late.is_set():
            raise SlurmUnavailable(
                f"sacct took longer than {patience:g} s for {_text(begin)} to {_text(end)}: take a shorter --slice"
            )
        if code != 0:
            raise SlurmUnavailable(f"sacct failed for {_text(begin)} to {_text(end)}: {said or f'exit {code}'}")


def _text(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")

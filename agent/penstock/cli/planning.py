"""What `penstock slots`, `quote` and `plan` share: where the queue comes from, and how times are read and shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from penstock.cli.gantt import Bar
from penstock.errors import UserError
from penstock.provision.plan import Plan
from penstock.provision.queuefile import decimals, parse_number, parse_queue

__all__ = ["Source", "bars", "picture_options", "queue_option"]

_MAX_BYTES: Final = 200_000_000


class Source:
    """A queue file, with the times that were given on the command line in its unit."""

    def __init__(self, path: Path, times: dict[str, str | None]) -> None:
        given = {name: parse_number(text, name) for name, text in times.items() if text is not None}
        most = max((decimals(value) for value in given.values()), default=0)
        self.situation = parse_queue(_read(path), str(path), most)
        scale = self.situation.scale
        self._times = {name: int(value * scale) for name, value in given.items()}
        self.unit = "units of time"

    def time(self, name: str) -> int | None:
        """An option's instant, as the plan counts; UserError if it lies before now."""
        value = self._times.get(name)
        now = self.situation.queue.now
        if value is not None and value < now:
            raise UserError(f"{name} must not lie before now ({self.show(now)}), not {self.show(value)}")
        return value

    def duration(self, name: str) -> int | None:
        """An option's duration; UserError if it is not longer than 0."""
        value = self._times.get(name)
        if value is not None and value <= 0:
            raise UserError(f"{name} must be longer than 0, not {self.show(value)}")
        return value

    def show(self, value: float) -> str:
        """An instant for a table."""
        return f"{self.situation.outside(value):g}"


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UserError(f"--queue: {path} is larger than {_MAX_BYTES // 10**6} MB")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"--queue: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"--queue: {path} is not UTF-8 text") from None


def bars(plan: Plan) -> list[Bar]:
    """Everything in a plan, for a Gantt picture."""
    queue = plan.queue
    out = [Bar(c.id, "running" if c.start <= queue.now else "reserved", c.nodes, c.start, c.end) for c in queue.claims]
    for job, start, nodes in zip(queue.waiting, plan.starts, plan.nodes, strict=True):
        if nodes:
            out.append(Bar(job.id, "waiting", nodes, start, start + job.duration))
    return out


def queue_option() -> Callable[[Any], Any]:
    """--queue FILE."""
    return click.option(
        "--queue",
        "queue_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        required=True,
        help="Plan on this queue (JSON, any unit of time).",
    )


def picture_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--gantt and --picture."""
    command = click.option("--gantt", is_flag=True, help="Draw the plan with letters.")(command)
    return click.option(
        "--picture", metavar="FILE", type=click.Path(path_type=Path), help="Draw the plan into this .png, .svg or .pdf."
    )(command)

"""What `penstock slots`, `quote` and `plan` share: where the queue comes from, and how times are read and shown."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Protocol

import click

from penstock.api import Partition, Snapshot
from penstock.config import Config, load
from penstock.console.backends import backend_of
from penstock.console.memory import MEM
from penstock.console.times import parse_time_option
from penstock.errors import UserError
from penstock.future.plan import QueueSchedule
from penstock.site.viewing import whole_look
from penstock.values.durations import DURATION_FORMS, duration_text, parse_duration
from penstock.values.instants import parse_instant
from penstock_planning.commands.gantt import Bar
from penstock_planning.extending import pricing_rules
from penstock_planning.plan.live import Needs, check_size, from_snapshot, partition_of
from penstock_planning.plan.pricing import Pricing
from penstock_planning.plan.queuefile import decimals, parse_number, parse_queue
from penstock_planning.plan.situation import Situation

__all__ = [
    "FileSource",
    "LiveSource",
    "Source",
    "Where",
    "bars",
    "cluster_options",
    "instant_text",
    "open_source",
    "picture_options",
    "source_options",
]

_MAX_BYTES: Final = 200_000_000


class Source(Protocol):
    """A situation, with the times that were given on the command line."""

    situation: Situation
    unit: str
    hours: float
    """What prices per unit of time are multiplied by when they are shown."""

    def time(self, name: str) -> float | None:
        """An option's instant, as the plan counts; UserError if it lies before now."""
        ...

    def duration(self, name: str) -> float | None:
        """An option's duration; UserError if it is not longer than 0."""
        ...

    def show(self, value: float) -> str:
        """An instant for people."""
        ...

    def show_length(self, value: float) -> str:
        """A duration for people."""
        ...

    def check(self, nodes: int, duration: float) -> None:
        """Raises Infeasible if no slot of this size can ever be had."""
        ...


class FileSource:
    """A queue file; times are plain numbers in its unit."""

    unit = "units of time"
    hours = 1.0

    def __init__(
        self, path: Path, instants: dict[str, str | None], durations: Mapping[str, str | float | None]
    ) -> None:
        texts: dict[str, str | float | None] = {**instants, **durations}
        given = {name: parse_number(_written(text), name) for name, text in texts.items() if text is not None}
        most = max((decimals(value) for value in given.values()), default=0)
        self.situation = parse_queue(_read(path), str(path), most)
        self._times = {name: int(value * self.situation.scale) for name, value in given.items()}

    def time(self, name: str) -> float | None:
        """See `Source`."""
        value = self._times.get(name)
        _not_past(self, name, value)
        return value

    def duration(self, name: str) -> float | None:
        """See `Source`."""
        value = self._times.get(name)
        if value is not None and value <= 0:
            raise UserError(f"{name} must be longer than 0, not {self.show(value)}")
        return value

    def show(self, value: float) -> str:
        """See `Source`."""
        return self.situation.show(value)

    def show_length(self, value: float) -> str:
        """See `Source`."""
        return self.show(value)

    def check(self, nodes: int, duration: float) -> None:
        """See `Source`; sizes are checked when they are read."""


class LiveSource:
    """A cluster as it is now, or `lead` seconds later; times are durations and instants as people write them."""

    unit = "hours"
    hours = 3600.0

    def __init__(
        self,
        snapshot: Snapshot,
        where: Where,
        pricing: Callable[[float], Pricing],
        instants: dict[str, str | None],
        durations: Mapping[str, str | float | None],
        lead: float = 0.0,
    ) -> None:
        self.snapshot = snapshot
        self.partition: Partition = partition_of(snapshot, where.partition)
        self._now = now = snapshot.taken_at
        self._instants = {n: parse_instant(t, now, n) for n, t in instants.items() if t is not None}
        self._durations: dict[str, float] = {}
        for name, length in durations.items():
            if length is not None:
                seconds = parse_duration(length)
                if seconds is None:
                    raise UserError(f"{name} must be {DURATION_FORMS}, not {str(length)[:40]!r}")
                self._durations[name] = seconds
        situation = from_snapshot(snapshot, self.partition, pricing, where.needs)
        if lead:  # what is planned is to be reserved, and Slurm keeps whole seconds
            situation = replace(situation, queue=replace(situation.queue, now=math.ceil(now + lead)))
        self.situation = situation

    def time(self, name: str) -> float | None:
        """See `Source`. Slurm keeps whole seconds, so an instant within this second is now."""
        value = self._instants.get(name)
        if value is not None and self._now - 1 < value < self._now:
            return self._now
        _not_past(self, name, value)
        return value

    def duration(self, name: str) -> float | None:
        """See `Source`."""
        return self._durations.get(name)

    def show(self, value: float) -> str:
        """See `Source`."""
        return instant_text(value, self._now)

    def show_length(self, value: float) -> str:
        """See `Source`."""
        return "for ever" if value == float("inf") else duration_text(value)

    def check(self, nodes: int, duration: float) -> None:
        """See `Source`."""
        check_size(self.situation, self.partition, nodes, duration)


def _written(value: str | float) -> str:
    """Without an exponent."""
    return value if isinstance(value, str) else f"{Decimal(str(value)):f}"


def instant_text(value: float, now: float) -> str:
    """A time of day; with its date if it is far from now."""
    if value == float("inf"):
        return "never"
    form = "%H:%M:%S" if abs(value - now) < 43200 else "%m-%d %H:%M"
    return time.strftime(form, time.localtime(value))


def _not_past(source: Source, name: str, value: float | None) -> None:
    now = source.situation.queue.now
    if value is not None and value < now:
        raise UserError(f"{name} must not lie before now ({source.show(now)}), not {source.show(value)}")


@dataclass(frozen=True)
class Where:
    """What `source_options` gives: a file, or a partition of the cluster and what its nodes must have."""

    queue_file: Path | None
    partition: str | None
    needs: Needs

    def length(self, text: str | None) -> str | float | None:
        """What -t says: a number in a file's unit of time, else seconds. Raises UserError."""
        return text if text is None or self.queue_file is not None else parse_time_option(text, "-t/--time")


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """As `source_options`, for commands that refuse --queue: their help does not name it."""
    return source_options(command, file=False)


def source_options(command: Callable[..., Any], file: bool = True) -> Callable[..., Any]:
    """--queue, or -p with --gres, --mem, --cores and -C; the command gets them as `where`."""

    @functools.wraps(command)
    def gathered(
        queue_file: Path | None,
        partition: str | None,
        gres: str | None,
        mem: float | None,
        cores: int | None,
        constraint: str | None,
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        given = {"-p": partition, "--gres": gres, "--mem": mem, "--cores": cores, "-C": constraint}
        for name, value in given.items():
            if queue_file is not None and value is not None:
                raise UserError(f"{name} is for a cluster and cannot go with --queue")
        features = frozenset(word for word in (constraint or "").replace("&", ",").split(",") if word)
        needs = Needs(cores or 0, mem or 0.0, gres or "", features)
        return command(where=Where(queue_file, partition, needs), **options)

    path = click.Path(path_type=Path)
    out: Callable[..., Any] = gathered
    for option in (
        click.option("-C", "--constraint", metavar="FEATURES", help="Features that all nodes must have."),
        click.option("--cores", metavar="N", type=click.IntRange(1), help="Cores that each node must have."),
        click.option("--mem", metavar="AMOUNT", type=MEM, help="Memory that each node must have: 8G, or bare in MB."),
        click.option("--gres", metavar="LIST", help="What each node must have, such as gpu:2."),
        click.option("-p", "--partition", metavar="NAME", help="The partition (default: Slurm's)."),
        click.option(
            "--queue", "queue_file", metavar="FILE", type=path, hidden=not file, help="Plan on this queue instead."
        ),
    ):
        out = option(out)
    return out


def open_source(
    where: Where, instants: dict[str, str | None], durations: Mapping[str, str | float | None], lead: float = 0.0
) -> Source:
    """The file's queue, or one look at the cluster."""
    if where.queue_file is not None:
        return FileSource(where.queue_file, instants, durations)
    config = load()
    return LiveSource(asyncio.run(_look(config)), where, pricing_rules(config), instants, durations, lead)


async def _look(config: Config) -> Snapshot:
    async with backend_of(config) as backend:
        return await whole_look(config, backend)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise UserError(f"--queue: {path} is larger than {_MAX_BYTES // 10**6} MB")
        return data.decode()
    except OSError as error:
        raise UserError(f"--queue: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"--queue: {path} is not UTF-8 text") from None


def bars(plan: QueueSchedule) -> list[Bar]:
    """Everything in a plan, for a Gantt picture."""
    queue = plan.queue
    out = [Bar(c.id, "running" if c.start <= queue.now else "reserved", c.nodes, c.start, c.end) for c in queue.claims]
    for job, start, nodes in zip(queue.waiting, plan.starts, plan.nodes, strict=True):
        if nodes:
            out.append(Bar(job.id, "waiting", nodes, start, start + job.duration))
    return out


def picture_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--gantt and --picture."""
    command = click.option("--gantt", is_flag=True, help="Draw the plan with letters.")(command)
    return click.option(
        "--picture", metavar="FILE", type=click.Path(path_type=Path), help="Draw the plan into this .png, .svg or .pdf."
    )(command)

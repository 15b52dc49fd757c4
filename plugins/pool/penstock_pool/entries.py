"""What a pool knows of its tasks: those that have not ended, or only lately, as they are; each other as the line of the
log that keeps it, which takes a quarter of the memory. Pure.

What has ended is not changed any more. What is read of it here is a copy; to have it run again, `revive` it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock_pool.model import AttemptOutcome, PoolTask, TaskPhase, Use, known_task, task_to_dict
from penstock_pool.placement import TaskShape, shape_of

__all__ = ["KEPT", "TaskEntries", "TaskEntry", "encode"]

KEPT: Final = "kept"
"""The `op` of a line of the log that says all of a task."""
_FINAL: Final = tuple(phase for phase in TaskPhase if phase.final)
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


def encode(line: Mapping[str, Any]) -> bytes:
    """A line of the log, without its end."""
    return _encode(line).encode()


@dataclass(slots=True)
class TaskEntry:
    """One task: attempts are counted from 1. `code`, `why`, `use` and `node` are of the last attempt that has ended.
    `cancelled`: the attempt that runs is to be killed, and there is to be no other; `again`: there is to be one. Of a
    job: whether it is `held`, and when it was `eligible` at first."""

    id: int
    task: PoolTask
    shape: TaskShape
    phase: TaskPhase = TaskPhase.WAITING
    attempt: int = 0
    failed: int = 0
    lost: int = 0
    address: str = ""
    node: str = ""
    job: str = ""
    submitted: float = 0.0
    started: float | None = None
    ended: float | None = None
    last: AttemptOutcome | None = None
    code: int | None = None
    why: str = ""
    use: Use = field(default_factory=Use)
    cancelled: bool = False
    again: bool = False
    held: bool = False
    eligible: float | None = None


# What a line says if it is not as usual; `address` is none of an earlier scheduler's business.
_SAID: Final = (
    ("attempt", 0),
    ("failed", 0),
    ("lost", 0),
    ("node", ""),
    ("job", ""),
    ("submitted", 0.0),
    ("started", None),
    ("ended", None),
    ("code", None),
    ("why", ""),
    ("cancelled", False),
    ("again", False),
    ("held", False),
    ("eligible", None),
)


def _line(entry: TaskEntry) -> bytes:
    line: dict[str, Any] = {"op": KEPT, "id": entry.id, "phase": str(entry.phase), "task": task_to_dict(entry.task)}
    line |= {key: value for key, usual in _SAID if (value := getattr(entry, key)) != usual}
    if entry.last is not None:
        line["last"] = str(entry.last)
    use = entry.use
    if use != Use():
        line["use"] = [round(use.wall, 3), round(use.cpu, 3), use.memory]
    return encode(line)


def _entry(line: Mapping[str, Any]) -> TaskEntry:
    task = known_task(line["task"])
    entry = TaskEntry(int(line["id"]), task, shape_of(task), TaskPhase(line["phase"]))
    for key, usual in _SAID:
        setattr(entry, key, line.get(key, usual))
    if "last" in line:
        entry.last = AttemptOutcome(line["last"])
    if "use" in line:
        entry.use = Use(*line["use"])
    return entry


class TaskEntries(Mapping[int, TaskEntry]):
    """All tasks of a pool by their numbers, in the order of these. `last`: the largest number there was ever;
    `forgotten` counts those of which nothing is known any more, by phase. `jobs` are the numbers of those that are
    jobs, and `files` counts them by the files in the pool's folder that they have need of."""

    def __init__(self) -> None:
        self.last = 0
        self.forgotten: Counter[TaskPhase] = Counter()
        self.jobs: set[int] = set()
        self.files: Counter[str] = Counter()
        self._loose: dict[int, TaskEntry] = {}
        self._lines: dict[TaskPhase, dict[int, bytes]] = {phase: {} for phase in _FINAL}

    def __getitem__(self, number: int) -> TaskEntry:
        if (entry := self._loose.get(number)) is not None:
            return entry
        for lines in self._lines.values():
            if (line := lines.get(number)) is not None:
                return _entry(json.loads(line))
        raise KeyError(number)

    def __contains__(self, number: object) -> bool:
        return number in self._loose or any(number in lines for lines in self._lines.values())

    def __len__(self) -> int:
        return len(self._loose) + sum(len(lines) for lines in self._lines.values())

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._numbers()))

    def get(self, number: Any, default: Any = None) -> Any:  # noqa: ANN401
        """As of every mapping; the usual case without an exception."""
        found = self._loose.get(number)
        return found if found is not None else super().get(number, default)

    def open(self) -> list[TaskEntry]:
        """Those that have not ended."""
        return [entry for entry in self._loose.values() if not entry.phase.final]

    def of_phases(self, phases: Iterable[str], most: int) -> list[TaskEntry]:
        """Those of these phases, at most so many: the last ones."""
        wanted = set(phases)
        numbers = [entry.id for entry in self._loose.values() if entry.phase in wanted]
        for phase, lines in self._lines.items():
            if phase in wanted:
                numbers += lines
        return [self[number] for number in sorted(numbers)[-most:]]

    def add(self, entry: TaskEntry) -> None:
        """It is new."""
        self._loose[entry.id] = entry
        self._know(entry.id, entry.task)

    def take_line(self, line: Mapping[str, Any]) -> TaskEntry:
        """It is known by a line of a log. Raises KeyError, TypeError, ValueError."""
        entry = _entry(line)
        if entry.phase.final:
            self._lines[entry.phase][entry.id] = encode(line)
            self._know(entry.id, entry.task)
        else:
            self.add(entry)
        return entry

    def line(self, number: int, *, settle: bool = True) -> bytes:
        """The line that keeps it. One that has ended is known by that alone from now on, if it is to `settle`."""
        entry = self._loose.get(number)
        if entry is None:
            return next(line for lines in self._lines.values() if (line := lines.get(number)) is not None)
        line = _line(entry)
        if settle and entry.phase.final:
            del self._loose[number]
            self._lines[entry.phase][number] = line
        return line

    def revive(self, entry: TaskEntry) -> None:
        """It is to be changed once more."""
        self._lines[entry.phase].pop(entry.id, None)
        self._loose[entry.id] = entry

    def forget(self, entry: TaskEntry) -> list[str]:
        """Know no more of one that has ended; the files that no other has need of."""
        self._loose.pop(entry.id, None)
        self._lines[entry.phase].pop(entry.id, None)
        self.jobs.discard(entry.id)
        self.forgotten[entry.phase] += 1
        unused = []
        for file in _files(entry.task):
            self.files[file] -= 1
            if not self.files[file]:
                del self.files[file]
                unused.append(file)
        return unused

    def _know(self, number: int, task: PoolTask) -> None:
        self.last = max(self.last, number)
        if task.job is not None:
            self.jobs.add(number)
            self.files.update(_files(task))

    def _numbers(self) -> Iterator[int]:
        yield from self._loose
        for lines in self._lines.values():
            yield from lines


def _files(task: PoolTask) -> tuple[str, ...]:
    return () if task.job is None else (task.job.script, task.job.environment)

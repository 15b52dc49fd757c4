"""Bags of tasks that were submitted: which tasks are where, kept in a file each, so that any later command goes on.

What is about to be done is written down before it is done; a command that is killed in between leaves an intent that
the next one reads back from Slurm.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.errors import NotFound, NotNow, StoreError
from penstock.host.files import open_locked, replace
from penstock.state.ownership import denied
from penstock_planning.broker.tasks import Bag, bag_at, entry_of
from penstock_planning.select.correction import Corrections

__all__ = ["Array", "BagRun", "Bags"]

_VERSION: Final = 1


@dataclass(slots=True)
class Array:
    """A job array of a bag. `pieces[i]` are the tasks of the bag that its task i runs; `withdrawn` those i that were
    taken back before they began, or were preempted. `job` None: the submission's answer is not known. `leaving` are
    those i that are about to be withdrawn of so many that waited (`waited`). `states` is how jobs ended, by their task,
    `learned` the ids of jobs whose run times were learned from. `held`: it is about to be held, for something to be
    withdrawn from it. `qos` is its jobs'; None: Slurm's default. `fetch` is how long fetching their input is expected
    to take (s), which is no part of `predicted`.
    """

    name: str
    cluster: str
    lane: str
    pieces: list[list[int]]
    predicted: float
    submitted: float
    job: int | None = None
    withdrawn: list[int] = field(default_factory=list)
    leaving: list[int] = field(default_factory=list)
    waited: int = 0
    held: bool = False
    states: dict[str, str] = field(default_factory=dict)
    learned: list[int] = field(default_factory=list)
    qos: str | None = None
    fetch: float = 0.0

    @property
    def alive(self) -> list[int]:
        """Tasks of the array that were not withdrawn, ascending."""
        gone = set(self.withdrawn)
        return [i for i in range(len(self.pieces)) if i not in gone]


@dataclass(slots=True)
class BagRun:
    """A bag that was submitted. `unplaced` are tasks that are in no job at present; `moves` says what was moved."""

    id: int
    bag: Bag
    count: int
    created: float
    arrays: list[Array] = field(default_factory=list)
    unplaced: list[int] = field(default_factory=list)
    moves: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    finished: float | None = None

    @property
    def name(self) -> str:
        """What its jobs' names begin with."""
        return f"penstock.bag.{self.id}"

    def next_name(self) -> str:
        """The name of its next array."""
        return f"{self.name}.{len(self.arrays) + 1}"


class Bags:
    """The bags of this user, in a folder; and what their tasks taught about run times."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def numbers(self) -> list[int]:
        """All there are, ascending. Raises `StoreError`, `NotPermitted`."""
        try:
            files = [p for p in self._folder.iterdir() if p.suffix == ".json" and p.stem.isdigit()]
            # A command that was killed right after it had taken a number has left an empty file, and sent nothing.
            return sorted(int(p.stem) for p in files if p.stat().st_size)
        except FileNotFoundError:
            return []
        except OSError as e:
            raise denied(self._folder, e, f"{self._folder} cannot be read") from None

    def new(self, bag: Bag, count: int, now: float, settings: Mapping[str, Any]) -> BagRun:
        """A number for a bag, taken before anything is submitted."""
        self._make()
        number = max(self.numbers(), default=0) + 1
        while True:
            try:
                os.close(os.open(self._path(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                break
            except FileExistsError:
                number += 1
            except OSError as e:
                raise StoreError(f"{self._folder} cannot be written: {e.strerror}") from None
        run = BagRun(number, bag, count, now, unplaced=list(range(count)), settings=dict(settings))
        self.save(run)
        return run

    def save(self, run: BagRun) -> None:
        """Write it down: whole, or not at all."""
        state = {
            "version": _VERSION,
            "id": run.id,
            "bag": entry_of(run.bag),
            "count": run.count,
            "created": run.created,
            "arrays": [asdict(array) for array in run.arrays],
            "homeless": run.unplaced,
            "moves": run.moves,
            "settings": run.settings,
            "finished": run.finished,
        }
        self._write(self._path(run.id), state)

    def load(self, number: int) -> BagRun:
        """Raises `NotFound`, `StoreError`."""
        path = self._path(number)
        try:
            text = path.read_text(encoding="utf-8")
            if not text:
                raise FileNotFoundError
            state = json.loads(text)
            if state["version"] != _VERSION:
                raise StoreError(f"{path} was written by another release of Penstock")
            bag = bag_at(state["bag"], str(path), path.parent, "task")
            return BagRun(
                state["id"],
                bag,
                state["count"],
                state["created"],
                [Array(**array) for array in state["arrays"]],
                state["homeless"],
                state["moves"],
                state["settings"],
                state["finished"],
            )
        except FileNotFoundError:
            raise NotFound(f"there is no bag {number}") from None
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise StoreError(f"{path} cannot be read: {e}") from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One command at a time works on bags. Raises `NotNow`, `StoreError`, `NotPermitted`."""
        self._make()
        try:
            lock = open_locked(self._folder / "lock")
        except BlockingIOError:
            raise NotNow("another penstock command works on the bags at this moment") from None
        except OSError as e:
            raise denied(self._folder, e, f"{self._folder} cannot be written") from None
        try:
            yield
        finally:
            os.close(lock)

    def corrections(self) -> Corrections:
        """What finished tasks have taught; nothing where the file is damaged."""
        try:
            return Corrections.from_state(json.loads(self._learned.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return Corrections()

    def save_corrections(self, learned: Corrections) -> None:
        """Keep it."""
        self._make()
        self._write(self._learned, learned.to_state())

    @property
    def _learned(self) -> Path:
        return self._folder / "corrections.state"

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.json"

    def _make(self) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as e:
            raise denied(self._folder, e, f"{self._folder} cannot be made") from None

    def _write(self, path: Path, state: object) -> None:
        text = json.dumps(state)
        with suppress(OSError, ValueError):
            if path.read_text(encoding="utf-8") == text:
                return  # most passes over a bag change nothing
        try:
            replace(path, text)
        except OSError as e:
            raise StoreError(f"{path} cannot be written: {e.strerror}") from None

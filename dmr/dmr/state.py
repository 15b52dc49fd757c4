"""What a program has registered: values by name, and how they are dealt to the ranks, now and after the next resize."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dmr.distributions import Distribution, Grid, Keyed, Replicated

if TYPE_CHECKING:
    import numpy as np

    from dmr.limits import Limits
    from dmr.redistribute import Moved, Part

__all__ = ["DEALT", "STEP", "State", "differing"]

STEP: Final = "dmr.step"
_WANTED: Final = "dmr.wanted"
DEALT: Final = "dmr.dealt"
_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None))
_OTHER: Final = "other"  # the mark of a value that nothing with a digest equals


@dataclass
class _Entry:
    value: Any
    held: Distribution
    becomes: Distribution | None = None
    same: bool = False  # replicated, though nobody said so: its values must then be the same on all ranks
    registered: bool = True
    dealt: Distribution | None = None  # what the program said last while it ran


class State:
    """The registered values of one process.

    `wanted` are the sizes that the program has asked for on its way, None where it has not. They move with the values:
    a process that joins in the middle has not made that call, and all ranks must ask for the same.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self.wanted: Limits | None = None

    def register(self, name: str, value: Any, distribution: Distribution | None) -> None:  # noqa: ANN401
        """Takes in a first value (or calls what makes it), unless one was inherited.

        Functions of any kind, methods, classes and `functools.partial` make a value. Other objects that can be called,
        a polynomial or a model, are one.

        Raises:
            ValueError: the name is taken or not usable, or the distribution is none.
        """
        if not isinstance(name, str) or not name or name.startswith("dmr."):
            raise ValueError(f"a name is text that does not begin with 'dmr.', not {name!r}")
        if distribution is not None and not isinstance(distribution, Distribution):
            raise ValueError(f"{name}: {distribution!r} is not a distribution; dmr.Block(axis=0) is one")
        entry = self._entries.get(name)
        if entry is None:
            first = value() if _makes(value) else value
            self._entries[name] = _Entry(first, distribution or Replicated(), same=distribution is None)
        elif entry.registered:
            raise ValueError(f"{name} is registered already; give it a new value by app[{name!r}] = ...")
        else:
            # Where it is now is known from the move; what was given here says how to go on from there, unless something
            # else was said while the program ran: then this is about the time before that.
            entry.becomes, entry.same, entry.registered = distribution, distribution is None, True
            if entry.dealt is not None:
                entry.same = False
                if repr(distribution) != repr(entry.dealt):
                    entry.becomes = entry.dealt

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        return self._entry(name).value

    def __setitem__(self, name: str, value: object) -> None:
        self._entry(name).value = value

    def held(self, name: str) -> Distribution:
        """How the value is dealt to the ranks now."""
        return self._entry(name).held

    def anew(self, name: str, distribution: Distribution | None, size: int) -> Part:
        """The value, to be dealt otherwise among the same `size` ranks; None: as was said last.

        Raises:
            ValueError: the name is unknown, or the distribution is none.
        """
        from dmr.redistribute import Part

        if distribution is not None and not isinstance(distribution, Distribution):
            raise ValueError(f"{name}: {distribution!r} is not a distribution; dmr.Block(axis=0) is one")
        if not isinstance(name, str) or name not in self._entries:
            raise ValueError(f"{name!r} is not registered; registered: {', '.join(self._entries) or 'nothing'}")
        if isinstance(distribution, Grid):
            try:
                distribution.grid_of(size)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        entry = self._entries[name]
        return Part(entry.value, entry.held, distribution or entry.becomes or entry.held)

    def dealt(self, name: str, moved: Moved, distribution: Distribution | None) -> None:
        """Takes over what dealing it otherwise brought."""
        entry = self._entries[name]
        _stale(entry.value)
        entry.becomes = (distribution or entry.becomes or entry.held).bare()
        entry.value, entry.held = moved.values[name], moved.distributions[name]
        if distribution is not None:
            entry.dealt, entry.same = entry.becomes, False

    def strayed(self) -> list[str]:
        """Parts whose records are not with their owners, because who these are was not known where they were moved."""
        return [
            name
            for name, entry in self._entries.items()
            if isinstance(entry.held, Keyed)
            and entry.held.strayed
            and isinstance(entry.becomes, Keyed)
            and entry.becomes.by_owner
        ]

    def _entry(self, name: str) -> _Entry:
        try:
            return self._entries[name]
        except KeyError:
            known = ", ".join(self._entries) or "nothing"
            raise KeyError(f"{name!r} is not registered; registered: {known}") from None

    def parts(self, step: int) -> dict[str, Part]:
        """Everything, as `dmr.redistribute.move` takes it, the step to go on with, and the sizes wanted."""
        from dmr.redistribute import Part

        parts = {name: Part(entry.value, entry.held, entry.becomes) for name, entry in self._entries.items()}
        dealt = {name: entry.dealt for name, entry in self._entries.items() if entry.dealt is not None}
        if dealt:
            parts[DEALT] = Part(dealt, Replicated())
        if self.wanted is not None:
            parts[_WANTED] = Part(self.wanted, Replicated())
        return parts | {STEP: Part(step, Replicated())}

    def marks(self) -> dict[str, str]:
        """For each value that must be the same on all ranks what shows whether it is; "" where nothing does."""
        return {name: _mark(entry.value) for name, entry in self._entries.items() if entry.same}

    def adopt(self, moved: Moved) -> int:
        """Takes over what a move brought; returns the step to go on with."""
        step = int(moved.values.pop(STEP))
        self.wanted = moved.values.pop(_WANTED, self.wanted)
        dealt: Mapping[str, Distribution] = moved.values.pop(DEALT, {})
        for name, value in moved.values.items():
            entry = self._entries.get(name)
            if entry is None:
                held = moved.distributions[name]
                self._entries[name] = _Entry(value, held, registered=False, dealt=dealt.get(name))
                continue
            _stale(entry.value)
            # What was given at first says how to go on, whatever the move made of it.
            entry.becomes = entry.becomes or entry.held
            entry.value, entry.held = value, moved.distributions[name]
        return step


def _stale(block: Any) -> None:  # noqa: ANN401
    """Who still holds the old block and goes on writing to it shall hear of it."""
    with contextlib.suppress(AttributeError, ValueError):
        block.flags.writeable = False


def differing(everyone: Sequence[Mapping[str, str]]) -> str:
    """Which value differs between the ranks though it has no distribution, or ""; from `State.marks` by rank.

    What not all ranks have registered in this way is found when it is to move.
    """
    for rank, marks in enumerate(everyone):
        for name, mark in marks.items():
            first = everyone[0].get(name)
            if mark and first and mark != first:
                return (
                    f"{name} differs between ranks 0 and {rank}; register it with a distribution, or with "
                    "dmr.Replicated() if that of rank 0 will do"
                )
    return ""


def _makes(value: object) -> bool:
    """Whether it is meant to be called for the value, not to be it."""
    return inspect.isroutine(value) or isinstance(value, type | functools.partial)


def _mark(value: object) -> str:
    """A digest of values whose equality can be seen from their bytes; "" for those that may equal one of these."""
    import numpy as np

    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        mark = hashlib.blake2b(b"scalar" if isinstance(value, np.generic) else b"array", digest_size=16)
        for name, field in _fields("", np.asarray(value)):
            mark.update(repr((name, field.shape, field.dtype.str)).encode())
            for part in _exact(field):
                if part.nbytes:
                    mark.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
        return mark.hexdigest()
    if type(value) in _PLAIN:
        with contextlib.suppress(Exception):
            return hashlib.blake2b(pickle.dumps(value), digest_size=16).hexdigest()
    # Not what a program derives from plain types, an enum say: its pickle is the program's, and may fail.
    return "" if isinstance(value, _PLAIN) else _OTHER


def _fields(name: str, array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The fields of a structured array, else itself: what lies between fields means nothing."""
    if array.dtype.names is None:
        yield name, array
    for inner in array.dtype.names or ():
        yield from _fields(f"{name}.{inner}", array[inner])


def _exact(array: np.ndarray) -> list[np.ndarray]:
    """The same without bytes that mean nothing, which a long double has: as two doubles."""
    if array.dtype.char not in "gG":
        return [array]
    import numpy as np

    double = "c16" if array.dtype.char == "G" else "f8"
    with np.errstate(all="ignore"):
        high = array.astype(double)
        return [high, np.subtract(array, high).astype(double)]

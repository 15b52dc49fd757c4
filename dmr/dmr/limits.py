"""Which sizes a call allows: what its arguments must be, what the environment may put in their place, what they reach.

Sizes are processes. From the present size, those are reachable that are it times or divided by a power of the factor
(1: any), and that fill whole nodes, for a node is given or taken whole (DMR paper, section 5.1). Standard library only.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

__all__ = ["Limits", "differing", "from_text", "hopeless", "limits", "nearest", "problem"]

NAMES: Final = ("minimum", "maximum", "factor", "preferred")
LARGEST: Final = 2**31 - 1


class Limits(NamedTuple):
    """The four arguments of a check, known to be sound."""

    minimum: int
    maximum: int
    factor: int = 1
    preferred: int | None = None


def whole(value: object) -> int | None:
    """The value as an int where it is one (numpy's are), but not a truth value; else None."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def problem(arguments: Sequence[object]) -> str:
    """What is wrong with (minimum, maximum, factor, preferred), or ""."""
    values = [whole(value) for value in arguments]
    for name, given, value in zip(NAMES, arguments, values, strict=True):
        if name == "preferred" and given is None:
            continue
        if value is None or not 1 <= value <= LARGEST:
            return f"{name} must be an integer from 1 to {LARGEST}, not {given!r}"
    minimum, maximum, _, preferred = values
    assert minimum is not None and maximum is not None
    if minimum > maximum:
        return f"minimum {minimum} is above maximum {maximum}"
    if preferred is not None and not minimum <= preferred <= maximum:
        return f"preferred {preferred} is outside {minimum}..{maximum}"
    return ""


def limits(arguments: Sequence[Any]) -> Limits:
    """The arguments as `Limits`.

    Raises:
        ValueError: naming the one that is wrong.
    """
    if wrong := problem(arguments):
        raise ValueError(wrong)
    minimum, maximum, factor, preferred = arguments
    return Limits(int(minimum), int(maximum), int(factor), None if preferred is None else int(preferred))


def from_text(text: str, factor: int) -> Limits:
    """The limits in "minimum:maximum[:preferred[:factor]]", with `factor` where the text has none.

    Raises:
        ValueError: saying what is wrong.
    """
    parts = text.split(":")
    if not 2 <= len(parts) <= 4 or not all(part.isascii() and part.isdecimal() for part in parts):
        raise ValueError("it is not minimum:maximum[:preferred[:factor]]")
    numbers = [int(part) for part in parts]
    preferred = numbers[2] if len(numbers) > 2 else None
    return limits((numbers[0], numbers[1], numbers[3] if len(numbers) > 3 else factor, preferred))


def differing(everyone: Sequence[Sequence[object]], names: Sequence[str] = NAMES) -> str:
    """Which argument is not the same on all ranks, with two that disagree; "" when all are. Index: rank, argument."""
    for position, name in enumerate(names):
        first = repr(everyone[0][position])
        for rank, arguments in enumerate(everyone):
            if repr(arguments[position]) != first:
                return (
                    f"{name} must be the same on all ranks: it is {first} on rank 0 "
                    f"and {arguments[position]!r} on rank {rank}"
                )
    return ""


def nearest(current: int, allowed: Limits, per_node: int) -> int | None:
    """The reachable size nearest to the preferred one, from below; where there is none below, the smallest.

    None when nothing is preferred or nothing is reachable.
    """
    if allowed.preferred is None:
        return None
    above = None
    for size in _descending(current, allowed, per_node):
        if size <= allowed.preferred:
            return size
        above = size
    return above


def hopeless(current: int, allowed: Limits, per_node: int) -> str:
    """Why no other size can be had between these bounds, or "" when one can (or none is wanted)."""
    if allowed.minimum == allowed.maximum == current:
        return ""
    if any(size != current for size in _descending(current, allowed, per_node)):
        return ""
    step = f" by factor {allowed.factor}" if allowed.factor > 1 else ""
    nodes = f" fills whole nodes of {per_node} ranks and" if per_node > 1 else ""
    return f"no other size from {allowed.minimum} to {allowed.maximum}{nodes} is reachable from {current}{step}"


def _descending(current: int, allowed: Limits, per_node: int) -> Iterator[int]:
    """The reachable sizes, largest first; with factor 1 those that matter: the ends and the one at the preferred."""
    minimum, maximum, factor, preferred = allowed
    if factor == 1:
        lowest = -(-minimum // per_node) * per_node
        sizes = {lowest, *(size // per_node * per_node for size in (maximum, preferred or maximum))}
    else:
        sizes = {current}
        size = current
        while size <= maximum // factor:
            size *= factor
            sizes.add(size)
        size = current
        while size % factor == 0:
            size //= factor
            sizes.add(size)
    yield from sorted((s for s in sizes if minimum <= s <= maximum and s % per_node == 0), reverse=True)

"""Slurm's host lists: `n[1-3,07-09],x5`. Import the functions from `penstock.slurm.parse`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import product

__all__ = ["MAX_HOSTS", "HostListError", "ParseError", "asked_hosts", "compress_hosts", "expand_hosts"]

# Slurm's own limit for one range is 64 Ki; far above any cluster, far below what would fill the memory.
MAX_HOSTS = 1 << 17

_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", re.ASCII)
_NAME = re.compile(r"[^\s,\[\]]+")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})", re.ASCII)


class ParseError(ValueError):
    """A text is not what Slurm writes. The message names the text."""

    def __init__(self, what: str, text: str) -> None:
        shown = text if len(text) <= 80 else text[:77] + "..."
        super().__init__(f"{what}: {shown!r}")
        self.text = text


class HostListError(ParseError):
    """Not a host list."""


@lru_cache(4096)
def expand_hosts(text: str) -> tuple[str, ...]:
    """The names in a host list, in its order, without repetitions. Empty and `(null)` give no names.

    Several brackets in a name multiply (`r[0-1]n[1-2]`), the last one running fastest, and leading zeros are kept.
    """
    text = text.strip()
    if text in ("", "(null)", "None assigned"):
        return ()
    names: dict[str, None] = {}
    for element in _split(text):
        for name in _expand_one(element):
            names[name] = None
        if len(names) > MAX_HOSTS:
            raise HostListError(f"a host list of more than {MAX_HOSTS} names", text)
    return tuple(names)


def asked_hosts(text: str) -> tuple[str, ...]:
    """The same of a list that people write: blanks part names too, and commas may be too many, as for Slurm (`n1,`)."""
    return expand_hosts(re.sub(r"[\s,]+", ",", text).strip(","))


def compress_hosts(names: Iterable[str]) -> str:
    """The shortest usual host list that holds exactly these names: sorted, without repetitions, ranges in brackets."""
    groups: dict[str, list[tuple[int, str]]] = {}
    plain: set[str] = set()
    for name in names:
        if not _NAME.fullmatch(name):
            raise HostListError("not a host name", name)
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain.add(name)
        else:
            groups.setdefault(match[1], []).append((int(match[2]), match[2]))
    parts: list[tuple[str, str]] = [(name, name) for name in plain]
    for prefix, numbers in groups.items():
        ranges = _ranges(sorted(set(numbers), key=lambda pair: (pair[0], len(pair[1]))))
        single = len(ranges) == 1 and "-" not in ranges[0]
        parts.append((prefix, prefix + (ranges[0] if single else f"[{','.join(ranges)}]")))
    return ",".join(part for _, part in sorted(parts))


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    parts: list[str] = []
    depth = 0
    start = 0
    for i, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
        if depth not in (0, 1):
            raise HostListError("brackets do not match in the host list", text)
    if depth:
        raise HostListError("brackets do not match in the host list", text)
    parts.append(text[start:])
    return parts


def _expand_one(element: str) -> Iterable[str]:
    pieces = re.split(r"\[([^\[\]]*)\]", element)  # text, bracket, text, bracket, ..., text
    if not all(piece == "" or _NAME.fullmatch(piece) for piece in pieces[::2]) or element == "":
        raise HostListError("not a host list", element)
    choices: list[list[str]] = []
    total = 1
    for i, piece in enumerate(pieces):
        choices.append(_numbers(piece, element) if i % 2 else [piece])
        total *= len(choices[-1])
        if total > MAX_HOSTS:
            raise HostListError(f"a host list of more than {MAX_HOSTS} names", element)
    return ("".join(choice) for choice in product(*choices))


def _numbers(bracket: str, element: str) -> list[str]:
    numbers: list[str] = []
    for item in bracket.split(","):
        match = _RANGE.fullmatch(item)
        if match is None:
            raise HostListError("not a range in the host list", element)
        low = match[1]
        high = match[2] or low
        first, last = int(low), int(high)
        if last < first:
            raise HostListError("a range that runs backwards in the host list", element)
        if last - first + len(numbers) >= MAX_HOSTS:
            raise HostListError(f"a host list of more than {MAX_HOSTS} names", element)
        numbers.extend(str(n).zfill(len(low)) for n in range(first, last + 1))
    return numbers


def _ranges(numbers: list[tuple[int, str]]) -> list[str]:
    """Join neighbours whose digits are what counting up from the first of them gives: 08,09,10 but not 8,09."""
    ranges: list[list[str]] = []
    width = 0
    before = -2
    for number, digits in numbers:
        if ranges and number == before + 1 and digits == str(number).zfill(width):
            ranges[-1][1:] = [digits]
        else:
            ranges.append([digits])
            width = len(digits)
        before = number
    return ["-".join(item) for item in ranges]

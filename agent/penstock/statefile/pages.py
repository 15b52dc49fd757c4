"""Rows of an SQLite file, read page by page past whatever is damaged. Bytes in, rows out: no file, no SQLite.

SQLite itself gives up a table at the first page that it cannot read. Here each page, and each row on it, stands for
itself, as in SQLite's own `.recover`. The format: https://www.sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

__all__ = ["PAGE", "FoundTable", "Pages", "Value"]

Value = int | float | bytes | None
"""Text and blobs are bytes both: which of them it was says the column."""

PAGE: Final = 4096
"""Bytes of a page in the files that this program makes."""
_HEADER: Final = 100
_LEAF, _INTERIOR = 13, 5
_FIXED: Final = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 8, 8: 0, 9: 0}  # bytes by serial type
_REAL = 7


class _Broken(Exception):
    """Something that is not as SQLite writes it."""


@dataclass(slots=True)
class FoundTable:
    """What was found of a table: `rows` by their number, `pages` that belong to it and cannot be read, `cells` that can
    not on pages that can."""

    rows: dict[int, tuple[Value, ...]] = field(default_factory=dict)
    pages: list[int] = field(default_factory=list)
    cells: int = 0


class Pages:
    """A file's pages, counted from 1."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        said = int.from_bytes(data[16:18], "big")
        size = 65536 if said == 1 else said
        sensible = 512 <= size <= 65536 and size & (size - 1) == 0 and len(data) % size == 0
        self.size = size if sensible else PAGE
        self.count = len(data) // self.size
        self._seen: set[int] = set()

    def schema(self) -> dict[str, int]:
        """The first page of each table by its name, as far as that can be read."""
        found = {}
        for row in self.table(1).rows.values():
            if len(row) >= 4 and row[0] == b"table" and isinstance(row[1], bytes) and isinstance(row[3], int):
                found[row[1].decode("utf-8", "replace")] = row[3]
        return found

    def table(self, root: int) -> FoundTable:
        """The rows below that page."""
        found = FoundTable()
        waiting = [root]
        while waiting:
            number = waiting.pop()
            if number in self._seen or not 1 <= number <= self.count:
                found.pages.append(number)
                continue
            self._seen.add(number)
            if self._kind(number) == _INTERIOR:
                try:
                    waiting += self._children(number)
                    continue
                except _Broken:
                    pass
            if not self._take_leaf(number, found):
                found.pages.append(number)
        return found

    def strays(self) -> Iterator[FoundTable]:
        """Pages full of rows that no table led to, one by one, but for those that SQLite has given free."""
        free = self._free()
        for number in range(1, self.count + 1):
            if number not in self._seen and number not in free and self._kind(number) == _LEAF:
                found = FoundTable()
                if self._take_leaf(number, found) and found.rows:
                    yield found

    def _page(self, number: int) -> bytes:
        return self._data[(number - 1) * self.size : number * self.size]

    def _start(self, number: int) -> int:
        return _HEADER if number == 1 else 0

    def _kind(self, number: int) -> int:
        return self._page(number)[self._start(number)]

    def _pointers(self, number: int, header: int) -> list[int]:
        page, start = self._page(number), self._start(number)
        count = int.from_bytes(page[start + 3 : start + 5], "big")
        first = start + header
        if first + 2 * count > self.size:
            raise _Broken
        return list(struct.unpack_from(f">{count}H", page, first))

    def _children(self, number: int) -> list[int]:
        page, start = self._page(number), self._start(number)
        found = [int.from_bytes(page[at : at + 4], "big") for at in self._pointers(number, 12) if at + 4 <= self.size]
        return [*found, int.from_bytes(page[start + 8 : start + 12], "big")]

    def _take_leaf(self, number: int, into: FoundTable) -> bool:
        """Whether the page has rows, or is one without."""
        try:
            pointers = self._pointers(number, 8)
        except _Broken:
            return False
        taken = 0
        for at in pointers:
            try:
                rowid, values = self._cell(self._page(number), at)
            except (_Broken, IndexError, struct.error):
                into.cells += 1
            else:
                taken += 1
                into.rows.setdefault(rowid, values)
        if not taken and self._kind(number) != _LEAF:
            into.cells -= len(pointers)  # they were none
            return False
        return True

    def _cell(self, page: bytes, at: int) -> tuple[int, tuple[Value, ...]]:
        length, at = _varint(page, at)
        rowid, at = _varint(page, at)
        if length > len(self._data):
            raise _Broken
        # The file format, "B-tree Pages": what is too long for its page goes on on others.
        most, least = self.size - 35, (self.size - 12) * 32 // 255 - 23
        local = length
        if length > most:
            local = least + (length - least) % (self.size - 4)
            local = local if local <= most else least
        payload = page[at : at + local]
        if len(payload) < local:
            raise _Broken
        if local < length:
            payload += self._overflow(int.from_bytes(page[at + local : at + local + 4], "big"), length - local)
        return rowid - (1 << 64 if rowid >= 1 << 63 else 0), _record(payload)

    def _overflow(self, number: int, length: int) -> bytes:
        parts, seen = [], set()
        while length > 0:
            if not 1 < number <= self.count or number in seen:
                raise _Broken
            seen.add(number)
            page = self._page(number)
            parts.append(page[4 : 4 + length])
            length -= self.size - 4
            number = int.from_bytes(page[:4], "big")
        return b"".join(parts)

    def _free(self) -> set[int]:
        found: set[int] = set()
        number = int.from_bytes(self._data[32:36], "big")
        while 1 < number <= self.count and number not in found:
            found.add(number)
            page = self._page(number)
            number, count = struct.unpack_from(">2I", page)
            if count <= self.size // 4 - 2:
                found.update(struct.unpack_from(f">{count}I", page, 8))
        return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of SQLite's own kind, and where it ends."""
    value = 0
    for i in range(8):
        byte = data[at + i]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + i + 1
    return value << 8 | data[at + 8], at + 9


def _record(payload: bytes) -> tuple[Value, ...]:
    end, at = _varint(payload, 0)
    if end > len(payload):
        raise _Broken
    body, values = end, []
    while at < end:
        kind, at = _varint(payload, at)
        if kind in (10, 11):
            raise _Broken
        size = _FIXED[kind] if kind < 12 else (kind - 12) // 2
        piece = payload[body : body + size]
        if len(piece) < size:
            raise _Broken
        body += size
        values.append(_value(kind, piece))
    if body != len(payload) or not values:
        raise _Broken
    return tuple(values)


def _value(kind: int, piece: bytes) -> Value:
    if kind == 0:
        return None
    if kind in (8, 9):
        return kind - 8
    if kind == _REAL:
        real: float = struct.unpack(">d", piece)[0]
        return real
    return int.from_bytes(piece, "big", signed=True) if kind < 12 else piece

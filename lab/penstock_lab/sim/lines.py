"""The lines of a text file, plain or compressed with gzip, as a stream: one is in memory while it is looked at."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import IO, Final, cast

from penstock.errors import UserError

__all__ = ["MAX_LINE", "lines_of"]

MAX_LINE: Final = 65536
"""Bytes; nothing that is read here has longer lines."""


def lines_of(path: Path, what: str) -> Generator[tuple[int, bytes], None, None]:
    """Each line with its number, from 1. `what` the file should be stands in the errors.

    UserError for a file that cannot be read, is empty, cut off or damaged as a whole, or has a line beyond `MAX_LINE`.
    """
    line = 0
    try:
        with path.open("rb") as plain:
            start = plain.peek(2)[:2]  # a pipe cannot go back
            if not start:
                raise UserError(f"{path} is empty")
            # Closing the file underneath is enough: a GzipFile that reads owns nothing else.
            file = cast(IO[bytes], gzip.GzipFile(fileobj=plain) if start == b"\x1f\x8b" else plain)
            while raw := file.readline(MAX_LINE):
                line += 1
                if len(raw) == MAX_LINE:
                    raise UserError(f"{path} line {line} is longer than {MAX_LINE} bytes: not {what}")
                yield line, raw
    except EOFError:
        raise UserError(f"{path}: the compressed data ends after line {line}; the file is cut off") from None
    except (gzip.BadGzipFile, zlib.error) as e:
        raise UserError(f"{path}: the compressed data is damaged after line {line}: {e}") from None
    except OSError as e:
        raise UserError(f"{path}: {e.strerror or e}") from None

"""Where a slurmrestd answers, as the configuration says it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

__all__ = ["RestAddress"]

_URL: Final = re.compile(r"(https?)://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?")
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_FORMS: Final = "unix:/PATH, http://HOST:PORT or https://HOST:PORT"
_LONGEST_SOCKET: Final = 107  # the kernel's limit


@dataclass(frozen=True, slots=True)
class RestAddress:
    """Where slurmrestd answers: `socket` of a Unix socket, else `base`, a URL without a slash at its end."""

    base: str
    socket: PurePosixPath | None = None

    @staticmethod
    def parse(text: str) -> RestAddress:
        """From `unix:/PATH`, `http://HOST:PORT` or `https://HOST:PORT`. Raises ValueError."""
        if text.startswith("unix:"):
            path = PurePosixPath(text.removeprefix("unix:"))
            if not path.is_absolute() or len(str(path)) > _LONGEST_SOCKET:
                raise ValueError(f"must be unix: and an absolute path of at most {_LONGEST_SOCKET} characters")
            return RestAddress("http://localhost", path)
        if (found := _URL.fullmatch(text)) is None or int((found[3] or ":0")[1:]) > 65535:
            raise ValueError(f"must be {_FORMS}")
        return RestAddress(text.rstrip("/"))

    @property
    def in_clear(self) -> bool:
        """Whether a token would cross the network where others may read it."""
        found = _URL.fullmatch(self.base)
        return self.socket is None and found is not None and found[1] == "http" and found[2] not in _LOCAL

    def __str__(self) -> str:
        return self.base if self.socket is None else f"unix:{self.socket}"

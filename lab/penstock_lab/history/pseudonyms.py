"""Names in a history: as numbers, and with a key as pseudonyms that tell nobody who is meant.

A pseudonym is a keyed hash (HMAC-SHA256, RFC 2104), so that nobody can try names until one fits. Who keeps the key gets
the same pseudonyms again, and so can compare histories; without one a key is drawn and forgotten. Names of jobs are
never in a history: only which jobs share one. Pure.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

__all__ = ["KINDS", "Names"]

KINDS: Final = ("user", "account", "partition", "qos")
_REMEMBERED: Final = 100_000
_DIGITS: Final = 12


class Names:
    """Numbers for names, from 0 in the order in which they come. `key` None keeps them as they are."""

    def __init__(self, key: bytes | None, job_key: bytes) -> None:
        self._key = key
        self._job_key = job_key
        self._numbers: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
        self._digests: dict[str, int] = {}

    def numbers(self, values: Sequence[str]) -> tuple[int, ...]:
        """The numbers of a name of each kind."""
        found = []
        for known, value in zip(self._numbers.values(), values, strict=True):
            number = known.get(value)
            if number is None:
                number = known[value] = len(known)
            found.append(number)
        return tuple(found)

    def digest(self, name: str) -> int:
        """64 bits that stand for a job's name."""
        known = self._digests.get(name)
        if known is None:
            if len(self._digests) >= _REMEMBERED:
                self._digests.clear()
            raw = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8, key=self._job_key).digest()
            known = self._digests[name] = int.from_bytes(raw, "little", signed=True)
        return known

    def table(self, kind: str) -> list[str]:
        """What stands for each number of a kind; the empty name stays empty."""
        names = self._numbers[kind]
        return [name if self._key is None or not name else self._pseudonym(kind, name) for name in names]

    def _pseudonym(self, kind: str, name: str) -> str:
        assert self._key is not None
        text = f"{kind}\0{name}".encode("utf-8", "surrogateescape")
        return f"{kind}-{hmac.new(self._key, text, hashlib.sha256).hexdigest()[:_DIGITS]}"

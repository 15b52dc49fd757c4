"""What a pool needs beyond the agent's own dependencies: the extra `penstock[pool]`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

__all__ = ["INSTALL", "missing"]

_PACKAGES: Final = ("cloudpickle", "cryptography", "distributed")
INSTALL: Final = "pip install 'penstock[pool]'"


def missing() -> tuple[str, ...]:
    """The packages that are not installed; they are only looked for, as importing them takes a second."""
    return tuple(name for name in _PACKAGES if find_spec(name) is None)

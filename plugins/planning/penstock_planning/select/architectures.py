"""What processors' architectures are called in forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["ISAS"]

ISAS: Final[Mapping[str, Sequence[str]]] = {
    "x86_64": ("x86_64", "x86"),
    "aarch64": ("aarch64", "arm"),
    "ppc64le": ("ppc64le", "power"),
}
"""By the kernel's name: that name, and what people say."""

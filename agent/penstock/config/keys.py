"""How a section of the configuration says what its keys are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

__all__ = ["key"]


def key(default: object = None, *, made: Callable[[], Any] | None = None, text: str = "", **bounds: float) -> Any:  # noqa: ANN401
    """A key: its default or what makes it, its description, the bounds of its value (`gt`, `ge`, `lt`, `le`)."""
    about = {"description": text, **bounds}
    return field(default_factory=made, metadata=about) if made else field(default=default, metadata=about)

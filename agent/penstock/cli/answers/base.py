"""What all answers share."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Answer", "Document", "Part", "absent"]


class Part(BaseModel):
    """An object whose keys are all named here."""


class Document(Part):
    """An object with further keys that are not promised: they may change or go with any release."""

    model_config = ConfigDict(extra="allow")


class Answer(Part):
    """What a command prints. `format` is raised when a key goes or means something else."""

    format: Literal[1]


def absent() -> Any:  # noqa: ANN401
    """The default of a key that may be missing."""
    return Field(default_factory=lambda: None)

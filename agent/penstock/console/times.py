"""Durations on the command line: -t and --time in Slurm's own syntax or with units, others with units or as seconds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

from penstock.errors import UserError
from penstock.values.durations import DURATION_FORMS, duration_text, parse_duration

__all__ = ["TIME", "Duration", "parse_time_option"]

if TYPE_CHECKING:
    _Type = click.ParamType[float]
else:
    _Type = click.ParamType  # generic from 8.4 on

_FORMS: Final = "a duration such as 90s, 30m, 2h, 1h30m, 30:00 (minutes:seconds), 02:00:00 or 1-02:00:00"
_BARE: Final = re.compile(r"[0-9]+(\.[0-9]+)?")


def parse_time_option(text: str, option: str) -> float:
    """Seconds > 0. Raises UserError that names the option.

    A bare number is minutes to sbatch and seconds to other options here: it is refused, with both readings.
    """
    bare = text.strip()
    if _BARE.fullmatch(bare):
        raise UserError(f"{option} {bare[:40]}: say {bare[:40]}m for minutes, which sbatch would read, or {bare[:40]}s")
    seconds = parse_duration(text)
    if seconds is None:
        raise UserError(f"{option} must be {_FORMS}, not {text[:40]!r}")
    return seconds


class _Time(_Type):
    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See `parse_time_option`."""
        if isinstance(value, float):  # click converts defaults, too
            return value
        return parse_time_option(str(value), "/".join(param.opts) if param is not None else "-t/--time")


TIME: Final = _Time()
"""The type of -t and --time of every command: seconds."""


class Duration(_Type):
    """The type of every other option that is a duration: seconds, from `least` to `most`. A bare number is seconds."""

    name = "time"

    def __init__(self, least: float, most: float = 1e9) -> None:
        self._least, self._most = least, most

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Raises UserError that names the option."""
        option = "/".join(param.opts) if param is not None else "a duration"
        text = str(value).strip()
        seconds = parse_duration(float(text) if _BARE.fullmatch(text) else text, zero=True)
        if seconds is None:
            raise UserError(f"{option} must be {DURATION_FORMS}, not {text[:40]!r}")
        if not self._least <= seconds <= self._most:
            raise UserError(f"{option} must be from {_exact(self._least)} to {_exact(self._most)}, not {text[:40]}")
        return seconds


def _exact(seconds: float) -> str:
    return duration_text(seconds) if seconds == round(seconds) else f"{seconds:g}s"

"""A plan from what was written down: JSON, or `min:max[:preferred]`. Pure, and standard library only."""

from __future__ import annotations

import math
import reprlib
import signal
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Final

from dmr.elastic.words import ElasticPlan

__all__ = ["of_mapping", "signal_number", "sizes"]

_MOST: Final = 2**31 - 1
_TIMES: Final = ("grace", "settle", "ready_timeout", "interval")
_WHOLE: Final = ("minimum", "maximum", "preferred", "factor", "signal")
_TRUTHS: Final = ("base_joins", "loans")


def signal_number(text: str) -> int:
    """The number of a signal by its name ("SIGUSR1", "USR1") or number. Raises ValueError."""
    if text.isascii() and text.isdigit() and 0 < int(text) < 65:
        return int(text)
    name = text.upper()
    try:
        return int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except KeyError:
        raise ValueError(f"signal: {reprlib.repr(text)} is none; SIGTERM and SIGUSR1 are") from None


def sizes(text: str) -> tuple[int, int, int | None]:
    """What `min:max[:preferred]` says, in nodes. Raises ValueError."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(p.isascii() and p.isdigit() and 1 <= int(p) <= _MOST for p in parts):
        raise ValueError(f"must be min:max[:preferred] in nodes, such as 1:8, not {text[:60]!r}")
    least, most, *rest = map(int, parts)
    if least > most:
        raise ValueError(f"the minimum {least} is above the maximum {most}")
    if rest and not least <= rest[0] <= most:
        raise ValueError(f"the preferred size {rest[0]} is outside {least}..{most}")
    return least, most, rest[0] if rest else None


def of_mapping(said: Mapping[str, Any]) -> ElasticPlan:
    """The plan. Raises ValueError that names the field."""
    known = {f.name: f for f in fields(ElasticPlan)}
    for name, value in said.items():
        if name not in known:
            raise ValueError(f"{name}: is not known; there are: {', '.join(known)}")
        if value is None and name in ("preferred", "loans"):
            continue
        if name in _WHOLE:
            if type(value) is not int or not 1 <= value <= _MOST:
                raise ValueError(f"{name}: must be a whole number from 1, not {reprlib.repr(value)}")
        elif name in _TIMES:
            if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
                raise ValueError(f"{name}: must be a number of seconds, not {reprlib.repr(value)}")
        elif name in _TRUTHS:
            if type(value) is not bool:
                raise ValueError(f"{name}: must be true or false, not {reprlib.repr(value)}")
        elif not isinstance(value, str):
            raise ValueError(f"{name}: must be a command or a text, not {reprlib.repr(value)}")
    for name, field in known.items():
        if field.default is MISSING and name not in said:
            raise ValueError(f"{name}: is missing")
    plan = ElasticPlan(**said)
    if plan.minimum > plan.maximum:
        raise ValueError(f"minimum: {plan.minimum} is above the maximum {plan.maximum}")
    if plan.preferred is not None and not plan.minimum <= plan.preferred <= plan.maximum:
        raise ValueError(f"preferred: {plan.preferred} is outside {plan.minimum}..{plan.maximum}")
    if plan.again:
        if not plan.start:
            raise ValueError("start: is missing; `again` starts anew what `start` has started")
        if plan.join:
            raise ValueError("join: has no place beside `again`: the program itself runs on all nodes")
    elif not plan.join:
        raise ValueError("join: is missing, and `again` too: nothing would run on added nodes")
    elif not plan.start and not plan.base_joins:
        raise ValueError("start: is missing, and nothing joins on the base: nothing would run there")
    if plan.ready and plan.ready_line:
        raise ValueError("ready_line: say this or `ready`, not both")
    return plan

"""Amounts and rates as people write them: `3e12`, `20 GB`, `2.8 GHz`, `500 MB/s`."""

from __future__ import annotations

import math
import re
from typing import Final

from penstock.values.documents import show

__all__ = ["AMOUNT_FORMS", "RATE_FORMS", "parse_amount", "parse_rate"]

AMOUNT_FORMS: Final = "a number such as 3e12, 3 Tcycles, 20 GB or 512 MiB"
RATE_FORMS: Final = "a number a second such as 2.8e9, 2.8 GHz, 500 MB/s or 9.7 Tflop/s"

_PREFIXES: Final = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY: Final = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_AMOUNTS: Final = ("cycles", "cycle", "instructions", "instr", "flop", "ops", "op", "B", "")
_RATES: Final = (*(f"{unit}/s" for unit in _AMOUNTS if unit), "Hz", "flops", "/s", "")
_NUMBER: Final = re.compile(r"([-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*(.*)", re.ASCII)


def parse_amount(value: object) -> float:
    """A number > 0 from a number or a text with a unit. ValueError says what is wrong and what would be right."""
    return _parse(value, _AMOUNTS, AMOUNT_FORMS)


def parse_rate(value: object) -> float:
    """The same for a rate, in units a second."""
    return _parse(value, _RATES, RATE_FORMS)


def _parse(value: object, units: tuple[str, ...], forms: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"must be {forms}, not {show(value)}")
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value.strip())
        if match is None:
            raise ValueError(f"must be {forms}, not {show(value)}")
        number = float(match[1]) * _factor(match[2].strip(), units, forms)
    else:
        number = float(value) if abs(value) < 1e300 else math.inf
    if not 0 < number < math.inf:
        raise ValueError(f"must be above 0 and finite, not {show(value)}")
    return number


def _factor(text: str, units: tuple[str, ...], forms: str) -> float:
    for unit in units:
        if not text.endswith(unit):
            continue
        prefix = text[: len(text) - len(unit)]
        if prefix in _PREFIXES:
            return _PREFIXES[prefix]
        if prefix in _BINARY and unit.startswith("B"):
            return _BINARY[prefix]
    raise ValueError(f"unknown unit {show(text)}: must be {forms}")

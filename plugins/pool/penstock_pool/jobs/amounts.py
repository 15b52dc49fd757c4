"""Amounts of memory as Slurm's commands write them: 100M, 1.50G. Pure."""

from __future__ import annotations

from typing import Final

__all__ = ["UNITS", "amount"]

UNITS: Final = "KMGTP"
"""What an amount may be asked for in."""
_ALL: Final = " " + UNITS


def amount(number: float, unit: str, shown: str | None = None) -> str:
    """`number` of `unit` ("": bytes) in unit `shown`; "": as it is; None: in the largest that keeps it exact, of which
    halves are."""
    if not int(number):
        return "0"
    at = _ALL.index(unit or " ")
    if shown:
        to = _ALL.index(shown)
        number, at = number * 1024.0 ** (at - to), to
    elif shown is None:
        while number >= 1024 and int(number) % 512 == 0 and at < len(_ALL) - 1:
            number, at = number / 1024, at + 1
    text = str(int(number)) if number == int(number) else f"{number:.2f}"
    return text + _ALL[at].strip()

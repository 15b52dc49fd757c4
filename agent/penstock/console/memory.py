"""Memory on the command line, as --mem takes it everywhere: in Slurm's own syntax, or with a unit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

from penstock.errors import UserError
from penstock.values.units import parse_amount

__all__ = ["MEM"]

if TYPE_CHECKING:
    _Type = click.ParamType[float]
else:
    _Type = click.ParamType  # generic from 8.4 on

_SLURM: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)([KMGT]?)", re.IGNORECASE)
_MB: Final = 2.0**20
_LETTERS: Final = {"": _MB, "K": 2.0**10, "M": _MB, "G": 2.0**30, "T": 2.0**40}


class _Memory(_Type):
    name = "memory"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """MB as Slurm counts them (2**20 bytes), at least 1. Raises UserError that names the option."""
        option = "/".join(param.opts) if param is not None else "--mem"
        text = str(value).strip()
        if (found := _SLURM.fullmatch(text)) is not None:
            count = float(found[1]) * _LETTERS[found[2].upper()]
        else:
            count = self._with_unit(text, option)
        if not _MB <= count < 2.0**60:
            raise UserError(f"{option} must be at least 1 MB, not {text[:40]}")
        return count / _MB

    def _with_unit(self, text: str, option: str) -> float:
        try:
            if not text.endswith(("B", "b")):
                raise ValueError
            return parse_amount(text)
        except ValueError:
            forms = "MB, or an amount such as 8G, 512MB or 2GiB"
            raise UserError(f"{option} must be {forms}, not {text[:40]!r}") from None


MEM: Final = _Memory()
"""The type of --mem of every command: MB."""

"""Options of the simulate commands: checks that answer wrong input with one line and not a page of usage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from penstock.errors import UserError

__all__ = ["MAX_PROCS", "apart", "check_read_twice", "choice", "number", "out_option", "whole"]

MAX_PROCS = 1_000_000_000


@dataclass(frozen=True)
class _OneOf:
    choices: Sequence[str]

    def __call__(self, context: click.Context, option: click.Parameter, value: Any) -> Any:  # noqa: ANN401
        for one in value if option.multiple else [value]:
            if one not in self.choices:
                raise UserError(f"{option.opts[0]} must be one of {', '.join(self.choices)}, not {one!r}")
        return value


@dataclass(frozen=True)
class _Whole:
    """A whole number in a range; `missing` says why there has to be one."""

    least: int
    most: int
    missing: str = ""

    def __call__(self, context: click.Context, option: click.Parameter, value: Any) -> Any:  # noqa: ANN401
        if option.multiple:
            return tuple(self._parse(option.opts[-1], one) for one in value)
        if value is None:
            if self.missing:
                raise UserError(f"{option.opts[-1]} is missing: {self.missing}")
            return None
        return self._parse(option.opts[-1], str(value))

    def _parse(self, name: str, text: str) -> int:
        if not (text.isascii() and text.isdigit() and self.least <= int(text[:19]) <= self.most):
            raise UserError(f"{name} must be a whole number from {self.least} to {self.most}, not {text[:40]!r}")
        return int(text)


@dataclass(frozen=True)
class _Number:
    least: float  # not itself allowed
    most: float
    what: str

    def __call__(self, context: click.Context, option: click.Parameter, value: Any) -> Any:  # noqa: ANN401
        if option.multiple:
            return tuple(self._parse(option.opts[0], one) for one in value)
        return None if value is None else self._parse(option.opts[0], value)

    def _parse(self, name: str, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not self.least < value <= self.most:
            raise UserError(f"{name} must be {self.what}, not {text[:40]!r}")
        return value


Decorator = Callable[[click.decorators.FC], click.decorators.FC]


def choice(name: str, choices: Sequence[str], default: str, text: str, multiple: bool = False) -> Decorator[Any]:
    """An option that takes one of a few words; with `multiple`, any number of them."""
    return click.option(
        f"--{name}",
        metavar="|".join(choices),
        default=(default,) if multiple else default,
        multiple=multiple,
        show_default=True,
        callback=_OneOf(choices),
        help=text,
    )


def whole(
    name: str,
    text: str,
    least: int = 1,
    most: int = MAX_PROCS,
    default: int | None = None,
    missing: str = "",
    multiple: bool = False,
    short: str = "",
) -> Decorator[Any]:
    """An option that takes a whole number; `short` is its letter, such as -N, where it has one."""
    return click.option(
        *filter(None, (short, f"--{name}")),
        metavar="N",
        type=str,  # the callback's message is shorter than click's
        default=[str(n) for n in default] if isinstance(default, tuple) else None if default is None else str(default),
        multiple=multiple,
        show_default=default is not None,
        callback=_Whole(least, most, missing),
        help=text,
    )


def number(name: str, text: str, least: float, most: float, what: str, multiple: bool = False) -> Decorator[Any]:
    """An option that takes a number greater than `least` and at most `most`; `what` says that in words."""
    return click.option(f"--{name}", metavar="X", multiple=multiple, callback=_Number(least, most, what), help=text)


def _a_file_in_a_folder(context: click.Context, option: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and not value.absolute().parent.is_dir():
        raise UserError(f"{value.absolute().parent}, where {option.opts[0]} should go, is not a folder")
    if value is not None and value.exists() and not value.is_file():  # it would be replaced, a device as well
        raise UserError(f"{option.opts[0]} {value} is there and not a file: give it another name")
    return value


def out_option(text: str, metavar: str = "LOG", required: bool = False, name: str = "out") -> Decorator[Any]:
    """--out, or what else it is called: a file in a folder that is there."""

    def check(context: click.Context, option: click.Parameter, value: Path | None) -> Path | None:
        if required and value is None:
            raise UserError(f"--{name} is missing: where is the result to go?")
        return _a_file_in_a_folder(context, option, value)

    return click.option(f"--{name}", metavar=metavar, type=click.Path(path_type=Path), callback=check, help=text)


def check_read_twice(log: Path, out: Path | None) -> None:
    """UserError where --out, for which the log is read a second time, cannot be made of it."""
    if out is not None and log.exists() and not log.is_file():
        raise UserError(f"{log} is not a file: --out needs one, for it reads the log a second time")
    apart(out, log)


def apart(out: Path | None, *read: Path, option: str = "--out") -> None:
    """UserError where --out is one of the files that are read: it would be gone."""
    for path in read:
        if out is not None and out.exists() and path.exists() and out.samefile(path):
            raise UserError(f"{option} would replace {path}, which is read: give it another name")

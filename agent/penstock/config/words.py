"""What the value of a key may look like, and what it means. Pure; each raises ValueError, which says what is right."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.values.durations import DURATION_FORMS, parse_duration

__all__ = ["NAME", "NAME_LENGTH", "absolute", "address", "ascending", "at_home", "bytes_of", "duration"]
__all__ += ["host", "rest_address", "texts", "view", "yes_or_no"]

NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
NAME_LENGTH: Final = 100


def duration(value: object) -> object:
    """Seconds of a text; a number as it is."""
    if isinstance(value, bool):
        raise ValueError(f"must be {DURATION_FORMS}")
    if not isinstance(value, str):
        return value
    seconds = parse_duration(value, zero=True)  # what 0 means is the key's own affair
    if seconds is None:
        raise ValueError(f"must be {DURATION_FORMS}")
    return seconds


def ascending(values: tuple[float, ...] | None) -> tuple[float, ...] | None:
    """Seconds, each more than the one before."""
    if values is not None and (not values or any(a >= b for a, b in zip((0.0, *values), values, strict=False))):
        raise ValueError("must be seconds above 0 in ascending order")
    return values


def address(value: str | None) -> str | None:
    """HOST:PORT."""
    if value is None:
        return value
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError("must be HOST:PORT with a port up to 65535")
    return value


def view(value: str) -> str:
    """Whether and where the site's view is asked."""
    if value not in ("auto", "off") and not Path(value).is_absolute():
        raise ValueError("must be auto, off, or the absolute path of a socket")
    return value


def host(value: str) -> str:
    """A host's name or address."""
    numeric = value.count(":") > 1 and set(value) <= set("0123456789abcdefABCDEF:.")
    if not numeric and (":" in value or not value.isascii() or not value.replace("-", "").replace(".", "").isalnum()):
        raise ValueError("must be the name or the address of a host, without a port (`listen` has it)")
    return value


def rest_address(value: str) -> str:
    """Where slurmrestd answers."""
    from penstock.values.rest_address import RestAddress  # few sites have it

    RestAddress.parse(value)
    return value


def yes_or_no(value: object) -> object:
    """`yes` and `no` also where YAML has made truth values of them."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


def bytes_of(value: object) -> object:
    """Bytes of a text with a unit; a number as it is."""
    if not isinstance(value, str) or value.strip().isdecimal():
        return value
    from penstock.values.units import AMOUNT_FORMS, parse_amount  # few files have sizes

    try:
        return int(parse_amount(value))
    except ValueError as e:
        raise ValueError(str(e).replace(AMOUNT_FORMS, "bytes, or text such as 16 MiB or 2 GB")) from e


def texts(value: dict[str, object]) -> dict[str, object]:
    """Settings by their names, each a text or a whole number."""
    for name, said in value.items():
        if not isinstance(said, str | int) or isinstance(said, bool):
            raise ValueError(f"{name} must be text, as slurm.conf has it")
    return {name: str(said) for name, said in value.items()}


def at_home(path: Path) -> Path:
    """A path whose `~` is the home that is meant."""
    try:
        return path.expanduser()
    except RuntimeError as e:
        raise ValueError("begins with the home of a user who is not known here") from e


def absolute(path: Path) -> Path:
    """A path that does not depend on where one stands."""
    if not path.is_absolute():
        raise ValueError("must be an absolute path, as commands and jobs look for it from other folders")
    return path

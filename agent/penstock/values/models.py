"""Files that people write, as models of pydantic: the kinds of values in them, and one line for what is wrong.

A key whose value is empty counts as not there. Every kind refuses with what would be right, and `read_as` says where.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainValidator, ValidationError, model_validator

from penstock.errors import UserError
from penstock.values.documents import as_written, show
from penstock.values.durations import DURATION_FORMS, parse_duration
from penstock.values.units import parse_amount, parse_rate

__all__ = [
    "Amount", "Bandwidth", "Bytes", "Content", "Duration", "Entry", "Latency", "Listed", "Name", "Rate", "Text",
    "VariableName", "Words", "kind", "number", "read_as", "text", "texts", "whole", "wrong",
]  # fmt: skip

M = TypeVar("M", bound="Entry")


def wrong(what: str, value: object) -> ValueError:
    """What a kind raises for a value that is none of it."""
    return ValueError(f"must be {what}, not {show(value)}")


def read_as(model: type[M], value: object, where: str = "") -> M:
    """The entry that a document has, or a part of it that stands at `where`. UserError names the key."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = where + _place(first["loc"], value)
        raise UserError(f"{place.removeprefix('.')}: {_said(first)}".removeprefix(": ")) from None


class Entry(BaseModel):
    """A map with known keys only."""

    model_config = ConfigDict(frozen=True, strict=True, defer_build=True, arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _keys(cls, value: object) -> dict[str, Any]:
        known = cls.model_fields
        if not isinstance(value, dict):
            raise wrong(f"a map with the keys {', '.join(known)}", value)
        for key in value:
            if key not in known:
                close = difflib.get_close_matches(str(key)[:40], known, 1) if isinstance(key, str) else []
                hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
                raise ValueError(f"unknown key {show(key)}: {hint}")
        found = {key: content for key, content in value.items() if content is not None}
        for key, field in known.items():
            if key not in found and field.is_required():
                raise ValueError(f"the key {key!r} is missing")
        return found


def _place(location: tuple[int | str, ...], value: object) -> str:
    """The keys on the way to what is wrong, as in `stages[0].nodes`."""
    text = ""
    if location[-1:] == ("[key]",):  # a key itself
        location = location[:-2]
    for part in location:
        if isinstance(value, list) and isinstance(part, int):
            text, value = f"{text}[{part}]", value[part]
        elif isinstance(value, Mapping) and (part in value or isinstance(part, str)):
            text, value = f"{text}.{part}", value.get(part)
        # else it is one value where a list may stand
    return text


_KINDS: Final = {"list_type": "a list", "dict_type": "a map", "string_type": "a text", "bool_type": "true or false"}


def _said(error: Mapping[str, Any]) -> str:
    match error["type"]:
        case "value_error":
            return str(error["ctx"]["error"])
        case "too_long":
            return f"must be at most {error['ctx']['max_length']}, not {error['ctx']['actual_length']}"
        case "too_short":
            return "must not be empty"
        case "literal_error":
            return str(wrong(error["ctx"]["expected"].replace("'", ""), error["input"]))
        case other:
            return str(wrong(_KINDS.get(other, str(error["msg"])), error["input"]))


# -- kinds of values ---------------------------------------------------------------------------------------------------


def kind(parse: Callable[[Any], object], what: str | None = None) -> PlainValidator:
    """What `parse` makes of a value, None or a ValueError if it is none; `what` it must be, in place of its words."""

    def check(value: object) -> object:
        try:
            made = parse(value)
        except ValueError:
            if what is None:
                raise
            made = None
        if made is None:
            raise wrong(what or "something else", value)
        return made

    return PlainValidator(check)


def texts(parse: Callable[[Any], str | None], what: str) -> PlainValidator:
    """What `parse` makes of a text, or of a number whose text counts (`documents.as_written`). Where quotes are all
    that is missing, that is said."""

    def check(value: object) -> str:
        if (made := parse(value)) is not None:
            return made
        unquoted = isinstance(value, bool | int | float) and parse(as_written(value) or str(value).lower()) is not None
        raise wrong(f"{what} (quote it)" if unquoted else what, value)

    return PlainValidator(check)


def whole(least: int, most: int) -> PlainValidator:
    """A whole number."""
    return kind(
        lambda n: int(n) if isinstance(n, int) and not isinstance(n, bool) and least <= n <= most else None,
        f"a whole number from {least} to {most}",
    )


def number(*, above: bool = False, most: float = 1e18, what: str | None = None) -> PlainValidator:
    """A number of at least 0, or `above` it, and `most` at most."""

    def parse(value: object) -> float | None:
        good = (
            isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most and value < math.inf
        )
        return float(value) if good and (value or not above) else None  # type: ignore[arg-type]

    return kind(parse, what or f"a number {'above' if above else 'of at least'} 0")


def text(what: str = "a text on one line", form: str = r"(?=.*\S).*") -> PlainValidator:
    """A printable text of that form, which is not blank if it is left out."""
    pattern = re.compile(form)
    return texts(lambda t: t if isinstance(t, str) and t.isprintable() and pattern.fullmatch(t) else None, what)


def _name(value: object) -> str | None:
    name = as_written(value)
    good = name is not None and name.strip() and name.isprintable() and len(name) <= 200
    return name.strip() if name is not None and good else None


def _content(value: object) -> str | None:
    content = as_written(value)
    return None if content is None or "\0" in content else content


def _words(value: object) -> list[str]:
    if not isinstance(value, list) or not value:
        raise wrong("a list of words such as [rsync, -a]", value)
    for word in value:
        if not isinstance(word, str) or not word:
            raise ValueError(f"must be a list of words such as [rsync, -a], {show(word)} is no text (quote it)")
        if "\0" in word:
            raise ValueError("must be words without a zero byte")
    return value


def _bandwidth(value: object) -> float:
    try:
        return parse_rate(value)
    except ValueError as error:
        raise ValueError(f"bytes a second: {error}") from None


Amount = Annotated[float, kind(parse_amount)]
Bytes = Annotated[float, kind(parse_amount, "bytes such as 3e9, 3 GB or 512 MiB")]
Bandwidth = Annotated[float, kind(_bandwidth)]
Latency = Annotated[float, kind(lambda v: 0.0 if v in (0, "0", "0s") else parse_duration(v), DURATION_FORMS)]
Rate = Annotated[float, kind(parse_rate)]
Duration = Annotated[float, kind(parse_duration, DURATION_FORMS)]
Name = Annotated[str, texts(_name, "a name of 1 to 200 characters")]
Text = Annotated[str, texts(lambda t: t if isinstance(t, str) and t.strip() and "\0" not in t else None, "a text")]
Content = Annotated[str, texts(_content, "a text")]
"""The value of an environment variable: a text, or a number as it is written."""
VariableName = Annotated[
    str,
    kind(lambda n: n if isinstance(n, str) and n.isidentifier() and n.isascii() else None, "the name of a variable"),
]
Words = Annotated[list[str], kind(_words)]
Listed: Final = BeforeValidator(lambda value: value if isinstance(value, list) else [value])
"""One value, or a list."""

"""What the keys of the configuration take, as pydantic checks it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
)

from penstock.api import release_name
from penstock.config import words
from penstock.values import merging
from penstock.values.allow import Feature

__all__ = ["Address", "Anchored", "Ascending", "Bytes", "Channels", "Domain", "Feature", "File", "Finite", "Hosts"]
__all__ += ["LookAge", "MailAddress", "Name", "Names", "Partition", "Peer", "Period", "Release", "Seconds", "Texts"]
__all__ += ["Url", "View", "Words", "YesOrNo"]

Seconds = Annotated[
    float,
    BeforeValidator(words.duration),
    Field(ge=0, allow_inf_nan=False),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "examples": ["90s", "5m", "2h"]}]}),
]
Period = Annotated[Seconds, Field(gt=0)]
LookAge = Annotated[Seconds, Field(gt=0, le=60)]
Bytes = Annotated[
    int,
    BeforeValidator(words.bytes_of),
    Field(ge=0),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "examples": ["16 MiB", "2 GB"]}]}),
]
Names = Annotated[tuple[Annotated[str, Field(pattern=r"^[^\s,]+$", max_length=200)], ...], Field(max_length=1000)]
Words = Annotated[tuple[Annotated[str, Field(pattern=r"^[^\x00]+$")], ...], Field(min_length=1, max_length=100)]
Name = Annotated[str, Field(pattern=f"^{words.NAME}$", max_length=words.NAME_LENGTH)]
# An account, or an address.
Peer = Annotated[str, Field(pattern=r"^[A-Za-z0-9_:][A-Za-z0-9_.:-]*$", max_length=100)]
# A name whose keys are all commented out has none.
_Settings = Annotated[dict[str, Any], BeforeValidator(lambda keys: {} if keys is None else keys)]
Texts = Annotated[_Settings, AfterValidator(words.texts)]
Channels = dict[Name, _Settings]
MailAddress = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._%+-]*(@[A-Za-z0-9.-]+)?$", max_length=254)]
Domain = Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+$", max_length=253)]
Partition = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{0,60}$")]
Release = Annotated[
    tuple[int, ...],
    PlainValidator(merging.added),
    PlainSerializer(release_name),
    WithJsonSchema({"type": "string", "examples": ["25.05.3"]}),
]
View = Annotated[str, AfterValidator(words.view)]
Url = Annotated[str, AfterValidator(words.rest_address)]
YesOrNo = Annotated[Literal["auto", "yes", "no"], BeforeValidator(words.yes_or_no)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Ascending = Annotated[tuple[Finite, ...], AfterValidator(words.ascending)]
Address = Annotated[str, AfterValidator(words.address)]
Hosts = Annotated[tuple[Annotated[str, AfterValidator(words.host)], ...], Field(max_length=8)]
File = Annotated[Path, AfterValidator(words.at_home)]
Anchored = Annotated[File, AfterValidator(words.absolute)]

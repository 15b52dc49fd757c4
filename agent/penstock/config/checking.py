"""The whole check of a configuration: what is wrong in it, and its schema. Slow to load; see `plain`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, ClassVar, Final, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator

from penstock.config import forms, sections
from penstock.config.sections import Config
from penstock.values.documents import show

__all__ = ["WrongValueError", "checked", "dumped", "schema"]


class WrongValueError(Exception):
    """The first thing that is wrong: where it stands (section, key, and places within its value), and what to say."""

    def __init__(self, location: tuple[str, ...], text: str) -> None:
        super().__init__(text)
        self.location = location


def checked(data: Mapping[str, Any]) -> Config:
    """The configuration that these values make, by section and key. Raises WrongValueError."""
    try:
        whole = _MODELS["Config"].model_validate(data)
    except ValidationError as e:
        raise WrongValueError(tuple(str(part) for part in e.errors()[0]["loc"]), _say(e)) from e
    made = _plainly(whole)
    assert isinstance(made, Config)
    return made


def schema() -> dict[str, Any]:
    """The JSON schema of the configuration file, for editors and for tools that write one."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_MODELS["Config"].model_json_schema()}


def dumped(config: Config) -> dict[str, dict[str, Any]]:
    """The values by section and key, as JSON has them."""
    return {
        section.name: _MODELS[str(section.type)]
        .model_construct(**vars(getattr(config, section.name)))
        .model_dump(mode="json", warnings=False)
        for section in fields(config)
    }


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    of: ClassVar[Any]

    @model_validator(mode="after")
    def _fits_together(self) -> _Model:
        _plainly(self)
        return self


def _plainly(value: object) -> Any:  # noqa: ANN401
    """The sections themselves, of their models."""
    if isinstance(value, _Model):
        return value.of(**{name: _plainly(getattr(value, name)) for name in type(value).model_fields})
    return tuple(_plainly(one) for one in value) if isinstance(value, tuple) else value


def _models() -> dict[str, type[_Model]]:
    """Of each section, by its name."""
    made: dict[str, type[_Model]] = {}
    known: list[Any] = [one for one in vars(sections).values() if is_dataclass(one)]
    for section in sorted(known, key=_after_what_it_has):
        types = get_type_hints(section, {**vars(forms), **vars(sections)}, made, include_extras=True)
        keys: dict[str, Any] = {}
        for one in fields(section):
            about: dict[str, Any] = dict(one.metadata)
            if one.default_factory is dict:
                about["default"] = {}
            elif one.default_factory is not MISSING:
                about["default_factory"] = made.get(str(one.type), one.default_factory)
            else:
                about["default"] = one.default
            keys[one.name] = (types[one.name], Field(**about))
        model = create_model(section.__name__, __base__=_Model, __doc__=section.__doc__, **keys)
        model.of = section
        made[section.__name__] = model
    return made


def _after_what_it_has(section: Any) -> tuple[bool, bool]:  # noqa: ANN401
    return section is sections.Config, section is not sections.AllowRule


_MODELS: Final = _models()


def _say(error: ValidationError) -> str:
    first = error.errors()[0]
    location = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(location[-1], _known(location[:-1]), n=1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        return f"`{'.'.join(location)}` is not a known key{hint}"
    text = first["msg"].removeprefix("Value error, ")
    return f"`{'.'.join(location)}`: {text[:1].lower()}{text[1:]}, not {show(first['input'])}"


def _known(location: list[str]) -> list[str]:
    model: type[BaseModel] = _MODELS["Config"]
    for name in location:
        if name.isdecimal():  # the place in a list
            continue
        inner = model.model_fields[name].annotation if name in model.model_fields else None
        if name == "allow":  # the only list of sections
            inner = _MODELS["AllowRule"]
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)

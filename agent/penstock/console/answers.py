"""What all answers share. Each is one class, whose annotations are its keys: commands print values of it, and
`cli.schemas` makes its schema. Every command would pay for making pydantic's models, or dataclasses, of them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Literal, Self, dataclass_transform

__all__ = ["Answer", "AnswerPart", "Document", "absent", "printed"]

_ABSENT: Final = object()


def absent() -> Any:  # noqa: ANN401
    """The default of a key that may be missing."""
    return _ABSENT


@dataclass_transform(kw_only_default=True, frozen_default=True)
class AnswerPart:
    """An object whose keys are all named here; the field `from_` is the key `from`, which is no name in Python."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"alias_generator": lambda name: name.removesuffix("_")}

    def __init__(self, **said: Any) -> None:  # noqa: ANN401
        vars(self).update(said)

    @classmethod
    def told(cls, *values: object, **said: Any) -> Self:  # noqa: ANN401
        """With what is said, and the other keys as the first of `values` has them that has one of that name."""
        for each in cls.__mro__[-3::-1]:
            for name in inspect.get_annotations(each):
                if name not in said and not hasattr(cls, name):
                    said[name] = next(getattr(value, name) for value in values if hasattr(value, name))
        return cls(**said)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: Callable[[object], Any]) -> Any:  # noqa: ANN401
        """For its schema it is a dataclass."""
        for each in cls.__mro__[-2::-1]:
            if "__dataclass_fields__" not in vars(each):
                dataclasses.dataclass(init=False, repr=False, eq=False)(each)
        return handler(source)


class Document(AnswerPart):
    """An object with further keys that are not promised: they may change or go with any release."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {**AnswerPart.__pydantic_config__, "extra": "allow"}


class Answer(AnswerPart):
    """What a command prints. `format`, which printing adds, is raised when a key goes or means something else."""

    format: Literal[1] = absent()


def printed(value: object) -> Any:  # noqa: ANN401
    """As JSON has it, one level deep."""
    if isinstance(value, AnswerPart):
        return {name.removesuffix("_"): each for name, each in vars(value).items() if each is not _ABSENT}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return dict(value) if isinstance(value, Mapping) else str(value)

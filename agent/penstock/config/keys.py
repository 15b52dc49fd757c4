"""How a section of the configuration says what its keys are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["key", "section"]


def key(default: object = None, *, made: Callable[[], Any] | None = None, text: str = "", **bounds: float) -> Any:  # noqa: ANN401
    """A key: its default or what makes it, its description, the bounds of its value (`gt`, `ge`, `lt`, `le`)."""
    about = {"description": text, **bounds}
    return field(default_factory=made, metadata=about) if made else field(default=default, metadata=about)


def _init(self: Any, **said: object) -> None:  # noqa: ANN401
    for one in fields(self):
        made = one.default if one.default_factory is MISSING else None if one.name in said else one.default_factory()
        vars(self)[one.name] = said.pop(one.name, made)
    if said:
        raise TypeError(f"{type(self).__name__} has no {', '.join(said)}")
    if check := getattr(self, "__post_init__", None):
        check()


def _refuse(self: object, name: str, value: object = None) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


_METHODS: Mapping[str, Callable[..., object]] = {
    "__init__": _init,
    "__eq__": lambda self, other: vars(self) == vars(other) if type(self) is type(other) else NotImplemented,
    "__hash__": lambda self: hash(tuple(vars(self).values())),
    "__repr__": lambda self: f"{type(self).__name__}({', '.join(f'{name}={v!r}' for name, v in vars(self).items())})",
    "__setattr__": _refuse,
    "__delattr__": _refuse,
}

if TYPE_CHECKING:
    from dataclasses import dataclass as section
else:

    def section(**_frozen: bool) -> Callable[[type], type]:
        """As `dataclass(frozen=True)`, whose methods all sections share: to write and compile those of each takes a
        command as long as Python takes to start."""

        def made(cls: type) -> type:
            for name, method in _METHODS.items():
                setattr(cls, name, method)
            return dataclass(init=False, repr=False, eq=False)(cls)

        return made

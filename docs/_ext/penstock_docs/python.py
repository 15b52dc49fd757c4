"""Pages made from docstrings: the extension points, the words they speak, and the library for MPI programs."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from penstock.core.installed import extension_points
from penstock_docs.markdown import prose

__all__ = ["dmr_api", "plug_ins", "words"]

_PLUG_INS = """\
# Extension points

[Extending Penstock](../../extending.md) has a complete example of each, and says how an extension (a plug-in) is
installed and chosen. What it is given is described here and under [the words](words.md).
"""

# By the noun of each extension point: its title, the module that has its manual, and what is shown of that and others.
_Shown = tuple[str, str, Mapping[str, tuple[str, ...]]]
_SHOWN: Mapping[str, _Shown] = {
    "policy": (
        "Who grows, who shrinks",
        "penstock.api",
        {"penstock.api": ("ResizePolicy", "JointPolicy", "Offer", "ResizeVerdict", "Reason")},
    ),
    "strategy": (
        "When a stage is submitted",
        "penstock.workflow.strategy",
        {"penstock.workflow.strategy": ("Strategy", "Plan", "Due", "Outlook", "Rules")},
    ),
    "placement": (
        "Which task of a pool goes where",
        "penstock_pool.placement",
        {"penstock_pool.placement": ("Placement", "Group", "Room", "Shape", "Load")},
    ),
    "pricing": (
        "What a slot costs",
        "penstock_planning.plan.pricing",
        {"penstock_planning.plan.pricing": ("Pricing",)},
    ),
    "affinity": (
        "Which resource suits a task",
        "penstock_planning.select.ranking",
        {"penstock_planning.select.ranking": ("Affinity", "Option", "Wait")},
    ),
    "backend": (
        "How Slurm is reached",
        "penstock.slurm.base",
        {"penstock.slurm.base": ("Backend", "Reader", "Changer"), "penstock.slurm.budget": ("Metered",)},
    ),
    "channel": (
        "How people are told",
        "penstock_messages.channels",
        {
            "penstock.messages.channels": ("Channel", "Undelivered", "read_secret"),
            "penstock.core.events": ("Event",),
        },
    ),
}


def plug_ins() -> str:
    """Every extension point: where it is named, its module's manual, its protocol and the values it is given."""
    parts = [_PLUG_INS]
    points = {point.noun: point for point in extension_points()}
    assert points.keys() == _SHOWN.keys()
    for noun, (title, name, shown) in _SHOWN.items():
        point = points[noun]
        chosen = point.chosen or point.key
        parts.append(f"## {title}\n\nEntry point `{point.group}`, chosen by {chosen}. Module `{name}`.")
        if name != "penstock.api":
            parts.append(prose(_doc(importlib.import_module(name))))
        for place, members in shown.items():
            parts += _members(importlib.import_module(place), members)
    return "\n\n".join(parts) + "\n"


def words() -> str:
    """What the whole agent speaks of, without what stands on the page of the extension points."""
    module = importlib.import_module("penstock.api")
    shown = {member for *_, places in _SHOWN.values() for member in places.get(module.__name__, ())}
    rest = [name for name in module.__all__ if name not in shown]
    return "\n\n".join(["# The words", prose(_doc(module)), *_members(module, rest)]) + "\n"


_DMR = """\
# The `dmr` library

For use see [Programs that grow and shrink](../../malleable.md); `dmr.h`, the same for C, is on
[a page of its own](../../malleable-c.md).
"""


def dmr_api() -> str:
    """The public names of `dmr`, and the programs that come with it."""
    module = importlib.import_module("dmr")
    parts = [_DMR, prose(_doc(module)), "## Names", *_members(module, module.__all__)]
    for name in ("dmr.launch", "dmr.size", "dmr.probe", "dmr.redistribute", "dmr.credential", "dmr.wire"):
        parts.append(f"## `{name}`\n\n{prose(_doc(importlib.import_module(name)))}")
    return "\n\n".join(parts) + "\n"


def _doc(thing: object) -> str:
    text = inspect.getdoc(thing)
    if not text:
        raise ValueError(f"{thing!r} has no docstring")
    return text


def _members(module: ModuleType, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield _member(f"{module.__name__}.{name}", getattr(module, name))


def _member(name: str, thing: Any) -> str:  # noqa: ANN401
    if isinstance(thing, FunctionType):
        return _directive("function", name + _signature(thing), [prose(_doc(thing))])
    if inspect.isclass(thing):
        own = _own_doc(thing)
        body = [prose(own)] if own else []
        if issubclass(thing, enum.Enum):
            body.append("Values: " + ", ".join(f"`{member.name}`" for member in thing))
        if getattr(thing, "_is_protocol", False) and (expected := inspect.get_annotations(thing)):
            body.append("Attributes: " + ", ".join(f"`{name}: {kind}`" for name, kind in expected.items()))
        body += _attributes(thing)
        return _directive("class", name + _class_signature(thing), body, fence=4)
    return _directive("data", name, [])


def _own_doc(thing: type) -> str:
    """The class's docstring, but not the signature that a dataclass has for one."""
    text = inspect.cleandoc(thing.__doc__ or "")
    return "" if text.startswith(f"{thing.__name__}(") else text


def _attributes(thing: type) -> Iterator[str]:
    for name, value in vars(thing).items():
        if name.startswith("_"):
            continue
        if isinstance(value, property) and value.__doc__:
            yield _directive("property", name, [prose(inspect.cleandoc(value.__doc__))])
        elif isinstance(value, FunctionType | classmethod | staticmethod):
            function = value if isinstance(value, FunctionType) else value.__func__
            if function.__doc__ and not function.__doc__.startswith("See `"):
                yield _directive("method", name + _signature(function, bound=True), [prose(_doc(function))])


def _signature(function: Any, *, bound: bool = False) -> str:  # noqa: ANN401
    signature = inspect.signature(function)
    if bound:
        parameters = list(signature.parameters.values())
        signature = signature.replace(parameters=[p for p in parameters if p.name not in ("self", "cls")])
    return _tidy(str(signature))


def _class_signature(thing: type) -> str:
    if getattr(thing, "_is_protocol", False) or issubclass(thing, enum.Enum | BaseException):
        return ""
    signature = inspect.signature(thing).replace(return_annotation=inspect.Signature.empty)
    return _tidy(str(signature))


def _tidy(signature: str) -> str:
    """Annotations are texts already (`from __future__ import annotations`); what is no Python is shortened."""
    unquoted = re.sub(r"(: |-> )'([^']*)'", r"\1\2", signature)
    return re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", unquoted).replace("<factory>", "...")


def _directive(kind: str, signature: str, body: Iterable[str], fence: int = 3) -> str:
    mark = ":" * fence
    return "\n".join([f"{mark}{{py:{kind}}} {signature}", "", "\n\n".join(body), mark])

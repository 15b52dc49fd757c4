"""The places where Penstock can be extended, and the one way in which what is there is found.

An extension is a class or a function in a package of yours, named in that package's metadata under the entry point of
its kind:

    [project.entry-points."penstock.policies"]
    patient = "my_package:Patient"

Those that come with Penstock are found the same way, but listed with their place, so that a checkout on PYTHONPATH
works as well as what is installed; nobody else's can take the name of one of them. The core's points are here, parts
have others (`Part.extension_points`), and `core/installed.py` knows all. docs/extending.md has a whole example of each.
An extension runs with the rights of who uses it, which for most of them are the agent's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.errors import ConfigError, UserError
from penstock.host.distributions import entry_points, loaded

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "BACKENDS",
    "POINTS",
    "POLICIES",
    "STRATEGIES",
    "ExtensionPoint",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ExtensionPoint:
    """A kind of extension: the entry point (`group`), what one of them is called in English, by which key or option
    people choose one as errors say it, and those that come with Penstock (name to `module:attribute`)."""

    group: str
    noun: str
    key: str
    own: Mapping[str, str] = field(default_factory=dict)
    error: type[UserError] = ConfigError
    """What a name that is not there is: a fault of the configuration, or of what the user has typed."""
    chosen: str = ""
    """For the manual: the keys and options by which people choose one, where `key` is not all of that."""
    protocols: tuple[str, ...] = ()
    """Where the Protocols are (`module:attribute`) of which one of them has to have all methods and attributes."""

    def found(self) -> dict[str, EntryPoint]:
        """All that are there by name, those that come with Penstock first."""
        from importlib.metadata import EntryPoint  # slow to load

        own = {name: EntryPoint(name, place, self.group) for name, place in self.own.items()}
        others = {entry.name: entry for entry in entry_points(group=self.group)}
        return own | {name: others[name] for name in sorted(others.keys() - own.keys())}

    def names(self) -> tuple[str, ...]:
        """Their names."""
        others = {entry.name for entry in entry_points(group=self.group)}
        return (*self.own, *sorted(others - self.own.keys()))

    def load(self, name: str) -> Any:  # noqa: ANN401 (each part says what it expects)
        """The class or function of that name. `error` where there is none, ConfigError where it cannot be loaded."""
        known = self.found()
        if name not in known:
            import difflib  # slow to load

            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            there = f"installed: {', '.join(known)}" if known else "none is installed"
            raise self.error(f"{self.key}: no {self.noun} {name!r} is installed ({there}){hint}")
        try:
            return known[name].load()
        except Exception as e:
            raise self.broken(name, e) from e

    def make(self, name: str, /, *values: Any, **settings: Any) -> Any:  # noqa: ANN401
        """What its class or function makes of these values and settings, which most have none of. Raises like `load`,
        and ConfigError for what lacks a method."""
        kind = self.load(name)
        try:
            made = kind(*values, **settings)
        except Exception as e:
            raise self.broken(name, e) from e
        return self.whole(name, made)

    def whole(self, name: str, made: T) -> T:
        """The same. Raises ConfigError where it is not all that is asked of one of this kind."""
        asked = [loaded(place) for place in self.protocols]
        lacks = [sorted(each for each in _members(one) if not _has(made, each, one)) for one in asked]
        if lacks and all(lacks):
            missing = ", or ".join(", ".join(f"`{each}`" for each in each_of) for each_of in lacks)
            raise ConfigError(f"{self.key}: the {self.noun} {name!r} lacks what it must have: {missing}")
        return made

    def broken(self, name: str, error: Exception) -> ConfigError:
        """The error for an extension that does not do what it must."""
        return ConfigError(f"{self.key}: the {self.noun} {name!r} cannot be loaded: {error!r}")


def _members(protocol: type) -> set[str]:
    """The names of its methods and attributes."""
    every = (name for one in protocol.__mro__ for name in (*vars(one), *vars(one).get("__annotations__", ())))
    return {name for name in every if not name.startswith("_")}


def _has(made: object, name: str, protocol: type) -> bool:
    """Whether it has that attribute; of a method, one that can be called."""
    found = getattr(made, name, None)
    return callable(found) if callable(getattr(protocol, name, None)) else hasattr(made, name)


POLICIES: Final = ExtensionPoint(
    "penstock.policies",
    "policy",
    "`dmr.policy`",
    {
        "efficiency": "penstock_plugins.efficiency:Efficiency",
        "noop": "penstock_plugins.noop:Noop",
        "priced": "penstock_plugins.priced:Priced",
        "shortest": "penstock_plugins.shortest:Shortest",
        "static": "penstock_plugins.static:Static",
        "throughput": "penstock_plugins.throughput:Throughput",
        "wide": "penstock_plugins.wide:WideOptimization",
    },
    protocols=("penstock.api:ResizePolicy", "penstock.api:JointPolicy"),
)
STRATEGIES: Final = ExtensionPoint(
    "penstock.strategies",
    "strategy",
    "strategy",
    {
        "auto": "penstock.workflow.strategies.auto:Auto",
        "asa": "penstock.workflow.strategies.asa:Asa",
        "asa-naive": "penstock.workflow.strategies.asa_naive:AsaNaive",
        "asa-after": "penstock.workflow.strategies.asa_after:AsaAfter",
        "eager": "penstock.workflow.strategies.eager:Eager",
        "seed": "penstock.workflow.strategies.seed:Seed",
        "handover": "penstock.workflow.strategies.handover:Handover",
        "packed": "penstock.workflow.strategies.packed:Packed",
        "perstage": "penstock.workflow.strategies.perstage:PerStage",
        "bigjob": "penstock.workflow.strategies.bigjob:BigJob",
        "elastic": "penstock.workflow.strategies.elastic:Elastic",
    },
    UserError,
    "`workflows.strategy`, `--strategy`",
    ("penstock.workflow.strategy:Strategy",),
)
BACKENDS: Final = ExtensionPoint(
    "penstock.backends",
    "backend",
    "`slurm.backend`",
    {
        "auto": "penstock.core.backends:auto",
        "cli": "penstock.core.backends:cli",
        "pyslurm": "penstock.core.backends:pyslurm",
        "rest": "penstock.core.backends:rest",
    },
    protocols=("penstock.slurm.base:Backend",),
)

POINTS: Final = (POLICIES, STRATEGIES, BACKENDS)
"""Those of the core."""

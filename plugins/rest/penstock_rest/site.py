"""A cluster's settings without `scontrol show config`: those that slurmrestd tells (26.05), those of the configuration,
and what is taken for granted of the others. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from penstock.slurm.parse import ParseError

__all__ = ["UNTOLD", "settings_of"]

UNTOLD: Final[Mapping[str, str]] = MappingProxyType(
    {
        "SelectType": "select/cons_tres",
        "SchedulerParameters": "",  # so no merging
        "PrologFlags": "Contain",
        "PriorityType": "priority/multifactor",
        "PriorityFlags": "",
        "MinJobAge": "300",
        "AccountingStorageEnforce": "associations,limits,qos",
    }
)
"""What counts where nobody says: Slurm's defaults, and of what allows something the more careful."""

_WHOLE: Final = ("set", "infinite", "number")


def settings_of(document: Mapping[str, Any]) -> dict[str, str]:
    """The settings in an answer of `conf`, by their names in slurm.conf, as text."""
    found = next((document[name] for name in ("conf", "config", "slurm_conf") if name in document), None)
    if not isinstance(found, Mapping):
        raise ParseError("an answer without the configuration", str(sorted(document))[:80])
    said = {str(name): _text(value) for name, value in found.items()}
    return {name: value for name, value in said.items() if value is not None}


def _text(value: object) -> str | None:
    """A setting as scontrol would write it; None for what is no simple value."""
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if value is None:
        return ""
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list):
        return ",".join(item for item in value if isinstance(item, str))
    if isinstance(value, Mapping) and all(name in value for name in _WHOLE):
        return "UNLIMITED" if value["infinite"] else str(value["number"]) if value["set"] else ""
    return None

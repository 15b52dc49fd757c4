"""Which settings a running agent takes over when its configuration is read again. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from penstock.config import Config, keys_by_section

__all__ = ["taken_over"]

# What the agent looks at anew, and what commands alone read, which read the file themselves.
_WHOLE: Final = frozenset({"limits", "log", "messages", "pool", "select"})
_KEYS: Final = frozenset(
    {"agent.idle_interval", "agent.interval", "agent.keep", "agent.request_burst", "agent.requests_per_second"}
    | {"malleable.backend", "malleable.extend", "malleable.resize_cost"}
    | {"malleable.resize_timeout", "malleable.restart_timeout"}
    | {"dmr.accept_timeout", "dmr.cooldown", "dmr.grant_timeout", "dmr.policy"}
    | {"slurm.min_interval", "workflows.strategy"}
)


def taken_over(old: Config, new: Config) -> tuple[Config, list[str]]:
    """The configuration in force after `new` was read: of `old` is what a restart alone can change; and the names of
    the settings that wait for one."""
    sections: dict[str, Any] = {}
    waiting: list[str] = []
    for name, known in keys_by_section().items():
        before, after = getattr(old, name), getattr(new, name)
        if name not in _WHOLE:
            keys = [key for key in known if f"{name}.{key}" not in _KEYS]
            waiting += [f"{name}.{key}" for key in keys if getattr(before, key) != getattr(after, key)]
            after = replace(after, **{key: getattr(before, key) for key in keys})
        sections[name] = after
    return replace(new, **sections), waiting

"""The JSON schema of what each command prints with --json.

python -m penstock.cli.schemas                 prints all, by command
python -m penstock.cli.schemas hold list       prints that of one
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from penstock.cli.answers import advice, planning, pools, site, waits, workflows

__all__ = ["answers", "schema_of"]

_AGENT: Final[Mapping[str, Any]] = {
    "advise": advice.Advice,
    "audit": site.Audit | site.Verified,
    "bags": planning.Bags,
    "cancel": workflows.Cancel,
    "more": workflows.More,
    "config show": site.Configuration,
    "db backup": site.Backup,
    "db check": site.Check,
    "db salvage": site.Salvage,
    "db vacuum": site.Vacuum,
    "doctor": site.Doctor,
    "elastic": workflows.Elastic,
    "explain": workflows.Explain,
    "hold cancel": planning.HoldAnswer,
    "hold list": planning.Holds,
    "hold open": planning.HoldAnswer,
    "hold tick": planning.HoldTick,
    "ledger": planning.Ledger,
    "logs": workflows.Logs,
    "message list": site.Messages,
    "message test": site.Tests,
    "off": site.Off,
    "on": site.On,
    "pause": site.Paused,
    "plan": planning.Plan | planning.SitesPlan,
    "pool auto": pools.Auto,
    "pool cancel": pools.Cancel,
    "pool drain": pools.Drain,
    "pool logs": pools.Logs,
    "pool start": pools.Start,
    "pool status": pools.Status,
    "pool stop": pools.Stop,
    "pool submit": pools.Submit,
    "pool top": pools.Top,
    "profile compare": planning.Compare,
    "profile run": planning.Profile,
    "quote": planning.Quotes,
    "report": site.Report,
    "resume": site.Paused,
    "retry": workflows.Retry,
    "select": planning.Select,
    "slots": planning.Slots,
    "stage": planning.Stage,
    "status": workflows.Status,
    "submit": workflows.Submit | workflows.Try,
    "tick": workflows.Tick,
    "top": workflows.Top,
    "try": workflows.Try,
    "waits": waits.Waits,
}


class _Schema(GenerateJsonSchema):
    """Keys that may be missing have no default, and the one that printing adds may not."""

    ignored_warning_kinds: set[Any] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 (as there)

    def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: ANN401
        return field.get("name") == "format" or super().field_is_required(field, total)


@cache
def answers() -> Mapping[str, TypeAdapter[Any]]:
    """What each command of the installed ones prints, by the words after `penstock`."""
    models = dict(_AGENT)
    for other in entry_points(group="penstock.answers"):
        models |= other.load()
    return {name: TypeAdapter(model) for name, model in models.items()}


def schema_of(command: str) -> dict[str, Any]:
    """Raises KeyError for a command that prints no JSON."""
    found = answers()[command].json_schema(by_alias=True, schema_generator=_Schema, mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found, "title": f"penstock {command} --json"}


if __name__ == "__main__":
    asked = " ".join(sys.argv[1:])
    if asked and asked not in answers():
        sys.exit(f"`penstock {asked}` prints no JSON; those that do: {', '.join(sorted(answers()))}")
    print(json.dumps(schema_of(asked) if asked else {name: schema_of(name) for name in sorted(answers())}, indent=2))

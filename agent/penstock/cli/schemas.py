"""The JSON schema of what each command prints with --json.

python -m penstock.cli.schemas                 prints all, by command
python -m penstock.cli.schemas hold list       prints that of one
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from penstock.admin.commands import answers as admin
from penstock.advice.commands import answers as advice
from penstock.host.distributions import beside, loaded
from penstock.report.commands import answers as report
from penstock.waits.commands import answers as waits
from penstock.workflow.commands import answers as workflow

__all__ = ["answers", "schema_of"]

_OWN: Final = (admin, advice, report, waits, workflow)


class _Schema(GenerateJsonSchema):
    """Keys that may be missing have no default, and the one that printing adds may not."""

    ignored_warning_kinds: set[Any] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 (as there)

    def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: ANN401
        return field.get("name") == "format" or super().field_is_required(field, total)


@cache
def answers() -> Mapping[str, TypeAdapter[Any]]:
    """What each command of the installed ones prints, by the words after `penstock`."""
    models: dict[str, Any] = {}
    for own in _OWN:
        models |= own.ANSWERS
    for other in beside():
        models |= loaded(other.answers) if other.answers else {}
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

"""Pages made from models: the configuration, what --json prints, the metrics, the exit codes."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from penstock import errors
from penstock.cli import catalogue, schemas
from penstock.config import Config, schema, sections
from penstock.errors import EXIT_CODES, PenstockError
from penstock_docs.markdown import cell, code_block, escape

__all__ = ["answers", "configuration", "exit_codes", "metrics"]

_CONFIGURATION = """\
# Configuration

Made from the sections in `penstock.config`, by which a configuration is checked when it is read.

The file is the first of `$PENSTOCK_CONFIG`, `$XDG_CONFIG_HOME/penstock/config.yaml` (`~/.config/penstock/config.yaml`)
and `/etc/penstock/penstock.yaml` that is there; none is fine. A single key is overridden by `PENSTOCK_SECTION__KEY` in
the environment, such as `PENSTOCK_AGENT__INTERVAL=30s`. Durations are seconds, or texts such as `90s`, `5m`, `2h`,
`00:30:00`, `1-00:00:00`. Paths may begin with `~`; `agent.state_dir` and `agent.socket` must be absolute. A key that
is not known is refused, with the nearest one that is.

`penstock config check` reads it and looks for the extensions that it names, `penstock config show --origin` says where
each value comes from, and `penstock config schema` prints the JSON schema. `systemctl reload` (SIGHUP) takes a changed
file over; a wrong one leaves the old one in force.
"""


def configuration() -> str:
    """Every section and key, with its kind, default and meaning."""
    parts = [_CONFIGURATION]
    definitions = schema()["$defs"]
    for section in fields(Config):
        model = getattr(sections, str(section.type))
        properties = definitions[model.__name__]["properties"]
        parts.append(f"## {section.name}\n\n{escape((model.__doc__ or '').strip())}\n")
        parts.append("| key | kind | default | meaning |\n|---|---|---|---|")
        parts += [
            f"| `{section.name}.{key.name}` | {cell(_kind(properties[key.name]))} "
            f"| {cell(_default(key, properties[key.name]))} | {cell(key.metadata.get('description', ''))} |"
            for key in fields(model)
        ]
        parts.append("")
    return "\n".join(parts) + "\n"


def _kind(schema: dict[str, Any]) -> str:
    """A JSON schema in words."""
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        kinds = [option for option in schema["anyOf"] if option.get("type") != "null"]
        if any("examples" in option for option in kinds):
            return "duration"
        return " or ".join(_kind(option) for option in kinds)
    if "$ref" in schema:
        return "mapping"
    limits = [
        f"{word} {schema[key]:g}"
        for key, word in (
            ("minimum", "from"),
            ("exclusiveMinimum", "above"),
            ("maximum", "to"),
            ("exclusiveMaximum", "below"),
        )
        if key in schema
    ]
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}s"
    if schema.get("format") == "path":
        return "path"
    words = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "true or false",
        "object": "mapping",
    }
    return " ".join([words[schema["type"]], *limits])


def _default(key: Field[Any], kind: dict[str, Any]) -> str:
    if key.default is MISSING:
        # What makes it. What this one gives depends on who asks, so it is said and not shown.
        if key.name == "state_dir":
            return "`$XDG_STATE_HOME/penstock`, else `~/.local/state/penstock`"
        return "empty"
    default = key.default
    if default is None:
        return "unset"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, float):
        return f"`{_duration(default)}`" if _kind(kind) == "duration" else f"`{default:g}`"
    if isinstance(default, str | int | Path):
        return f"`{default}`"
    return "empty" if not default else f"`{default}`"


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s" if seconds else "0"


_ANSWERS = """\
# Output for programs

What each command prints with `--json`: one object, whose JSON schema is below. `python -m penstock.cli.schemas` prints
them, too.

`format` is 1. It is raised when a key goes or means something else; the changelog says so, release by release. New keys
may come without that: leave alone what you do not know. Where a schema has `additionalProperties`, such as the stages
of a workflow, there are further keys that are not promised. Texts (`why`, `text`, `problems`) are for people and may
change; so may the words that a phase can be, of which there may be more.

Nothing else is printed to standard output then. The exit codes are the [same](exit-codes.md).

"""


def answers() -> str:
    """The schema of every command."""
    parts = [_ANSWERS]
    for name in sorted(schemas.answers()):
        parts += [f"## penstock {name}", "", code_block(json.dumps(schemas.schema_of(name), indent=2), "json"), ""]
    return "\n".join(parts) + "\n"


_METRICS = """\
# Metrics

Made from `penstock.cli.catalogue`, from which the agent makes its registry. `metrics.listen` says where they are
served; what to watch and what to do is in [Metrics and systemd](../../admin-metrics-and-systemd.md). Counters begin at
0 when the agent starts. No label grows with users, jobs or nodes.

"""


def metrics() -> str:
    """Every metric of the agent."""
    return _METRICS + catalogue.table() + "\n"


_CODES = """\
# Exit codes and errors

Every command ends with one of these. The errors are those of `penstock.errors`; a command prints one as a line on
standard error.

"""

_AFTER = """
`penstock doctor` ends with 0 when every feature that is asked for works, with 1 when one does not. `penstock sbatch`
ends with the code of Slurm's `sbatch` where that ran. Programs in jobs have codes of their own: a
stage's script ends with 65 when its guard has seen that a parent failed, and the ranks of an MPI program that is being
restarted in another size end with 85.

## The tree of errors

An error says whether it is final, so that callers need not read its text.

"""


def exit_codes() -> str:
    """The exit codes, from the errors that carry them."""
    named: dict[int, list[str]] = {}
    for error in _tree(PenstockError):
        if error is not PenstockError:
            meaning = (error.__doc__ or "").strip().splitlines()[0].rstrip(".")
            named.setdefault(error.exit_code, []).append(f"`{error.__name__}`: {meaning}")
    table = ["| code | meaning | errors |", "|---|---|---|"]
    table += [
        f"| {code} | {cell(meaning)} | {cell('; '.join(named.get(code, ())))} |" for code, meaning in EXIT_CODES.items()
    ]
    drawing = textwrap.dedent((errors.__doc__ or "").split("\n\n")[1])
    return _CODES + "\n".join(table) + "\n" + _AFTER + code_block(drawing) + "\n"


def _tree(error: type[PenstockError]) -> Iterator[type[PenstockError]]:
    yield error
    for child in error.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _tree(child)

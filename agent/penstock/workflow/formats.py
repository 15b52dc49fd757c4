"""Reads a workflow file: YAML as below, or WfFormat (`wfformat`). Every complaint is one line (`UserError`).

    name: mosaic
    partition: batch          # optional, as are account, qos, workdir, environment (a map of texts)
    stages:
      - name: project
        nodes: 4
        time: 30m             # the limit: 90 (seconds), 90s, 30m, 2h, 1h30m, 00:30:00, 1-02:00:00
        expect: 12m           # expected run time; if left out what earlier runs took, at first the limit
        run: srun ./project   # shell command(s); or `script: FILE`, which must be there
        retries: 1            # how often it is tried again if it fails; optional, 0
        took: [9m, 11m, 26m]  # optional: run times of earlier runs, from which a plan chooses the length of its slot
        produces: 3 GB        # what each stage after it needs of it, where stages run at different sites; optional
      - name: merge
        after: project        # optional: the stage before it; a list is allowed, [] is none
        nodes: 1
        time: 10m
        run: ./merge

Scalars are read as YAML 1.2 does (`no` is a text, `1:30` is not a number); doubled keys are refused.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from penstock.errors import UserError
from penstock.select.units import parse_amount
from penstock.values.documents import MAX_BYTES, flat, mapping, parse_yaml, show
from penstock.values.durations import DURATION_FORMS, parse_duration
from penstock.workflow.checks import check_against
from penstock.workflow.model import NAME_PATTERN, Stage, Workflow
from penstock.workflow.wfformat import Packing, from_wfformat, is_wfformat

__all__ = ["check_against", "load_workflow", "parse_workflow"]

_MAX_STAGES: Final = 1000
_MAX_NODES: Final = 10_000_000
_TOP_KEYS: Final = ("name", "partition", "account", "qos", "workdir", "environment", "stages")
_MAX_JSON_BYTES: Final = 500_000_000
_MAX_RETRIES: Final = 100
_MAX_RUNS: Final = 1000
_STAGE_KEYS: Final = ("name", "nodes", "time", "expect", "run", "script", "after", "retries", "took", "produces")
_NAME_RULE: Final = "1 to 40 of A-Z a-z 0-9 _ . -"


def load_workflow(path: str | Path, packing: Packing | None = None) -> Workflow:
    """Read a workflow file; `packing` is for WfFormat. Raises UserError if it is missing, unreadable, too big, or wrong
    in any way. The scripts that it names are looked for beside it. `-` is standard input, and has no scripts."""
    if str(path) == "-":
        return parse_workflow(sys.stdin.buffer.read(_MAX_JSON_BYTES + 1), "standard input", packing)
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
            if data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
                data += file.read(_MAX_JSON_BYTES)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{path}: cannot be read: {why}") from error
    return parse_workflow(data, str(path), packing, Path(path).parent)


def parse_workflow(
    data: bytes | str, source: str = "workflow.yaml", packing: Packing | None = None, folder: Path | None = None
) -> Workflow:
    """The workflow in `data`; `source` is the name for messages. Raises UserError, and nothing else, if it is wrong.

    Scripts are looked for in `folder`; None: they are not allowed.
    """
    try:
        instance = _json(data)
        if is_wfformat(instance):
            assert isinstance(instance, dict)
            return from_wfformat(instance, source, packing)
        document = parse_yaml(data, "workflow")
        top = mapping(document, "", _TOP_KEYS, ("name", "stages"))
        workflow = Workflow(
            name=_name(top["name"], "name"),
            stages=_with_inputs(_stages(top["stages"], folder), top["stages"]),
            partition=_text(top, "partition"),
            account=_text(top, "account"),
            qos=_text(top, "qos"),
            workdir=_text(top, "workdir"),
            environment=_environment(top.get("environment")),
            source=source,
        )
    except UserError as error:
        raise UserError(f"{source}: {error}") from error
    return workflow


def _json(data: bytes | str) -> object:
    """What is in it if it is JSON: all WfFormat files are, and some YAML files."""
    start = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n") if isinstance(data, bytes) else data[:64].lstrip().encode()
    if start[:1] != b"{":
        return None
    if len(data) > _MAX_JSON_BYTES:
        raise UserError(f"is larger than {_MAX_JSON_BYTES // 1_000_000} MB, which no workflow needs")
    try:
        return json.loads(data.decode("utf-8-sig") if isinstance(data, bytes) else data)
    except (ValueError, RecursionError) as error:
        if len(data) <= MAX_BYTES and b"schemaVersion" not in (data if isinstance(data, bytes) else data.encode()):
            return None  # YAML may be written with braces, too
        raise UserError(f"is not valid JSON: {flat(error)}") from error


def _name(value: object, where: str) -> str:
    """A name; a number written without quotes counts as its digits."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**40 else value
    if not isinstance(text, str) or not NAME_PATTERN.fullmatch(text):
        raise UserError(f"{where}: must be {_NAME_RULE}, not {show(value)}")
    return text


def _text(top: Mapping[str, Any], key: str) -> str | None:
    value = top.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise UserError(f"{key}: must be a text on one line, not {show(value)}")
    return value


def _environment(value: object) -> Mapping[str, str]:
    if value is None:
        return MappingProxyType({})
    if not isinstance(value, dict):
        raise UserError(f"environment: must be a map of variables to texts, not {show(value)}")
    result = {}
    for key, content in value.items():
        if not isinstance(key, str) or not key.isidentifier() or not key.isascii():
            raise UserError(f"environment: must have names of variables as keys, not {show(key)}")
        if isinstance(content, int | float) and not isinstance(content, bool) and abs(content) < 1e15:
            content = str(content)
        if not isinstance(content, str) or "\0" in content:
            raise UserError(f"environment.{key}: must be a text (quote it), not {show(content)}")
        result[key] = content
    return MappingProxyType(result)


def _stages(value: object, folder: Path | None) -> tuple[Stage, ...]:
    if not isinstance(value, list):
        raise UserError(f"stages: must be a list of stages, not {show(value)}")
    if len(value) > _MAX_STAGES:
        raise UserError(f"stages: must be at most {_MAX_STAGES}, not {len(value)}")
    stages: list[Stage] = []
    for i, entry in enumerate(value):
        stages.append(_stage(entry, f"stages[{i}]", stages[-1].name if stages else None, folder))
    return tuple(stages)


def _with_inputs(stages: tuple[Stage, ...], entries: list[dict[str, Any]]) -> tuple[Stage, ...]:
    """What each stage needs of those before it, where one of them says what it produces."""
    made: dict[str, float] = {}
    for i, (stage, entry) in enumerate(zip(stages, entries, strict=True)):
        if entry.get("produces") is not None:
            made[stage.name] = _bytes(entry["produces"], f"stages[{i}].produces")
    return tuple(
        replace(s, inputs=tuple(made.get(parent, 0.0) for parent in s.after)) if made.keys() & set(s.after) else s
        for s in stages
    )


def _bytes(value: object, where: str) -> float:
    try:
        return parse_amount(value)
    except ValueError:
        raise UserError(f"{where}: must be bytes such as 3e9, 3 GB or 512 MiB, not {show(value)}") from None


def _stage(entry: object, where: str, previous: str | None, folder: Path | None) -> Stage:
    data = mapping(entry, where, _STAGE_KEYS, ("name", "nodes", "time"))
    nodes = data["nodes"]
    if isinstance(nodes, bool) or not isinstance(nodes, int) or not 1 <= nodes <= _MAX_NODES:
        raise UserError(f"{where}.nodes: must be a whole number from 1 to {_MAX_NODES}, not {show(nodes)}")
    limit = _duration(data["time"], f"{where}.time")
    if "script" in data:
        if "run" in data:
            raise UserError(f"{where}: has both 'run' and 'script'; one of them says what to run")
        command = _script(data["script"], f"{where}.script", folder)
    elif "run" in data:
        command = data["run"]
    else:
        raise UserError(f"{where}: the key 'run' is missing")
    if not isinstance(command, str) or not command.strip() or "\0" in command:
        raise UserError(f"{where}.run: must be a shell command, not {show(command)}")
    retries = data.get("retries", 0)
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= _MAX_RETRIES:
        raise UserError(f"{where}.retries: must be a whole number from 0 to {_MAX_RETRIES}, not {show(retries)}")
    took = _took(data.get("took", []), f"{where}.took")
    usual = math.fsum(took) / len(took) if took else limit
    return Stage(
        name=_name(data["name"], f"{where}.name"),
        nodes=nodes,
        time_limit=limit,
        run_time=_duration(data["expect"], f"{where}.expect") if "expect" in data else usual,
        command=command,
        after=_after(data, f"{where}.after", previous),
        retries=retries,
        guessed="expect" not in data and not took,
        took=took,
    )


def _took(value: object, where: str) -> tuple[float, ...]:
    """Run times: one, or a list."""
    if not isinstance(value, list):
        return (_duration(value, where),)
    if len(value) > _MAX_RUNS:
        raise UserError(f"{where}: must be at most {_MAX_RUNS} run times, not {len(value)}")
    return tuple(_duration(one, f"{where}[{i}]") for i, one in enumerate(value))


def _script(value: object, where: str, folder: Path | None) -> str:
    """The command that runs a script, which has to be there and begin as scripts do."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise UserError(f"{where}: must be the name of a file, not {show(value)}")
    if folder is None:
        raise UserError(f"{where}: there is no file to look for {value!r} beside; use 'run'")
    path = folder / value
    try:
        with path.open("rb") as file:
            start = file.read(2)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{where}: {path} cannot be read: {why}") from error
    if start != b"#!":
        raise UserError(f"{where}: {path} is no script: its first line must start with #!")
    if not os.access(path, os.X_OK):
        raise UserError(f"{where}: {path} cannot be run; make it executable (chmod +x)")
    return shlex.quote(str(path.absolute()))


def _duration(value: object, where: str) -> float:
    seconds = parse_duration(value)
    if seconds is None or math.isnan(seconds):
        raise UserError(f"{where}: must be {DURATION_FORMS}, not {show(value)}")
    return seconds


def _after(data: Mapping[str, Any], where: str, previous: str | None) -> tuple[str, ...]:
    if "after" not in data:
        return () if previous is None else (previous,)
    value = data["after"]
    if isinstance(value, list):
        return tuple(_name(name, f"{where}[{i}]") for i, name in enumerate(value[:_MAX_STAGES]))
    return (_name(value, where),)

"""Tasks as users write them: lines of JSON, or the options of a command. Checked here, before they are sent."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock.errors import UserError
from penstock.values.lines import split_lines
from penstock_pool.model import task_to_dict
from penstock_pool.taskjson import task_from_dict

__all__ = ["read_tasks", "task_of_options"]

_OPTIONS: Final = {"workflow": "workflow", "cores": "cores", "memory": "memory", "gpus": "gpus", "retries": "retries"}


def read_tasks(path: Path, workdir: str) -> list[dict[str, Any]]:
    """The tasks of a file with one JSON object a line; empty lines are passed over. Raises UserError with the line."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "it is not UTF-8 text"
        raise UserError(f"{path}: cannot be read: {why}") from None
    tasks, names = [], dict[str, int]()
    for number, line in enumerate(split_lines(text), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as e:
            raise UserError(f"{path}:{number}: is no JSON: {e}") from None
        task = task_from_dict(value, f"{path}:{number}", workdir)
        if task.name and names.setdefault(task.name, number) != number:
            raise UserError(f"{path}:{number}: name: {task.name!r} is that of line {names[task.name]}, too")
        tasks.append(task_to_dict(task))
    if not tasks:
        raise UserError(f"{path}: holds no task")
    return tasks


def task_of_options(said: Mapping[str, Any], workdir: str) -> dict[str, Any]:
    """The task that options of the command line describe."""
    value: dict[str, Any] = {key: said[option] for option, key in _OPTIONS.items() if said[option] is not None}
    value["command"] = list(said["command"])
    value["inputs"] = list(said["inputs"])
    if said["task_name"]:
        value["name"] = said["task_name"]
    if said["seconds"]:
        value["time"] = said["seconds"]
    for text in said["environment"]:
        name, equals, content = text.partition("=")
        if not equals or not name:
            raise UserError(f"--env: must be NAME=VALUE, not {text[:60]!r}")
        value.setdefault("environment", {})[name] = content
    return task_to_dict(task_from_dict(value, "task", workdir))

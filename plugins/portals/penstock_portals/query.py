"""What a page asks in its address: a job. Pure; says what would be right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from penstock_portals.words import LIMIT_FORMS, limit_seconds, megabytes

__all__ = ["FIELDS", "BadQuery", "job_of", "pairs_of"]

FIELDS = ("account", "cpus", "features", "gres", "hours", "memory", "nodes", "partition", "qos", "time")
_TEXTS = ("account", "features", "gres", "partition", "qos")
_LONGEST = 2000
_MOST = 10_000_000


class BadQuery(ValueError):
    """The question is none; its text says what would be one."""


def pairs_of(query: str) -> dict[str, str]:
    """The fields of a query that have a value, each once. Raises BadQuery."""
    if len(query) > _LONGEST:
        raise BadQuery(f"the question is longer than {_LONGEST} characters")
    try:
        given = parse_qsl(query, max_num_fields=50, errors="strict")
    except ValueError:
        raise BadQuery("the question cannot be read: give fields such as partition=batch&time=4h, in UTF-8") from None
    found: dict[str, str] = {}
    for name, value in given:
        if name not in FIELDS:
            raise BadQuery(f"{name[:40]!r}: there is no such field (fields: {', '.join(FIELDS)})")
        if name in found:
            raise BadQuery(f"{name}: is given twice")
        found[name] = value.strip()
    return found


def job_of(given: Mapping[str, str]) -> dict[str, Any]:
    """The job that these fields describe, as the agent takes it; an hour if nothing is said. Raises BadQuery."""
    job: dict[str, Any] = {name: given[name] for name in _TEXTS if given.get(name)}
    for name in ("nodes", "cpus"):
        if given.get(name):
            job[name] = _whole(name, given[name])
    if given.get("time") and given.get("hours"):
        raise BadQuery("time, hours: give one of both")
    if given.get("time"):
        job["time_limit"] = _known("time", limit_seconds(given["time"]), LIMIT_FORMS)
    elif given.get("hours"):
        job["time_limit"] = _known("hours", _hours(given["hours"]), "a number of hours above 0, such as 4 or 1.5")
    if given.get("memory"):
        job["memory"] = _known(
            "memory", megabytes(given["memory"]), "memory of each node such as 8G (a bare number: MB)"
        )
    return job


def _hours(text: str) -> float | None:
    digits = text.replace(".", "", 1)
    if not (digits.isascii() and digits.isdigit()) or len(text) > 8:
        return None
    hours = float(text)
    return hours * 3600 if 0 < hours <= 87600 else None


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 8 or not 1 <= int(text) <= _MOST:
        raise BadQuery(f"{name}: must be a whole number of 1 or more, such as 2")
    return int(text)


def _known(name: str, value: float | None, forms: str) -> float:
    if value is None:
        raise BadQuery(f"{name}: must be {forms}")
    return value

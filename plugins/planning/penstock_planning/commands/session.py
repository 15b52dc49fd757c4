"""`penstock slots --session`: this site, as one who plans over several sites asks it (`provision.session`)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click

from penstock_planning.commands.planning import LiveSource, Source
from penstock_planning.plan.session import Session

__all__ = ["serve"]

_LONGEST = 1_000_000  # characters of a question


def serve(source: Source, questions: Iterable[str]) -> None:
    """Say what there is, then answer every line until there are no more."""
    partition, most, longest = None, None, None
    if isinstance(source, LiveSource):
        of = source.partition
        partition, most, longest = of.name, of.max_nodes, of.max_time
    session = Session(source.situation, isinstance(source, LiveSource), partition, most, longest)
    _say(session.hello())
    for line in questions:
        if line.strip():
            _say(session.answer(_parse(line)))


def _parse(line: str) -> object:
    try:
        return json.loads(line) if len(line) <= _LONGEST else None
    except (ValueError, RecursionError):
        return None


def _say(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value, separators=(",", ":")))

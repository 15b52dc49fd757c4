"""Node lists that a command about a pool's jobs is given. Pure."""

from __future__ import annotations

from penstock.slurm.parse import ParseError, asked_hosts
from penstock_fronts.words import Through

__all__ = ["nodes_of"]


def nodes_of(text: str) -> tuple[str, ...]:
    """The nodes of a list such as n[1-3],n7. Raises `Through`."""
    try:
        return asked_hosts(text)
    except ParseError as e:
        raise Through(str(e)) from None

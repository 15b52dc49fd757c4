"""Small texts for people. Standard library only."""

from __future__ import annotations

__all__ = ["plural"]


def plural(count: int, noun: str) -> str:
    """So many of them: "1 node", "2 nodes", "0 nodes"; `noun` is one whose plural ends in s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"

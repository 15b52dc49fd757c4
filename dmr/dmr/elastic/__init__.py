"""Elastic jobs: jobs whose nodes come and go with the queue, without MPI.

`python -m dmr.elastic` does it for commands, `Nodes` for programs in Python. Like all of `dmr` it depends on nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmr.elastic.nodes import Nodes

__all__ = ["Nodes"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 (whatever it is)
    """Who only reads what a user says of sizes does not load what drives nodes."""
    if name == "Nodes":
        from dmr.elastic.nodes import Nodes

        return Nodes
    raise AttributeError(f"module 'dmr.elastic' has no attribute {name!r}")

"""Elastic jobs: jobs whose nodes come and go with the queue, without MPI.

`python -m dmr.elastic` does it for commands, `Nodes` for programs in Python. Like all of `dmr` it depends on nothing.
"""

from __future__ import annotations

from dmr.elastic.nodes import Nodes

__all__ = ["Nodes"]

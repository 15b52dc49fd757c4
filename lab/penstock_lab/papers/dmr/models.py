"""How long the paper's applications take on so many nodes, fitted to the paper alone (its tables 1 and 4).

The paper shows no time of a single application, but its table 4 has two equations for each version of a workload.
A third of the jobs are CG, Jacobi and N-body each, and table 1 says where they run: CG and Jacobi on 32 nodes or, once
shrunk, on 8; N-body on 16 or 1. Nothing in the paper tells CG from Jacobi. So with the mean execution times of CG and
Jacobi (x) and of N-body (y):

    mean execution time of the table       = (2 x + y) / 3
    node-seconds of a job in the table     = (2 * nodes of CG * x + nodes of N-body * y) / 3

The right hand side of the second follows from the table's waits: a queue in which the last job of N starts when all
others' work is done gives a mean wait of N/2 * (c - 10) where a job keeps the cluster busy for c seconds and the next
one comes after 10, and with c the node-seconds: c * 64 * utilisation. Means over the four workloads.

A job of the flexible version begins on its maximum and is shrunk to its preferred size at its first check: after 15
seconds (CG, Jacobi: the scheduling period) or one step (N-body: 1/25 of its time). That is taken out of x and y.

Through the two times of an application, at its maximum and its preferred size, goes one curve of Amdahl's law, and that
is the model. What it gives: CG and Jacobi are 1.9 times as fast on four times the nodes, N-body hardly gains (1.4 times
as fast on 16 nodes as on one), which is why the paper's authors prefer one node for it.

`linear` is another set for comparison: the same times at the maximum, and speed in proportion to nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from penstock_lab.papers.dmr.paper import APPLICATIONS, INTERARRIVAL, JOBS, NODES, TABLE_4, Application
from penstock_planning.select.speedup import Amdahl

__all__ = ["Kind", "Model", "models", "narrow"]

Kind = Literal["fitted", "linear"]
_CG, _JACOBI, _NBODY = APPLICATIONS


@dataclass(frozen=True, slots=True)
class Model:
    """An application with its time on one node (s) and how fast it is on more."""

    application: Application
    alone: float
    speedup: Amdahl

    def seconds(self, nodes: int) -> float:
        """What a run takes on so many nodes."""
        return self.alone / self.speedup.at(nodes)


def narrow(model: Model, of: int) -> Model:
    """The same on a smaller cluster, of whose nodes each does what `of` of the paper's do."""
    app = model.application
    sizes = {name: max(getattr(app, name) // of, 1) for name in ("minimum", "maximum", "preferred")}
    serial = model.alone * model.speedup.serial
    alone = serial + (model.alone - serial) / of
    return Model(replace(app, **sizes), alone, Amdahl(serial / alone))


@cache
def models(kind: Kind = "fitted") -> dict[str, Model]:
    """The three applications by name."""
    wide, nbody = _at_maximum()
    if kind == "linear":
        return {a.name: _through(a, wide if a is not _NBODY else nbody, None) for a in APPLICATIONS}
    wide_shrunk, nbody_shrunk = _at_preferred(wide, nbody)
    return {
        a.name: _through(a, nbody, nbody_shrunk) if a is _NBODY else _through(a, wide, wide_shrunk)
        for a in APPLICATIONS
    }


def _at_maximum() -> tuple[float, float]:
    """Execution times of CG and Jacobi, and of N-body, in the fixed version."""
    return _solved("fixed", _CG.maximum, _NBODY.maximum, 0.0)


def _at_preferred(wide: float, nbody: float) -> tuple[float, float]:
    """The same on the preferred sizes, from the flexible version; `wide` and `nbody` are those of the fixed one."""
    first = _CG.period, nbody / _NBODY.iterations
    more = 2 * first[0] * (_CG.maximum - _CG.preferred) + first[1] * (_NBODY.maximum - _NBODY.preferred)
    x, y = _solved("flexible", _CG.preferred, _NBODY.preferred, more)
    return (x - first[0]) / (1 - first[0] / wide), (y - first[1]) / (1 - first[1] / nbody)


def _solved(version: str, wide_nodes: int, nbody_nodes: int, more: float) -> tuple[float, float]:
    """x and y of the module's text; `more` node-seconds of three jobs are spent on other sizes."""
    rows = [(jobs, TABLE_4[jobs, version]) for jobs in JOBS]
    execution = sum(row.execution for _, row in rows) / len(rows)
    busy = [(2 * row.waiting / jobs + INTERARRIVAL) * NODES * row.utilisation for jobs, row in rows]
    node_seconds = sum(busy) / len(busy)
    # 2 x + y = 3 execution;  2 wide x + nbody y = 3 node_seconds - more
    x = (3 * node_seconds - more - nbody_nodes * 3 * execution) / (2 * wide_nodes - 2 * nbody_nodes)
    return x, 3 * execution - 2 * x


def _through(application: Application, fastest: float, preferred: float | None) -> Model:
    """Amdahl's law through the times at the maximum and at the preferred size; None: linear."""
    m, p = application.maximum, application.preferred
    parallel = fastest * m if preferred is None else (preferred - fastest) / (1 / p - 1 / m)
    alone = fastest - parallel / m + parallel
    return Model(application, alone, Amdahl(1 - parallel / alone))

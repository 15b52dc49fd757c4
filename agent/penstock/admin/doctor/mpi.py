"""The checks of MPI as this Python has it; the applications' own environment may be another. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.admin.doctor.facts import SiteFacts
from penstock.core.findings import Finding, Trouble, fine, note, unknown

__all__ = ["check_mpi"]

_INSTALL: Final = "pip install mpi4py mpich in the environment of the application (MPICH 4.1 or newer)"
_RESTART: Final = "restart"


def check_mpi(facts: SiteFacts) -> Iterator[Finding]:
    """One finding per check."""
    yield _library(facts)
    yield _probe(facts)


def _library(facts: SiteFacts) -> Finding:
    if isinstance(facts.mpi, Trouble):
        return note("mpi", f"this Python has no MPI: {facts.mpi.why}", _INSTALL)
    mpi = facts.mpi
    have = f"{mpi.library}, mpi4py {mpi.mpi4py}"
    if mpi.mpiexec is None:
        return note("mpi", f"{have}, but there is no mpiexec for `python -m dmr.launch`", _INSTALL)
    if mpi.methods == (_RESTART,):
        return note("mpi", f"{have}: it cannot start processes later, so programs are resized by restart", _INSTALL)
    return fine("mpi", f"{have}: programs are resized by {', '.join(mpi.methods)}")


def _probe(facts: SiteFacts) -> Finding:
    if facts.probe is None:
        return unknown("mpi-probe", "not run", "`penstock doctor --mpi` runs small MPI programs (up to a minute each)")
    if isinstance(facts.probe, Trouble):
        return note("mpi-probe", f"`python -m dmr.probe`: {facts.probe.why}", "run it in a job of two nodes")
    works, failures = facts.probe.methods, facts.probe.failures
    seen = f"ways of resizing that work: {', '.join(works) or 'none'}"
    if failures:
        broken = "; ".join(f"{name}: {why}" for name, why in failures.items())
        return note("mpi-probe", f"{seen}; {broken}", "run `python -m dmr.probe` in a job of two nodes")
    return fine("mpi-probe", seen)

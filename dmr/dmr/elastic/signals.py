"""Whether what runs over all nodes lives to save itself when the signal for a resize comes."""

from __future__ import annotations

from collections.abc import Mapping

from dmr.elastic.words import ElasticPlan
from dmr.hydra import complaint

__all__ = ["check_signal"]


def check_signal(plan: ElasticPlan, environ: Mapping[str, str]) -> None:
    """Raises ValueError where the signal for a resize would end mpiexec, and the program with it, unsaved."""
    if plan.again and not plan.leave:  # else no signal comes, or to what leaves anyway
        for name in ("start", "again"):
            if why := complaint(plan.signal, getattr(plan, name), environ):
                raise ValueError(f"signal: {name}: {why}")

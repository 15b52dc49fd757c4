"""How long a job may run: whole minutes, and no less than its rule says.

Snakemake cuts what is left of a minute off ("119s" is 1), and rounds fractions (1.4 is 1): a job that was given that by
Slurm would be ended before its time. What the rule says is still there, if it says it in the Snakefile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from humanfriendly import InvalidTimespan, parse_timespan

__all__ = ["Runtimes", "whole_minutes"]

_RUNTIME: Final = "runtime"


class Runtimes:
    """The run times of one workflow's jobs; `async_run` is the workflow's."""

    def __init__(self, async_run: Callable[..., Any]) -> None:
        self._async_run = async_run
        self._more: dict[tuple[Any, int, int], int] = {}

    def rounded(self, job: Any, resources: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401
        """The resources of a job with its run time rounded up, where they have the one that Snakemake has told."""
        known = dict(resources.items())
        told = job.resources.get(_RUNTIME)
        if _is_whole(told) and known.get(_RUNTIME) == told:
            known[_RUNTIME] = told + sum(map(self._lost, job.jobs if job.is_group() else [job]))
        return known

    def _lost(self, job: Any) -> int:  # noqa: ANN401
        """Minutes that Snakemake has left out of what the rule says: 0 or 1."""
        told = job.resources.get(_RUNTIME)
        if not _is_whole(told):
            return 0
        key = job, job.attempt, told
        if key not in self._more:
            # What is said on the command line counts before the rule, and then this is another number.
            self._more[key] = int(whole_minutes(self._said(job)) == told + 1)
        return self._more[key]

    def _said(self, job: Any) -> object:  # noqa: ANN401
        """What the Snakefile says; a function is asked as Snakemake has asked it."""
        try:
            said = job.rule.ruleinfo.resources[1].get(_RUNTIME)
            if not callable(said):
                return said
            found, _incomplete = job.rule.apply_input_function(
                said,
                job.wildcards_dict,
                input=job.input,
                attempt=job.attempt,
                threads=job.threads,
                rulename=job.rule.name,
                async_run=self._async_run,
                raw_exceptions=True,
            )
        except Exception:  # of the user's function, or of a Snakemake that has it elsewhere
            return None
        return found


def whole_minutes(said: object) -> int | None:
    """As few as are no less than that; None for what is no run time."""
    if isinstance(said, str):
        text = said.strip("'\"")
        try:
            said = int(text) if text.isdecimal() else round(parse_timespan(text), 3) / 60
        except InvalidTimespan:
            return None
    if isinstance(said, bool) or not isinstance(said, int | float) or not math.isfinite(said):
        return None
    return math.ceil(said)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

"""A workflow to the site where all of it is to run: that site plans it anew, reserves its slots and runs it there."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.errors import Infeasible, NotNow, NotPermitted, OutcomeUnknown, PenstockError, UserError
from penstock.values.documents import flat
from penstock.values.lines import split_lines
from penstock.workflow.model import Workflow
from penstock_planning.sites.file import SiteEntry
from penstock_planning.sites.remote import command_of, words_of

__all__ = ["as_file", "reserve_at"]

_PATIENCE: Final = 600.0  # seconds; reservations are made one after the other
_ERRORS: Final[Mapping[int, type[PenstockError]]] = {
    error.exit_code: error for error in (UserError, NotPermitted, Infeasible, NotNow)
}


def as_file(flow: Workflow, speed: float) -> str:
    """The workflow as a workflow file for a site that works `speed` times as fast. UserError for what no file says."""
    pooled = next((stage.name for stage in flow.stages if stage.meanwhile), None)
    if pooled is not None:
        raise UserError(f"stage {pooled}: tasks of a pool run here; without --pool they can be reserved elsewhere")
    stages: list[dict[str, Any]] = []
    for stage in flow.stages:
        entry: dict[str, Any] = {
            "name": stage.name,
            "nodes": stage.nodes,
            "time": math.ceil(stage.time_limit / speed),
            "run": stage.command,
            "after": list(stage.after),
            "retries": stage.retries,
        }
        if not stage.guessed:
            entry["expect"] = min(stage.run_time / speed, entry["time"])
        if stage.took:
            entry["took"] = [time / speed for time in stage.took]
        stages.append(entry)
    top = {"name": flow.name, "account": flow.account, "qos": flow.qos, "workdir": flow.workdir}
    said = {key: value for key, value in top.items() if value is not None}
    return json.dumps({**said, "environment": dict(flow.environment), "stages": stages})


def reserve_at(site: SiteEntry, text: str, options: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Have it planned with these options and reserved there: the plan that the site made, and what it said beside.

    Raises PenstockError with the site's reason if it did not; then it has given back what it had begun.
    OutcomeUnknown if nobody knows.
    """
    words = words_of(site, ["plan", "-", "--reserve", "--json", *options])
    try:
        done = subprocess.run(command_of(site, words), input=text, capture_output=True, text=True, timeout=_PATIENCE)
    except OSError as error:
        raise NotNow(f"site {site.name}: {error.filename or site.name}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise OutcomeUnknown(f"site {site.name}: no answer in {_PATIENCE:g} s; see what is held there") from None
    said = split_lines(done.stderr.strip())
    if done.returncode != 0:
        why = flat(said[-1].removeprefix("penstock: ")) if said else f"ended with {done.returncode}"
        raise _ERRORS.get(done.returncode, PenstockError)(f"site {site.name}: {why}")
    start = done.stdout.find("{")  # a login shell may have said something before
    try:
        found = json.loads(done.stdout[start:]) if start >= 0 else None
    except ValueError:
        found = None
    if not isinstance(found, dict) or not _is_plan(found):
        raise OutcomeUnknown(f"site {site.name}: its answer cannot be read; see what is held there")
    return found, said


def _is_plan(found: Mapping[str, Any]) -> bool:
    stages = found.get("stages")
    return isinstance(stages, list) and all(
        isinstance(stage, dict)
        and isinstance(stage.get("name"), str)
        and all(isinstance(stage.get(key), int | float) for key in ("start", "end"))
        for stage in stages
    )

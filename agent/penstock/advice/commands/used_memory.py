"""What accounting knows of the memory that a user's own jobs used, and what the site's settings make of it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.config import Config
from penstock.errors import SlurmUnavailable
from penstock.host.logins import login
from penstock.slurm.base import Reader
from penstock.slurm.parse import ParseError, parse_config
from penstock.slurm.raw_looks import HasRunner, RawLooks
from penstock.slurm.step_usage import STEP_FIELDS, JobMemory, memory_of, step_rows

__all__ = ["UsedMemory", "megabytes", "used_memory"]

_NOT_ASKED: Final = "this back end does not ask sacct"


@dataclass(frozen=True, slots=True)
class UsedMemory:
    """By job. `unknown`: why nothing is known; `unscheduled`: why asking for less would change no start; `kept`: why
    no time limit is ever shortened to `--time-min`. Each empty where that is not so."""

    jobs: Mapping[int, JobMemory] = field(default_factory=dict)
    unknown: str = ""
    unscheduled: str = ""
    kept: str = ""


async def used_memory(config: Config, backend: Reader, ago: float) -> UsedMemory:
    """Of the caller's jobs of the last `ago` s. What cannot be asked is said in `unknown`."""
    if not isinstance(backend, HasRunner):
        return UsedMemory(unknown=_NOT_ASKED)
    looks = RawLooks(backend.runner, config.slurm.timeout)
    try:
        settings = parse_config((await looks.scontrol("show", "config")).text)
    except SlurmUnavailable as error:
        return UsedMemory(unknown=str(error))
    about = UsedMemory({}, _gathered(settings), _scheduled(settings), _backfilled(settings))
    if about.unknown:
        return about
    try:
        shown = await looks.steps(STEP_FIELDS, login(os.geteuid()), ago)
        jobs = memory_of(step_rows(shown.text, shown.separator))
    except (SlurmUnavailable, ParseError) as error:
        return replace(about, unknown=str(error))
    return replace(about, jobs=jobs)


def megabytes(size: float) -> str:
    """Bytes as `sbatch --mem` takes them, rounded up."""
    return f"{math.ceil(size / 1024**2)}M"


def _gathered(settings: Mapping[str, str]) -> str:
    gathers = settings.get("JobAcctGatherType", "")
    if gathers.rpartition("/")[2] in ("", "none"):
        return f"accounting has no MaxRSS here (JobAcctGatherType={gathers or '(null)'})"
    return ""


def _scheduled(settings: Mapping[str, str]) -> str:
    select, parameters = settings.get("SelectType", ""), settings.get("SelectTypeParameters", "")
    if select == "select/linear":
        return "jobs get whole nodes here (SelectType=select/linear)"
    if "MEMORY" not in parameters.upper():
        return f"memory is not scheduled here (SelectTypeParameters={parameters or '(null)'})"
    return ""


def _backfilled(settings: Mapping[str, str]) -> str:
    kind = settings.get("SchedulerType", "")
    return "" if kind == "sched/backfill" else f"only backfill shortens limits (SchedulerType={kind or '(null)'})"

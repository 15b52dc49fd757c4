"""Workflows as commands show them, whoever submits their jobs: the agent, their owner, or into slots that are held.

They are found by number, by wN or by name; those in slots have names only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.config import Config
from penstock.console.door import ask_or_read
from penstock.console.output import ago, build_table, clock, plain
from penstock.console.parts import TextLine, TextTable
from penstock.errors import AgentUnavailable, NotFound, NotPermitted
from penstock.state.ownership import is_readable, ledger_path

if TYPE_CHECKING:
    from penstock.workflow.metrics import WaitParts
    from penstock.workflow.state import StageRun, WorkflowRun

__all__ = [
    "KEPT_BACK",
    "NEVER",
    "NEVER_STARTS",
    "STAGE_COLUMNS",
    "Shown",
    "StageLine",
    "answered",
    "elastic_jobs",
    "find",
    "in_slots",
    "shown",
    "with_waits",
]

KEPT_BACK: Final = "kept back"
"""What the phase of a job that waits in the queue for the agent to let it go is called."""
STAGE_COLUMNS: Final = (
    "stage",
    "phase",
    "job",
    "submit",
    "start",
    "end",
    "waited",
    "paused",
    "reaction",
)
_DISPENSABLE: Final = ("reaction", "paused", "submit", "end", "waited")
"""Columns that a narrow terminal leaves out, the first of them first."""
NEVER_STARTS: Final = "never starts"
"""What the phase of a job is called of which Slurm says so."""
NEVER: Final = "DependencyNeverSatisfied"
"""Slurm's reason of such a job."""
_AT_MOST: Final = 300.0  # s that the clocks of two hosts may be apart
_STUCK: Final = (
    f"a job that it depends on has not ended as it must ({NEVER}): `penstock retry` repeats that, `cancel` ends it all"
)


class StageLine(NamedTuple):
    """One line of a workflow."""

    name: str
    phase: str
    job: int | None
    submitted: float | None
    start: float | None
    end: float | None
    waited: WaitParts | None
    why: str | None

    def cells(self) -> tuple[object, ...]:
        """As a table shows it, under `STAGE_COLUMNS`."""
        times = (clock(self.submitted), clock(self.start), clock(self.end))
        parts = None if self.waited is None else (self.waited.perceived, self.waited.paused, self.waited.reaction)
        return (self.name, self.phase, self.job, *times, *map(ago, parts or (None,) * 3))


class Shown(NamedTuple):
    """A workflow. `owned`: its owner submitted the jobs, so only the owner can cancel them or submit them again. In
    slots (`reserved`) it has no `number`."""

    number: int | None
    name: str
    strategy: str
    phase: str
    final: bool
    why: str | None
    stages: tuple[StageLine, ...]
    owned: WorkflowRun | None = None
    flow: str = ""
    open_until: float | None = None

    @property
    def reserved(self) -> bool:
        """Whether its stages have slots of their own."""
        return self.number is None

    @property
    def label(self) -> str:
        """What a command finds it by."""
        return self.name if self.number is None else str(self.number)

    @property
    def title(self) -> str:
        """The workflow in a line."""
        name = self.name if self.number is None else f"{self.number} {self.name}"
        text = f"workflow {name} ({self.strategy}): {self.phase}"
        if self.open_until is not None and not self.final:
            text += f", more stages may come until {clock(self.open_until)}"
        return f"{text} - {self.why}" if self.why else text

    def stage(self, name: str) -> StageLine:
        """Raises `NotFound`."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        names = ", ".join(s.name for s in self.stages)
        raise NotFound(f"workflow {self.label} has no stage {name!r} (stages: {names})")

    def parts(
        self, stages: Sequence[StageLine] | None = None, more: Mapping[str, Sequence[object]] = MappingProxyType({})
    ) -> list[TextLine | TextTable]:
        """What there is to print: the title, a table of its stages (or of these), with `more` columns, and why."""
        shown = self.stages if stages is None else stages
        more = {name: cells for name, cells in more.items() if any(cells)}
        rows = [(*stage.cells(), *cells) for stage, *cells in zip(shown, *more.values(), strict=True)]
        whys = [TextLine(plain(f"{stage.name}: {stage.why}"), indent=2) for stage in shown if stage.why]
        return [
            TextLine(plain(self.title), "bold"),
            build_table("", (*STAGE_COLUMNS, *more), rows, _DISPENSABLE),
            *whys,
        ]


def answered(config: Config, *, last_known: bool = False) -> dict[str, Any]:
    """The answer to `status`, with the caller's workflows in slots as `reserved`, which need no agent. `last_known`:
    where an agent is gone, what it knew last."""
    reserved = in_slots(config)
    try:
        answer: dict[str, Any] = ask_or_read(config, "status", last_known=last_known)
    except AgentUnavailable as e:
        if not reserved:
            raise
        empty: dict[str, Any] = {kind: [] for kind in ("workflows", "malleable", "moldable", "jobs", "resizes")}
        answer = {"now": time.time(), "problems": [str(e)], "paused_until": 0.0, **empty}
    return {"jobs": [], **answer, "reserved": reserved}  # an agent of an earlier release tells of no others


def elastic_jobs(config: Config) -> Callable[[int, float | None], str | None]:
    """Tells what the caller has called an elastic job of this number, which Slurm got at that time (None: whenever)."""
    from penstock.resize.commands.remembered import remembered_elastic  # slow to load

    remembered = remembered_elastic(config)

    def name(job: int, submitted: float | None) -> str | None:
        known = remembered.get(job)
        if known is None or (submitted is not None and abs(known.at - submitted) > _AT_MOST):
            return None  # else Slurm has given the number again
        return known.name

    return name


def in_slots(config: Config, *, final: bool = False) -> list[dict[str, Any]]:
    """The caller's workflows in slots that are not over (`final`: all), each with its holds as `slots` by stage."""
    try:
        if not is_readable(ledger_path(config)):
            return []
    except NotPermitted:  # another's
        return []
    from penstock.core.installed import installed_parts  # slow to load

    return [run for part in installed_parts() for run in part.reserved_runs(config, final=final)]


def shown(answer: Mapping[str, Any]) -> list[Shown]:
    """All workflows of an answer to `status`, oldest first, then those in slots."""
    return [*map(_of_run, answer["workflows"]), *map(_of_reserved, answer.get("reserved", ()))]


def find(runs: Sequence[Shown], which: str) -> Shown:
    """The workflow of that number (3 or w3), or the latest of that name. Raises `NotFound`."""
    number = which.removeprefix("w")
    for run in reversed(runs):
        # One whose jobs have become part of another is asked for by its number alone.
        if (number.isdecimal() and run.number == int(number)) or (run.stages and which in (run.name, run.flow)):
            return run
    raise NotFound(f"there is no workflow {which}")


def with_waits(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer to `status` for programs: each stage with `perceived_wait`, `paused` and `reaction` (s, null while
    unknown; see `metrics.WaitParts`)."""
    kinds = [kind for kind in ("workflows", "reserved") if kind in answer]
    return {**answer, **{kind: list(map(_with_waits, answer[kind])) for kind in kinds}}


def _of_run(answer: Mapping[str, Any]) -> Shown:
    """A workflow of the agent's answer; its stages are told with what Slurm says of their jobs."""
    from penstock.workflow.documents import run_from_dict  # slow to load
    from penstock.workflow.metrics import waited

    run = run_from_dict(answer)
    stages = tuple(
        StageLine(s.name, phase, s.job, s.submitted, s.start, s.end, waited(run, i), why)
        for i, (s, one) in enumerate(zip(run.stages, answer["stages"], strict=True))
        for phase, why in ((NEVER_STARTS, _STUCK) if one.get("reason") == NEVER else (_phase_of(s), _why(s)),)
    )
    title = (run.id, run.name, run.strategy, run.phase.value, run.phase.final, run.why)
    return Shown(*title, stages, owned=run if run.owned else None, open_until=run.open_until)


def _why(stage: StageRun) -> str | None:
    """What went wrong with it; as long as it waits, what else than its stages Slurm has it wait for."""
    if stage.failure is None and stage.own is not None and stage.own.chained and stage.phase.value == "queued":
        return f"Slurm sees to its {stage.own.base}" if stage.own.base else None
    return stage.failure


def _with_waits(workflow: Mapping[str, Any]) -> dict[str, Any]:
    from penstock.workflow.documents import run_from_dict
    from penstock.workflow.metrics import waited

    run = run_from_dict(workflow)
    stages = []
    for i, stage in enumerate(workflow["stages"]):
        found = None if run.in_slots else waited(run, i)  # a slot's begin is no wait
        parts = ("perceived", "paused", "reaction")
        values = {name: None if found is None else getattr(found, name) for name in parts}
        stages.append({**stage, "perceived_wait": values.pop("perceived"), **values})
    return {**workflow, "stages": stages}


def _phase_of(stage: StageRun) -> str:
    """The phase in a word for people: a job that is kept back is in the queue and does not wait to be asked for."""
    return KEPT_BACK if stage.own is not None and stage.phase.value == "waiting" else stage.phase.value


def _of_reserved(answer: Mapping[str, Any]) -> Shown:
    """A workflow in slots."""
    from penstock.workflow.documents import run_from_dict

    run = run_from_dict(answer)
    stages = []
    for s in run.stages:
        slot = f"slot of hold {s.held.hold} at {clock(answer['slots'][s.name]['wanted']['start'])}"
        why = run.told.get(s.name) or s.failure
        told = f"{slot}: {why}" if why else slot
        stages.append(StageLine(s.name, s.phase.value, s.job, s.submitted, s.start, s.end, None, told))
    why = run.told.get("") or run.why
    title = (None, run.name, "reserved", run.phase.value, run.phase.final, why)
    return Shown(*title, tuple(stages), flow=run.workflow.name)

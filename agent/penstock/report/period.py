"""What the agent has done within a time, in figures that its state file can answer for. Pure but for the store.

Each figure says how it was found. What would have happened without the agent is not known; where a figure has a
prediction in it, it says so.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from penstock.core.asked import asked_in
from penstock.host.logins import login
from penstock.report.comparison import ChainComparison, ChainTerms, Verdict, compared, terms_of
from penstock.slurm.meter import LOOKS
from penstock.state.schema import UNREADABLE
from penstock.state.store import Store
from penstock.workflow.documents import run_from_dict
from penstock.workflow.metrics import WaitParts, waited
from penstock.workflow.phases import RunPhase
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategy import KEEPS_PLACE

__all__ = ["Figure", "PeriodReport", "StageStart", "as_text", "asked", "report_of", "started", "waiting"]

_HOUR: Final = 3600.0
_USERS: Final = 10
"""Whose requests are named one by one: those of whom there were most."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number: what it is, in which unit ("" for a count), and how it was found."""

    name: str
    title: str
    value: float
    unit: str
    how: str


@dataclass(frozen=True, slots=True)
class PeriodReport:
    """The figures of the time from `since` to `until` (epoch s)."""

    since: float
    until: float
    figures: tuple[Figure, ...]
    comparison: ChainComparison

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class StageStart:
    """A stage that comes after others and has started: when it was in the queue from (epoch s), when those before it
    had ended, when it started, and where the time between these two went."""

    queued: float
    ready: float
    start: float
    waited: WaitParts

    @property
    def overlapped(self) -> float:
        """Seconds in the queue while the stages before it still ran."""
        return max(0.0, min(self.start, self.ready) - self.queued)


def started(run: WorkflowRun, since: float, until: float) -> Iterator[StageStart]:
    """The stages of a run that come after others and started within the time."""
    for i, stage in enumerate(run.stages):
        ready, found = run.ready_at(i), waited(run, i)
        if not stage.after or stage.start is None or ready is None or found is None or stage.submitted is None:
            continue
        if since < stage.start <= until:
            yield StageStart(max(stage.submitted, stage.released or 0.0), ready, stage.start, found)


def waiting(starts: Sequence[StageStart], comparison: ChainComparison) -> list[Figure]:
    """What submitting ahead was good for."""
    ahead = [one for one in starts if one.overlapped > 0]
    proved = comparison.verdict in (Verdict.GAIN, Verdict.LOSS)
    saved = (comparison.gain or 0.0) * comparison.workflows if proved else 0.0
    return [
        Figure("stages_started", "stages started that come after others", len(starts), "", "as Slurm says"),
        Figure("stages_ahead", "of these submitted ahead", len(ahead), "", "in the queue before the others ended"),
        Figure(
            "waiting_overlapped",
            "waiting while others ran",
            sum(one.overlapped for one in ahead) / _HOUR,
            "h",
            "measured: time in the queue while the stages before still ran",
        ),
        Figure(
            "waiting_perceived",
            "waiting that was left",
            sum(one.waited.perceived for one in starts) / _HOUR,
            "h",
            "measured: from the end of the stages before to the start, without the next two",
        ),
        Figure(
            "waiting_paused",
            "paused or held",
            sum(one.waited.paused for one in starts) / _HOUR,
            "h",
            "measured: somebody held the job, or had the agent leave the workflow alone",
        ),
        Figure(
            "waiting_reaction",
            "the agent's reaction",
            sum(one.waited.reaction for one in starts) / _HOUR,
            "h",
            "measured: from the end of the stages before until the agent had submitted the job or let it go",
        ),
        Figure(
            "waiting_saved",
            "waiting saved",
            saved / _HOUR,
            "h",
            f"against a plain chain (sbatch --dependency=afterok), where it is proved: {comparison.text}",
        ),
    ]


def report_of(store: Store, since: float, until: float) -> PeriodReport:
    """The report of a state file. Runs that cannot be read (of another release) are left out and counted."""
    starts: list[StageStart] = []
    terms: list[ChainTerms] = []
    ended: Counter[RunPhase] = Counter()
    idle = wasted = unread = 0.0
    for state in store.runs.since(since):
        try:
            run = run_from_dict(state)
        except UNREADABLE:
            unread += 1
            continue
        starts += started(run, since, until)
        if run.phase.final and run.ended_at is not None and since < run.ended_at <= until:
            ended[run.phase] += 1
            if (found := terms_of(run)) is not None:
                terms.append(found)
            idle += sum(stage.idle for stage in run.stages)
            wasted += sum(stage.wasted for stage in run.stages)
    comparison = compared(terms, _keeps_place(store))
    resizes = store.resizes.within(since, until)
    done = [r for r in resizes if r["outcome"] == "completed"]
    nodes = {k: sum(r["nodes"] or 0 for r in done if r["kind"] == k) for k in ("expand", "shrink")}
    uncounted = sum(r["nodes"] is None for r in done)
    of_resizes = "of completed resizes, each node once for each move"
    figures = [
        Figure("workflows_completed", "workflows completed", ended[RunPhase.COMPLETED], "", "ended in this period"),
        Figure("workflows_failed", "workflows failed", ended[RunPhase.FAILED], "", "ended in this period"),
        *waiting(starts, comparison),
        Figure(
            "node_hours_wasted",
            "node-hours wasted",
            wasted / _HOUR,
            "node h",
            "of workflows that ended: attempts that failed or were taken back",
        ),
        Figure(
            "node_hours_idle",
            "of these started too early",
            idle / _HOUR,
            "node h",
            "jobs that held nodes while the stages before still ran, and were taken back",
        ),
        Figure("resizes_completed", "resizes completed", len(done), "", "jobs that grew or shrank"),
        Figure(
            "resizes_abandoned",
            "resizes given up",
            len(resizes) - len(done),
            "",
            "no nodes, or the application refused",
        ),
        Figure("nodes_added", "nodes added to jobs", nodes["expand"], "nodes", of_resizes),
        Figure("nodes_given_back", "nodes given back", nodes["shrink"], "nodes", of_resizes),
    ]
    figures += asked(store, since, until)
    if uncounted:
        how = "stored by an older release, which did not count their nodes"
        figures.append(Figure("resizes_uncounted", "resizes of unknown size", uncounted, "", how))
    if unread:
        figures.append(Figure("workflows_unread", "workflows left out", unread, "", "stored by another release"))
    return PeriodReport(since, until, tuple(figures), comparison)


def asked(store: Store, since: float, until: float) -> list[Figure]:
    """How often Slurm was asked, what for, and for whose jobs. Nothing where that was not counted."""
    hours, counts = asked_in(store, since, until)
    if not hours:
        return []
    features: Counter[str] = Counter()
    users: Counter[int] = Counter()
    for (feature, owner), count in counts.items():
        features[feature] += count
        if owner is not None:
            users[owner] += count
    how = f"every command of the agent's, in the {hours} h in which it asked at all"
    found = [Figure("slurm_requests", "requests to Slurm an hour", features.total() / hours, "/h", how)]
    for feature, count in features.most_common():
        title = "of these looks, for everybody" if feature == LOOKS else f"of these for acts of {feature}"
        found.append(Figure(f"slurm_requests_{feature}", title, count / hours, "/h", ""))
    for uid, count in users.most_common(_USERS):
        title = f"of these for jobs of {login(uid)}"
        found.append(Figure(f"slurm_requests_user_{uid}", title, count / hours, "/h", ""))
    return found


def _keeps_place(store: Store) -> bool | None:
    """By the site's rules as the agent knew them when a workflow came last; None: it did not, or is of an older
    release."""
    try:
        found = json.loads(store.facts.get(KEEPS_PLACE) or "null")
    except ValueError:
        return None
    return found if isinstance(found, bool) else None


def as_text(report: PeriodReport) -> str:
    """The report for people: figures, then how they were found."""
    width = max(len(figure.title) for figure in report.figures)
    lines = [f"From {_day(report.since)} to {_day(report.until)}:", ""]
    lines += [f"  {figure.title:<{width}}  {_shown(figure)}" for figure in report.figures]
    lines += ["", f"Against a plain chain (sbatch --dependency=afterok): {report.comparison.text}."]
    lines += ["", "How these were found:"]
    lines += [f"  {figure.title}: {figure.how}" for figure in report.figures if figure.how]
    lines.append("What else would have happened without the agent is not known, and not claimed.")
    return "\n".join(lines) + "\n"


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _shown(figure: Figure) -> str:
    value = f"{figure.value:.0f}" if figure.unit in ("", "nodes") else f"{figure.value:.1f}"
    return f"{value} {figure.unit}".rstrip()

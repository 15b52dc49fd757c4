"""What a user registers, and which workflow it belongs to. Pure.

A workflow is known by its owner and its name. A stage joins the one that is open under that name, or the last one if it
comes after stages of that; without either it begins a new one. Everything wrong is found by `plan`, before anything is
submitted.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.core.pace import at_once
from penstock.errors import NotFound, UserError
from penstock.slurm.parse import is_plain_name
from penstock.values.documents import brief
from penstock.workflow.documents import in_order
from penstock.workflow.model import NAME_PATTERN, Stage, Workflow
from penstock.workflow.phases import Kept, RunPhase, StagePhase, Submitter
from penstock.workflow.run.measure import OF_A_STAGE, weight
from penstock.workflow.state import Order, Own, StageRun, WorkflowRun, units_of
from penstock.workflow.strategies.cuts import singles
from penstock.workflow.strategies.registry import known_strategies, strategy_named
from penstock.workflow.strategy import WHOLE, Outlook, Plan, Rules
from penstock.workflow.submit.expectations import took_in

__all__ = [
    "LONGEST_OPEN",
    "MOST_STAGES",
    "Asked",
    "Registration",
    "admit",
    "afters_of",
    "check_size",
    "identity_of",
    "order_of",
    "plan",
    "plan_for_owner",
    "planned",
    "read_registration",
    "registration",
    "seconds_open",
    "settled",
]

MOST_STAGES: Final = 1000
"""Of one workflow."""
LONGEST_OPEN: Final = 30 * 86400.0
"""Seconds that a workflow may wait for more stages."""
_MOST_TEXT: Final = 2_000_000  # characters
_LONGEST_NAME: Final = 40
_LAST: Final = 2.0**32  # no begin time is later (epoch s)


_PAIR: Final = Workflow("pair", (Stage("a", 1, 60.0, 60.0, ":"), Stage("b", 1, 60.0, 60.0, ":", ("a",))))


@dataclass(frozen=True, slots=True)
class Asked:
    """A stage whose `job` its owner has put into the queue; `after` names those that it comes after. `free`: nobody has
    chosen the name, so that another will do (see `settled`). `called` and `born` are what Slurm calls the job, and when
    it was submitted, as its owner's command has seen it right after."""

    name: str
    job: int
    after: tuple[str, ...] = ()
    own: Own = field(default_factory=Own)
    free: bool = False
    called: str = ""
    born: float | None = None

    @property
    def entry(self) -> StageRun:
        """Its entry, which does not know the places of those before it yet."""
        return StageRun(
            self.name,
            phase=StagePhase.WAITING if self.own.kept else StagePhase.QUEUED,
            job=self.job,
            own=self.own,
            called=self.called,
            born=self.born,
        )


@dataclass(frozen=True, slots=True)
class Registration:
    """Stages of one workflow, each after the ones it comes after. `run` names the run to join, where that is known.

    `replaces`: by stage the waiting job whose place the stage's new one takes. `more`: for so long (s) more stages may
    come; 0: these were all; None: nothing is said of it.
    """

    workflow: str
    strategy: str
    stages: tuple[Asked, ...]
    run: int | None = None
    replaces: Mapping[str, int] = field(default_factory=dict)
    more: float | None = None

    def begun(self, number: int, uid: int, user: str, now: float, plan: Plan) -> WorkflowRun:
        """A new run for them, still without stages."""
        return WorkflowRun(
            id=number,
            name=self.workflow,
            strategy=self.strategy,
            by=plan.by,
            levels_ahead=plan.levels_ahead,
            submitted_at=now,
            partition="",
            qos="",
            stages=(),
            units=(),
            submitter=Submitter.OWNER,
            uid=uid,
            user=user,
        )


def registration(data: Mapping[str, Any], now: float) -> Registration:
    """What came in as JSON. Raises UserError: nothing of it is trusted."""
    return at_once(read_registration(data, now))


def read_registration(data: Mapping[str, Any], now: float) -> Generator[int, None, Registration]:
    """The same in parts (see `Pace.walk`), each of a stage with what it comes after."""
    try:
        entries = tuple(data["stages"])
        if not 1 <= len(entries) <= MOST_STAGES:
            raise UserError(f"stages: must be 1 to {MOST_STAGES} at once, not {len(entries)}")
        stages = []
        for entry in entries:
            stages.append(_stage(entry, now))
            yield 1 + len(stages[-1].after)
        run = data.get("run")
        replaces = {str(name): int(job) for name, job in (data.get("replaces") or {}).items()}
        run = None if run is None else int(run)
        more = None if data.get("more") is None else seconds_open(data["more"])
        found = Registration(str(data["workflow"]), str(data["strategy"]), tuple(stages), run, replaces, more)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as e:
        raise UserError(f"not a registration of stages: {brief(e)}") from e
    if not NAME_PATTERN.fullmatch(found.workflow):
        raise UserError(f"workflow: must be 1 to 40 of A-Z a-z 0-9 _ . -, not {found.workflow[:60]!r}")
    if found.strategy not in known_strategies():
        raise UserError(f"strategy: must be one of {', '.join(known_strategies())}, not {found.strategy[:60]!r}")
    check_size(stage.entry for stage in stages)
    return found


def seconds_open(said: Any) -> float:  # noqa: ANN401
    """For how long (s) more stages may come, from what came in as JSON. Raises UserError, TypeError or ValueError."""
    if not 0 <= float(said) <= LONGEST_OPEN:
        raise UserError(f"more: must be 0 to {LONGEST_OPEN:.0f} seconds (30 days), not {float(said):g}")
    return float(said)


def plan_for_owner(strategy: str, rules: Rules) -> Plan:
    """What a strategy makes of jobs that their owner submits: who acts, and why. Raises UserError for one that has to
    write their scripts: one job for several stages, or one whose script waits for others."""
    if (found := _for_owners(strategy, rules)) is None:
        possible = ", ".join(name for name in known_strategies() if _possible(name, rules))
        raise UserError(
            f"strategy: {strategy} is not possible here, as it has to write the jobs' scripts itself; possible are: "
            f"{possible}"
        )
    return found


def _for_owners(strategy: str, rules: Rules) -> Plan | None:
    outlook = Outlook(lambda _geometry: 0.0, rules=rules, scripts=False)
    found = strategy_named(strategy).plan(_PAIR, outlook)
    guarded = strategy_named(found.by or strategy).tie.guarded
    if guarded or found.cut != singles(_PAIR.order):
        return None
    # they are all in the queue already, and may be let go as if they had been submitted by hand
    return replace(found, levels_ahead=max(found.levels_ahead, WHOLE))


def _possible(strategy: str, rules: Rules) -> bool:
    try:
        return _for_owners(strategy, rules) is not None
    except UserError:
        return False


def check_size(stages: Iterable[StageRun]) -> None:
    """Raises UserError for a whole workflow that is too large: it is stored anew with every change."""
    if weight(stages) > _MOST_TEXT:
        raise UserError(
            f"the command lines and scripts of the stages are longer than {_MOST_TEXT} characters together (each stage "
            f"counts for {OF_A_STAGE} more)"
        )


def _stage(data: Mapping[str, Any], now: float) -> Asked:
    name, after, expect = str(data["name"]), tuple(str(a) for a in data["after"]), data.get("expect")
    for text in (name, *after):
        if not NAME_PATTERN.fullmatch(text):
            raise UserError(f"stage: a name must be 1 to 40 of A-Z a-z 0-9 _ . -, not {text[:60]!r}")
    job = int(data["job"])
    if not 0 <= job < 2**32 or (expect is not None and not 0 < float(expect) <= 1e9):
        raise ValueError(f"stage {name}: job {job}, expect {expect}")
    begin = data.get("begin")
    if begin is not None and not 0 <= float(begin) <= _LAST:
        raise ValueError(f"stage {name}: begin {begin}")
    own = Own(
        expect=None if expect is None else float(expect),
        # "hold" is what release 0.1.0 says.
        kept=Kept(str(data["kept"])) if "kept" in data else Kept.HOLD if data.get("hold") else Kept.NOT,
        begin=None if begin is None else float(begin),
        base=str(data.get("base", ""))[:1000],
        order=order_of(data.get("order") or {}),
        registered=now,
        chained=bool(data.get("chained", False)),
    )
    called, born = identity_of(data)
    return Asked(name, job, after, own, bool(data.get("free", False)), called, born)


def identity_of(data: Mapping[str, Any]) -> tuple[str, float | None]:
    """What a job is called, and when it was submitted, from what came in as JSON: older commands say neither. Raises
    ValueError or TypeError."""
    called, born = str(data.get("called_in_slurm", "")), data.get("born")
    if not is_plain_name(called):
        called = ""  # nobody can ask for it
    if born is not None and not 0 <= float(born) <= _LAST:
        raise ValueError(f"a job called {called[:60]!r}, submitted at {born}")
    return called, None if born is None else float(born)


def order_of(data: Mapping[str, Any]) -> Order:
    """How a job was submitted, from what came in as JSON. Raises ValueError, TypeError or AttributeError."""
    script = data.get("script")
    words = tuple(str(word) for word in data.get("words", ()))
    return Order(words, str(data.get("workdir", "")), None if script is None else str(script))


def settled(runs: Sequence[WorkflowRun], asked: Registration) -> Registration:
    """The same with names that the workflow these stages would join has room for: those before a stage may be given by
    the numbers of their jobs, and where nobody has chosen a stage's name, the next that is free is taken (`task`,
    `task-2`, `task-3`). `runs` are the owner's, oldest first. Raises NotFound."""
    run = _home(runs, asked)
    known = {} if run is None else {stage.name: stage for stage in run.stages}
    by_job = {str(job): stage.name for stage in known.values() for job in (*stage.mine.former, stage.job) if job}
    taken = {name for name, stage in known.items() if not _replaceable(stage)}
    stages = []
    for stage in asked.stages:
        after = tuple(dict.fromkeys(by_job.get(p, p) if p not in known else p for p in stage.after))
        name = _next_free(stage.name, taken) if stage.free else stage.name
        taken.add(name)
        stages.append(replace(stage, name=name, after=after))
    return replace(asked, stages=tuple(stages))


def _replaceable(stage: StageRun) -> bool:
    """Whether a stage of the same name may take its place."""
    return stage.phase.final and stage.phase is not StagePhase.DONE


def _next_free(name: str, taken: Collection[str]) -> str:
    found, number = name, 2
    while found in taken:
        end = f"-{number}"
        found, number = name[: _LONGEST_NAME - len(end)] + end, number + 1
    return found


def plan(
    runs: Sequence[WorkflowRun], asked: Registration
) -> tuple[WorkflowRun | None, dict[str, tuple[StageRun, ...]]]:
    """The run that these stages would join (None: a new one), and the known stages before each of them.

    `runs` are the owner's, oldest first. Raises UserError or NotFound.
    """
    run = _home(runs, asked)
    known = {} if run is None else {stage.name: stage for stage in run.stages}
    fresh: dict[str, Asked] = {}
    before: dict[str, tuple[StageRun, ...]] = {}
    stage_of = {stage.job: stage.name for stage in known.values() if stage.job and not stage.phase.final}
    for stage in asked.stages:
        other = stage_of.setdefault(stage.job, stage.name) if stage.job else stage.name
        if other != stage.name:
            raise UserError(f"job {stage.job} is stage {other!r} already and cannot be stage {stage.name!r}, too")
        if stage.name in fresh:
            raise UserError(f"stage {stage.name!r} is given twice")
        old = known.get(stage.name)
        replaced = old is not None and old.stands_by and asked.replaces.get(old.name) == old.job
        if old is not None and not replaced and not _replaceable(old):
            raise UserError(
                f"workflow {asked.workflow!r} has a stage {stage.name!r} already: job {old.job} ({old.phase.value}); "
                "give the new workflow another name, or cancel the old one"
            )
        for parent in stage.after:
            if parent not in known and parent not in fresh:
                there = ", ".join([*known, *fresh]) or "none yet"
                way = f"for a job of another, say --dependency=afterok:{parent}" if parent.isdecimal() else ""
                raise UserError(
                    f"stage {stage.name!r} comes after {parent!r}, which workflow {asked.workflow!r} does not have "
                    f"(stages: {there}); {way or 'submit that stage first'}"
                )
        fresh[stage.name] = stage
        before[stage.name] = tuple(known[p] for p in stage.after if p in known and p not in fresh)
    whole = {**({} if run is None else afters_of(run)), **{name: stage.after for name, stage in fresh.items()}}
    # What is new comes after what was there before it.
    if not fresh.keys().isdisjoint(known) and (turned := _in_a_circle(whole, fresh)) is not None:
        raise UserError(f"stage {turned!r} would come after itself")
    if len(whole) > MOST_STAGES:
        raise UserError(
            f"workflow {asked.workflow!r} would have {len(whole)} stages, at most {MOST_STAGES} are possible"
        )
    check_size([*(s for s in known.values() if s.name not in fresh), *(s.entry for s in asked.stages)])
    return run, before


def afters_of(run: WorkflowRun) -> dict[str, tuple[str, ...]]:
    """The names of those that each stage comes after."""
    return {stage.name: tuple(run.stages[j].name for j in stage.after) for stage in run.stages}


def planned(
    run: WorkflowRun | None, before: Mapping[str, Sequence[StageRun]], stages: Iterable[Asked] = ()
) -> dict[str, Any]:
    """What `plan` has found, JSON-able: the number of the run, per stage the known ones before it, which ways of
    keeping jobs back are known (`Kept`), and of these `stages`, in their order, what each is called and comes after."""
    parents_of = {
        name: [{"name": s.name, "job": s.job, "phase": s.phase.value} for s in parents]
        for name, parents in before.items()
    }
    return {
        "run": None if run is None else run.id,
        "before": parents_of,
        "keeps": [kept.value for kept in Kept if kept],
        "stages": [{"name": stage.name, "after": list(stage.after)} for stage in stages],
    }


def _in_a_circle(whole: Mapping[str, tuple[str, ...]], fresh: Collection[str]) -> str | None:
    """A fresh stage that comes after itself, if there is one."""
    left = {name: len(frozenset(after) & whole.keys()) for name, after in whole.items()}
    children: dict[str, list[str]] = {}
    for name, after in whole.items():
        for parent in frozenset(after) & whole.keys():
            children.setdefault(parent, []).append(name)
    ready = [name for name, count in left.items() if count == 0]
    while ready:
        for child in children.get(done := ready.pop(), ()):
            left[child] -= 1
            if left[child] == 0:
                ready.append(child)
        del left[done]
    return next((name for name in left if name in fresh), None)


def _home(runs: Sequence[WorkflowRun], asked: Registration) -> WorkflowRun | None:
    if asked.run is not None:
        named = next((r for r in runs if r.id == asked.run), None)
        if named is None:
            raise NotFound(f"there is no workflow {asked.run}")
        return named
    same = [r for r in runs if r.name == asked.workflow and not r.chain]  # a chain's name is nobody's choice
    if same and (not same[-1].phase.final or any(stage.after for stage in asked.stages)):
        return same[-1]
    return None


def admit(run: WorkflowRun, stages: Iterable[Asked], earlier: Iterable[WorkflowRun] = ()) -> WorkflowRun:
    """The run with these stages, which `plan` has found right, in it; one that had ended goes on.

    Where nobody has said how long a stage runs, what it took in `earlier` runs (oldest first) is expected.
    """
    afters = afters_of(run)
    entries = {stage.name: (stage, afters[stage.name]) for stage in run.stages}
    took = took_in(earlier, run.name)
    for stage in stages:
        old = entries.get(stage.name)
        former = () if old is None else (*old[0].mine.former, *(() if old[0].job is None else (old[0].job,)))
        expect = stage.own.expect or took.get(stage.name)
        if former or expect != stage.own.expect:
            stage = replace(stage, own=replace(stage.own, former=former, expect=expect))
        entries[stage.name] = (stage.entry, stage.after)
    ordered = in_order(entries)
    phase = RunPhase.CANCELLING if run.phase is RunPhase.CANCELLING else RunPhase.ACTIVE
    return replace(run, stages=ordered, units=units_of(ordered), phase=phase, why=None, ended_at=None)

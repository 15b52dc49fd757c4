"""What the command line may ask at the Unix socket. Each operation authorises its caller by uid first."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from dmr.wire import clean
from penstock import __version__
from penstock.core.executor import Executor
from penstock.core.observe import Observer
from penstock.core.pace import Pace
from penstock.core.pauses import FEATURES, Pause
from penstock.errors import NotFound, NotPermitted, UserError
from penstock.host.clock import Clock
from penstock.ipc.handlers import LocalOp
from penstock.ipc.inqueue import jobs_besides, known_jobs, with_reasons
from penstock.ipc.molding import molding
from penstock.ipc.operators import Operators
from penstock.ipc.views import views
from penstock.malleable.controller import MalleableController
from penstock.moldable.controller import MoldableController
from penstock.predictions.outlook import WaitOutlook, geometry_of
from penstock.state.store import Store
from penstock.values.allow import NOT_ALLOWED
from penstock.values.documents import brief, show
from penstock.workflow.admission import seconds_open
from penstock.workflow.controller import WorkflowController
from penstock.workflow.documents import run_from_dict, run_to_dict
from penstock.workflow.model import Workflow, workflow_from_dict
from penstock.workflow.state import Submitter, WorkflowRun
from penstock.workflow.stored import read_latest
from penstock.workflow.trying import Trial

__all__ = ["operations", "owner_of"]

_SHOWN = 200
_TEXT = 4_000_000  # characters of stored workflows that are looked through for one answer
_PARTITION = re.compile(r"[A-Za-z0-9_.-]{1,200}", re.ASCII)
_NUMBER = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)


def operations(
    store: Store,
    observer: Observer,
    executor: Executor,
    clock: Clock,
    workflows: WorkflowController,
    malleable: MalleableController,
    moldable: MoldableController,
    outlook: WaitOutlook,
    trial: Trial,
    serves: Callable[[int], bool],
    operators: Operators,
    wake: Callable[[str], None],
    troubles: Callable[[], list[str]] = list,
) -> dict[str, LocalOp]:
    """The operations by name. `serves`: whether the agent looks after jobs of that user; `wake` asks for a pass;
    `troubles` says what keeps the agent from doing anything."""

    def may(uid: int) -> None:
        if uid not in (os.geteuid(), 0):
            serving(uid)
            raise NotPermitted("only the agent's own user (or root) may ask for this")

    async def require_operator(uid: int, what: str = "this") -> None:
        if not await operators.include(uid):
            serving(uid)
            raise NotPermitted(f"only the agent's own user, root, or an operator of Slurm may ask for {what}")

    async def as_root(uid: int) -> int:
        """An operator sees what root sees."""
        return 0 if uid != os.geteuid() and await operators.include(uid) else uid

    def serving(uid: int) -> None:
        if not serves(uid) and uid != 0:
            raise NotPermitted("this agent serves its own user only")

    owner = owner_of(store, observer, malleable, moldable)

    async def own_runs(uid: int, pace: Pace) -> list[WorkflowRun]:
        if uid not in (0, os.geteuid()):
            return []
        found = []
        for number, _owner, text in store.run_texts(submitter=Submitter.AGENT, limit=_SHOWN, most_text=_TEXT):
            found.append(workflows.runs.get(number) or run_from_dict(json.loads(text)))
            await pace.after(len(found[-1].stages))
        return _with_older(found, (run for run in workflows.runs.values() if not run.owned))

    async def owned_runs(uid: int, pace: Pace) -> list[WorkflowRun]:
        latest = await pace.walk(read_latest(store, None if uid == 0 else uid, workflows.runs))
        return _with_older(latest, (r for r in workflows.runs.values() if r.owned and uid in (0, r.uid)))

    async def shown(runs: Iterable[WorkflowRun], pace: Pace) -> list[dict[str, Any]]:
        """Runs as JSON-able values; there may be ten thousand stages of them."""
        told = []
        for run in runs:
            told.append(with_reasons(run_to_dict(run), observer.last))
            await pace.after(len(run.stages))
        return told

    def not_allowed(uid: int) -> Iterator[str]:
        """What of the user's is left alone because the configuration does not allow to act on it."""
        seen = observer.last.jobs if observer.last else {}
        if executor.pause_control.rules is None:
            return
        mine = ((n, run) for n, run in workflows.runs.items() if uid in (0, run.uid if run.owned else os.geteuid()))
        found = [(f"workflow {n}", workflows.held(run)) for n, run in mine]
        jobs = ((n, seen[n]) for n, me in malleable.jobs.items() if n in seen and uid in (0, me.uid))
        found += [(f"job {n}", malleable.held(job)) for n, job in jobs]
        for subject, why in found:
            if why is not None and why.code == NOT_ALLOWED:
                yield f"{subject}: {why.text}"

    async def ping(uid: int, _request: Mapping[str, Any]) -> object:
        return {"version": __version__, "pid": os.getpid(), "uid": os.geteuid()}

    async def submit(uid: int, request: Mapping[str, Any]) -> object:
        may(uid)
        workflow, strategy = _workflow(request), request.get("strategy")
        if not isinstance(strategy, str):
            raise UserError(f"strategy: must be a text, not {show(strategy)}")
        return {"run": await workflows.submit(uid, workflow, strategy, _environment(request))}

    async def try_(uid: int, request: Mapping[str, Any]) -> object:
        """Not for everybody: it tells of all jobs that the agent has seen. Others look for themselves."""
        may(uid)
        return await trial.answer(uid, _workflow(request))

    async def status(uid: int, _request: Mapping[str, Any]) -> object:
        asker, uid = uid, await as_root(uid)
        snapshot, pace = observer.last, Pace()
        runs = sorted([*await own_runs(uid, pace), *await owned_runs(uid, pace)], key=lambda run: run.id)
        flows = await shown(runs, pace)
        resizable = [m.to_dict() for m in malleable.jobs.values() if uid in (0, m.uid)]
        molded = [m.to_dict() for m in moldable.jobs.values() if uid in (0, m.uid)]
        return {
            "now": clock.now(),
            "problems": [
                *troubles(),
                *(snapshot.problems if snapshot else ["the agent has not looked at Slurm yet"]),
                *(["dry run: nothing is done to jobs of other users"] if executor.pause_control.dry_run else []),
                *(str(p) for p in executor.pause_control.pauses if uid in (0, os.geteuid(), p.uid) or p.uid is None),
                *filter(None, [executor.pause_control.unwritten]),
                *not_allowed(uid),
            ],
            "paused_until": executor.paused_until,
            "workflows": flows,
            "malleable": resizable,
            "moldable": molded,
            "jobs": jobs_besides(snapshot, asker, known_jobs(flows, [*resizable, *molded])),
            "resizes": [r for r in store.resizes() if uid in (0, os.geteuid(), r["uid"])],
        }

    async def explain(uid: int, request: Mapping[str, Any]) -> object:
        subject = str(request.get("subject", ""))
        if owner(subject) != uid:
            await require_operator(uid)
        return store.decisions(subject)

    def own_number(uid: int, request: Mapping[str, Any]) -> int:
        """The number of a workflow that is the caller's to end or to change: its owner's, where its owner submits the
        jobs, else that of the agent's user."""
        number = _number(request)
        run = workflows.runs.get(number)
        if run is None or not run.owned:
            may(uid)
        elif uid not in (0, run.uid):
            raise NotFound(f"there is no running workflow {number}")
        return number

    async def cancel(uid: int, request: Mapping[str, Any]) -> object:
        """The jobs that the caller has to cancel, which are those that it submitted itself."""
        number = own_number(uid, request)
        jobs = workflows.cancel(number, "cancelled by its owner")
        return {"jobs": jobs, "unwritten": workflows.book.unwritten.get(number, "")}

    async def more(uid: int, request: Mapping[str, Any]) -> object:
        number = own_number(uid, request)
        try:
            seconds = seconds_open(request.get("seconds"))
        except (TypeError, ValueError) as e:
            raise UserError(f"more: not a time: {show(request.get('seconds'))}") from e
        workflows.more(number, seconds)
        return None

    async def retry(uid: int, request: Mapping[str, Any]) -> object:
        may(uid)
        stage = request.get("stage")
        workflows.retry(_number(request), None if stage is None else str(stage), _environment(request))
        return None

    async def plan(uid: int, request: Mapping[str, Any]) -> object:
        """What `guide` would do with these stages, before their jobs are submitted."""
        serving(uid)
        return await workflows.plan(uid, request)

    async def guide(uid: int, request: Mapping[str, Any]) -> object:
        serving(uid)
        return {"run": await workflows.register(uid, request)}

    async def follow(uid: int, request: Mapping[str, Any]) -> object:
        """Jobs that the caller has submitted behind one another, by sbatch's own dependencies."""
        serving(uid)
        return {"run": await workflows.follow(uid, request)}

    async def scope(uid: int, request: Mapping[str, Any]) -> Pause:
        """What a pause is to be about. Users may speak of their own jobs, the agent's user of all."""
        feature, whose, partition = (request.get(key) for key in ("feature", "uid", "partition"))
        if feature is not None and feature not in FEATURES:
            raise UserError(f"feature: must be one of {', '.join(FEATURES)}, not {show(feature)}")
        if (whose is not None and type(whose) is not int) or (partition is not None and not isinstance(partition, str)):
            raise UserError(f"uid must be a number and partition a text, not {show(whose)} and {show(partition)}")
        snapshot = observer.last
        if partition is not None and snapshot and snapshot.partitions and partition not in snapshot.partitions:
            known = ", ".join(sorted(snapshot.partitions))
            raise UserError(f"partition: there is no partition {partition[:60]!r} (partitions: {known})")
        if partition is not None and not _PARTITION.fullmatch(partition):
            raise UserError(f"partition: {partition[:60]!r} cannot be the name of a partition")
        if whose == uid:
            serving(uid)
        else:
            await require_operator(uid, "this for all users; for your own jobs alone, use `--user` with your name")
        return Pause(feature, whose, partition, uid, clock.now(), clean(str(request.get("why", ""))))

    async def pauses(uid: int, _request: Mapping[str, Any]) -> object:
        """Those that are about the jobs of whoever asks: their own commands keep to them, too."""
        return [asdict(p) for p in executor.pause_control.pauses if p.uid in (None, uid)]

    async def pause(uid: int, request: Mapping[str, Any]) -> object:
        wanted = await scope(uid, request)
        above = await operators.include(uid)
        for there in executor.pause_control.pauses:
            # Else a user could make it their own, and lift it then.
            if there.scope == wanted.scope and there.by != uid and not above:
                raise NotPermitted(f"somebody else has paused it already: {there}")
        executor.pause_control.pause(wanted)
        return {"pauses": [str(wanted)], "unwritten": executor.pause_control.unwritten}

    async def resume(uid: int, request: Mapping[str, Any]) -> object:
        wanted, above = await scope(uid, request), await operators.include(uid)
        everything = wanted.scope == (None, None, None)
        lifted = [p for p in executor.pause_control.pauses if everything or p.scope == wanted.scope]
        if not lifted:
            raise NotFound(
                "this is not paused; what is: " + ("; ".join(map(str, executor.pause_control.pauses)) or "nothing")
            )
        if not above and any(p.by != uid for p in lifted):
            raise NotPermitted(f"not paused by you: {lifted[0]}")
        executor.pause_control.resume(lifted)
        wake("a pause is over")
        return {"pauses": [str(p) for p in lifted]}

    async def environment(uid: int, _request: Mapping[str, Any]) -> object:
        serving(uid)
        return workflows.carrier.environment

    async def queue(uid: int, _request: Mapping[str, Any]) -> object:
        """The last picture, without asking Slurm again. Not for everybody: a site may hide others' jobs."""
        await require_operator(uid)
        snapshot = observer.last
        return {
            "at": snapshot.taken_at if snapshot else None,
            "nodes": sorted(snapshot.nodes) if snapshot else [],
            "jobs": [asdict(j) for j in snapshot.jobs.values()] if snapshot else [],
        }

    async def waits(uid: int, request: Mapping[str, Any]) -> object:
        """Not for everybody: it has learned from everybody's jobs, and whoever names an account would see how
        many there were of it and how long they waited."""
        await require_operator(
            uid, "learned waits, which tell of the jobs of others; `sbatch --test-only` asks Slurm for an estimate"
        )
        fields = request.get("geometry")
        if fields is not None and not isinstance(fields, dict):
            raise UserError("not a geometry: it must be a mapping")
        return await outlook.answer(None if fields is None else geometry_of(fields))

    return {
        **views(store, observer, malleable, clock, owner, operators),
        **molding(moldable, serves),
        "ping": ping,
        "submit": submit,
        "status": status,
        "explain": explain,
        "cancel": cancel,
        "env": environment,
        "follow": follow,
        "guide": guide,
        "more": more,
        "pause": pause,
        "pauses": pauses,
        "plan": plan,
        "queue": queue,
        "resume": resume,
        "retry": retry,
        "try": try_,
        "waits": waits,
    }


def owner_of(
    store: Store, observer: Observer, malleable: MalleableController, moldable: MoldableController
) -> Callable[[str], int | None]:
    """Says whose a workflow or a job is, or was, that the agent guides or resizes; None when it knows of none."""

    def owner(subject: str) -> int | None:
        kind, _, number = subject.partition("/")[0].partition(" ")
        if not _NUMBER.fullmatch(number) or kind not in ("workflow", "job"):
            return None
        if kind == "workflow":
            return store.owner(int(number))
        job = int(number)
        if job in malleable.jobs:
            return malleable.jobs[job].uid
        if job in moldable.jobs:
            return moldable.jobs[job].uid
        uid = store.malleable_owner(job)
        uid = store.moldable_owner(job) if uid is None else uid
        # A number that Slurm has given again is that of the job which has it now.
        now = observer.last.jobs.get(job) if observer.last else None
        return uid if now is None or now.uid == uid else None

    return owner


def _workflow(request: Mapping[str, Any]) -> Workflow:
    try:
        return workflow_from_dict(request["workflow"])
    except (KeyError, TypeError, ValueError) as e:
        raise UserError(f"this is no workflow: {brief(e)}") from e


def _environment(request: Mapping[str, Any]) -> str | None:
    """What names the environment that the command has left in the state folder (`state.environments`)."""
    token = request.get("environment")
    if token is not None and not isinstance(token, str):
        raise UserError(f"environment: must be a text, not {type(token).__name__}")
    return token


def _number(request: Mapping[str, Any]) -> int:
    number = request.get("run")
    if type(number) is not int or not 0 < number < 2**63:
        raise UserError(f"run: must be the number of a workflow, not {show(number)}")
    return number


def _with_older(latest: list[WorkflowRun], live: Iterable[WorkflowRun]) -> list[WorkflowRun]:
    """The latest workflows, and before them those that go on although so many have begun after them."""
    older = sorted((run for run in live if latest and run.id < latest[0].id), key=lambda run: run.id)
    return older[-_SHOWN:] + latest

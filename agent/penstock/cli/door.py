"""How a command reaches what the agent knows and does: by the agent's doors, else by the user's own state file.

Without an agent a user's own state file holds what `penstock tick` works on. What is asked for then is left in its
inbox for the next tick; what is known is read from it. Where several hosts see it, a command writes only while it holds
the lease: nobody else may be writing then.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.api import plural
from penstock.config import Config
from penstock.core.off import REFUSED, off_in, refusal
from penstock.errors import AgentUnavailable, OutcomeUnknown, PenstockError, StateHeld, StoreError
from penstock.fronts.sbatch import BY_FRONT
from penstock.ipc.client import ask_agent
from penstock.state.environments import Environments, own_environment
from penstock.state.leadership import hold_state, is_shared, last_at_work, open_store
from penstock.state.lease.machine import Card
from penstock.state.schema import UNREADABLE
from penstock.state.store import TICKED, Store
from penstock.values.kinds import of_their_kinds

if TYPE_CHECKING:
    from penstock.workflow.state import WorkflowRun

__all__ = ["ask_or_leave", "ask_or_read", "left_environment", "plan_stages", "read_by_tool", "why_silent"]

_SHOWN: Final = 200
_RECENT: Final = 900.0  # seconds: a tick later than this ago is taken for none
_GRACE: Final = 5.0
_A_DAY: Final = 86400.0
_HINTED: Final = "tick.hinted"
_HINT: Final = (
    "no agent runs here. Let `penstock tick` do its work from your crontab, for example by\n"
    "  (crontab -l; echo '* * * * * penstock tick') | crontab -"
)


def why_silent(config: Config, unavailable: AgentUnavailable) -> PenstockError:
    """What to say where no agent answers: that all is off, if the caller's own state says so, else that none does."""
    if not os.access(config.agent.state_dir / "penstock.db", os.R_OK, effective_ids=True):
        return unavailable
    with _own_store(config, unavailable, write=False) as store:
        off = off_in(store)
    return unavailable if off is None else refusal(off)


def read_by_tool() -> bool:
    """Whether a front program has run this for a tool, which takes any word on standard error for an error."""
    return BY_FRONT in sys._xoptions and not os.isatty(2)


@contextmanager
def _own_store(config: Config, unavailable: AgentUnavailable, *, write: bool) -> Iterator[Store]:
    """The caller's own state file; made where there is none yet. Raises the error that no agent answers where it is not
    theirs, or where somebody else has it."""
    folder = config.agent.state_dir
    try:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            raise unavailable
    except OSError:
        raise unavailable from None
    with _opened(config, unavailable, write) as store:
        yield store


@contextmanager
def _opened(config: Config, unavailable: AgentUnavailable, write: bool) -> Iterator[Store]:
    path = config.agent.state_dir / "penstock.db"
    if not write and path.exists():  # to look at it is no reason to bring it up to date
        with closing(Store.read_only(path)) as store:
            yield store
        return
    from penstock.upkeep.statefile import must_be_whole  # slow to load

    must_be_whole(path, older=True)
    if not is_shared(config):
        with closing(Store(path)) as store:
            yield store
        return
    try:
        leadership = hold_state(config, "command", wait=config.agent.lease + _GRACE, tell=partial(_tell_wait, config))
    except StateHeld as e:
        raise AgentUnavailable(f"{e}, and cannot be asked: {unavailable}") from e
    with closing(leadership), closing(open_store(config, leadership)) as store:
        yield store


def _tell_wait(config: Config, by: Card | None) -> None:
    if by is not None and by.role == "agent":
        click.echo(
            f"penstock: {by} does not answer; waiting up to {config.agent.lease:.0f} s to see whether it lives",
            err=True,
        )


def ask_or_leave(
    config: Config, op: str, arguments: Mapping[str, Any], *, timeout: float = 60.0, hint: str = _HINT
) -> Any:  # noqa: ANN401
    """The agent's answer, which may take so long (s); None when the request was left for the next tick instead. Where
    there seems to be none, `hint` is said now and then."""
    try:
        return ask_agent(config, op, arguments, timeout)
    except AgentUnavailable as e:
        with _own_store(config, e, write=True) as store:
            if op in REFUSED and (off := off_in(store)) is not None:
                raise refusal(off) from e
            store.post(os.geteuid(), op, arguments, time.time())
            if config.agent.serve == "all":  # its agent takes it with its first pass; a tick is no matter of a site
                return None
            last = max(store.instant(name) for name in (TICKED, _HINTED))
            if time.time() - last > _RECENT and not read_by_tool():
                click.echo(f"penstock: {hint}", err=True)
                store.remember(_HINTED, str(time.time()))
        return None


@contextmanager
def left_environment(config: Config) -> Iterator[dict[str, str]]:
    """What a request says of the caller's environment, which is left in the state folder for it: it may hold secrets,
    so it is no part of the request, which is written down where others look. Nothing, where the folder is another's.
    """
    folder = config.agent.state_dir
    try:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        mine = folder.stat().st_uid == os.geteuid()
    except OSError:
        mine = False
    if not mine:
        yield {}
        return
    kept = Environments(folder)
    try:
        token = kept.leave(own_environment())
    except OSError as e:
        raise StoreError(f"the environment cannot be kept in {folder}: {e.strerror}") from e
    try:
        yield {"environment": token}
    except OutcomeUnknown:
        raise  # the agent may be about to take it
    except BaseException:
        kept.erase(token)
        raise


def plan_stages(config: Config, request: Mapping[str, Any]) -> dict[str, Any]:
    """What registering these stages would mean; see `WorkflowController.plan`. Raises what is wrong with them."""
    try:
        answer: dict[str, Any] = ask_agent(config, "plan", request)
        return answer
    except AgentUnavailable as e:
        with _own_store(config, e, write=False) as store:
            if (off := off_in(store)) is not None:
                raise refusal(off) from e
            # Not needed where an agent answers, and slow to load.
            from penstock.workflow.admission import plan, planned, registration, settled, with_waiting
            from penstock.workflow.stored import latest_runs

            uid, now = os.geteuid(), time.time()
            left = [payload for _n, _at, _uid, op, payload in store.inbox() if op == "guide"]
            runs = with_waiting(latest_runs(store, uid), left, uid, now)
            asked = settled(runs, registration(request, now))
            return planned(*plan(runs, asked), asked.stages)


def ask_or_read(
    config: Config, op: str, arguments: Mapping[str, Any] | None = None, *, last_known: bool = False
) -> Any:  # noqa: ANN401
    """The agent's answer to `status` or `explain`; where `penstock tick` does the work, what the caller's state file
    says; with `last_known` also where an agent did, and is gone."""
    try:
        return ask_agent(config, op, arguments)
    except AgentUnavailable as e:
        if not os.access(config.agent.state_dir / "penstock.db", os.R_OK, effective_ids=True):
            raise
        with _own_store(config, e, write=False) as store:
            if not last_known and store.fact(TICKED) is None and not store.inbox() and off_in(store) is None:
                raise  # here an agent did the work, and it is gone
            if op == "explain":
                return store.decisions(str((arguments or {}).get("subject", "")))
            return _stored_status(store, _since_when(config, e))


def _since_when(config: Config, unavailable: AgentUnavailable) -> str:
    """Since when no agent has worked on the caller's state."""
    what = "the agent does not answer" if isinstance(unavailable.__cause__, TimeoutError) else "no agent runs"
    at = last_at_work(config.agent.state_dir)
    if at is None:
        return what
    form = "%H:%M:%S" if abs(time.time() - at) < _A_DAY else "%Y-%m-%d %H:%M:%S"
    return f"{what}: the last pass of one began at {time.strftime(form, time.localtime(at))}, and this is what it knew"


def _stored_status(store: Store, since_when: str) -> dict[str, Any]:
    waiting = len(store.inbox())
    ticked = store.instant(TICKED)
    problems = [f"{plural(waiting, 'request')} not taken up before the next `penstock tick`"] if waiting else []
    if (off := off_in(store)) is not None:
        problems.insert(0, str(off))
    elif time.time() - ticked > _RECENT:
        problems.append(since_when)
    # Not needed where an agent answers, and slow to load.
    from penstock.workflow.documents import run_to_dict

    return {
        "now": time.time(),
        "problems": problems,
        "paused_until": 0.0,
        "workflows": [run_to_dict(_readable(store, number, state)) for number, _u, state in store.runs(limit=_SHOWN)],
        "malleable": [],
        "moldable": [],
        "jobs": [],
        "resizes": [],
    }


def _readable(store: Store, number: int, state: Mapping[str, Any]) -> WorkflowRun:
    from penstock.workflow.documents import run_from_dict

    try:
        run = run_from_dict(state)
        of_their_kinds(run)
        return run
    except UNREADABLE as e:
        raise store.unreadable(f"workflow {number}") from e

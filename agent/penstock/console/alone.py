"""Where no agent answers: the caller's own state file, which holds what `penstock tick` works on.

What is asked for then is left in its inbox for the next tick; what is known is read from it. Where several hosts see
it, a command writes only while it holds the lease: nobody else may be writing then. Slow to load, so that `door` does
so where it is needed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, Final

import click

from penstock.config import Config
from penstock.core.off import REFUSED, off_in, refusal
from penstock.errors import AgentUnavailable, OutcomeUnknown, PenstockError, StateHeld, StoreError
from penstock.state.environments import Environments, own_environment
from penstock.state.leadership import hold_state, is_shared, last_at_work, open_store
from penstock.state.lease.machine import Card
from penstock.state.ownership import state_path
from penstock.state.schema import UNREADABLE
from penstock.state.store import TICKED, Store
from penstock.texts import plural
from penstock.values.kinds import of_their_kinds
from penstock.workflow.documents import run_from_dict, run_to_dict
from penstock.workflow.state import WorkflowRun

__all__ = ["kept_environment", "leave", "must_be_own", "read", "why"]

_SHOWN: Final = 200
_RECENT: Final = 900.0  # seconds: a tick later than this ago is taken for none
_GRACE: Final = 5.0
_A_DAY: Final = 86400.0
_HINTED: Final = "tick.hinted"


def why(config: Config, unavailable: AgentUnavailable) -> PenstockError:
    """What to say: that all is off, if the caller's own state says so, else that no agent answers."""
    with _own_store(config, unavailable, write=False) as store:
        off = off_in(store)
    return unavailable if off is None else refusal(off)


def leave(config: Config, unavailable: AgentUnavailable, op: str, arguments: Mapping[str, Any], hint: str) -> None:
    """Leave a request for the next tick; `hint` is said now and then, unless it is empty."""
    with _own_store(config, unavailable, write=True) as store:
        if op in REFUSED and (off := off_in(store)) is not None:
            raise refusal(off) from unavailable
        store.inbox.post(os.geteuid(), op, arguments, time.time())
        if config.agent.serve == "all":  # its agent takes it with its first pass; a tick is no matter of a site
            return
        last = max(store.facts.instant(name) for name in (TICKED, _HINTED))
        if time.time() - last > _RECENT and hint:
            click.echo(f"penstock: {hint}", err=True)
            store.facts.remember(_HINTED, str(time.time()))


def read(config: Config, unavailable: AgentUnavailable, op: str, arguments: Mapping[str, Any], last_known: bool) -> Any:  # noqa: ANN401
    """What the caller's state file says to `status` or `explain`. Raises that no agent answers where one did the work,
    and is gone, unless `last_known` asks for what that knew."""
    with _own_store(config, unavailable, write=False) as store:
        if not last_known and store.facts.get(TICKED) is None and not store.inbox.waiting() and off_in(store) is None:
            raise unavailable
        if op == "explain":
            return store.decisions.of(str(arguments.get("subject", "")))
        return _stored_status(store, _since_when(config, unavailable))


@contextmanager
def kept_environment(config: Config) -> Iterator[dict[str, str]]:
    """See `door.left_environment`."""
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


def must_be_own(config: Config, unavailable: AgentUnavailable) -> None:
    """Raises that no agent answers where the state folder, which is made where there is none, is not the caller's."""
    folder = config.agent.state_dir
    try:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            raise unavailable
    except OSError:
        raise unavailable from None


@contextmanager
def _own_store(config: Config, unavailable: AgentUnavailable, *, write: bool) -> Iterator[Store]:
    """The caller's own state file; made where there is none yet. Raises the error that no agent answers where it is not
    theirs, or where somebody else has it."""
    must_be_own(config, unavailable)
    with _opened(config, unavailable, write) as store:
        yield store


@contextmanager
def _opened(config: Config, unavailable: AgentUnavailable, write: bool) -> Iterator[Store]:
    path = state_path(config)
    if not write and path.exists():  # to look at it is no reason to bring it up to date
        with closing(Store.read_only(path)) as store:
            yield store
        return
    from penstock.statefile.statefile import must_be_whole  # slow to load, and not needed to look

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


def _since_when(config: Config, unavailable: AgentUnavailable) -> str:
    """Since when no agent has worked on the caller's state."""
    what = "the agent does not answer" if isinstance(unavailable.__cause__, TimeoutError) else "no agent runs"
    at = last_at_work(config.agent.state_dir)
    if at is None:
        return what
    form = "%H:%M:%S" if abs(time.time() - at) < _A_DAY else "%Y-%m-%d %H:%M:%S"
    return f"{what}: the last pass of one began at {time.strftime(form, time.localtime(at))}, and this is what it knew"


def _stored_status(store: Store, since_when: str) -> dict[str, Any]:
    waiting = len(store.inbox.waiting())
    ticked = store.facts.instant(TICKED)
    problems = [f"{plural(waiting, 'request')} not taken up before the next `penstock tick`"] if waiting else []
    if (off := off_in(store)) is not None:
        problems.insert(0, str(off))
    elif time.time() - ticked > _RECENT:
        problems.append(since_when)
    return {
        "now": time.time(),
        "problems": problems,
        "paused_until": 0.0,
        "workflows": [
            run_to_dict(_readable(store, number, state)) for number, _u, state in store.runs.latest(limit=_SHOWN)
        ],
        "malleable": [],
        "moldable": [],
        "jobs": [],
        "resizes": [],
    }


def _readable(store: Store, number: int, state: Mapping[str, Any]) -> WorkflowRun:
    try:
        run = run_from_dict(state)
        of_their_kinds(run)
        return run
    except UNREADABLE as e:
        raise store.unreadable(f"workflow {number}") from e

"""How a command reaches what the agent knows and does: by the agent's socket, else by the user's own state file.

Without an agent a user's own state file holds what `penstock tick` works on. What is asked for then is left in its
inbox for the next tick; what is known is read from it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Final

import click

from penstock.config import Config
from penstock.errors import AgentUnavailable
from penstock.guided.admission import with_waiting
from penstock.guided.state import guided_to_dict
from penstock.guided.stored import latest_runs, planned
from penstock.ipc.client import ask
from penstock.store import TICKED, Store

__all__ = ["ask_or_leave", "ask_or_read", "plan_stages"]

_SHOWN: Final = 200
_RECENT: Final = 900.0  # seconds: a tick later than this ago is taken for none
_HINTED: Final = "tick.hinted"
_HINT: Final = (
    "no agent runs here. Let `penstock tick` do its work from your crontab, for example by\n"
    "  (crontab -l; echo '* * * * * penstock tick') | crontab -"
)


def _own_store(config: Config, unavailable: AgentUnavailable) -> Store:
    """The caller's own state file; made where there is none yet. Raises the error that no agent answers."""
    folder = config.agent.state_dir
    try:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            raise unavailable
    except OSError:
        raise unavailable from None
    return Store(folder / "penstock.db")


def ask_or_leave(config: Config, op: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """The agent's answer; None when the request was left for the next tick instead."""
    try:
        return ask(config.socket_path, op, arguments)
    except AgentUnavailable as e:
        store = _own_store(config, e)
        try:
            store.post(os.geteuid(), op, arguments, time.time())
            last = max(float(store.fact(name) or 0.0) for name in (TICKED, _HINTED))
            if time.time() - last > _RECENT:
                click.echo(f"penstock: {_HINT}", err=True)
                store.remember(_HINTED, str(time.time()))
        finally:
            store.close()
        return None


def plan_stages(config: Config, request: Mapping[str, Any]) -> dict[str, Any]:
    """What registering these stages would mean; see `GuidedController.plan`. Raises what is wrong with them."""
    try:
        answer: dict[str, Any] = ask(config.socket_path, "plan", request)
        return answer
    except AgentUnavailable as e:
        store = _own_store(config, e)
        try:
            uid, now = os.geteuid(), time.time()
            left = [payload for _n, _at, _uid, op, payload in store.inbox() if op == "guide"]
            return planned(with_waiting(latest_runs(store, uid), left, uid, now), request, now)
        finally:
            store.close()


def ask_or_read(config: Config, op: str, arguments: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401
    """The agent's answer to `status` or `explain`; without an agent what the caller's state file says."""
    try:
        return ask(config.socket_path, op, arguments)
    except AgentUnavailable as e:
        if not (config.agent.state_dir / "penstock.db").exists():
            raise
        store = _own_store(config, e)
        try:
            if store.fact(TICKED) is None and not store.inbox():
                raise  # here an agent did the work, and it is gone
            if op == "explain":
                return store.decisions(str((arguments or {}).get("subject", "")))
            return _stored_status(store)
        finally:
            store.close()


def _stored_status(store: Store) -> dict[str, Any]:
    waiting = len(store.inbox())
    ticked = float(store.fact(TICKED) or 0.0)
    problems = [f"{waiting} requests wait for the next `penstock tick`"] if waiting else []
    if time.time() - ticked > _RECENT:
        problems.append("no agent runs, and no `penstock tick` has for a while" if ticked else "no agent runs")
    # Not needed where an agent answers, and slow to load.
    from penstock.workflow.state import run_from_dict, run_to_dict

    return {
        "now": time.time(),
        "problems": problems,
        "paused_until": 0.0,
        "workflows": [run_to_dict(run_from_dict(state)) for _n, _u, state in store.runs(limit=_SHOWN)],
        "guided": [guided_to_dict(run) for run in latest_runs(store)],
        "malleable": [],
        "resizes": [],
    }

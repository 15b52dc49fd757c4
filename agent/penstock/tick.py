"""One pass of the agent and no more, for somebody's crontab where no daemon may run: observe, act, record, end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.app import App, lock_state, make_backend
from penstock.config import Config
from penstock.holding.tending import tend_once
from penstock.store import TICKED, Store

__all__ = ["Tick", "tick"]

# What accounting answers is acted on in the next pass over the same picture.
_MOST_PASSES: Final = 4


@dataclass(frozen=True, slots=True)
class Tick:
    """What one tick did. `ran` is false when an agent, or another tick, has the state folder: then it did nothing.

    `decisions` are those that say something new; `problems` why nothing was done; `left` how many workflows go on.
    """

    ran: bool
    decisions: tuple[Mapping[str, Any], ...] = ()
    problems: tuple[str, ...] = ()
    left: int = 0


async def tick(config: Config) -> Tick:
    """One pass over one look at Slurm. Raises `SlurmUnavailable` when Slurm does not answer."""
    try:
        lock = lock_state(config.agent.state_dir)
    except BlockingIOError:
        return Tick(ran=False)
    try:
        store = Store(config.agent.state_dir / "penstock.db")
        backend = make_backend(config)
        app = App(config, backend, backend, store)
        try:
            await app.start(resizes=False)
            await app.predictions.learn_history()
            await tend_once(config, backend, app.told_of_reserved)
            done = await _pass(app)
            await app.messenger.flush(config.messages.timeout + 5.0)
            return done
        finally:
            await app.close()
    finally:
        os.close(lock)


async def _pass(app: App) -> Tick:
    assert app.loop is not None
    assert app.workflows is not None
    assert app.guided is not None
    before = app.store.last_decision()
    app.store.remember(TICKED, str(app.clock.now()))
    await app.loop.one_pass()
    while app.loop.woken and app.loop.passes < _MOST_PASSES:
        await app.loop.one_pass()
    seen = app.observer.last
    decisions = tuple(d for d in app.store.decisions_since(before) if d["subject"] != "agent")
    left = len(app.workflows.runs) + len(app.guided.runs)
    return Tick(True, decisions, seen.problems if seen else (), left)

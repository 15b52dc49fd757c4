"""One pass of the agent and no more, for somebody's crontab where no daemon may run: observe, act, record, end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.app import App
from penstock.audit.opening import agent_auditor
from penstock.config import Config
from penstock.core.backends import make_backend
from penstock.core.off import off_in
from penstock.errors import LeaseLost, StateHeld
from penstock.resize.running.part import MalleablePart
from penstock.state.leadership import Leadership, hold_state
from penstock.state.store import TICKED
from penstock.statefile.statefile import open_checked
from penstock.waits.part import WaitsPart
from penstock.workflow.part import WorkflowPart

__all__ = ["Tick", "one_pass", "tick"]

# What accounting answers is acted on in the next pass over the same picture.
_MOST_PASSES: Final = 4


@dataclass(frozen=True, slots=True)
class Tick:
    """What one tick did. `ran` is false when an agent, or another tick, has the state folder, or when all is off: then
    it did nothing.

    `decisions` are those that say something new; `problems` why nothing was done; `left` how many workflows go on;
    `held` says who has the folder, or that it is off.
    """

    ran: bool
    decisions: tuple[Mapping[str, Any], ...] = ()
    problems: tuple[str, ...] = ()
    left: int = 0
    held: str = ""


async def tick(config: Config) -> Tick:
    """One pass over one look at Slurm. Raises `SlurmUnavailable` when Slurm does not answer, and `LeaseLost` when it
    was stopped for so long that another host took over."""
    try:
        leadership = hold_state(config, "tick")
    except StateHeld as e:
        return Tick(ran=False, held=str(e))
    try:
        done = await _tick(config, leadership)
        if leadership.lost:
            raise LeaseLost(leadership.lost)
        return done
    finally:
        leadership.close()


async def _tick(config: Config, leadership: Leadership) -> Tick:
    store = open_checked(config, leadership)
    if (off := off_in(store)) is not None:  # before Slurm is asked anything
        store.close()
        return Tick(ran=False, held=str(off))
    backend = make_backend(config)
    app = App(config, backend, backend, store, leadership=leadership, auditor=agent_auditor(config, store, backend.now))
    try:
        await app.start(without=[MalleablePart])
        await app.part(WaitsPart).predictions.learn_history()
        done = await one_pass(app)
        for part in app.parts:
            await part.flush()
        return done
    finally:
        await app.close()


async def one_pass(app: App) -> Tick:
    """What a tick does with an agent that has been started."""
    assert app.loop is not None
    before = app.store.decisions.last()
    app.store.facts.remember(TICKED, str(app.clock.now()))
    await app.loop.one_pass()
    while app.loop.woken and app.loop.passes < _MOST_PASSES:
        await app.loop.one_pass()
    seen = app.observer.last
    decisions = tuple(d for d in app.store.decisions.since(before) if d["subject"] != "agent")
    left = len(app.part(WorkflowPart).controller.runs)
    return Tick(True, decisions, seen.problems if seen else (), left)

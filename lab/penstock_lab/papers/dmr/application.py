"""A malleable program in virtual time: rank 0 of it, as the library makes it behave (DMR paper, sections 5 and 6).

It works in steps and may be resized between two of them. At the end of the first step after the scheduling period it
asks the agent; a check and a resize take time in which no step is done.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dmr import wire
from penstock_lab.papers.dmr.models import Model

__all__ = ["COST", "Action", "Application", "Cost"]


@dataclass(frozen=True, slots=True)
class Cost:
    """What resizing costs a program, in seconds: a `check`, and for a resize `spawn` and the moving of `volume` bytes,
    at `bandwidth` bytes a second out of (growing) or into (shrinking) each of the fewer nodes.

    With the defaults a resize of 1 GB (section 7.3) takes what table 2 says (0.37 to 0.53 s to expand, 0.23 to 0.54 s
    to shrink), less on more nodes as in figure 3; the nodes' way through Slurm is the simulated Slurm's, not this.
    """

    check: float = 0.0094
    spawn: float = 0.33
    volume: float = 1e9
    bandwidth: float = 5e9

    def resize(self, old: int, new: int) -> float:
        """From so many nodes to so many."""
        return self.spawn + self.volume / (self.bandwidth * min(old, new))


COST: Final = Cost()


@dataclass(frozen=True, slots=True)
class Action:
    """What a call to the library did ("none", "expand", "shrink"), and for how many seconds it kept the program."""

    kind: str
    seconds: float


class Application:
    """One run. `ask` takes a request to the agent and brings the reply; what was done is added to `actions`.

    `synchronous` false: the answer to a check is taken up at the next one, when the agent is asked whether it still
    stands (section 5.1). `at` is when `step` wants to be called next; infinity when the program has ended.
    """

    def __init__(
        self,
        job: int,
        model: Model,
        factor: int,
        nodes: tuple[str, ...],
        now: float,
        ask: Callable[[wire.Request], wire.Reply],
        cost: Cost = COST,
        synchronous: bool = True,
    ) -> None:
        self.job = job
        self._model = model
        self._factor = factor
        self._nodes = nodes
        self._ask = ask
        self._cost = cost
        self._synchronous = synchronous
        self._epoch = 0
        self._left = model.application.iterations
        self._heard: wire.CheckReply | None = None  # an answer that was not taken up yet
        self._resize: wire.CheckReply | None = None  # under way
        self._steps = 0  # under way
        self.actions: list[Action] = []
        self.at = 0.0
        self._work(now)

    @property
    def _step_seconds(self) -> float:
        return self._model.seconds(len(self._nodes)) / self._model.application.iterations

    def step(self, now: float) -> bool:
        """It is `at`; whether the program has ended."""
        if self._resize is not None:
            self._finish(self._resize, now)
            return False
        self._left -= self._steps
        if self._left == 0:
            self.at = math.inf
            return True
        reply = self._heard if not self._synchronous else self._check(now)
        if reply is not None and reply.action != "none" and self._accept(reply, now):
            return False
        if not self._synchronous:
            self._heard = self._check(now)
        self.actions.append(Action("none", self._cost.check if self._synchronous else 0.0))
        self._work(now + self.actions[-1].seconds)
        return False

    def _work(self, now: float) -> None:
        """The next steps, up to the first end of one after the scheduling period."""
        each = self._step_seconds
        self._steps = min(max(math.ceil(self._model.application.period / each), 1), self._left)
        self.at = now + self._steps * each

    def _check(self, now: float) -> wire.CheckReply | None:
        app = self._model.application
        reply = self._ask(
            wire.Check(
                job=self.job,
                epoch=self._epoch,
                time=now,
                size=len(self._nodes),
                minimum=app.minimum,
                maximum=app.maximum,
                factor=self._factor,
                preferred=app.preferred,
                nodes=self._nodes,
                steps_left=self._left,
                step_seconds=self._step_seconds,
            )
        )
        return reply if isinstance(reply, wire.CheckReply) else None

    def _accept(self, reply: wire.CheckReply, now: float) -> bool:
        self._heard = None
        if not isinstance(self._ask(wire.Accept(job=self.job, epoch=reply.epoch, time=now)), wire.Done):
            return False
        self._resize = reply
        seconds = self._cost.resize(len(self._nodes), reply.size)
        if self._synchronous:
            seconds += self._cost.check
        self.actions.append(Action(reply.action, seconds))
        self.at = now + seconds
        return True

    def _finish(self, reply: wire.CheckReply, now: float) -> None:
        self._resize, self._nodes, self._epoch = None, reply.nodes, reply.epoch
        self._ask(wire.Finished(job=self.job, epoch=reply.epoch, time=now, size=reply.size, nodes=reply.nodes))
        self._work(now)

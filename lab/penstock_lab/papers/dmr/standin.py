"""A malleable program that computes nothing: it behaves in real time as `application` says, and asks a real agent.

    python -m penstock_lab.papers.dmr.standin '{"model": …, "factor": 2, "cost": …, "log": "FILE"}'

It is the one process of a job of Slurm. At its end it writes to FILE when it began and ended (seconds since the epoch)
and what its calls to the library would have done.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dmr import wire
from dmr.client import Client
from penstock.slurm.hostlist import expand_hosts
from penstock_lab.papers.dmr.application import Action, Application, Cost
from penstock_lab.papers.dmr.models import Model
from penstock_lab.papers.dmr.paper import Application as Row
from penstock_planning.select.speedup import Amdahl

__all__ = ["Log", "Order", "play"]

_AWAY = wire.Failure(error="unavailable", message="no answer")
_AGAIN = 5  # what was done must reach the agent, or the job never gives its nodes back


@dataclass(frozen=True, slots=True)
class Order:
    """What one stand-in shall do; its times are those of the real clock. `log` is the file it writes at its end."""

    model: Model
    factor: int
    cost: Cost
    log: str

    def text(self) -> str:
        """As its argument."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Order:
        """The other way round."""
        data = json.loads(text)
        model = data["model"]
        made = Model(Row(**model["application"]), model["alone"], Amdahl(**model["speedup"]))
        return cls(made, data["factor"], Cost(**data["cost"]), data["log"])


@dataclass(frozen=True, slots=True)
class Log:
    """When a stand-in began and ended, and what it did. `unheard` of its requests brought no answer."""

    began: float
    ended: float
    actions: tuple[Action, ...]
    unheard: int

    def text(self) -> str:
        """As it is written."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Log:
        """The other way round."""
        data = json.loads(text)
        return cls(data["began"], data["ended"], tuple(Action(**a) for a in data["actions"]), data["unheard"])


class _Line:
    """The way to the agent; a failure is "no action", as for the library."""

    def __init__(self, request: Callable[..., wire.Reply | None]) -> None:
        self._request = request
        self.unheard = 0

    def ask(self, request: wire.Request) -> wire.Reply:
        must = isinstance(request, wire.Finished)
        for _ in range(_AGAIN if must else 1):
            reply = self._request(request, urgent=not isinstance(request, wire.Check))
            if reply is not None:
                return reply
            self.unheard += 1
        return _AWAY


def play(
    order: Order,
    environment: Mapping[str, str],
    request: Callable[..., wire.Reply | None],
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], object] = time.sleep,
) -> Log:
    """Run to the end in the job that `environment` tells of; `request` is `dmr.client.Client.request`."""
    line = _Line(request)
    nodes = expand_hosts(environment["SLURM_JOB_NODELIST"])
    began = clock()
    program = Application(
        int(environment["SLURM_JOB_ID"]), order.model, order.factor, nodes, began, line.ask, order.cost
    )
    ended = False
    while not ended:
        sleep(max(program.at - clock(), 0.0))
        ended = program.step(clock())
    return Log(began, clock(), tuple(program.actions), line.unheard)


def main(arguments: list[Any]) -> None:
    """The program."""
    order = Order.read(arguments[0])
    client = Client.from_environment()
    if client is None:
        sys.exit("DMR_AGENT is not set: there is no agent to ask")
    Path(order.log).write_text(play(order, os.environ, client.request).text())


if __name__ == "__main__":
    main(sys.argv[1:])

"""What this process knows of its job, and rank 0's side of every talk with the agent."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from dmr import plan, quirks, wire
from dmr.client import Client

__all__ = ["Session", "Verdict", "node_list"]

logger = logging.getLogger("dmr")


@dataclass(frozen=True)
class Verdict:
    """What rank 0 tells the others: an error in the arguments, or a resize, and how many calls to ignore after it."""

    error: str = ""
    skip: float = 0
    reply: wire.CheckReply | None = None


class Session:
    """What this process knows about its job; everything but `skip` and `nodes` is used on rank 0 only."""

    def __init__(self) -> None:
        self.skip: float = 0  # calls still to be ignored; infinite once it is clear that nothing will ever happen
        self.nodes: tuple[str, ...] | None = None
        self.per_node = _positive("DMR_RANKS_PER_NODE") or _positive("SLURM_NTASKS_PER_NODE") or 1
        self.job = _positive("SLURM_JOB_ID")
        self.epoch = 0
        self.client: Client | None = None
        self.inhibitor = _Inhibitor(_seconds("DMR_INHIBITOR_SECONDS"))

    def connect(self) -> bool:
        """Whether an agent can be asked and a resize could work; if not, says why, once."""
        if self.client is not None:
            return True
        from mpi4py import MPI

        if not os.environ.get("DMR_AGENT") or not self.job:
            return False
        obstacle = quirks.obstacle(MPI.Get_library_version(), os.environ)
        if obstacle:
            logger.warning("this application cannot be resized: %s", obstacle)
            return False
        self.client = Client.from_environment()
        return self.client is not None

    def decide(self, size: int, minimum: int, maximum: int, factor: int, preferred: int | None) -> Verdict:
        """One real check: validates the arguments, asks the agent, and doubts its answer."""
        if sizes := os.environ.get("DMR_SIZES"):
            given = (minimum, maximum, preferred, factor)
            minimum, maximum, preferred, factor = _overridden(sizes, given)
        error = _complaint(minimum, maximum, factor, preferred)
        if error:
            return Verdict(error=error)
        if not self.connect() or self.client is None:
            return Verdict(skip=math.inf)
        skip = self.inhibitor.calls()
        try:
            check = wire.Check(
                job=self.job,
                epoch=self.epoch,
                size=size,
                minimum=minimum,
                maximum=maximum,
                factor=factor,
                preferred=preferred,
                per_node=self.per_node,
                nodes=self.nodes or (),
            )
        except wire.WireError as problem:  # the arguments are sound, so it is about the job or its nodes
            logger.warning("this application cannot be resized: %s", problem)
            return Verdict(skip=math.inf)
        reply = self.client.request(check)
        if not isinstance(reply, wire.CheckReply) or reply.action == "none":
            return Verdict(skip=skip)
        wrong = _objection(check, reply)
        if wrong:
            logger.warning("the agent asks for a resize that does not fit (%s); going on as is", wrong)
            self.refuse(reply.epoch, wrong)
            return Verdict(skip=skip)
        return Verdict(skip=skip, reply=reply)

    def accept(self, epoch: int) -> bool:
        """Whether the agent confirms that the resize may begin."""
        if self.client is None:
            return False
        reply = self.client.request(wire.Accept(job=self.job, epoch=epoch), urgent=True)
        if reply is None:
            # It may have arrived and only its answer be lost: then the agent must hear that nothing will happen.
            self.refuse(epoch, "no answer to accept arrived in time")
        elif isinstance(reply, wire.Failure):
            logger.warning("the agent withdraws the resize (%s): %s", reply.error, reply.message)
        return isinstance(reply, wire.Done)

    def refuse(self, epoch: int, why: str) -> None:
        """Tells the agent that the resize will not happen."""
        if self.client is not None and epoch > self.epoch:
            self.client.request(wire.Refuse(job=self.job, epoch=epoch, why=wire.clean(why)), urgent=True)

    def finished(self, size: int, timings: Mapping[str, float]) -> None:
        """Tells the agent that the resize is done; durations in seconds by phase."""
        # A lost one does no harm: the next check carries the epoch.
        if self.connect() and self.client is not None:
            done = wire.Finished(job=self.job, epoch=self.epoch, size=size, nodes=self.nodes or (), timings=timings)
            self.client.request(done, urgent=True)


class _Inhibitor:
    """Turns a time into a number of calls: the ranks' clocks disagree, so rank 0 measures and all ranks count."""

    def __init__(self, period: float) -> None:
        self._period = period
        self._last: float | None = None
        self._skipped = 0

    def calls(self) -> int:
        """How many of the next calls to ignore, judged by the time per call since the last real one."""
        now = time.monotonic()
        if self._period <= 0 or self._last is None:
            skip = 0
        else:
            step = max((now - self._last) / (self._skipped + 1), 1e-6)
            skip = max(0, math.ceil(self._period / step) - 1)
        self._last, self._skipped = now, skip
        return skip


def _overridden(sizes: str, given: tuple[int, int, int | None, int]) -> tuple[int, int, int | None, int]:
    """The program's own limits with those of "minimum:maximum[:preferred[:factor]]" in their place."""
    parts = sizes.split(":")
    if not 2 <= len(parts) <= 4 or not all(part.isascii() and part.isdecimal() for part in parts):
        logger.warning("DMR_SIZES is not minimum:maximum[:preferred[:factor]]; ignored")
        return given
    numbers = [int(part) for part in parts]
    preferred = numbers[2] if len(numbers) > 2 else None
    return numbers[0], numbers[1], preferred, numbers[3] if len(numbers) > 3 else given[3]


def _complaint(minimum: int, maximum: int, factor: int, preferred: int | None) -> str:
    """What is wrong with the arguments of a check, or ""."""
    for name, value in (("minimum", minimum), ("maximum", maximum), ("factor", factor), ("preferred", preferred)):
        if value is None and name == "preferred":
            continue
        if type(value) is not int or not 1 <= value < 2**31:
            return f"{name} must be an integer from 1 to {2**31 - 1}, not {value!r}"
    if minimum > maximum:
        return f"minimum {minimum} is above maximum {maximum}"
    if preferred is not None and not minimum <= preferred <= maximum:
        return f"preferred {preferred} is outside {minimum}..{maximum}"
    return ""


def _objection(check: wire.Check, reply: wire.CheckReply) -> str:
    """Why this resize must not be done, or ""."""
    if reply.epoch <= check.epoch:
        return f"epoch {reply.epoch} is already finished"
    if not check.minimum <= reply.size <= check.maximum:
        return f"size {reply.size} is outside {check.minimum}..{check.maximum}"
    if reply.size == check.size or (reply.size > check.size) != (reply.action == "expand"):
        return f"{reply.action} from {check.size} to {reply.size}"
    if not plan.reachable(check.size, reply.size, check.factor):
        return f"size {reply.size} is not reachable from {check.size} by factor {check.factor}"
    return ""


def node_list(names: list[str], per_node: int) -> tuple[str, ...]:
    """The nodes in order of the ranks, if each holds `per_node` consecutive ones; else empty: not known."""
    nodes = tuple(names[::per_node])
    consistent = [node for node in nodes for _ in range(per_node)] == names and len(set(nodes)) == len(nodes)
    return nodes if consistent and all(nodes) else ()


def _positive(variable: str) -> int:
    value = os.environ.get(variable, "")
    return int(value) if value.isascii() and value.isdigit() else 0


def _seconds(variable: str) -> float:
    try:
        value = float(os.environ.get(variable) or 0)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        logger.warning("%s is not a number of seconds; ignored", variable)
        return 0.0
    return value

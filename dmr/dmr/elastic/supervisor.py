"""Runs an elastic job: the machine, the hands that do what it says, and its line to the agent."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from dmr import wire
from dmr.client import Client, Pending
from dmr.elastic import lines
from dmr.elastic.dialogue import Dialogue
from dmr.elastic.hands import Hands
from dmr.elastic.words import (
    Accepted,
    AcceptResize,
    AskAgent,
    Event,
    Exit,
    FinishHeard,
    FinishResize,
    Instruction,
    Offered,
    RefuseResize,
    Say,
    StopAsked,
    TimePassed,
)
from dmr.node_requests import NodeRequests

__all__ = ["ElasticSupervisor", "tell"]

_EACH: Final = 0.1
_CANCEL: Final = 10.0


def tell(text: str) -> None:
    """What the user reads in the job's output."""
    print(f"elastic: {text}", file=sys.stderr, flush=True)


class ElasticSupervisor:
    """One elastic job from its start to its end; `client` None: there is no agent, and it keeps its size.

    Args:
        machine: what decides.
        hands: what does.
        client: the line to the agent.
        job: the base's number.
        environ: in which nodes are asked for where the agent, another user, cannot.
    """

    def __init__(
        self,
        machine: Dialogue,
        hands: Hands,
        client: Client | None,
        job: int,
        environ: Mapping[str, str],
        say: Callable[[str], None] = tell,
    ) -> None:
        self._machine = machine
        self._hands = hands
        self._client = client
        self._job = job
        self._environ = environ
        self._say = say
        self._events: deque[Event] = deque()
        self._pending: list[tuple[Instruction, Pending]] = []
        self._code: int | None = None
        self._stopped = 0

    def stop(self, number: int) -> None:
        """From a signal handler or another thread: end the job as by this signal."""
        self._stopped = number

    async def run(self) -> int:
        """The job's exit code, when all is over."""
        node_requests = NodeRequests(self._environ)
        try:
            self._carry_out(self._machine.begin(time.monotonic()))
            while self._code is None:
                self._events += self._hands.look()
                self._hear(node_requests)
                if self._stopped:
                    self._events.append(StopAsked(self._stopped))
                    self._stopped = 0
                self._events.append(TimePassed())
                while self._events and self._code is None:
                    self._carry_out(self._machine.on(self._events.popleft(), time.monotonic()))
                if self._code is None:
                    await asyncio.sleep(_EACH)
            return self._code
        finally:
            self._hands.close()
            await node_requests.close()
            await self._give_back()
            if self._client is not None:
                self._client.close()

    async def _give_back(self) -> None:
        """The agent would do it, if there still is one."""
        held = self._machine.companions
        if not held:
            return
        nothing = asyncio.subprocess.DEVNULL
        with contextlib.suppress(OSError, TimeoutError):
            process = await asyncio.create_subprocess_exec(
                "scancel",
                *map(str, sorted(held)),
                env=lines.cleaned(self._environ),
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
            )
            await asyncio.wait_for(process.wait(), _CANCEL)

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for one in instructions:
            match one:
                case Say(text=text):
                    self._say(text)
                case Exit(code=code):
                    self._code = code
                case AskAgent() | AcceptResize() | RefuseResize() | FinishResize():
                    self._request(one)
        self._hands.do(instructions)

    # -- the agent ---------------------------------------------------------------------------------------------------

    def _request(self, one: Instruction) -> None:
        if self._client is None:
            return  # nothing was asked, so nothing is to be told
        try:
            request = self._message(one)
        except wire.WireError as problem:
            self._say(f"the agent cannot be asked: {problem}")
            return
        pending = self._client.start(request, urgent=not isinstance(one, AskAgent))
        if pending is None:
            self._events.append(_heard(one, None))
        else:
            self._pending.append((one, pending))

    def _message(self, one: Instruction) -> wire.Request:
        match one:
            case AskAgent():
                return wire.Check(
                    job=self._job,
                    epoch=one.epoch,
                    size=len(one.nodes),
                    minimum=one.minimum,
                    maximum=one.maximum,
                    factor=one.factor,
                    preferred=one.preferred,
                    per_node=1,
                    nodes=one.nodes,
                    method="restart" if one.again else "merge",
                    companion=True,
                    requests_nodes=True,
                    leaves_within=one.leaves_within,
                )
            case AcceptResize(epoch=epoch):
                return wire.Accept(job=self._job, epoch=epoch)
            case RefuseResize(epoch=epoch, why=why):
                return wire.Refuse(job=self._job, epoch=epoch, why=wire.clean(why))
            case FinishResize(epoch=epoch, nodes=nodes, seconds=seconds):
                timings = {"move": seconds}
                return wire.Finished(job=self._job, epoch=epoch, size=len(nodes), nodes=nodes, timings=timings)
        raise TypeError(one)

    def _hear(self, node_requests: NodeRequests) -> None:
        waiting = []
        for one, pending in self._pending:
            if not pending.ready():
                waiting.append((one, pending))
                continue
            assert self._client is not None
            reply = self._client.finish(pending)
            wanted = reply.node_request if isinstance(reply, wire.CheckReply) else None
            if wanted is not None and wanted.job == self._job:
                node_requests.run(wanted)
            if not isinstance(one, RefuseResize):
                self._events.append(_heard(one, reply))
        self._pending = waiting


def _heard(one: Instruction, reply: wire.Reply | None) -> Event:
    match one:
        case AcceptResize():
            return Accepted(isinstance(reply, wire.Done))
        case FinishResize():
            return FinishHeard(isinstance(reply, wire.Done))
    if isinstance(reply, wire.CheckReply):
        return Offered(reply.action, reply.epoch, reply.nodes, reply.companion, reply.reason)
    if isinstance(reply, wire.Failure):
        return Offered(reason=f"the agent says {reply.error}: {reply.message}")
    return Offered(answered=False)

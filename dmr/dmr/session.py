"""What this process knows of its job, and rank 0's side of every talk with the agent."""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from dmr import limits, line, plan, quirks, wire
from dmr.client import Client, Pending
from dmr.inhibitor import Inhibitor
from dmr.limits import Limits

if TYPE_CHECKING:
    from mpi4py import MPI

    from dmr.joining import Start
    from dmr.transition import Passport, Prepared

__all__ = ["Coming", "News", "Progress", "Session", "Verdict", "node_list"]

logger = logging.getLogger("dmr")

_LONGEST = 1e9  # seconds of an inhibitor
_LONG_STEP = 10.0  # seconds
_STILL_THERE = 1.0  # seconds between two questions whether an offer stands
_TELLING = 10.0  # seconds for the launcher to hear a request for nodes


@dataclass(frozen=True)
class Verdict:
    """What rank 0 tells the others: perhaps a resize, and how many calls to ignore if there is none.

    `ahead`: new processes are to be started while the application goes on.
    """

    skip: float = 0
    reply: wire.CheckReply | None = None
    ahead: bool = False


@dataclass(frozen=True)
class Progress:
    """What an application says of itself beside its sizes: how it is resized, and how many steps it still has.

    `companion`: it can use nodes of another job, because it knows that MPI.COMM_WORLD does not hold all its processes
    then. `fixed`: it has found that it cannot be resized, and stays as it is; the agent shall know.
    """

    method: str = "replace"
    companion: bool = False
    steps_left: int | None = None
    fixed: bool = False


@dataclass
class Coming:
    """A resize that is on offer, and whose new processes are being started while the application goes on.

    `reply` is the offer, `prepared` what it takes. On rank 0 alone: what is known of the `start`, the question
    under way whether the offer still stands, and when (monotonic) it is asked next.
    """

    reply: wire.CheckReply
    prepared: Prepared
    start: Start | None = None
    asked: Pending | None = None
    ask_at: float = 0.0


@dataclass(frozen=True)
class News:
    """What rank 0 tells the others of a resize that is being started: `go`, or why it is given up; neither: go on.

    `worlds` are the tickets and ports of those that are up, `seconds` how long that took. `told`: the agent knows.
    """

    go: bool = False
    over: str = ""
    worlds: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    told: bool = False
    wish: bool = False  # it is given up because nobody wants it any more, which is no failure


class Session:
    """What this process knows about its job; everything but `skip`, `nodes`, `per_node` is used on rank 0 only."""

    def __init__(self) -> None:
        self.skip: float = 0  # calls still to be ignored; infinite once it is clear that nothing will ever happen
        self.nodes: tuple[str, ...] | None = None
        self.per_node = _positive("DMR_RANKS_PER_NODE") or _positive("SLURM_NTASKS_PER_NODE")
        self.job = _positive("SLURM_JOB_ID")
        self.epoch = 0
        self.comm: MPI.Intracomm | None = None  # of all processes of the program, since a resize
        self.knows_world = False  # the program uses `dmr.world`
        self.arriving = False  # others wait for this process to take over their work
        self.coming: Coming | None = None
        self.rank: int | None = None  # in the communicator of the last check
        self.client: Client | None = None
        self._unreachable = False  # that has been said
        self._pending: Pending | None = None  # a question whose answer is still to come
        self._telling: Pending | None = None  # that a resize is done: on its way to the agent
        self._announced: Pending | None = None
        self._to_announce: deque[wire.Announce] = deque()
        self._said: set[str] = set()
        self._told: set[str] = set()  # that the launcher has been told
        self._leaves = False  # at its exit this process gives up what is being started
        self._scattered = False  # where the ranks are is known, and no fit for adding or taking nodes

    @cached_property
    def inhibitor(self) -> Inhibitor:
        """Made when it is first asked for, so that a wrong variable is told by rank 0 alone."""
        return Inhibitor(_seconds("DMR_INHIBITOR_SECONDS"), _calls("DMR_INHIBITOR_STEPS"))

    def place(self, names: list[str]) -> None:
        """Takes in where the ranks are: their nodes' names, by rank. The same on all ranks."""
        self.per_node = self.per_node or names.count(names[0])
        self.nodes = node_list(names, self.per_node)
        self._scattered = not self.nodes and all(names)

    def resized(self, passport: Passport, comm: MPI.Intracomm, move_seconds: float) -> None:
        """After a resize, on each process of the new size: all count their calls from here, and rank 0 tells."""
        self.job, self.epoch = passport.job, passport.epoch
        self.nodes, self.per_node = passport.nodes, passport.per_node
        self.comm, self.rank, self.arriving = comm, comm.rank, False
        self.skip, self._pending, self.coming = 0, None, None
        if comm.rank == 0:
            self.inhibitor.leave(time.monotonic(), soon=True)
            if passport.failed:  # it came to nothing, and these processes were started with the former size again
                logger.warning("the resize failed, going on as before: %s", passport.failed)
                if self.connect():
                    self.refuse(passport.failed_epoch, passport.failed)
            else:
                timings = {"spawn": passport.spawn_seconds, "move": move_seconds}
                self._finished(comm.size, timings | ({"ahead": ahead} if (ahead := passport.ahead_seconds) else {}))

    def connect(self) -> bool:
        """Whether an agent can be asked and a resize could work; if not, says why, once."""
        if self.client is not None or self._unreachable:
            return not self._unreachable
        from mpi4py import MPI

        if not os.environ.get("DMR_AGENT") or not self.job:
            return False
        obstacle = quirks.obstacle(MPI.Get_library_version(), os.environ)
        if obstacle:
            logger.warning("this application cannot be resized: %s", obstacle)
        else:
            self.client = Client.from_environment()
        self._unreachable = self.client is None
        return not self._unreachable

    def decide(self, size: int, wanted: Limits, progress: Progress, *, later: bool = False) -> Verdict:
        """One real check: asks the agent, and doubts its answer.

        If `later`, the question goes to the background and its answer is taken by the first call that finds it there;
        the bounds may have changed meanwhile, and those of that call count.
        """
        if not self.connect() or self.client is None:
            return Verdict(skip=math.inf)
        self._told_of()
        self._settle()
        self.inhibitor.enter(time.monotonic())
        try:
            limited = Limits(size, size) if progress.fixed else self._overridden(wanted)
            check = self._question(size, limited, progress)
        except wire.WireError as problem:  # the arguments are sound, so it is about the job or its nodes
            logger.warning("this application cannot be resized: %s", problem)
            return Verdict(skip=math.inf)
        pending, self._pending = self._pending, None
        if not later:  # an answer to an earlier question that nobody has taken is void: this one is newer
            return self._judge(check, self.client.request(check))
        if pending is None:
            return self._ask(check)
        if not pending.ready():
            self._pending = pending
            return self._rest(soon=True)
        verdict = self._judge(check, self.client.finish(pending))
        # Without an inhibitor the next answer is prepared at once, so that each call can have one.
        return verdict if verdict.reply or verdict.skip else self._ask(check)

    def starts_ahead(self) -> bool:
        """Rank 0: whether new processes are to be started while the application goes on.

        Not where a step takes so long that waiting for them costs less than one more step with the old size.
        """
        if os.environ.get("DMR_START_AHEAD", "1") == "0":
            return False
        return (self.inhibitor.step_seconds or 0.0) <= _LONG_STEP

    def expect(self, coming: Coming) -> None:
        """The application goes on, and every call looks what has become of it. On all ranks."""
        self.coming, self.skip = coming, 0
        if coming.start is not None and not self._leaves:
            self._leaves = True
            atexit.register(self.leave_off)

    def follow(self, size: int, wanted: Limits, progress: Progress) -> News:
        """Rank 0, in place of a real check while new processes are being started: what has become of it."""
        coming = self.coming
        assert coming is not None and coming.start is not None and self.client is not None
        self.inhibitor.passed()
        limited, reply = self._overridden(wanted), coming.reply
        if not limited.minimum <= reply.size <= limited.maximum:
            return News(over=f"the program does not want {reply.size} processes any more", wish=True)
        if coming.asked is not None and coming.asked.ready():
            answer, coming.asked = self.client.finish(coming.asked), None
            if isinstance(answer, wire.CheckReply) and _offer(answer) != _offer(reply):
                return News(over=f"the agent has taken it back: {answer.reason or answer.action}", told=True, wish=True)
        if coming.start.done:
            if coming.start.problem:
                return News(over=coming.start.problem)
            found = tuple((ticket, port) for ticket, port in coming.start.worlds)
            return News(go=True, worlds=found, seconds=coming.start.seconds)
        if coming.asked is None and time.monotonic() >= coming.ask_at:
            coming.ask_at = time.monotonic() + _STILL_THERE
            try:
                check = replace(self._question(size, limited, progress), starting=reply.epoch)
            except wire.WireError:
                return News()
            coming.asked = self.client.start(check)
        return News()

    def leave_off(self, why: str = "the program has come to its end") -> None:
        """Gives up what is being started, if anything is; not collective."""
        coming, self.coming = self.coming, None
        if coming is not None and coming.start is not None:
            coming.start.withdraw()
            self.refuse(coming.reply.epoch, why)

    def _ask(self, check: wire.Check) -> Verdict:
        assert self.client is not None
        self._pending = self.client.start(check)
        return self._rest(soon=self._pending is not None)

    def _rest(self, *, soon: bool = False) -> Verdict:
        return Verdict(skip=self.inhibitor.leave(time.monotonic(), soon=soon))

    def _question(self, size: int, wanted: Limits, progress: Progress) -> wire.Check:
        if why := limits.hopeless(size, wanted, self.per_node):
            self._once(f"{why}; this application will not be resized at this point")
        if self._scattered:
            self._once(
                f"the ranks are not {self.per_node} on each node in the order of the nodes (-ppn, DMR_RANKS_PER_NODE), "
                "so that this application can hardly be resized"
            )
        return wire.Check(
            job=self.job,
            epoch=self.epoch,
            size=size,
            minimum=wanted.minimum,
            maximum=wanted.maximum,
            factor=wanted.factor,
            preferred=limits.nearest(size, wanted, self.per_node),
            per_node=self.per_node,
            nodes=self.nodes or (),
            method=progress.method,
            companion=progress.companion,
            steps_left=None if progress.steps_left is None else min(progress.steps_left, wire.MAX_INT),
            step_seconds=self.inhibitor.step_seconds,
            requests_nodes=progress.companion and line.there(os.environ),
        )

    def _judge(self, check: wire.Check, reply: wire.Reply | None) -> Verdict:
        if isinstance(reply, wire.CheckReply) and reply.node_request is not None:
            self._pass_on(check, reply.node_request)
        if not isinstance(reply, wire.CheckReply) or reply.action == "none":
            return self._rest()
        wrong = _objection(check, reply)
        if wrong:
            logger.warning("the agent asks for a resize that does not fit (%s); going on as is", wrong)
            self.refuse(reply.epoch, wrong)
            return self._rest()
        return Verdict(skip=self._rest().skip, reply=reply, ahead=self.starts_ahead())

    def _pass_on(self, check: wire.Check, wanted: wire.NodeRequest) -> None:
        """To the launcher, in a thread that makes no MPI call. What is lost the agent says again."""
        most = (check.maximum - check.size) // check.per_node
        if wanted.job != check.job or wanted.node_count > most:
            self._once(
                f"the agent wants {wanted.node_count} nodes for job {wanted.job}, which this application has no use for"
            )
        elif wanted.name not in self._told:
            self._told.add(wanted.name)
            threading.Thread(target=self._tell, args=(wanted,), name="dmr-node-request", daemon=True).start()

    def _tell(self, wanted: wire.NodeRequest) -> None:
        try:
            line.ask(_TELLING, op="node-request", node_request=asdict(wanted))
        except line.LineError as error:
            logger.warning("the launcher does not ask Slurm for more nodes: %s", error)
            self._told.discard(wanted.name)

    def _overridden(self, wanted: Limits) -> Limits:
        """The program's own limits, or those of DMR_SIZES in their place."""
        text = os.environ.get("DMR_SIZES")
        if not text:
            return wanted
        try:
            return limits.from_text(text, wanted.factor)
        except ValueError as error:
            self._once(f"DMR_SIZES={text} is ignored: {error}")
            return wanted

    def _once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            logger.warning("%s", text)

    def announce(self, size: int, in_seconds: float) -> None:
        """Tells the agent, in the background, what size will be wanted when."""
        if not self.connect():
            return
        try:
            ahead = wire.Announce(job=self.job, epoch=self.epoch, size=size, in_seconds=in_seconds)
        except wire.WireError as problem:  # the arguments are sound; an error here would meet rank 0 alone
            self._once(f"nothing can be announced: {problem}")
            return
        self._to_announce.append(ahead)
        self._settle()

    def _settle(self) -> None:
        """Sends announcements, one after another so that they arrive in order; the next one when this one is heard."""
        while self.client is not None:
            if self._announced is not None:
                if not self._announced.ready():
                    return
                self.client.finish(self._announced)
                self._announced = None
            if not self._to_announce:
                return
            self._announced = self.client.start(self._to_announce.popleft())

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

    def _finished(self, size: int, timings: Mapping[str, float]) -> None:
        """Tells the agent that the resize is done; durations in seconds by phase.

        In the background: the program, which has stood still since its last step, does not wait for the answer too.
        """
        if self.connect() and self.client is not None:
            done = wire.Finished(job=self.job, epoch=self.epoch, size=size, nodes=self.nodes or (), timings=timings)
            self._telling = self.client.start(done, urgent=True)
            atexit.register(self._told_of)

    def _told_of(self) -> None:
        """Waits until the agent has heard of the last resize: before it hears anything else, and before the end."""
        # A lost word does no harm: the next check carries the epoch.
        telling, self._telling = self._telling, None
        if telling is not None and self.client is not None:
            self.client.finish(telling)
            atexit.unregister(self._told_of)


def _offer(reply: wire.CheckReply) -> tuple[object, ...]:
    """What makes it the same one."""
    return reply.action, reply.epoch, reply.size, reply.nodes, reply.companion


def _objection(check: wire.Check, reply: wire.CheckReply) -> str:
    """Why this resize must not be done, or ""."""
    if reply.epoch <= check.epoch:
        return f"epoch {reply.epoch} is already finished"
    if reply.per_node != check.per_node:
        return f"{reply.per_node} ranks on each node instead of {check.per_node}"
    if not check.minimum <= reply.size <= check.maximum:
        return f"size {reply.size} is outside {check.minimum}..{check.maximum}"
    if reply.action != _action(check.size, reply.size):
        return f"{reply.action} from {check.size} to {reply.size}"
    if reply.action == "migrate" and set(reply.nodes) == set(check.nodes):
        return "it runs on those nodes"
    if not plan.reachable(check.size, reply.size, check.factor):
        return f"size {reply.size} is not reachable from {check.size} by factor {check.factor}"
    return ""


def _action(before: int, after: int) -> str:
    return "migrate" if before == after else "expand" if after > before else "shrink"


def node_list(names: list[str], per_node: int) -> tuple[str, ...]:
    """The nodes in order of the ranks, if each holds `per_node` consecutive ones; else empty: not known."""
    nodes = tuple(names[::per_node])
    consistent = [node for node in nodes for _ in range(per_node)] == names and len(set(nodes)) == len(nodes)
    return nodes if consistent and all(nodes) else ()


def _positive(variable: str) -> int:
    value = os.environ.get(variable, "")
    return int(value) if value.isascii() and value.isdigit() else 0


def _calls(variable: str) -> int:
    if not os.environ.get(variable):
        return 1
    value = _positive(variable)
    if not value:
        logger.warning("%s is not a number of calls, from 1; ignored", variable)
    return max(1, value)


def _seconds(variable: str) -> float:
    try:
        value = float(os.environ.get(variable) or 0)
    except ValueError:
        value = math.nan
    if not 0 <= value < _LONGEST:
        logger.warning("%s is not a number of seconds; ignored", variable)
        return 0.0
    return value

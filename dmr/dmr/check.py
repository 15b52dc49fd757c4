"""One real check, as all ranks do it together: agree on the arguments, let rank 0 ask, and begin what it brings."""

from __future__ import annotations

import array
import logging
import os
from typing import TYPE_CHECKING

from dmr import joining, limits, quirks, transition
from dmr.limits import NAMES, Limits
from dmr.session import Coming, News, Progress, Session
from dmr.transition import Transition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mpi4py import MPI

    from dmr import wire

__all__ = ["agreed", "check"]

logger = logging.getLogger("dmr")


def agreed(comm: MPI.Intracomm, arguments: Sequence[object], *, later: bool = False) -> Limits:
    """The arguments, if they are sound and the same on all ranks; collective.

    Args:
        comm: whose ranks must agree.
        arguments: minimum, maximum, factor, preferred.
        later: whether this is the asynchronous call, which all ranks must make then.

    Raises:
        ValueError: on all ranks alike, naming the argument and where ranks differ, two that do.
    """
    from mpi4py import MPI

    # A small reduction finds out whether all is well; only if it is not, everybody's arguments are gathered.
    wrong = limits.problem(arguments)
    numbers = [0 if wrong else limits.whole(a) or 0 for a in arguments] + [int(later)]
    seen = array.array("q", [bool(wrong), *numbers, *(-n for n in numbers)])
    comm.Allreduce(MPI.IN_PLACE, [seen, MPI.INT64_T], op=MPI.MAX)
    highest, lowest = seen[1 : 1 + len(numbers)], seen[1 + len(numbers) :]
    if seen[0] or any(high != -low for high, low in zip(highest, lowest, strict=True)):
        call = "dmr_icheck_status" if later else "dmr_check_status"
        everyone = comm.allgather((*arguments, call))
        raise ValueError(limits.differing(everyone, (*NAMES, "the function called")) or wrong)
    return limits.limits(arguments)


def check(
    session: Session,
    comm: MPI.Intracomm,
    arguments: Sequence[object],
    *,
    methods: Sequence[str] = ("replace", "restart"),
    companion: bool = False,
    steps_left: int | None = None,
    fixed: bool = False,
    later: bool = False,
    ready: Callable[[wire.CheckReply], str] = lambda reply: "",
) -> tuple[wire.CheckReply, Transition] | None:
    """A resize that has begun, or None: the application goes on as it is. Collective.

    Under the launcher a resize begins when its new processes are up, some calls after the one that heard of it.

    Args:
        session: what is known of the job.
        comm: all processes of the program.
        arguments: minimum, maximum, factor, preferred.
        methods: how the application can be resized (`dmr.transition`), what it likes best first.
        companion: it does not take MPI.COMM_WORLD for all its processes, so that new ones may be in another job.
        steps_left: how many steps it still has, where it knows.
        fixed: it knows that it cannot be resized; the agent shall know, too.
        later: ask in the background, as `dmr.dmr_icheck_status`.
        ready: may say, the same on all ranks, why the application cannot be resized as the agent wants.

    Raises:
        ValueError: on all ranks, for arguments that are wrong or differ.
    """
    wanted = agreed(comm, arguments, later=later)
    session.rank = comm.rank
    if session.nodes is None:
        session.place(comm.allgather(quirks.node_name(os.environ)))
    available = transition.available()
    method = next((method for method in methods if method in available), "")
    coming = session.coming
    method = coming.prepared.method if coming else method
    progress = Progress(
        method or methods[0],
        companion=companion and method != "restart" and transition.companion(),
        steps_left=steps_left,
        fixed=fixed or not method,
    )
    if coming is not None:
        return _follow(session, comm, coming, wanted, progress, ready)
    verdict = session.decide(comm.size, wanted, progress, later=later) if comm.rank == 0 else None
    verdict = comm.bcast(verdict)
    session.skip = verdict.skip
    if verdict.reply is None:
        return None
    new = Coming(verdict.reply, transition.prepare(comm, verdict.reply, method, wanted.factor))
    problem = new.prepared.problem or ready(verdict.reply)
    if not problem and verdict.ahead and method != "restart" and joining.by_port():
        started, new.start = transition.ahead(comm, new.reply, new.prepared)
        if started:
            session.expect(new)
            return None
    return _begin(session, comm, new, problem)


def _follow(
    session: Session,
    comm: MPI.Intracomm,
    coming: Coming,
    wanted: Limits,
    progress: Progress,
    ready: Callable[[wire.CheckReply], str],
) -> tuple[wire.CheckReply, Transition] | None:
    """While new processes are being started: joins them when they are up, or gives them up. Collective."""
    news: News = comm.bcast(session.follow(comm.size, wanted, progress) if comm.rank == 0 else None)
    if not (news.go or news.over):
        return None
    session.coming = None
    if news.go:
        begun = _begin(session, comm, coming, ready(coming.reply), news)
        if begun is None and coming.start is not None:
            coming.start.withdraw()
        return begun
    if coming.start is not None:  # rank 0
        if not news.wish:
            logger.warning("this application cannot be resized now, going on as is: %s", news.over)
        coming.start.withdraw()
        if not news.told:
            session.refuse(coming.reply.epoch, news.over)
    return None


def _begin(
    session: Session, comm: MPI.Intracomm, new: Coming, problem: str, news: News | None = None
) -> tuple[wire.CheckReply, Transition] | None:
    """Collective: accept, start the new processes or meet those of the `news`; on any failure refuse, and the
    application goes on."""
    reply = new.reply
    if not problem:
        if not comm.bcast(session.accept(reply.epoch) if comm.rank == 0 else None):
            return None
        if news is not None:
            problem = comm.bcast(new.start.go() or "" if new.start is not None else None)
    if not problem:
        started = (news.worlds, news.seconds) if news is not None else (None, 0.0)
        begun = transition.depart(session, comm, reply, new.prepared, *started)
        if not isinstance(begun, str):
            return reply, begun
        problem = begun
    if comm.rank == 0:
        logger.warning("this application cannot be resized now, going on as is: %s", problem)
        session.refuse(reply.epoch, problem)
    return None

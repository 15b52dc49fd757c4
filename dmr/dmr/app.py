"""The two-line way from a rigid to a malleable program.

    app = dmr.App(minimum=2, maximum=32, factor=2)
    app.register("x", lambda: first_block(app.comm), dmr.Block(axis=0))      # (1) say what the state is
    app.register("t", 0.0)
    for step in app.steps(10_000):                                           # (2) say what a step is
        app["x"] = advance(app.comm, app["x"])
        app["t"] += 0.1

Between two steps the library asks the agent, and on a resize starts the new processes, moves what is registered, and
goes on with the next step. Processes that are replaced end inside the loop (`Replaced`, a SystemExit): what comes after
the loop is for those that finish it. New processes run the same program from the top; there `register` takes what was
inherited in place of the first value, and the loop begins where it was left.

`register` returns nothing, on purpose: the state lives in the app. Fetch `app["x"]` in each step, and put back what is
not changed in place, and a program that is right with a fixed size is right with a changing one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from dmr import limits, redistribute, transition
from dmr.api import announce, the_session
from dmr.check import check
from dmr.passage import NO_MEMORY
from dmr.state import State, differing

if TYPE_CHECKING:
    from mpi4py import MPI

    from dmr.distributions import Distribution
    from dmr.redistribute import Moved
    from dmr.transition import Transition
    from dmr.wire import CheckReply

__all__ = ["App", "Replaced"]

logger = logging.getLogger("dmr")

# What may be done where this is asked for, the best first. DMR_METHOD leaves only one of them.
METHODS: Final = {
    None: ("replace", "restart", "merge"),
    "replace": ("replace", "restart"),
    "merge": ("merge", "replace", "restart"),
    "restart": ("restart",),
}


class Replaced(SystemExit):
    """Raised inside the loop of a process whose work others go on with: it has to end, and does so with exit code 0.

    `finally` and `with` blocks are left as usual. Catch it only to do something that this process must do before it
    ends; Slurm can only take a node that nobody uses.
    """


class App:
    """A program that may be resized between two of its steps. Make one, at the start, on all ranks alike.

    Args:
        minimum, maximum, factor, preferred: the sizes it can use, as for `dmr.dmr_check_status`; DMR_SIZES counts more.
        comm: all processes that were started together; default MPI.COMM_WORLD.
        ahead: ask while a step runs and take the answer after it, as `dmr.dmr_icheck_status` does.
        method: "replace" all processes (default), or "merge": they stay where they can, and `comm` and the values
            change in their loop, so that nothing that depends on them may be kept over a step (see `changed`). Or
            "restart": save all, end, start anew, which is done in any case where the MPI library can do nothing else.

    Attributes:
        resumed: this process goes on with the work of others; what is done once per program has been done.
        changed: true in the first step of this process and in the first after a resize: time to derive from `comm` and
            the blocks what depends on them.

    Raises:
        ValueError: the sizes contradict each other.
    """

    def __init__(
        self,
        minimum: int = 1,
        maximum: int = limits.LARGEST,
        factor: int = 1,
        preferred: int | None = None,
        *,
        comm: MPI.Intracomm | None = None,
        ahead: bool = False,
        method: str | None = None,
    ) -> None:
        from mpi4py import MPI

        self._sizes = limits.limits((minimum, maximum, factor, preferred))
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, not {method!r}")
        self._methods = METHODS[method]
        self._started = self._comm = MPI.COMM_WORLD if comm is None else comm
        self._joined: MPI.Intracomm | None = None
        self._ahead = ahead
        self._session = the_session()
        self._state = State()
        self._first = 0
        self._looping = False
        self._fixed = False  # what is registered cannot move
        self.resumed = False
        self.changed = True
        self._arrive()

    @property
    def comm(self) -> MPI.Intracomm:
        """All processes of the program now. Fetch it in each step."""
        return self._comm

    def register(self, name: str, value: Any, distribution: Distribution | None = None) -> None:  # noqa: ANN401
        """Says that a value belongs to the state that moves. From then on it is `app[name]`.

        Args:
            name: the same on all ranks, as everything here.
            value: the first one: this rank's block of an array (without halo), a CSR matrix or a list, or any object
                that pickles; or a function without arguments that makes it, which is not called where it is inherited.
            distribution: how it is dealt to the ranks. None: it is the same on all of them, and what differs (as far as
                that can be seen) is not resized.

        Raises:
            ValueError: the name is taken, or the distribution is none.
        """
        self._state.register(name, value, distribution)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        return self._state[name]

    def __setitem__(self, name: str, value: object) -> None:
        self._state[name] = value

    def distribution(self, name: str) -> Distribution:
        """How that value is dealt to the ranks now."""
        return self._state.held(name)

    def redistribute(self, name: str, distribution: Distribution | None = None) -> None:
        """Deals a value otherwise among the ranks that there are; collective, between or within steps.

        From then on `app[name]` is this rank's new block, and later resizes deal it as is said here. What still refers
        to the old block must not use it any more. Memory and duration are those of a resize that moves this value.

        Args:
            name: what was registered.
            distribution: `Explicit(mine)` says which indices this rank is to hold, all ranks' together each once. None:
                as it was said last, which sends records that are `Keyed` to whom they belong now.

        Raises:
            ValueError: on all ranks, which go on with what they had: they do not say the same, the blocks or the
                distribution do not fit the array, or it cannot move; the message begins with the name.
            MemoryError: on all ranks, if one cannot have its new block; they go on with what they had.
            RuntimeError: this process has joined others that are in their loop, and is not in its own yet.
        """
        if self._joined is not None and not self._looping:
            raise RuntimeError(f"{name}: the others are in their loops; redistribute it in the loop, too")
        part, problem = None, ""
        try:
            part = self._state.anew(name, distribution, self._comm.size)
        except ValueError as error:
            problem = str(error)
        said = self._comm.allgather((name, problem))
        for rank, (other, wrong) in enumerate(said):
            if wrong:
                raise ValueError(f"{wrong} (rank {rank})")
            if other != said[0][0]:
                raise ValueError(f"{other}: redistributed on rank {rank}, while rank 0 does {said[0][0]}")
        assert part is not None, "its problem was raised"
        self._state.dealt(name, redistribute.deal_anew(self._comm, {name: part}), distribution)
        self._fixed = False

    def want(self, minimum: int, maximum: int, factor: int = 1, preferred: int | None = None) -> None:
        """Other sizes from now on, for a phase that can use more, or fewer; on all ranks alike.

        New processes go on with what was wanted last, like with the registered values.

        Raises:
            ValueError: the sizes contradict each other.
        """
        self._state.wanted = limits.limits((minimum, maximum, factor, preferred))

    def announce(self, size: int, in_seconds: float) -> None:
        """See `dmr.announce`."""
        announce(size, in_seconds, self._comm)

    def steps(self, n: int | None = None) -> Iterator[int]:
        """The numbers of the steps: 0 to n-1, or without end; in a process that replaces others, from where they were.

        A program has one loop of this kind. Leave it by `break` where the end is not known at the start.

        Raises:
            ValueError: n is not a number of steps.
            RuntimeError: the second loop.
        """
        last = None if n is None else limits.whole(n)
        if n is not None and (last is None or last < 0):
            raise ValueError(f"n must be a number of steps, from 0, not {n!r}")
        if self._looping:
            raise RuntimeError(
                "an App has one loop over its steps, because only there a new process can begin in its middle: "
                "tell phases by the number of the step"
            )
        self._looping = True
        return self._loop(last)

    def _loop(self, n: int | None) -> Iterator[int]:
        if self._joined is not None:
            self._comm = self._joined
        for name in self._state.strayed():
            self.redistribute(name)
        session, step = self._session, self._first
        try:
            while n is None or step < n:
                yield step
                step += 1
                if session.skip:
                    session.skip -= 1
                    self.changed = False
                elif n is None or step < n:
                    self.changed = self._resized(step, None if n is None else n - step)
        finally:  # the loop is over or was left: nobody is there any more to hand over to new processes
            session.leave_off()

    def _resized(self, step: int, left: int | None) -> bool:
        """A real check before the step; whether this process goes on with a new size."""
        begun = check(
            self._session,
            self._comm,
            self._state.wanted or self._sizes,
            methods=self._methods,
            companion=True,
            steps_left=left,
            fixed=self._fixed,
            later=self._ahead,
            ready=lambda reply: self._obstacle(step, reply.size),
        )
        if begun is None:
            return False
        reply, moving = begun
        began = time.monotonic()
        moved, problem = None, None
        try:
            moved = moving.move(self._state.parts(step))
        except (transition.Lost, ValueError, MemoryError) as error:
            problem = error
        try:
            comm = moving.complete(problem)
        except (transition.Lost, ValueError, MemoryError) as error:
            self._fixed = isinstance(error, ValueError)
            self._stay(reply, str(error) or NO_MEMORY)
            return False
        self._join(moving, comm, moved, began)
        return True

    def _stay(self, reply: CheckReply, why: str) -> None:
        if self._comm.rank == 0:
            logger.warning("this application cannot be resized now, going on as is: %s", why)
            self._session.refuse(reply.epoch, why)

    def _obstacle(self, step: int, size: int) -> str:
        """Why the state cannot move to so many ranks, the same on all; collective. Nor will it the next time."""
        problem = differing(self._comm.allgather(self._state.marks()))
        if not problem:
            try:
                redistribute.check(self._comm, self._state.parts(step), size)
            except ValueError as error:
                problem = str(error)
        self._fixed = bool(problem)
        return problem

    def _arrive(self) -> None:
        """In a process that a resize started: takes over the state."""
        moving = transition.arrive(self._comm)
        if moving is None:
            return
        began = time.monotonic()
        try:
            moved = moving.move()
        except (ValueError, MemoryError):  # the old processes go on, and say why
            moving.abandon()
            raise Replaced from None
        self.resumed = True
        self._join(moving, moving.complete(), moved, began)
        if moving.passport.method == "merge":
            # The others are in their loops; until this process is in its own, it is alone with those it began with.
            self._joined, self._comm = self._comm, self._started

    def _join(self, moving: Transition, comm: MPI.Intracomm | None, moved: Moved | None, began: float) -> None:
        """Goes on as a rank of the new size, or ends."""
        if comm is None or moved is None:
            self._comm = self._started  # what was until now may be gone
            raise Replaced(moving.exit_code)
        self._first = self._state.adopt(moved)
        self._comm = comm
        self._session.resized(moving.passport, comm, time.monotonic() - began)

"""The two ends of a resize for programs that move their data themselves: `Departure` of the old processes, `Arrival` of
the new ones. All processes are replaced.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dmr import redistribute, tasks
from dmr.distributions import Block, Replicated
from dmr.mapping import Mapping as Roles
from dmr.mapping import mapping
from dmr.passage import NO_MEMORY
from dmr.tasks import Task
from dmr.transition import Lost

if TYPE_CHECKING:
    from mpi4py import MPI

    from dmr.redistribute import Part
    from dmr.transition import Passport, Transition

__all__ = ["Arrival", "Departure"]

_STATE, _CALLS, _NOTHING = "state", "calls", "nothing"


class Departure:
    """The old side's handler, from `dmr_check_status`, collective over the communicator it was given.

    Hand over either the state (`send`, at most once) or calls (`offload`), then call `finish` and return from the
    program: the new processes go on. `size` is their number.
    """

    def __init__(self, transition: Transition, comm: MPI.Intracomm, refuse: Callable[[str], None]) -> None:
        self._transition = transition
        self._comm = comm
        self._refuse = refuse
        self._sent = False
        self._tasks: list[Task] = []
        self._wrong = ""  # with a call that was handed on
        self._refused = ""  # why calls were, the last time
        self._problem: Exception | None = None  # with the move, as this rank has seen it
        self._abandoned = ""
        self.size = len(transition.bridge.new)

    @property
    def mapping(self) -> Roles:
        """Who goes on with whose work: what this rank hands `onto` which new ranks, and on a shrink who sends to whom.

        See `dmr.mapping`; the DMR paper, section 6.2 and figure 2.
        """
        return mapping(self._comm.size, self.size, self._comm.rank)

    def send(self, arrays: Mapping[str, Any] | None = None, **replicated: Any) -> None:  # noqa: ANN401
        """Sends the state to the new processes; collective.

        Args:
            arrays: by name, this rank's block without halo, and how the array is distributed: `(block, Block2D())`; a
                block alone is one of rows as `dmr.block_bounds` deals them. See `dmr.redistribute` for what can move.
            replicated: anything that pickles and is the same everywhere; rank 0's is sent.

        Raises:
            ValueError: on all ranks, when the blocks do not fit together; nothing was sent then, the new processes end,
                and the application goes on as it is.
        """
        if self._sent or self._tasks:
            raise RuntimeError("send() or offload() was called before")
        parts = {
            name: given if isinstance(given, tuple) else (given, Block()) for name, given in (arrays or {}).items()
        }
        names, both = list(parts), min(parts.keys() & replicated.keys(), default=None)
        parts |= {name: (value, Replicated()) for name, value in replicated.items()}
        try:
            if both := next(filter(None, self._comm.allgather(both)), None):
                raise ValueError(f"{both} is the name of an array and of a value")
            redistribute.check(self._comm, parts, self.size)
        except ValueError as error:
            self._give_up(str(error))
            raise
        self._hand_over((_STATE, names), parts)

    def offload(self, function: Callable[..., Any], *arguments: Any, onto: int) -> None:  # noqa: ANN401
        """Has new rank `onto` go on with `function(*arguments)`, the paper's offloading (section 6).

        Arrays among the arguments move without a copy of them here, and must not change until `finish`. Every new rank
        must get one call, from whichever rank. Not collective: a rank may hand on several calls, or none.

        Args:
            function: one that can be named: of a module, or of the program itself.
            arguments: anything that pickles.
            onto: a rank of the new processes, see `mapping`.
        """
        if self._sent:
            raise RuntimeError("send() was called before")
        task = Task(onto, function, arguments)
        self._tasks.append(task)
        self._wrong = self._wrong or tasks.objection(task)  # raised by `finish`, which is where all ranks meet

    def finish(self) -> None:
        """Lets go of the new processes. End the program then: Slurm can only take a node that nobody uses.

        Where the processes are to be started anew (`dmr.restart`), this ends the process itself.

        Raises:
            ValueError: on all ranks, when the calls that were handed on are not one for each new rank, or do not
                pickle; nothing was sent then, and all those calls are forgotten: hand on others and call this again.
            Lost: on all ranks, the new processes have died, have no memory for the data, or were sent nothing because
                of a ValueError; these must go on.
        """
        if not self._abandoned:
            self._hand_over_the_rest()
        if self._abandoned:
            raise Lost(self._abandoned)
        try:
            self._transition.complete(self._problem)
        except (Lost, ValueError, MemoryError) as error:
            self._stay(str(error) or NO_MEMORY)
            raise Lost(self._abandoned) from None
        if self._transition.exit_code:
            sys.exit(self._transition.exit_code)

    def _hand_over_the_rest(self) -> None:
        """What `send` has not: the calls, or that there is nothing at all."""
        handed = self._comm.allgather((self._wrong, [task.onto for task in self._tasks]))
        if any(onto for _, onto in handed):
            wrong = next((wrong for wrong, _ in handed if wrong), "") or tasks.problem(
                (o for _, o in handed), self.size
            )
            if wrong:
                self._tasks, self._wrong, self._refused = [], "", wrong
                raise ValueError(wrong)
            self._hand_over((_CALLS, None), {_CALLS: tasks.as_part(self._tasks)})
        elif not self._sent:
            if self._refused:  # there was something, so that nothing at all is not what is meant
                self._give_up(self._refused)
            else:
                self.send()

    def _hand_over(self, head: tuple[str, Any], parts: Mapping[str, Part | tuple[Any, ...]]) -> None:
        self._sent = True
        try:
            self._transition.tell(head)
            self._transition.move(parts)
        except (Lost, ValueError, MemoryError) as error:
            self._problem = error

    def _give_up(self, why: str) -> None:
        """Ends the new processes, which wait for what does not come."""
        self._sent = True
        problem: Exception = ValueError(why)
        try:
            self._transition.tell((_NOTHING, None))
        except Lost as lost:
            problem = lost
        with contextlib.suppress(Lost, ValueError):  # it says no more than that
            self._transition.complete(problem)
        self._stay(why)

    def _stay(self, why: str) -> None:
        self._abandoned = why
        if self._comm.rank == 0:
            self._refuse(why)


class Arrival:
    """The new side's handler, from `dmr.inherited`. All methods are collective over all new processes.

    `size_before` is the number of old processes, `epoch` numbers the resizes of the job from 1.
    """

    def __init__(self, transition: Transition, resized: Callable[[Passport, MPI.Intracomm, float], None]) -> None:
        self._transition = transition
        self._resized = resized
        self._heard: tuple[str, Any] | None = None
        self.size_before = transition.passport.old_size
        self.epoch = transition.passport.epoch

    def receive(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """This rank's blocks and the replicated values, by the names they were sent under.

        Waits for the old processes to let go; rank 0 then tells the agent that the resize is done, with its durations.

        Raises:
            RuntimeError: the old processes called `offload`.
        """
        names, values = self._taken(_STATE, "run")
        return {name: values.pop(name) for name in names}, values

    def run(self) -> Any:  # noqa: ANN401
        """Goes on with the call that was handed to this rank by `offload`, and returns what it returns.

        Waits before that for the old processes to let go, as `receive` does.

        Raises:
            RuntimeError: the old processes called `send`.
        """
        _, values = self._taken(_CALLS, "receive")
        ((function, arguments),) = values[_CALLS]
        return function(*arguments)

    def _taken(self, expected: str, other: str) -> tuple[Any, dict[str, Any]]:
        began = time.monotonic()
        if self._heard is None:  # it is said once, and the wrong method may be called first
            self._heard = self._transition.tell()
        kind, head = self._heard
        if kind == _NOTHING:
            self._transition.abandon()
            sys.exit()
        if kind != expected:
            raise RuntimeError(f"the old processes handed over {kind}: call {other}()")
        try:
            moved = self._transition.move()
        except (ValueError, MemoryError):  # the old processes go on, and say why
            self._transition.abandon()
            sys.exit()
        assert moved is not None, "who arrives has a new rank"
        comm = self._transition.complete()
        assert comm is not None
        self._resized(self._transition.passport, comm, time.monotonic() - began)
        return head, moved.values

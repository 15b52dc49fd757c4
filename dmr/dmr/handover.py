"""The two ends of a resize: `Departure` on the old processes, `Arrival` on the new ones. All processes are replaced."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from dmr import redistribute

if TYPE_CHECKING:
    from mpi4py import MPI

    from dmr.redistribute import Array
    from dmr.transition import Transition

__all__ = ["Arrival", "Departure"]


class Departure:
    """The old side's handler, from `dmr_check_status`. All methods are collective over the communicator it was given.

    Call `send` (at most once), then `finish`, then return from the program: the new processes go on.
    """

    def __init__(self, transition: Transition, comm: MPI.Intracomm) -> None:
        self._transition = transition
        self._intercomm = cast("MPI.Intercomm", transition.bridge.comm)
        self._comm = comm
        self._sent = False

    def send(self, arrays: Mapping[str, Array] | None = None, **replicated: Any) -> None:  # noqa: ANN401
        """Sends the state to the new processes.

        Args:
            arrays: by name, this rank's block, shape (rows of this rank, ...), of an array that is distributed by rows
                as `dmr.plan.block_bounds` deals them; no halo rows. Any dtype without Python objects.
            replicated: anything that pickles and is the same everywhere; rank 0's is sent.

        Raises:
            ValueError: on all ranks, when the blocks do not fit together; nothing was sent then.
        """
        if self._sent:
            raise RuntimeError("send() was called before")
        arrays = arrays or {}
        shapes = redistribute.whole_shapes(self._comm, arrays)  # may raise: before anything is sent
        self._sent = True
        redistribute.send_replicated(self._intercomm, self._comm, replicated)
        redistribute.send_blocks(self._intercomm, self._comm, arrays, shapes)

    def finish(self) -> None:
        """Lets go of the new processes. End the program then: Slurm can only take a node that nobody uses."""
        if not self._sent:
            self.send()
        self._transition.complete()


class Arrival:
    """The new side's handler, from `dmr.inherited`. All methods are collective over the communicator it was given.

    `size_before` is the number of old processes, `epoch` numbers the resizes of the job from 1.
    """

    def __init__(
        self,
        transition: Transition,
        comm: MPI.Intracomm,
        report: Callable[[Mapping[str, float]], None],
    ) -> None:
        self._transition = transition
        self._intercomm = cast("MPI.Intercomm", transition.bridge.comm)
        self._comm = comm
        self._report = report
        self.size_before = transition.passport.old_size
        self.epoch = transition.passport.epoch

    def receive(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """This rank's blocks and the replicated values, by the names they were sent under.

        Waits for the old processes to let go; rank 0 then tells the agent that the resize is done, with its durations.
        """
        began = time.monotonic()
        replicated = redistribute.receive_replicated(self._intercomm)
        arrays = redistribute.receive_blocks(self._intercomm, self._comm)
        self._transition.complete()
        if self._comm.rank == 0:
            self._report({"spawn": self._transition.passport.spawn_seconds, "move": time.monotonic() - began})
        return arrays, replicated

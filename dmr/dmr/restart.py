"""The resize for MPI libraries that cannot start processes later: save, end, start again wider or narrower, load.

On a shrink the old ranks first move the state among themselves, so that there are never more files than new ranks; on
growth they save what they hold, and the new ranks move it. So each new rank reads the files of one old rank at most,
and `redistribute` serves as in every other method. How the new ranks hold everything is found out by the old ones:
the application's functions that cut index sets are not saved. `dmr.launch` starts the new processes, and the old number
again should they fail, which then hold what they held before; the state is kept until they have it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dmr import checkpoint, line, redistribute
from dmr.bridge import Bridge
from dmr.checkpoint import CheckpointError
from dmr.distributions import ownerless
from dmr.passage import NO_MEMORY, Lost, Passport, Transition

if TYPE_CHECKING:
    from mpi4py import MPI

    from dmr.redistribute import Moved, Parts

__all__ = ["RESIZED", "Leaving", "Resumed", "resumed"]

logger = logging.getLogger("dmr")

# How a process ends that is to be started again with another number of ranks.
RESIZED: Final = 85
_ASK: Final = 30.0
# Beside the application's parts, whose names are not empty: what old rank 0 tells, and by part, how the new ranks hold
# it and how the old ones did.
_TOLD: Final = ""


class Leaving(Transition):
    """The old side: `move` saves, `complete` has the launcher start the new ranks when these have ended."""

    exit_code = RESIZED

    def __init__(self, comm: MPI.Intracomm, passport: Passport, former: Mapping[str, Any]) -> None:
        own, size = comm.Dup(), len(passport.nodes) * passport.per_node
        new_rank = comm.rank if comm.rank < size else None
        super().__init__(Bridge(own, tuple(range(comm.size)), tuple(range(size)), comm.rank, new_rank), passport, comm)
        self._former = dict(former)  # epoch, nodes and per_node as they are without the resize
        self._told: Any = None
        self._problem: str | None = "nothing was saved"

    def tell(self, value: Any = None) -> Any:  # noqa: ANN401
        """Keeps it for the new ranks."""
        self._told = value

    def move(self, parts: Parts | None = None) -> Moved | None:
        """Saves this rank's parts, on a shrink what it would have after it.

        Raises:
            ValueError: on all ranks, if the parts do not fit together, or one of them cannot be saved.
        """
        size, comm, root = len(self.bridge.new), self.bridge.comm, _root()
        items = redistribute.check(self._comm, parts or {}, size)
        after, former = {item.name: item.new for item in items}, {item.name: item.old for item in items}
        saved: Mapping[str, tuple[Any, ...]] = {
            name: (part[0], ownerless(part[1])) for name, part in (parts or {}).items()
        }
        if size < comm.size:
            moved = redistribute.move(self.bridge, parts, settled=after)
            saved = {n: (v, moved.distributions[n]) for n, v in moved.values.items()} if moved else {}
        problem, wrong, epoch = None, None, self.passport.epoch
        try:
            if comm.rank == 0:
                checkpoint.begin(root, epoch)
        except CheckpointError as error:
            problem = str(error)
        problem = comm.bcast(problem)
        if problem is None and self.bridge.new_rank is not None:
            told: dict[str, tuple[Any, ...]] = {_TOLD: (self._told, after, former)} if comm.rank == 0 else {}
            try:
                checkpoint.save(root, epoch, comm.rank, {**told, **saved})
            except CheckpointError as error:
                problem = str(error)
            except ValueError as error:
                wrong = str(error)
            except Exception as error:  # whatever it is, the others wait to hear of it
                problem = f"{type(error).__name__}: {error}"
        everyone = comm.allgather((problem, wrong))
        self._problem = next((problem for problem, _ in everyone if problem), None)
        if wrong := next((wrong for _, wrong in everyone if wrong), None):
            raise ValueError(wrong)
        return None

    def complete(self, problem: Exception | None = None) -> MPI.Intracomm | None:
        """Hands over to the launcher; always None: every process is to end with `exit_code`.

        Raises:
            ValueError, MemoryError: on all ranks, `problem`, and they go on.
            Lost: on all ranks, and they go on: the checkpoint could not be written, or the launcher is gone.
        """
        if problem is not None:  # on all ranks: here all are old ones
            self._forget()
            raise problem
        self._hand_over()
        return None

    def _hand_over(self) -> None:
        comm, root, epoch = self.bridge.comm, _root(), self.passport.epoch
        problem = self._problem
        if comm.rank == 0:
            files = min(comm.size, len(self.bridge.new))
            try:
                if problem is None:
                    kept = {"files": files, "passport": asdict(self.passport), "former": self._former}
                    checkpoint.commit(root, epoch, kept)
                    nodes, per_node = self.passport.nodes, self.passport.per_node
                    line.ask(_ASK, op="restart", nodes=nodes, per_node=per_node, epoch=epoch)
            except CheckpointError as error:
                problem = str(error)
            except line.LineError as error:
                problem = str(error)
                _stay(epoch)
        if problem := comm.bcast(problem):
            self._forget()
            raise Lost(problem)
        comm.Free()

    def _forget(self) -> None:
        if self.bridge.comm.rank == 0:
            checkpoint.discard(_root(), self.passport.epoch)
        self.bridge.comm.Free()


class Resumed(Transition):
    """The new side: `move` loads."""

    def __init__(self, comm: MPI.Intracomm, passport: Passport, epoch: int, files: int) -> None:
        own = comm.Dup()
        old_rank = comm.rank if comm.rank < files else None
        bridge = Bridge(own, tuple(range(files)), tuple(range(comm.size)), old_rank, comm.rank)
        super().__init__(bridge, passport, comm)
        self._epoch = epoch
        self._parts: dict[str, tuple[Any, ...]] | None = None
        self._problem = "the state could not be moved"
        problem = None
        try:
            if old_rank is not None:
                self._parts = checkpoint.load(_root(), epoch, old_rank)
        except CheckpointError as error:
            problem = str(error)
        _all_or_none(comm, problem)
        told, after, former = self._parts.pop(_TOLD) if self._parts and comm.rank == 0 else (None, None, None)
        self._told = comm.bcast(told)
        self._settled = former if passport.failed else after  # rank 0's counts

    def tell(self, value: Any = None) -> Any:  # noqa: ANN401
        """What old rank 0 told."""
        return self._told

    def move(self, parts: Parts | None = None) -> Moved | None:
        """The state, as this number of ranks holds it.

        Raises:
            ValueError, MemoryError: on all ranks, which call `abandon` then.
        """
        parts, self._parts = self._parts, None
        try:
            return redistribute.move(self.bridge, parts, settled=self._settled)
        except (ValueError, MemoryError) as error:
            self._problem = str(error) or NO_MEMORY
            raise

    def complete(self, problem: Exception | None = None) -> MPI.Intracomm | None:
        """The communicator of all; what was saved is removed."""
        comm = self.bridge.comm
        if comm.rank == 0:
            try:
                line.ask(_ASK, op="loaded")
            except line.LineError as error:
                logger.warning("%s; should this run fail, the launcher will start the former size again", error)
            checkpoint.discard(_root(), self._epoch)
        comm.Free()
        return self._comm

    def abandon(self) -> None:
        """In place of `complete`: nobody else holds the data, so these end with an error and what was saved is kept.

        With exit code 0 the launcher would take the program for finished.
        """
        _all_or_none(self.bridge.comm, self._problem)


def resumed(comm: MPI.Intracomm) -> Resumed | None:
    """The new side's transition, where the launcher started these ranks to go on from a checkpoint. Collective."""
    epoch, failed = int(os.environ.get(line.RESTARTED) or 0), os.environ.get(line.RESTART_FAILED, "")
    if not epoch:
        return None
    problem, found, seconds = None, {}, 0.0
    if comm.rank == 0:
        try:
            seconds = float(line.ask(_ASK, op="arrived").get("seconds", 0.0))
            found = checkpoint.manifest(_root(), epoch)
        except (CheckpointError, line.LineError) as error:
            problem = str(error)
    _all_or_none(comm, problem)
    found, seconds = comm.bcast((found, seconds))
    kept = found["passport"]
    passport = Passport(**{**kept, "nodes": tuple(kept["nodes"]), "new": (), "spawn_seconds": seconds})
    if failed:
        former = {**found["former"], "nodes": tuple(found["former"]["nodes"])}
        passport = replace(passport, **former, failed=failed, failed_epoch=epoch)
    return Resumed(comm, passport, epoch, found["files"])


def _stay(epoch: int) -> None:
    """Takes back the request for a restart, which may have arrived although its answer did not."""
    try:
        line.ask(_ASK, op="stay", epoch=epoch)
    except line.LineError as error:
        logger.warning("%s; the launcher may start the program again after its end", error)


def _root() -> Path:
    return Path(os.environ[checkpoint.DIRECTORY])  # set by the launcher, without which this method is not available


def _all_or_none(comm: MPI.Intracomm | MPI.Comm, problem: str | None) -> None:
    """Ends all processes if one has a problem; the launcher then goes back to the former size."""
    problems = [p for p in comm.allgather(problem) if p]
    if problems:
        if comm.rank == 0:
            logger.error("cannot go on from the checkpoint: %s", problems[0])
        sys.exit(1)

"""A lease as a process has it: taken, kept alive by a thread, given back."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.errors import LeaseLost, NotNow, StateHeld, StoreError
from penstock.host.logs import get_logger
from penstock.state.lease import files, host
from penstock.state.lease.fence import claim, fence
from penstock.state.lease.files import LeaseGone
from penstock.state.lease.machine import (
    Card,
    Create,
    Fence,
    HeldByOther,
    Moment,
    Names,
    Now,
    Read,
    Remove,
    Step,
    Taken,
    Watch,
    beat_every,
    sure_for,
    take,
)

__all__ = ["Lease"]

_log = get_logger(__name__)
_LOOK = 0.25
_AT_CLOSE = 5.0  # seconds that a file server which does not answer may keep the process from ending


class Lease:
    """The right to write the state in `folder`, as long as its beat can be counted up. Takes it, or raises `StateHeld`.

    `role` says what holds it: agent, tick, command. `patience` (s): how long others wait for a beat. `wait` (s): how
    long to try; `tell` is called once with who has it. `mode`: who may read where the agent is. `number` is what the
    database must have, or nothing is written.
    """

    def __init__(
        self,
        folder: Path,
        database: Path,
        role: str,
        *,
        patience: float,
        wait: float = 0.0,
        mode: int = 0o600,
        tell: Callable[[Card | None], None] = lambda _by: None,
    ) -> None:
        self.folder = folder
        self._database = database
        self._patience = patience
        self._mode = mode
        self._lost = ""
        self._trouble = ""
        self._renewed = Moment(0.0, 0.0)
        self._stop = threading.Event()
        self._guard = threading.Lock()
        self.on_lost: Callable[[], None] = lambda: None
        here = host.place()
        pid = os.getpid()
        self._card = Card(
            socket.gethostname(), pid, host.ticks(pid), here.boot, here.space, os.geteuid(), role, time.time()
        )
        self._watch = watch = Watch(here, patience, host.runs, files.load_notes(folder, here))
        if role == "agent" and not here.known:
            # What this process sees of others it cannot leave to the next one: an agent that is started again and again
            # would never have seen anybody silent for long enough.
            wait = max(wait, 1.25 * patience)
        deadline = time.monotonic() + wait
        told = False
        while isinstance(found := self._drive(take(self._card, watch)), HeldByOther):
            files.save_notes(folder, here, watch.notes)
            if time.monotonic() >= deadline:
                raise StateHeld(f"{found.by or 'somebody else'} has the state in {folder}")
            if not told:
                tell(found.by)
                told = True
            time.sleep(_LOOK)
        self.number = found.number
        self._card = replace(self._card, number=self.number)
        files.forget_notes(folder)
        self._beat()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def _drive(self, steps: Generator[Step, Any, Taken | HeldByOther]) -> Taken | HeldByOther:
        """Do what the rules say. Raises StoreError when the folder cannot be read or written."""
        answer: Any = None
        try:
            while True:
                answer = self._do(steps.send(answer))
        except StopIteration as end:
            result: Taken | HeldByOther = end.value
            return result
        except OSError as e:
            raise StoreError(f"the lease in {self.folder} cannot be had: {e.strerror or e}") from e

    def _do(self, step: Step) -> object:
        match step:
            case Now():
                return host.moment().boot
            case Names():
                return files.numbers(self.folder)
            case Read(number):
                return files.read(self.folder, number)
            case Create(number, text):
                # Others see it from here on, and count from then.
                self._renewed = host.moment()
                return files.create(self.folder, number, text)
            case Remove(number):
                files.remove(self.folder, number)
                return None
            case Fence(number):
                return claim(self._database, number)

    # -- while it is held ----------------------------------------------------------------------------------------------

    def why_not(self) -> str | None:
        """Why nothing may be done for now or any more; None: go on."""
        if self._lost:
            return self._lost
        silent = host.moment().since(self._renewed)
        if silent <= sure_for(self._patience):
            return None
        because = f" ({self._trouble})" if self._trouble else ""
        return f"the lease was not renewed for {silent:.0f} s, so another host may take over: waiting{because}"

    def check(self) -> None:
        """Raises LeaseLost when somebody else has taken over, NotNow when that may be so."""
        why = self.why_not()
        if self._lost:
            raise LeaseLost(self._lost)
        if why is not None:
            raise NotNow(why, again_in=beat_every(self._patience))

    @property
    def lost(self) -> str:
        """How it was lost; empty while it is held."""
        return self._lost

    def lose(self, why: str) -> None:
        """Somebody else has taken over: nothing is to be done any more."""
        if not self._lost:
            self._lost = why
            self._stop.set()
            self.on_lost()

    def advertise(self, address: str) -> None:
        """Show others where commands are answered."""
        with self._guard:
            self._card = replace(self._card, address=address)
        with contextlib.suppress(OSError):  # else with the next beat
            files.publish(self.folder, self._card, self._mode)

    def _keep(self) -> None:
        while not self._stop.wait(beat_every(self._patience)):
            self._beat()

    def _beat(self) -> None:
        began = host.moment()
        with self._guard:
            self._card = card = replace(self._card, beat=self._card.beat + 1, at=began.wall)
        try:
            files.rewrite(self.folder, self.number, card.text())
        except LeaseGone:
            self.lose(f"another host has taken over the state in {self.folder}")
            return
        except OSError as e:
            if not self._trouble:
                _log.warning("the lease could not be renewed", why=e.strerror)
            self._trouble = e.strerror or str(e)
            return
        try:
            if self._somebody_tries(began):
                return
        except (OSError, StoreError) as e:
            self._trouble = str(e)
            return
        self._renewed = began
        self._trouble = ""
        # A holder that was paused may have shown its own once more.
        shown = files.published(self.folder)
        if shown is None or (shown.number, shown.address) != (card.number, card.address):
            with contextlib.suppress(OSError):  # else with the next beat
                files.publish(self.folder, card, self._mode)

    def _somebody_tries(self, now: Moment) -> bool:
        """Whether there is a lease after this one. Then this beat is none: who made that lease may not have seen it,
        and may begin at any moment. One that has come to nothing is cleared away after a while."""
        later = max(files.numbers(self.folder), default=0)
        if later <= self.number:
            return False
        text = files.read(self.folder, later) or b""
        if fence(self._database) > self.number:
            self.lose(f"another host has taken over the state in {self.folder}")
        elif not self._watch.lives(later, text, now.boot, host.moment().boot):
            files.remove(self.folder, later)
        self._trouble = "another host has tried to take over"
        return True

    def close(self) -> None:
        """Give it back, so that the next one need not wait; once lost, nothing is touched."""
        self._stop.set()
        self._thread.join(_AT_CLOSE)
        if self._lost or self._thread.is_alive():
            return
        card = replace(self._card, released=True, address="")
        with contextlib.suppress(OSError, StoreError):
            files.rewrite(self.folder, self.number, card.text())
            files.publish(self.folder, card, self._mode)

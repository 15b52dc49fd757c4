"""Asks the agent again and again, and has ready what the page gets: one answer for all who look.

While somebody looks, the agent is asked every second or so, and may look at Slurm again as often as its configuration
lets it; else four times a minute, of what it knows already, so that the past is there when somebody comes back.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.api import Snapshot
from penstock.core.picture import picture_from_dict
from penstock.errors import PenstockError
from penstock.future.bands import Misses
from penstock.future.expected import SlotFinder
from penstock.future.past import QueuePast
from penstock.future.queued import DEEP, Likely, likely_queue
from penstock.values.documents import brief
from penstock_dashboard.data import cluster_model, decisions_model, waiting_starts, works
from penstock_dashboard.flows import workflows_model
from penstock_dashboard.past import JobHistory
from penstock_dashboard.planned import PlannedStarts, look_ahead
from penstock_dashboard.sizes import malleable_model, resized_at

__all__ = ["Ask", "Feed", "Known", "Page"]

Ask = Callable[[str, Mapping[str, Any]], Any]
Known = Callable[[str, Snapshot], tuple[QueuePast, Misses]]
"""What is known of how long jobs ran on a cluster (its name, a look at it), and what bands of starts have missed."""
FORMAT: Final = 1
"""Raised when something is taken away from what the page gets."""
_WATCHED, _ALONE = 1.0, 15.0  # seconds between two looks
_WATCHED_FOR: Final = 15.0
_DECISIONS: Final = 300
_PLAN_SHARE: Final = 0.1  # of the time that may go into planning, and again into drawing futures
_AT_ONCE: Final = 0.5  # seconds of drawing between two looks
_IN_VAIN: Final = 600.0  # seconds until it is tried again in a queue that is too deep
_WORK: Final = 3_000_000  # for the likely starts of one look: some six seconds


@dataclass(frozen=True, slots=True)
class Page:
    """What there is, as JSON and compressed; `tag` changes with it. `now` is the agent's time."""

    body: bytes
    packed: bytes
    tag: str
    now: float | None = None


class Feed:
    """`ask` is the agent's door. `look` asks once; `start` has that done again and again by a thread, until `stop`.

    `known` is asked for what likely starts are drawn from, `slots` for what stays free.
    """

    def __init__(
        self,
        ask: Ask,
        clock: Callable[[], float] = time.monotonic,
        known: Known = lambda name, snapshot: (QueuePast(), Misses()),
        slots: SlotFinder | None = None,
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._known = known
        self._slots = slots
        self._past = JobHistory()
        self._decisions: deque[Mapping[str, Any]] = deque(maxlen=_DECISIONS)
        self._snapshot: Snapshot | None = None
        self._outlook = PlannedStarts(0.0)
        self._plan_again_at = float("-inf")
        self._likely: Likely | None = None
        self._drawing: Generator[int, None, Likely] | None = None
        self._drawn_at, self._drawn_for = self._clock(), float("-inf")
        self._draw_again_at = float("-inf")
        self._answered = True
        self._model: dict[str, Any] = {"problems": [], "workflows": [], "malleable": [], "decisions": []}
        self._model |= {"name": "", "whole": True, "cluster": None}
        starting = {"answers": False, "message": "Starting."}
        self._page = _encode({**self._model, "format": FORMAT, "agent": starting}, None)
        self._asked_at = self._told_at = float("-inf")
        self._now: float | None = None  # the agent's, at `_told_at`
        self._wake, self._stopping = threading.Event(), False
        self._thread: threading.Thread | None = None

    def latest(self) -> Page:
        """What there is now; somebody looks."""
        alone = not self._watched()
        self._asked_at = self._clock()
        if alone:
            self._wake.set()
        now = self._now
        return self._page if now is None else replace(self._page, now=now + self._clock() - self._told_at)

    def look(self) -> None:
        """Ask the agent and make the page anew. An agent that does not answer is what the page says then."""
        agent = {"answers": True, "message": ""}
        try:
            if not self._answered:
                self._decisions.clear()  # it may have another state file now, which numbers afresh
            status = self._ask("status", {})  # first: where `penstock tick` does the work, it is all there is
            self._model["problems"] = status["problems"]
            self._model["workflows"] = workflows_model(status, status["now"])
            self._see(self._ask("cluster", {"seen": self._seen(), "fresh": self._watched()}))
            self._draw_futures()
            self._model["workflows"] = workflows_model(status, status["now"], self._starts())
            self._model["malleable"] = malleable_model(self._ask("sizes", {}), status["now"])
            self._draw()
            last = self._decisions[-1]["id"] if self._decisions else 0
            self._decisions.extend(self._ask("decisions", {"after": last}))
            self._model["decisions"] = decisions_model(self._decisions)
            self._answered = True
        except PenstockError as e:
            agent = {"answers": False, "message": _why(e)}
            self._answered = False
        except Exception as e:
            # A page that stands still has to say so.
            why = f"This command does not understand the agent's answer; it may be of another release: {brief(e)}"
            agent = {"answers": False, "message": why}
            self._answered = False
        self._page = _encode({**self._model, "format": FORMAT, "agent": agent}, self._page)

    def start(self) -> None:
        """Look again and again, beside."""
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End that."""
        self._stopping = True
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping:
            self.look()
            self._wake.wait(_WATCHED if self._watched() else _ALONE)
            if self._watched() and not self._stopping:
                self._wake.clear()

    def _watched(self) -> bool:
        return self._clock() - self._asked_at < _WATCHED_FOR

    def _seen(self) -> float | None:
        return self._snapshot.taken_at if self._snapshot is not None else None

    def _see(self, told: Mapping[str, Any]) -> None:
        """A look at the cluster, planned on where that does not take too long."""
        self._model |= {"name": told["name"], "whole": told["whole"]}
        self._now, self._told_at = told["now"], self._clock()
        if "picture" in told:
            self._snapshot = picture_from_dict(told["picture"], told["at"], told["problems"])
        snapshot = self._snapshot
        if snapshot is None or snapshot.taken_at == self._outlook.at or self._clock() < self._plan_again_at:
            return
        began = self._clock()
        self._outlook = look_ahead(snapshot, self._slots) if told["whole"] else PlannedStarts(snapshot.taken_at)
        took = self._clock() - began
        self._plan_again_at = self._clock() + took * (1 / _PLAN_SHARE - 1)

    def _draw_futures(self) -> None:
        """A part of what it takes to say when those who wait likely start; many parts make one answer."""
        snapshot, outlook = self._snapshot, self._outlook
        due = outlook.jobs and outlook.at != self._drawn_for and self._clock() >= self._draw_again_at
        if self._drawing is None and snapshot is not None and due:
            past, misses = self._known(self._model["name"], snapshot)
            guaranteed = {expected.name: expected.start for expected in outlook.jobs}
            self._drawing = likely_queue(snapshot, guaranteed, past, misses.wider, _WORK)
            self._drawn_for = outlook.at
        now = self._clock()
        until = now + min(_PLAN_SHARE * (now - self._drawn_at), _AT_ONCE)
        self._drawn_at = now
        while self._drawing is not None:
            try:
                next(self._drawing)
            except StopIteration as end:
                self._likely, self._drawing = end.value, None
                if not self._likely.bands and self._likely.why == DEEP:
                    self._draw_again_at = self._clock() + _IN_VAIN
            except BaseException:
                self._drawing = None
                raise
            if self._clock() >= until:
                return

    def _starts(self) -> dict[str, dict[str, Any]]:
        return waiting_starts(self._snapshot, self._outlook, self._likely) if self._snapshot is not None else {}

    def _draw(self) -> None:
        if self._snapshot is None:
            return
        workflows, malleable = self._model["workflows"], self._model["malleable"]
        self._past.see(self._snapshot.taken_at, self._snapshot.jobs, resized_at(malleable))
        known = works(workflows, malleable)
        self._model["cluster"] = cluster_model(self._snapshot, self._outlook, self._past, known, self._likely)


def _why(error: PenstockError) -> str:
    if "not a request of this agent" in str(error):
        return "The agent is older than this command and cannot answer it. Restart the agent with the new release."
    return str(error)


def _encode(model: Mapping[str, Any], before: Page | None) -> Page:
    """The one before where nothing is new."""
    body = json.dumps(model, allow_nan=False, separators=(",", ":")).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    if before is not None and tag == before.tag:
        return before
    return Page(body, gzip.compress(body, 5, mtime=0), tag)

"""The environments of those who submitted the runs: kept as long as a run needs its one, and erased then."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from penstock.state.environments import Environments
from penstock.state.store import Store
from penstock.workflow.run.book import Book
from penstock.workflow.state import WorkflowRun

__all__ = ["RunEnvironments"]


class RunEnvironments:
    """Of the runs in `book`. `folder` has the files; None: none are kept."""

    def __init__(self, folder: Environments | None, store: Store, book: Book) -> None:
        self._folder, self._store, self._book = folder, store, book
        # Of runs that cannot be read, perhaps of another release: they have not ended.
        live = ((number, state) for number, _uid, state in store.runs.latest(live_only=True))
        self._unreadable = {str(state.get("environment")) for number, state in live if number not in book.runs}

    def read(self, name: str) -> dict[str, str] | None:
        """The variables of that name; None where there are none."""
        return None if self._folder is None else self._folder.read(name)

    def kept(self, run: WorkflowRun, environment: str | None) -> WorkflowRun:
        """The run with the environment that was left for it."""
        if environment is None or self._folder is None:
            return run
        self._folder.take(environment)
        return replace(run, environment=environment)

    def sweep(self) -> None:
        """Erase the environments of runs that have ended, or of which nothing is known."""
        if self._folder is not None:
            waiting = {str(payload.get("environment")) for _n, _at, _uid, _op, payload in self._store.inbox.waiting()}
            live = {run.environment for run in self._book.runs.values()}
            self._folder.sweep({*live, *waiting, *self._unreadable})

    def erase(self, run: WorkflowRun) -> None:
        """The run has ended."""
        if self._folder is not None:
            with contextlib.suppress(OSError):  # the next sweep tries again
                self._folder.erase(run.environment)

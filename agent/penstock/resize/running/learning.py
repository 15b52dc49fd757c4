"""Keeps what a policy learns of programs' speeds in the state file, and finds out which program a job runs.

A policy that learns has a `penstock.future.speeds.Memory` as its attribute `memory`. Each program's speeds are a row of
the table `learned`, so that little is written at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import Final

from penstock.api import JobTexts
from penstock.errors import PenstockError
from penstock.future.speeds import Memory, memory_of
from penstock.host.clock import Rest
from penstock.host.logs import get_logger
from penstock.resize.running.tools import Tools, WithTools
from penstock.state.store import Store

__all__ = ["Learning", "program_of"]

_log = get_logger(__name__)
_PREFIX: Final = "speeds "
_NUMBER: Final = re.compile(r"[0-9]+")
_OFTEN: Final = 5.0  # s between two questions for programs, and how many times as long as Slurm took to answer
_SPARING: Final = 20.0
_FAILED: Final = 60.0


def program_of(texts: JobTexts) -> str:
    """The word for the program that a job runs (see `Offer.program`): any text may be in its name and command.

    Numbers in the name count for nothing: people number their runs.
    """
    said = json.dumps([_NUMBER.sub("#", texts.name), texts.command]).encode()
    return ("" if texts.command else "?") + hashlib.sha256(said).hexdigest()[:16]


class Learning(WithTools):
    """Called around each pass: `recall` before it, `save` after it."""

    def __init__(self, tools: Tools, store: Store) -> None:
        super().__init__(tools)
        self._store = store
        self._recalled: Memory | None = None
        self._rest = Rest()
        self._task: asyncio.Task[None] | None = None

    def recall(self) -> None:
        """Give the policy what was learned before, and have asked which programs run that are not known yet."""
        memory = self._memory
        if memory is not None and memory is not self._recalled:
            known = self._store.learning.learned_under(_PREFIX)
            readable = {key.removeprefix(_PREFIX): state for key, state in known.items() if state is not None}
            damaged = [key for key, state in known.items() if state is None]
            damaged += [_PREFIX + key for key in memory.recall(readable)]
            for key in damaged:
                _log.warning("what was learned of a program cannot be read, and is set aside", key=key)
                self._store.learning.set_aside(key, self._clock.now())
            self._recalled = memory
        unknown = [number for number, me in self._registry.jobs.items() if not me.program]
        if memory is not None and unknown and self._task is None and not self._rest.lasts(self._clock.now()):
            self._task = asyncio.ensure_future(self._ask(unknown))
            self._task.add_done_callback(self._asked)

    def save(self) -> None:
        """Store what has changed. Raises StoreError."""
        memory, now = self._memory, self._clock.now()
        if memory is None or memory is not self._recalled:
            return
        if changes := memory.changes():
            with self._store.together():  # one wait for the disk
                for key, state in changes.items():
                    if state is None:
                        self._store.learning.forget_learned(_PREFIX + key)
                    else:
                        self._store.learning.save_learned(_PREFIX + key, state, now)

    async def close(self) -> None:
        """End the question that is under way."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    @property
    def _memory(self) -> Memory | None:
        return memory_of(self._settings.policy)

    async def _ask(self, numbers: Collection[int]) -> None:
        """Beside the passes: where Slurm cannot filter it prints the whole queue."""
        began = self._clock.now()
        try:
            texts = await self._backend.texts(numbers)
        except PenstockError as e:
            _log.debug("which programs run is asked again later", why=str(e))
            self._rest = Rest(began, self._clock.now() + _FAILED)
            return
        now = self._clock.now()
        missed = any(number not in texts for number in numbers)
        self._rest = Rest(began, now + max(_FAILED if missed else _OFTEN, _SPARING * (now - began)))
        for number, one in texts.items():
            me = self._registry.jobs.get(number)
            if me is not None and not me.program:
                self._registry.put(replace(me, program=program_of(one)))

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("which programs run could not be asked", why=repr(error))

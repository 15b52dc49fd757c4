"""An agent for one question, in the command's own process, where no other answers it.

What takes all that an agent knows (whether stages may be registered, what a workflow may expect, what `penstock off`
would hand back) is answered by the same operations as at an agent's doors. They work on a copy of the caller's state in
memory: nothing that is written to it lasts, and nothing is changed in Slurm. What is only read there, or left there
for later, needs no agent (see `alone`). Slow to load.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from penstock.api import SiteConfig
from penstock.app import App
from penstock.config import Config
from penstock.core.backends import make_backend
from penstock.errors import NotNow, NotPermitted, PenstockError, SlurmUnavailable, StoreError
from penstock.host import logs
from penstock.ipc.inbox import STAGES
from penstock.slurm.base import Reader
from penstock.state.leadership import Lock
from penstock.state.ownership import is_readable, state_path
from penstock.state.store import Store

__all__ = ["answered"]

_UNKNOWN: Final = SiteConfig((0,), "", "", frozenset(), frozenset(), "", frozenset(), 300.0)
"""The settings of a Slurm that does not answer."""


class _Nobody(Lock):
    """Holds no state, and so may change nothing in Slurm."""

    def check(self) -> None:
        """Something is in the way of each act."""
        raise NotNow("what stands in for an agent changes nothing in Slurm")


def answered(
    config: Config,
    op: str,
    arguments: Mapping[str, Any],
    *,
    without_state: bool = False,
    without_slurm: bool = False,
) -> Any:  # noqa: ANN401
    """What an agent of the caller would answer. Raises what it would; SlurmUnavailable where Slurm does not answer, and
    StoreError for a state file that cannot be read, unless it also goes without."""
    return asyncio.run(_answered(config, op, arguments, without_state, without_slurm))


async def _answered(
    config: Config, op: str, arguments: Mapping[str, Any], without_state: bool, without_slurm: bool
) -> Any:  # noqa: ANN401
    logs.configure("error", config.log.format)  # what is found is told by the command itself
    backend = make_backend(config)
    app = App(config, backend, backend, _copy(config, without_state), leadership=_Nobody())
    try:
        app.begin(await _settings(backend, without_slurm))
        # Stages that were left for the next tick are part of their workflows for whoever asks about more.
        for _number, _at, uid, left, payload in app.store.inbox.waiting():
            if left in STAGES:
                with suppress(PenstockError):  # which the tick will tell
                    await app.operations[left](uid, payload)
        return await app.operations[op](os.geteuid(), arguments)
    finally:
        await app.close()


async def _settings(reader: Reader, without_slurm: bool) -> SiteConfig:
    try:
        return await reader.site()
    except SlurmUnavailable:
        if not without_slurm:
            raise
        return _UNKNOWN


def _copy(config: Config, without_state: bool) -> Store:
    path = state_path(config)
    try:
        if is_readable(path) and path.stat().st_size > 0:
            return Store.copy_of(path)
    except NotPermitted:  # another's
        pass
    except StoreError:
        if not without_state:
            raise
    return Store(":memory:")

"""Asks the scheduler of a pool over TLS, as whoever can read the pool's folder."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock import errors
from penstock.errors import AgentUnavailable, PenstockError
from penstock_pool.folder import PoolFolder

__all__ = ["FINAL", "PoolLine", "ask", "wait"]

_LIMIT: Final = 30.0
_PAUSE: Final = 1.0
FINAL: Final = ("complete", "failed", "cancelled")


class PoolLine:
    """A connection to a pool's scheduler for many requests, made anew for up to `patience` seconds while that is away.
    For one event loop, as an asynchronous context."""

    def __init__(self, folder: PoolFolder, patience: float = 0.0) -> None:
        self._folder = folder
        self._patience = patience
        self._rpc: Any = None

    async def __aenter__(self) -> PoolLine:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._hang_up()

    async def ask(self, what: str, body: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """The scheduler's answer. Raises what it says is wrong, and AgentUnavailable when there is none."""
        until = time.monotonic() + self._patience
        while True:
            address = self._folder.address()
            if address is None:
                raise AgentUnavailable(f"pool {self._folder.name!r} has no scheduler; {self._folder.start} starts one")
            try:
                if self._rpc is None:
                    self._rpc = await self._call(address.url)
                told = await asyncio.wait_for(self._rpc.penstock(what=what, body=json.dumps(body)), _LIMIT)
            except (OSError, TimeoutError) as e:
                await self._hang_up()
                if time.monotonic() > until:
                    raise AgentUnavailable(
                        f"the scheduler of pool {self._folder.name!r} does not answer (host {address.host}, process "
                        f"{address.pid}): {' '.join(str(e).split())[:200]}; {self._folder.start} starts it again"
                    ) from None
                await asyncio.sleep(_PAUSE)
                continue
            answer = json.loads(told)
            if "error" in answer:
                kind = getattr(errors, answer["kind"], PenstockError)
                raise kind(answer["error"])
            return answer["ok"]

    async def _call(self, url: str) -> Any:  # noqa: ANN401
        # Slow to load, and not needed by those who only look into the folder.
        from distributed import rpc

        from penstock_pool import link

        link.prepare()
        await link.knock(url, _LIMIT)
        return rpc(url, connection_args=link.security(self._folder).get_connection_args("client"), timeout=_LIMIT)

    async def _hang_up(self) -> None:
        if self._rpc is not None:
            await self._rpc.close_rpc()
            self._rpc = None


def ask(folder: PoolFolder, what: str, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401
    """One answer of the scheduler. Raises as `PoolLine.ask`."""

    async def once() -> Any:  # noqa: ANN401
        async with PoolLine(folder) as line:
            return await line.ask(what, body or {})

    return asyncio.run(once())


def wait(folder: PoolFolder, ids: Sequence[int], patience: float = 60.0) -> list[dict[str, Any]]:
    """Wait until these tasks have ended; how they ended. A scheduler may be away for `patience` seconds meanwhile."""
    seen = time.monotonic()
    while True:
        try:
            ended = ask(folder, "wait", {"ids": list(ids), "seconds": _LIMIT / 2})
            seen = time.monotonic()
            if ended:
                found: list[dict[str, Any]] = ask(folder, "tasks", {"ids": list(ids)})
                return found
        except AgentUnavailable:
            if time.monotonic() - seen > patience:
                raise
            time.sleep(_PAUSE)

"""Asks the scheduler of a pool over TLS, as whoever can read the pool's folder."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock import errors
from penstock.errors import AgentUnavailable, PenstockError
from penstock.pool.folder import PoolFolder

__all__ = ["FINAL", "ask", "wait"]

_LIMIT: Final = 30.0
_PAUSE: Final = 1.0
FINAL: Final = ("complete", "failed", "cancelled")


def ask(folder: PoolFolder, what: str, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401
    """The scheduler's answer. Raises what it says is wrong, and AgentUnavailable when there is none."""
    address = folder.address()
    if address is None:
        raise AgentUnavailable(f"pool {folder.name!r} has no scheduler; {folder.start} starts one")
    try:
        answer = json.loads(asyncio.run(_ask(folder, address.url, what, json.dumps(body or {}))))
    except (OSError, TimeoutError) as e:
        raise AgentUnavailable(
            f"the scheduler of pool {folder.name!r} does not answer (host {address.host}, process {address.pid}): "
            f"{' '.join(str(e).split())[:200]}; {folder.start} starts it again"
        ) from None
    if "error" in answer:
        kind = getattr(errors, answer["kind"], PenstockError)
        raise kind(answer["error"])
    return answer["ok"]


async def _ask(folder: PoolFolder, url: str, what: str, body: str) -> str:
    # Slow to load, and not needed by those who only look into the folder.
    from distributed import rpc

    from penstock.pool import link

    link.prepare()
    await link.knock(url, _LIMIT)
    connection = link.security(folder).get_connection_args("client")
    async with rpc(url, connection_args=connection, timeout=_LIMIT) as scheduler:
        answer: str = await asyncio.wait_for(scheduler.penstock(what=what, body=body), _LIMIT)
        return answer


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

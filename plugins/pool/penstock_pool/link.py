"""What members and clients of a pool share of Dask: its settings, TLS from the pool's folder, the words on the wire."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import dask.config
from distributed import Security

from penstock_pool.folder import PoolFolder
from penstock_pool.model import AttemptOutcome, Use

__all__ = [
    "DRAIN",
    "ENDED",
    "JOIN",
    "KILL",
    "KNOWN",
    "LEAVE",
    "MEASURED",
    "NO_DOOR",
    "RUN",
    "SIGNAL",
    "ended_message",
    "knock",
    "prepare",
    "security",
    "use_of",
]

# To a worker.
RUN: Final = "penstock-run"
KILL: Final = "penstock-kill"
SIGNAL: Final = "penstock-signal"
LEAVE: Final = "penstock-leave"
KNOWN: Final = "penstock-known"  # these ends are in the task log
# From a worker.
ENDED: Final = "penstock-ended"
MEASURED: Final = "penstock-measured"
DRAIN: Final = "penstock-drain"
# What a worker tells when it registers stands under this key.
JOIN: Final = "penstock"

# Dask opens an HTTP server in every process. It gets no routes, and only this host can reach it.
NO_DOOR: Final = "127.0.0.1:0"

_SETTINGS: Final = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.scheduler.dashboard.status.task-stream-length": 0,
    "distributed.worker.profile.enabled": False,
    "distributed.comm.timeouts.connect": "20s",
    "distributed.comm.timeouts.tcp": "30s",
    "distributed.comm.require-encryption": True,
    "distributed.admin.tick.limit": "1h",
    "distributed.admin.low-level-log-length": 100,
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.version": 2,
}


def prepare() -> None:
    """Set Dask up for this process, before anything of it is started."""
    dask.config.set(_SETTINGS)
    logging.getLogger("distributed").setLevel(logging.ERROR)


async def knock(url: str, limit: float) -> str:
    """The address of ours that reaches it. Raises OSError or TimeoutError if nobody listens there: Dask would go on
    trying to the end of its time limit."""
    host, _, port = url.partition("://")[2].rpartition(":")
    _reader, writer = await asyncio.wait_for(asyncio.open_connection(host.strip("[]"), int(port)), limit)
    ours: str = writer.get_extra_info("sockname")[0]
    writer.close()
    return ours


def security(folder: PoolFolder) -> Security:
    """Mutual TLS with the pool's certificate, for every role."""
    certificate, key = str(folder.certificate), str(folder.key)
    return Security(
        require_encryption=True,
        tls_ca_file=certificate,
        tls_scheduler_cert=certificate,
        tls_scheduler_key=key,
        tls_worker_cert=certificate,
        tls_worker_key=key,
        tls_client_cert=certificate,
        tls_client_key=key,
    )


def ended_message(
    task: int, attempt: int, outcome: AttemptOutcome, code: int | None, why: str, use: Use
) -> dict[str, Any]:
    """How a worker tells the end of an attempt."""
    return {
        "op": ENDED,
        "task": task,
        "attempt": attempt,
        "outcome": str(outcome),
        "code": code,
        "why": why,
        "use": [use.wall, use.cpu, use.memory],
    }


def use_of(value: list[float]) -> Use:
    """The use in such a message."""
    wall, cpu, memory = value
    return Use(wall, cpu, int(memory))

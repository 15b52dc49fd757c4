"""A pool as a Dask cluster.

    with client("main"):
        print((da.random.random((20_000, 20_000)) ** 2).mean().compute())

Also what speaks to Dask by itself, as joblib's backend does, uses the pool within.
"""

from __future__ import annotations

from typing import Any

from distributed import Client

from penstock.config import load
from penstock.errors import AgentUnavailable
from penstock_pool.folder import pool_folder
from penstock_pool.link import security

__all__ = ["client"]


def client(pool: str = "main", **options: Any) -> Client:  # noqa: ANN401 (those of Dask's client)
    """Dask's client of that pool, with the address and the certificate of the pool's folder. `options` are
    `distributed.Client`'s. Dask finds a worker on each member, with a thread for each core that no task of the pool
    holds. Raises as `penstock pool` does: AgentUnavailable where the pool has no scheduler."""
    folder = pool_folder(load(), pool)
    address = folder.address()
    if address is None:
        raise AgentUnavailable(f"pool {pool!r} has no scheduler; {folder.start} starts one")
    try:
        return Client(address.url, security=security(folder), **options)
    except (OSError, TimeoutError) as e:
        raise AgentUnavailable(
            f"the scheduler of pool {pool!r} does not answer (host {address.host}, process {address.pid}); "
            f"{folder.start} starts it again"
        ) from e

"""A pool for Dask, as programs import it: it is penstock-pool's."""

from __future__ import annotations

from penstock_pool.tools.dask import client

__all__ = ["client"]

"""`PoolExecutor`, as programs import it: it is penstock-pool's."""

from __future__ import annotations

from penstock_pool.futures import PoolExecutor

__all__ = ["PoolExecutor"]

"""A pool for joblib, as programs import it: it is penstock-pool's."""

from __future__ import annotations

from penstock_pool.tools.joblib import PoolBackend

__all__ = ["PoolBackend"]

"""A pool for Parsl, as programs import it: it is penstock-pool's."""

from __future__ import annotations

from penstock_pool.tools.parsl import PenstockExecutor, ask_ahead

__all__ = ["PenstockExecutor", "ask_ahead"]

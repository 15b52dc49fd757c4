"""A pool as a backend of joblib, without Dask.

    import penstock.tools.joblib
    with joblib.parallel_config("penstock"):
        joblib.Parallel()(joblib.delayed(simulate)(seed) for seed in range(1000))

Each batch of calls runs in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from joblib.parallel import AutoBatchingMixin, ParallelBackendBase, register_parallel_backend

from penstock.config import load
from penstock_pool.client import ask
from penstock_pool.folder import pool_folder
from penstock_pool.futures import PoolExecutor

__all__ = ["PoolBackend"]


class PoolBackend(AutoBatchingMixin, ParallelBackendBase):
    """`pool` and `task` are those of `PoolExecutor`, given to `parallel_config`. As many batches as the pool has cores
    for are under way at once, unless `n_jobs` says how many. Raises as `PoolExecutor` does."""

    supports_retrieve_callback = True
    default_n_jobs = -1
    # A batch begins with a Python that starts and imports what it needs.
    MIN_IDEAL_BATCH_DURATION = 10.0
    MAX_IDEAL_BATCH_DURATION = 60.0

    def __init__(self, pool: str = "main", task: Mapping[str, Any] | None = None, **more: Any) -> None:  # noqa: ANN401
        super().__init__(**more)
        self._name = pool
        self._task = dict(task or {})
        self._pool: PoolExecutor | None = None

    def effective_n_jobs(self, n_jobs: int) -> int:
        """How many batches run at once; -1: what the pool has cores for now."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is not None and n_jobs > 0:
            return n_jobs
        cores = ask(pool_folder(load(), self._name), "status")["cores"]
        return max(1, int(cores / self._task.get("cores", 1)))

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_more: Any) -> int:  # noqa: ANN401
        """Begin; how many batches run at once."""
        many = self.effective_n_jobs(n_jobs)
        self._pool = PoolExecutor(self._name, task=self._task)
        self.parallel = parallel
        return many

    def submit(self, func: Callable[[], Any], callback: Callable[[Future[Any]], None] | None = None) -> Future[Any]:
        """Run a batch."""
        assert self._pool is not None
        future = self._pool.submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:  # noqa: ANN401
        """What the batch has returned; raises what it has raised."""
        return out.result()

    def terminate(self) -> None:
        """End; what has not ended yet is ended."""
        self.reset_batch_stats()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """End what runs; `ensure_ready`: and be ready for more."""
        self.terminate()
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel)


register_parallel_backend("penstock", PoolBackend)

"""Snakemake's jobs as tasks of a Penstock pool, or as jobs of Slurm that are submitted ahead.

Found by Snakemake by the name of this package, with the names below: `snakemake --executor penstock`. They are loaded
when they are asked for: the modules beside them that only decide need no Snakemake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snakemake_executor_plugin_penstock.executor import SnakemakeExecutor as Executor
    from snakemake_executor_plugin_penstock.settings import ExecutorSettings, common_settings

__all__ = ["Executor", "ExecutorSettings", "common_settings"]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name == "Executor":
        from snakemake_executor_plugin_penstock.executor import SnakemakeExecutor

        return SnakemakeExecutor
    if name in ("ExecutorSettings", "common_settings"):
        from snakemake_executor_plugin_penstock import settings

        return getattr(settings, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

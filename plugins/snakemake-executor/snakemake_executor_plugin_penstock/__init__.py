"""Snakemake's jobs as tasks of a Penstock pool, or as jobs of Slurm that are submitted ahead.

Found by Snakemake by the name of this package, with the names below: `snakemake --executor penstock`.
"""

from __future__ import annotations

from snakemake_executor_plugin_penstock.executor import SnakemakeExecutor as Executor
from snakemake_executor_plugin_penstock.settings import ExecutorSettings, common_settings

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

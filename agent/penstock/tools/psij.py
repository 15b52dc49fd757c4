"""An executor of PSI/J: Slurm by Penstock's front programs, and with them its pools.

    executor = JobExecutor.get_instance("penstock")

PSI/J finds it by `psij-descriptors/penstock_descriptor.py` beside this package.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from psij import Job, SubmitException
from psij.executors.batch.slurm import SlurmExecutorConfig, SlurmJobExecutor

__all__ = ["PenstockJobExecutor"]


class PenstockJobExecutor(SlurmJobExecutor):
    """PSI/J's own for Slurm, whose `sbatch`, `squeue` and `scancel` are the front programs, wherever PATH leads. A job
    whose `queue_name` is `penstock` is a task of a pool. Raises SubmitException where front programs cannot be made."""

    def __init__(self, url: str | None = None, config: SlurmExecutorConfig | None = None) -> None:
        words = [sys.executable, "-m", "penstock", "shim", "--path"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SubmitException(f"penstock shim: {done.stderr.strip()}")
        self._fronts = Path(done.stdout.strip())
        super().__init__(url, config)

    def get_submit_command(self, job: Job, submit_file_path: Path) -> list[str]:
        """See PSI/J's."""
        return self._front(super().get_submit_command(job, submit_file_path))

    def get_cancel_command(self, native_id: str) -> list[str]:
        """See PSI/J's."""
        return self._front(super().get_cancel_command(native_id))

    def get_status_command(self, native_ids: Collection[str]) -> list[str]:
        """See PSI/J's."""
        return self._front(super().get_status_command(native_ids))

    def get_list_command(self) -> list[str]:
        """See PSI/J's."""
        return self._front(super().get_list_command())

    def _front(self, command: list[str]) -> list[str]:
        return [str(self._fronts / command[0]), *command[1:]]

"""An executor of PSI/J: Slurm by Penstock's front programs, and with them its pools.

    executor = JobExecutor.get_instance("penstock")

PSI/J finds it by `psij-descriptors/penstock_descriptor.py` beside this package.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from psij import Job, JobState, JobStatus, SubmitException
from psij.executors.batch.batch_scheduler_executor import check_status_exit_code
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

    def parse_status_output(self, exit_code: int, out: str) -> dict[str, JobStatus]:
        """The state of each job that squeue lists. A reason of several words or none that PSI/J knows, and a state of a
        newer Slurm, are no reason to lose sight of the other jobs, as they are for PSI/J's own. Raises RuntimeError
        where squeue has failed."""
        check_status_exit_code("squeue", exit_code, out)
        found = {}
        for line in out.split("\n"):
            number, state, reason = [*line.split(None, 2), "", "", ""][:3]
            if number[:1].isdecimal():  # else the head, or a note
                found[number] = self._status(state, reason.strip())
        return found

    def _status(self, word: str, reason: str) -> JobStatus:
        # A state that is not known changes nothing: PSI/J takes no step back to one that comes earlier.
        state = self._STATE_MAP.get(word, JobState.QUEUED)
        said = self._REASONS_MAP.get(reason, reason) if state is JobState.FAILED else None
        return JobStatus(state, message=said)

    def _front(self, command: list[str]) -> list[str]:
        return [str(self._fronts / command[0]), *command[1:]]

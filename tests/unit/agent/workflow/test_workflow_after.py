"""The dependency of a job that may start so many minutes after its parents have started."""

from __future__ import annotations

from penstock.workflow.scripts import dependency_text
from penstock.workflow.ties import Tie


def test_no_minutes_are_not_written():
    """Slurm 22.05 refuses `after:7+0`: "Job dependency problem"."""
    assert dependency_text(Tie.AFTER, (7, 8), (0, 3)) == "after:7,after:8+3"

"""What a portal's server is by the state of its job."""

from __future__ import annotations

import re

import pytest

from penstock_portals.jobstates import PENDING_RE, RUNNING_RE, UNKNOWN_RE


def meaning(status: str) -> str:
    """As batchspawner asks, in its order."""
    for name, words in (("running", RUNNING_RE), ("pending", PENDING_RE), ("unknown", UNKNOWN_RE)):
        if status and re.search(words, status):
            return name
    return "gone"


# job_state_string of Slurm 22.05 to 26.05.
STATES = {
    "pending": "PENDING CONFIGURING POWER_UP_NODE REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT",
    "running": "RUNNING COMPLETING RESIZING SIGNALING STOPPED SUSPENDED",
    "gone": "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED STAGE_OUT TIMEOUT",
    "unknown": "EXPEDITING LAUNCH_FAILED RECONFIG_FAIL UPDATE_DB",
}


@pytest.mark.parametrize(("word", "wanted"), [(word, name) for name, words in STATES.items() for word in words.split()])
def test_a_server_is_forgotten_when_its_job_has_ended_and_no_sooner(word, wanted):
    assert meaning(f"{word} n1") == meaning(word) == wanted


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        ("", "gone"),
        ("slurm_load_jobs error: Invalid job id specified", "gone"),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", "unknown"),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", "unknown"),
        ("slurm_load_jobs error: Zero Bytes were transmitted or received", "unknown"),
        ("sh: 1: squeue: not found", "gone"),
    ],
)
def test_no_answer_is_no_end(status, wanted):
    assert meaning(status) == wanted

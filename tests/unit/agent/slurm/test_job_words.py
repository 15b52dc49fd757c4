"""What becomes of a job by each word that Slurm has for its state, alone and beside its flags."""

from __future__ import annotations

import pytest

from penstock.slurm.states import parse_job_state

# job_state_string and job_state_string_compact of Slurm 22.05 to 26.05.
WAITS = "PENDING PD REQUEUED RQ REQUEUE_FED RF REQUEUE_HOLD RH RESV_DEL_HOLD RD SPECIAL_EXIT SE EXPEDITING EX"
HOLDS_NODES = (
    "RUNNING R SUSPENDED S CONFIGURING CF COMPLETING CG RESIZING RS SIGNALING SI STOPPED ST STAGE_OUT SO "
    "POWER_UP_NODE PO"
)
ENDED = (
    "COMPLETED CD CANCELLED CA FAILED F TIMEOUT TO NODE_FAIL NF PREEMPTED PR BOOT_FAIL BF DEADLINE DL "
    "OUT_OF_MEMORY OOM REVOKED RV LAUNCH_FAILED LF RECONFIG_FAIL"
)


@pytest.mark.parametrize("word", ENDED.split())
def test_a_job_that_slurm_runs_no_more_has_ended(word):
    state = parse_job_state(word)
    assert state.ended and not state.holds_nodes, state


@pytest.mark.parametrize("word", HOLDS_NODES.split())
def test_a_job_that_has_nodes_holds_them(word):
    state = parse_job_state(word)
    assert state.holds_nodes and not state.ended, state


@pytest.mark.parametrize("word", WAITS.split())
def test_a_job_that_is_in_the_queue_has_not_ended(word):
    state = parse_job_state(word)
    assert not state.ended and not state.holds_nodes and state.value != "UNKNOWN", state


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("COMPLETED+UPDATE_DB", "COMPLETED"),
        ("FAILED,UPDATE_DB", "FAILED"),
        ("PENDING+LAUNCH_FAILED", "PENDING"),
        ("PENDING,EXPEDITING", "PENDING"),
        ("CANCELLED+REVOKED", "CANCELLED"),
        ("PENDING+REQUEUE_HOLD", "REQUEUE_HOLD"),
    ],
)
def test_words_beside_one_another_are_one_state(text, value, caplog):
    assert parse_job_state(text).value == value
    assert not caplog.records, "every word is known"

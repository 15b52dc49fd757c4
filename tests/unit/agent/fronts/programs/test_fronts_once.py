"""What the front programs decide: how words are read, what is tried again, whose key is in a comment."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.fronts.programs import again, once
from penstock.fronts.programs.once import (
    DONE,
    LOOK,
    LOOK_ONCE,
    ROOM,
    Form,
    after_try,
    delays,
    jobs_with,
    key_option,
    named,
    patience,
)
from penstock.slurm.option_words import SbatchWords, read_words, script_words

# -- the key -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "script", "found"),
    [
        ([], [], "--comment=K"),
        (["--comment=mine"], ["#SBATCH --comment=theirs"], "--comment=mine K"),
        (["--comment", "a", "--comment", "b c"], [], "--comment=b c K"),
        ([], ["#SBATCH --comment=one", "#SBATCH --comment two"], "--comment=two K"),
        (["--comment=rule penstock:0123"], [], "--comment=rule K"),
        (["--comment="], ["#SBATCH --comment=x"], "--comment=K"),
        (["--comment=" + "ä" * 500], [], None),
    ],
)
def test_the_key_goes_behind_the_comment_that_counts(words, script, found):
    key = once.new_key(b"\1\2")
    assert key == "penstock:0102"
    said = key_option(read_words(words), script_words(script), key)
    assert (said and said.replace(key, "K")) == found


@given(st.lists(st.tuples(st.text(), st.integers(1, 9999), st.booleans()), max_size=6))
def test_jobs_are_known_by_the_key_whatever_the_comments_hold(rows):
    key = "penstock:ff00"
    text = "\n".join(f"{comment} {key if ours else 'penstock:ff001'} {job}" for comment, job, ours in rows)
    assert jobs_with(key, text.split("\n")) == sorted({job for _c, job, ours in rows if ours})
    assert jobs_with(key, ["penstock:ff00 7", "xpenstock:ff00 8", "penstock:ff00 x 9", "(null) 3", ""]) == [7]


def test_messages_are_as_without_the_key():
    text = b"sbatch: comment : penstock:ff\nsbatch: comment : mine penstock:ff\nsbatch: error: x"
    assert once.without_key(text, "penstock:ff") == b"sbatch: comment : mine\nsbatch: error: x"


# -- after a try -------------------------------------------------------------------------------------------------------

FAILED = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    ("code", "job", "messages", "verdict"),
    [
        (0, None, "", DONE),
        (3, (7, ""), "", DONE),
        (-9, None, "", LOOK),
        (1, None, "", LOOK),
        (1, None, FAILED + "Socket timed out on send/recv operation", LOOK),
        (1, None, FAILED + "Unable to contact slurm controller (connect failure)", LOOK),
        (1, None, FAILED + "Invalid partition name specified", DONE),
        (1, None, "sbatch: debug: auth/munge: init\n" + FAILED + "Invalid partition name specified", DONE),
        (
            1,
            None,
            FAILED + "Job violates accounting/QOS policy (job submit limit, user's size)",
            DONE,
        ),
        (
            1,
            None,
            "sbatch: error: QOSMaxSubmitJobPerUserLimit\n"
            + FAILED
            + "Job violates accounting/QOS policy (job submit limit, user's size)",
            ROOM,
        ),
        (1, None, FAILED + "Unspecified error", DONE),
        (1, None, "sbatch: error: munge: socket timed out\n" + FAILED + "Unspecified error", DONE),
        (1, None, "sbatch: error: munge\nsbatch: error: cli_filter plugin terminated with error", DONE),
        (1, None, "sbatch: error: please name a project", LOOK_ONCE),
    ],
)
def test_what_to_do_after_a_try(code, job, messages, verdict):
    assert after_try(code, job, messages) == verdict


@pytest.mark.parametrize(
    ("text", "job"),
    [
        (b"Submitted batch job 12\n", (12, "")),
        (b"Submitted batch job 12 on cluster east\n", (12, "east")),
        (b"12\n", (12, "")),
        (b"12;east\n", (12, "east")),
        (b"Welcome to 24 nodes\n12\n", (12, "")),
        (b"Submitted batch job 12", None),
        (b"12345678901\n", None),
        (b"", None),
    ],
)
def test_the_job_that_sbatch_names(text, job):
    assert named(text) == job


def test_what_sbatch_says_of_a_job():
    nothing = SbatchWords()
    assert Form.of(nothing, nothing, {}).said(7) == b"Submitted batch job 7\n"
    assert Form.of(read_words(["--parsable"]), nothing, {}).said(7) == b"7\n"
    assert Form.of(read_words(["-Q", "--parsable"]), nothing, {}).said(7) == b""
    assert Form.of(nothing, nothing, {"SBATCH_WAIT": "1"}).waits and not Form.of(nothing, nothing, {}).waits


def test_patience_and_pauses():
    assert [patience(text) for text in (None, "", "0", "2.5", "-1", "x", "nan", "inf")] == [
        60,
        60,
        0,
        2.5,
        60,
        60,
        60,
        60,
    ]
    for random in (b"\0\0", b"\xff\xff"):
        pauses = list(islice(delays(random), 8))
        assert pauses == sorted(pauses) and 0.5 <= pauses[0] <= 1.5 and pauses[-1] == 8


# -- squeue, sacct, scancel, scontrol ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "purpose"),
    [
        ("squeue --me", again.ASKS),
        ("squeue -i 5", again.OTHER),
        ("squeue -hi5", again.OTHER),
        ("squeue --iter=5", again.OTHER),
        ("squeue --format=%i", again.ASKS),
        ("squeue -ho%i -j5", again.ASKS),
        ("squeue -S -i,t", again.ASKS),
        ("squeue -j -i5", again.OTHER),
        ("sacct -j 5", again.ASKS),
        ("scancel 5", again.CHANGES),
        ("scancel -i 5", again.OTHER),
        ("scontrol show job 5", again.ASKS),
        ("scontrol -o show nodes", again.ASKS),
        ("scontrol -M east show job 5", again.ASKS),
        ("scontrol update jobid=5 timelimit=1", again.CHANGES),
        ("scontrol requeue 5", again.CHANGES),
        ("scontrol reconfigure", again.OTHER),
        ("scontrol", again.OTHER),
    ],
)
def test_what_a_command_is_for(line, purpose):
    program, *words = line.split()
    assert again.purpose(program, words) == purpose


TIMED_OUT = "slurm_update error: Socket timed out on send/recv operation"
AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("scancel 5", True),
        ("scancel -s USR1 5", False),
        ("scancel --signal=USR1 5", False),
        ("scancel -n jobs 5", True),
        ("scancel -njobs -b 5", False),
        ("scontrol hold 5", True),
        ("scontrol update jobid=5 timelimit=10", True),
        ("scontrol update jobid=5 timelimit=+10", False),
        ("scontrol update jobid=5 timelimit+=10", False),
        ("scontrol requeue 5", False),
    ],
)
def test_what_changes_is_repeated_only_where_twice_is_as_once(line, lost):
    program, *words = line.split()
    assert again.may_repeat(program, words, TIMED_OUT, True) == lost
    assert again.may_repeat(program, words, AWAY, True)


def test_what_is_busy_and_what_is_refused():
    assert again.unanswered_text(TIMED_OUT) and again.unanswered_text(AWAY)
    assert not again.unanswered_text("slurm_load_jobs error: Invalid job id specified")


def test_a_repetition_that_finds_it_done_went_well():
    done = "scancel: error: Kill job error on job id 5: Job/step already completing or completed\n"
    assert again.done_before(done)
    assert not again.done_before(done + "scancel: error: Kill job error on job id 6: Access/permission denied\n")
    assert not again.done_before("")
    assert again.done_before("scancel: Terminating job 5\n" + done)
    assert again.without_errors("scancel: Terminating job 5\n" + done) == "scancel: Terminating job 5\n"
    assert again.without_errors(done) == again.without_errors("slurm_kill_job: No error\n") == ""


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        ("5 6_[1-3] 7.batch 8+1", [5, 6, 7, 8]),
        ("update jobid=5 timelimit=1", [5, 1]),
        ("hold 5,6", [5, 6]),
        ("-u alice --name x", []),
    ],
)
def test_the_jobs_that_are_named(words, jobs):
    assert again.touched(words.split()) == jobs

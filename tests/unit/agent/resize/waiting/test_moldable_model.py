"""What a user says of a moldable job, and what is kept of it."""

from __future__ import annotations

import json
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.resize.waiting.model import (
    Checkpoint,
    MoldableJob,
    MoldPhase,
    MoldShape,
    SavedFile,
    read_checkpoint,
    read_shapes,
    shapes_text,
)


def test_shapes_are_read_in_any_order_and_kept_in_whole_minutes():
    found = read_shapes("8:2h30m, 2:8h,4:90s")
    assert found == (MoldShape(2, 28800.0), MoldShape(4, 120.0), MoldShape(8, 9000.0))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "NODES:TIME"),
        ("4", "NODES:TIME"),
        ("0:1h,2:1h", "NODES:TIME"),
        ("2:1h,x:2h", "NODES:TIME"),
        ("2:1h", "2 to 20 times"),
        ("2:1h,2:2h", "2 nodes are there twice"),
        ("2:1h,4:60", "needs a unit: 60m or 60s"),
        ("2:1h,4:soon", "the time for 4 nodes must be a duration"),
        (",".join(f"{n}:1h" for n in range(1, 30)), "2 to 20 times"),
    ],
)
def test_what_is_no_list_of_shapes(text, problem):
    with pytest.raises(UserError, match=problem):
        read_shapes(text)


@given(st.dictionaries(st.integers(1, 9_999_999), st.integers(1, 10_000), min_size=2, max_size=20))
def test_shapes_are_read_as_they_are_written(sizes):
    shapes = tuple(MoldShape(nodes, 60.0 * minutes) for nodes, minutes in sorted(sizes.items()))
    assert read_shapes(shapes_text(shapes)) == shapes


def test_a_checkpoint_is_a_signal_and_a_file():
    assert read_checkpoint("USR1:/a:b/state.dat") == Checkpoint(signal.SIGUSR1, "/a:b/state.dat")
    assert read_checkpoint(str(read_checkpoint("SIGTERM:x"))) == Checkpoint(signal.SIGTERM, "x")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("USR1", "SIGNAL:FILE"),
        ("USR1:", "SIGNAL:FILE"),
        ("USR9:x", "'USR9' is none"),
        ("KILL:x", "no program can save"),
        ("USR1:a\0b", "SIGNAL:FILE"),
    ],
)
def test_what_is_no_checkpoint(text, problem):
    with pytest.raises(UserError, match=problem):
        read_checkpoint(text)


def test_a_state_is_what_it_was_when_it_is_read_again():
    shapes = read_shapes("2:8h,4:4h30m")
    me = MoldableJob(
        7, 1000, shapes, Checkpoint(10, "/x"), (4,), 2, MoldPhase.SAVING, 5.0, 1, 0.25, 9.0, SavedFile(1.5, 3)
    )
    for state in (me, MoldableJob(8, 0, shapes)):
        assert MoldableJob.from_dict(json.loads(json.dumps(state.to_dict()))) == state
    with pytest.raises(ValueError, match="NODES:TIME"):
        MoldableJob.from_dict({**me.to_dict(), "shapes": "2"})

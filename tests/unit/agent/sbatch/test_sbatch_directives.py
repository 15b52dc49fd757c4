"""`#PENSTOCK` lines, alone and together with the options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.resize.waiting.model import Checkpoint
from penstock.sbatch.directives import Request, Said, own_options, read_directives, request
from penstock.slurm.option_words import read_words, script_words

SCRIPT = """#!/bin/bash
#SBATCH -N4 --job-name="a b"  # a comment

# words
#PENSTOCK workflow=mosaic stage=merge   # why
#PENSTOCK after=project,mask expect=40m
#PENSTOCKS are no directive
#SBATCH --hold
srun ./merge
#PENSTOCK strategy=perstage
#SBATCH --requeue
"""


def asked(script: str, name: str | None = None, **ours: str) -> Request:
    return request(ours, read_directives(script.splitlines(), "job.sh"), name)


def test_lines_count_up_to_the_first_command():
    assert asked(SCRIPT) == Request("mosaic", "merge", ("project", "mask"), 2400.0)
    assert script_words(SCRIPT.split("\n")).options == ["-N4", "--job-name=a b", "--hold"]


def test_where_each_value_stands_is_kept():
    assert read_directives(SCRIPT.split("\n"), "job.sh")["after"] == Said("project,mask", "job.sh:6")


def test_the_command_line_counts_before_the_script():
    assert asked(SCRIPT, stage="other", expect="90") == Request("mosaic", "other", ("project", "mask"), 90.0)


def test_the_stage_may_be_named_by_the_job():
    by_job = asked("#PENSTOCK workflow=w", name="merge")
    assert (by_job.stage, by_job.chosen) == ("merge", False)
    assert asked("#PENSTOCK workflow=w stage=merge", name="x").chosen


@pytest.mark.parametrize(("said", "more"), [("2h", 7200.0), ("no", 0.0), ("90", 90.0)])
def test_more_stages_may_come_for_a_time(said, more):
    assert asked(f"#PENSTOCK workflow=w stage=a more={said}").more == more


def test_an_ordinary_script_asks_for_nothing():
    assert asked("#!/bin/sh\nhostname\n", name="x") == Request()
    assert asked("#PENSTOCK malleable=2:32:8:2") == Request(malleable="2:32:8:2")
    assert asked("#PENSTOCK elastic=1:8:4") == Request(elastic="1:8:4")
    both = asked("#PENSTOCK moldable=2:8h,8:2h30m checkpoint='USR1:my state'")
    assert both == Request(moldable="2:8h,8:2h30m", checkpoint=Checkpoint(10, "my state"))


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("#PENSTOCK", "job.sh:1: #PENSTOCK says nothing"),
        ("#PENSTOCK stge=x", "did you mean stage="),
        ("#PENSTOCK workflow", "workflow needs a value"),
        ("#PENSTOCK workflow=a workflow=b", "was given in job.sh:1 already"),
        ("#PENSTOCK workflow='a", "cannot be read: No closing quotation"),
        ("#PENSTOCK workflow=a/b stage=x", "job.sh:1: a name has 1 to 40 of"),
        ("#PENSTOCK workflow=a", "workflow=a needs a stage=NAME"),
        ("#PENSTOCK stage=x", "job.sh:1: stage= is about a workflow"),
        ("#PENSTOCK expect=4m", "expect= is about a workflow"),
        ("#PENSTOCK workflow=a stage=x after=x", "'x' cannot come after itself"),
        ("#PENSTOCK workflow=a stage=x after=y,y", "names a stage twice"),
        ("#PENSTOCK workflow=a stage=x after=y,", "after: a name has"),
        ("#PENSTOCK workflow=a stage=x expect=soon", "expect: must be a duration"),
        ("#PENSTOCK workflow=a stage=x expect=-1", "expect: must be a duration"),
        ("#PENSTOCK workflow=a stage=x more=yes", "more: must be `no` (that was all) or"),
        ("#PENSTOCK more=2h", "more= is about a workflow: workflow=NAME is missing"),
        ("#PENSTOCK workflow=a stage=x strategy='a b'", "strategy: must be the name of one, such as asa, not 'a b'"),
        ("#PENSTOCK malleable=8", "min:max"),
        ("#PENSTOCK elastic=8", "min:max"),
        ("#PENSTOCK elastic=8:4", "the minimum 8 is above the maximum 4"),
        ("#PENSTOCK elastic=1:4 malleable=1:4", "malleable already"),
        ("#PENSTOCK moldable=2:8h", "must be 2 to 20 times NODES:TIME"),
        ("#PENSTOCK moldable=2:8", "the time for 2 nodes needs a unit: 8m or 8s"),
        ("#PENSTOCK moldable=2:8h,4", "job.sh:1: moldable: must be NODES:TIME"),
        ("#PENSTOCK moldable=1:2h,2:1h malleable=1:4", "moldable: does not go with malleable= (job.sh:1)"),
        ("#PENSTOCK moldable=1:2h,2:1h workflow=w stage=a", "moldable: does not go with workflow="),
        ("#PENSTOCK checkpoint=USR1:x", "checkpoint= is about moldable jobs"),
        ("#PENSTOCK moldable=1:2h,2:1h checkpoint=x", "checkpoint: must be SIGNAL:FILE"),
        ("#PENSTOCK malleable=8:4", "the minimum 8 is above the maximum 4"),
        ("#PENSTOCK malleable=2:4:8", "preferred size 8 is outside 2..4"),
        ("#PENSTOCK malleable=0:4", "min:max"),
        ("#PENSTOCK malleable=1:2:1:1:1", "min:max"),
        ("#PENSTOCK malleable=1:99999999999", "min:max"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(line, text):
    with pytest.raises(UserError) as caught:
        asked(line)
    assert text in str(caught.value)


def test_what_is_wrong_on_the_command_line_is_said_with_its_option():
    with pytest.raises(UserError, match="--penstock-expect: expect: must be"):
        asked("#PENSTOCK workflow=a stage=x", expect="never")


@given(st.text(max_size=60))
def test_no_script_breaks_it(text):
    try:
        asked(f"#PENSTOCK {text}")
    except UserError as e:
        assert str(e).startswith("job.sh:1: ") or "\n" in text or "\r" in text or not text.isprintable()
    script_words(f"#SBATCH {text}".split("\n"))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--penstock-workflw=x"], "did you mean --penstock-workflow?"),
        (["--penstock-stage"], "--penstock-stage needs a value"),
        (["--penstock-stage=a", "--penstock-stage", "b"], "--penstock-stage is given twice"),
    ],
)
def test_ours_that_are_wrong(words, text):
    with pytest.raises(UserError, match=text.replace("?", r"\?")):
        own_options(read_words(words).ours)

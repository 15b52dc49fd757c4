"""`malleable=` without a size of the user's own: the job may start on any up to the preferred one."""

import pytest

from penstock.errors import UserError
from penstock.resize.commands.molding import shaped, start_nodes
from penstock.resize.waiting.model import Checkpoint
from penstock.sbatch.directives import Request
from penstock.sbatch.job import SbatchJob
from penstock.slurm.option_words import SbatchWords, read_words, script_words


def sizes(asked, command=(), script=(), environ=None):
    return start_nodes(SbatchJob(read_words([*command]), read_words([*script]), asked), environ or {})


def options(malleable, command=(), script=(), environ=None):
    return sizes(Request(malleable=malleable), command, script, environ)


@pytest.mark.parametrize(
    ("malleable", "command", "script", "environ", "nodes"),
    [
        ("2:8", (), (), {}, "2-8"),
        ("2:8:4:2", ("-t", "5"), (), {}, "2-4"),
        ("1:16:1", (), (), {}, "1-1"),
        ("2:32:6", ("--ntasks-per-node=4",), (), {}, "1-1"),
        ("8:32:8", ("--ntasks-per-node=16",), (), {}, "1-1"),
        ("3:32:3", ("--ntasks-per-node=2",), (), {}, "2-2"),
        ("3:17", ("--ntasks-per-node=4",), (), {}, "1-4"),
        ("8:16", (), ("--ntasks-per-node", "4"), {}, "2-4"),
        ("8:16", (), (), {"DMR_RANKS_PER_NODE": "8"}, "1-2"),
        ("8:16", ("--ntasks-per-node=x",), (), {}, "8-16"),
    ],
)
def test_from_the_smallest_size_to_the_one_it_runs_well_on(malleable, command, script, environ, nodes):
    assert options(malleable, command, script, environ) == (f"--nodes={nodes}",)


@pytest.mark.parametrize(
    ("command", "script", "environ"),
    [
        (("-N4",), (), {}),
        ((), ("--nodes=4",), {}),
        (("-n", "8"), (), {}),
        ((), ("-w", "n1"), {}),
    ],
)
def test_what_the_user_says_counts(command, script, environ):
    assert options("2:8", command, script, environ) == ()


def test_an_elastic_job_starts_as_small_as_it_may_be():
    assert sizes(Request(elastic="2:8")) == ("--nodes=2",)
    assert sizes(Request(elastic="2:8"), ["-N3"]) == ()


def test_only_malleable_jobs():
    assert sizes(Request()) == ()
    several = SbatchJob(script_words(["#SBATCH -N1", "#SBATCH hetjob"]), SbatchWords(), Request(malleable="2:8"))
    assert start_nodes(several, {}) == ()


def test_a_size_that_fills_no_nodes():
    with pytest.raises(UserError, match="malleable=5:7: no size of it fills whole nodes of 4"):
        options("5:7", ("--ntasks-per-node=4",))


SHAPED = Request(moldable="2:8h,4:4h")
SAVING = Request(moldable="2:8h,4:4h", checkpoint=Checkpoint(10, "x"))


def test_the_shape_is_chosen_unless_the_command_line_says_it():
    assert shaped(SbatchJob(read_words(["job.sh"]), read_words(["-N8", "-t60", "--requeue"]), SHAPED))
    assert not shaped(SbatchJob(read_words(["-N2"]), SbatchWords(), SHAPED))
    assert not shaped(SbatchJob(read_words(["--time=60"]), SbatchWords(), SHAPED))
    assert not shaped(SbatchJob(read_words([]), SbatchWords(), Request(malleable="2:8")))


@pytest.mark.parametrize(
    ("asked", "script", "text"),
    [
        (SHAPED, ["-n4"], "--ntasks does not go with it; say it in the script's srun line"),
        (SHAPED, ["--ntasks-per-node=2"], "--ntasks-per-node does not go with it"),
        (SHAPED, ["--nodelist=n1"], "--nodelist does not"),
        (SHAPED, ["--array=1-3"], "--array does not"),
        (SAVING, ["--no-requeue"], "--no-requeue does not"),
    ],
)
def test_what_holds_a_job_to_one_size_is_refused(asked, script, text):
    for line, lines in ((read_words([]), read_words(script)), (read_words(script), read_words([]))):
        with pytest.raises(UserError, match=text):
            shaped(SbatchJob(line, lines, asked))
    assert shaped(SbatchJob(read_words(["--no-requeue"]), SbatchWords(), SHAPED))

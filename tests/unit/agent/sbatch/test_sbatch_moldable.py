"""`malleable=` without a size of the user's own: the job may start on any up to the preferred one."""

import pytest

from penstock.errors import UserError
from penstock.sbatch.directives import Request
from penstock.sbatch.moldable import moldable, shaped
from penstock.sbatch.options import CommandLine, parse


def options(malleable, command=(), script=(), environ=None):
    return moldable(Request(malleable=malleable), parse([*command]), parse([*script]), environ or {})


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
    assert moldable(Request(elastic="2:8"), parse([]), parse([]), {}) == ("--nodes=2",)
    assert moldable(Request(elastic="2:8"), parse(["-N3"]), parse([]), {}) == ()


def test_only_malleable_jobs():
    assert moldable(Request(), CommandLine(), CommandLine(), {}) == ()
    assert moldable(Request(malleable="2:8"), CommandLine(several=True), CommandLine(), {}) == ()


def test_a_size_that_fills_no_nodes():
    with pytest.raises(UserError, match="malleable=5:7: no size of it fills whole nodes of 4"):
        options("5:7", ("--ntasks-per-node=4",))


SHAPED = Request(moldable="2:8h,4:4h")
SAVING = Request(moldable="2:8h,4:4h", checkpoint="USR1:x")


def test_the_shape_is_chosen_unless_the_command_line_says_it():
    assert shaped(SHAPED, parse(["job.sh"]), parse(["-N8", "-t60", "--requeue"]))
    assert not shaped(SHAPED, parse(["-N2"]), CommandLine())
    assert not shaped(SHAPED, parse(["--time=60"]), CommandLine())
    assert not shaped(Request(malleable="2:8"), parse([]), CommandLine())


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
    for line, lines in ((parse([]), parse(script)), (parse(script), parse([]))):
        with pytest.raises(UserError, match=text):
            shaped(asked, line, lines)
    assert shaped(SHAPED, parse(["--no-requeue"]), CommandLine())

"""Where lines and words of a job script end: as sbatch finds them, which is asked itself where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.fronts.programs.script import PipedScript, script_lines
from penstock.sbatch.directives import read_directives
from penstock.slurm import sbatch_options
from penstock.slurm.option_words import script_words
from penstock.tools.expected import geometry_of_script
from penstock.values.lines import split_lines
from penstock.workflow.asks import script_says
from penstock.workflow.files.formats import parse_workflow
from penstock_pool.jobs.order import JobRequest, NotForPools, SbatchError, export_of, read_order
from penstock_pool.terms import FIRST_JOB

NO_ENDS = ["\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
"""What `str.splitlines` takes for the end of a line besides the line feed."""
SCRIPT = (
    "#!/bin/bash\n# page one{end}page two\n{word} --time=1 --job-name=paged\n{word} --mem=500 --array=0-1\nsleep 5\n"
)
CONF = "ClusterName=x\nSlurmctldHost=localhost\nPlugStackConfig=/dev/null\nNodeName=n1\nPartitionName=p Nodes=n1\n"
_FOUND = re.compile(rb'^sbatch: debug2: Found in script, argument "(.*?)"$(?=\nsbatch: )', re.MULTILINE | re.DOTALL)


def order_of(script: str, *words: str, **environ: str):
    request = JobRequest(words, script.encode(), environ, "/here", 0o022, "penstock:ab", "login", "/fronts")
    return read_order(request, FIRST_JOB, "s", "e", 1000.0)


@pytest.mark.parametrize("word", ["#SBATCH", "#SLURM"])
@pytest.mark.parametrize("end", NO_ENDS, ids=ascii)
class TestALineEndsAtALineFeedAlone:
    def test_in_a_pool(self, end: str, word: str):
        found = order_of(SCRIPT.format(end=end, word=word))
        assert [(task.seconds, task.memory) for task in found] == [(60.0, 500 * 2**20)] * 2
        assert found[0].job is not None and found[0].job.name == "paged"
        script = f"#!/bin/sh\n# a{end}b\n{word} --export=NONE\n".encode()
        assert export_of(JobRequest(["s"], script, {}, "/here", 0o022, "k", "login")) == "NONE"

    def test_as_a_stage(self, end: str, word: str, tmp_path: Path):
        script = SCRIPT.format(end=end, word=word)
        (tmp_path / "s.sh").write_text(script, newline="")
        assert script_says(split_lines(script)).said["time"] == "1"
        flow = parse_workflow("name: w\nstages: [{name: a, nodes: 1, script: s.sh}]", folder=tmp_path)
        (stage,) = flow.stages
        assert (stage.time_limit, stage.asks.memory, stage.asks.array) == (60.0, "500", "0-1")

    def test_by_the_front_programs(self, end: str, word: str, tmp_path: Path):
        path = tmp_path / "s.sh"
        path.write_text(SCRIPT.format(end=end, word=word), newline="")
        for lines in (script_lines(str(path)), PipedScript(path.read_bytes(), None).lines):
            assert script_words(lines).value("array") == "0-1"
            assert sbatch_options.script_words(lines)[1] == (4, ["--mem=500", "--array=0-1"])
        assert geometry_of_script(path.read_bytes().decode())["time_limit"] == 60.0


@pytest.mark.parametrize("end", NO_ENDS, ids=ascii)
def test_our_own_lines_too(end: str):
    said = read_directives(split_lines(f"#!/bin/sh\n# a{end}b\n#PENSTOCK workflow=w stage=a\n"), "s.sh")
    assert (said["stage"].value, said["stage"].where) == ("a", "s.sh:3")


@pytest.mark.parametrize("word", ["#PBS", "#BSUB"])
def test_lines_that_sbatch_would_translate_are_named(word: str):
    script = f"#!/bin/bash\n#SBATCH -t 5\ntrue\n{word} -e x\n"
    with pytest.raises(NotForPools, match=rf"line 4: {word} .*--ignore-pbs"):
        order_of(script)
    with pytest.raises(UserError, match=rf"line 4: {word} .*--ignore-pbs"):
        script_says(split_lines(script))
    assert order_of(script, "--ignore-pbs") and order_of(script, SBATCH_IGNORE_PBS="1")
    spared = script.replace("-t 5", "-t 5 --ignore-pbs")
    assert order_of(spared)[0].seconds == 300.0
    assert script_says(split_lines(spared)).said["time"] == "5"
    far = "#!/bin/bash\n" + "true\n" * 101 + f"{word} -e x\n"  # sbatch looks no further
    assert order_of(far) and script_says(split_lines(far))


def test_a_job_of_several_components_and_a_word_that_is_none_are_no_job_of_a_pool():
    with pytest.raises(NotForPools, match="several components"):
        order_of("#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n2\n")
    with pytest.raises(SbatchError, match="Invalid directive found in batch script: oops"):
        order_of("#!/bin/sh\n#SBATCH -n1 oops\n")


@pytest.fixture(scope="module")
def sbatch(tmp_path_factory: pytest.TempPathFactory):
    """What the real sbatch finds in a script: its words, and whether it goes on to submit."""
    program = shutil.which("sbatch")
    if program is None:
        pytest.skip("no sbatch here")
    folder = tmp_path_factory.mktemp("sbatch")
    (folder / "slurm.conf").write_text(CONF)
    environ = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": "/usr/bin:/bin"}

    def found(script: str) -> tuple[list[str], bool]:
        path = folder / "s.sh"
        path.write_text(script, newline="")
        # With -Q beside -v it ends before it looks for slurmctld.
        done = subprocess.run([program, "-vvvvvvv", "-Q", path], env=environ, capture_output=True, check=False)
        words = [word.decode() for word in _FOUND.findall(done.stderr)]
        return words, b"don't specify both --verbose" in done.stderr

    return found


_TEXT = st.text(st.sampled_from([*NO_ENDS, " ", "\t", "\n", "#", "'", '"', "\\", "a", "ä"]), max_size=8).filter(
    lambda text: "\r\n" not in text
)
_LINE = st.builds(
    "".join,
    st.lists(
        st.one_of(
            _TEXT,
            st.sampled_from(["#SBATCH", "#SLURM", "#SBATCH --mem=5", " --time=1", "--comment=", "-Jx", "#x", "\n"]),
        ),
        max_size=6,
    ),
)


@settings(max_examples=150, deadline=None)
@given(lines=st.lists(_LINE, max_size=5))
def test_what_is_read_is_what_sbatch_reads(sbatch, lines: list[str]):
    script = "\n".join(["#!/bin/sh", *lines])
    if "\r\n" in script:
        return
    theirs, _ = sbatch(script)
    try:
        ours = [word for _, words in sbatch_options.script_words(split_lines(script)) for word in words]
    except UserError as error:
        assert "quote" in str(error)
        return
    assert ours == theirs

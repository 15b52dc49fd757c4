"""The words of sbatch's command line and of a script, held against getopt's own reading."""

from __future__ import annotations

import getopt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.sbatch.directives import KEYS, own_options
from penstock.slurm import option_table as options
from penstock.slurm.option_words import (
    SbatchWords,
    elsewhere,
    job_name,
    names_penstock,
    read_words,
    script_words,
    stage_name,
    value_of,
)
from penstock.slurm.sbatch_options import read_options

VALUE = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
FLAG = st.sampled_from([n for n, kind in options.KINDS.items() if kind == 0])
VALUED = st.sampled_from([n for n, kind in options.KINDS.items() if kind == 2])
AT_WILL = st.sampled_from([n for n, kind in options.KINDS.items() if kind == 1])
LETTER = {kind: [c for c, n in options.LETTERS.items() if options.KINDS[n] == kind] for kind in (0, 1, 2)}
THEIRS = st.one_of(
    FLAG.map(lambda n: [f"--{n}"]),
    st.tuples(VALUED, VALUE).map(lambda t: [f"--{t[0]}={t[1]}"]),
    st.tuples(VALUED, VALUE).map(lambda t: [f"--{t[0]}", t[1]]),
    AT_WILL.map(lambda n: [f"--{n}"]),
    st.tuples(AT_WILL, VALUE).map(lambda t: [f"--{t[0]}={t[1]}"]),
    st.lists(st.sampled_from(LETTER[0]), min_size=1, max_size=3).map(lambda c: ["-" + "".join(c)]),
    st.tuples(st.sampled_from(LETTER[2]), VALUE.filter(bool)).map(lambda t: [f"-{t[0]}{t[1]}"]),
    st.tuples(st.sampled_from([*LETTER[0], ""]), st.sampled_from(LETTER[2]), VALUE).map(
        lambda t: [f"-{t[0]}{t[1]}", t[2]]
    ),
)
OURS = st.tuples(st.sampled_from(KEYS), VALUE, st.booleans()).map(
    lambda t: (t[0], t[1], [f"--penstock-{t[0]}={t[1]}"] if t[2] else [f"--penstock-{t[0]}", t[1]])
)
SCRIPT = st.lists(VALUE, max_size=3).map(lambda rest: ["job.sh", *rest])


@given(st.lists(st.one_of(THEIRS, OURS), max_size=8), st.one_of(st.just([]), SCRIPT))
def test_what_is_not_ours_passes_through_in_its_order(groups, script):
    theirs, ours, words = [], {}, []
    for group in groups:
        if isinstance(group, tuple):
            key, value, given_as = group
            if key in ours:
                continue
            ours[key] = value
            words += given_as
        else:
            theirs += group
            words += group
    line = read_words([*words, *script])
    assert line.options == theirs
    assert line.rest == script
    assert own_options(line.ours) == ours
    assert line.words("--hold") == [*theirs, "--hold", *script]
    assert line.script == (script[0] if script else None)


@given(st.lists(THEIRS, max_size=8), st.one_of(st.just([]), SCRIPT))
def test_it_reads_as_getopt_reads(groups, script):
    words = [w for group in groups for w in group]
    if any(w.startswith("--") and w.partition("=")[0][2:] in _at_will() for w in words) or "-k" in words:
        return  # Python's getopt knows no values at will before 3.14
    short = "".join(c + (":" if options.KINDS[n] == 2 else "") for c, n in options.LETTERS.items())
    long = [n + ("=" if kind == 2 else "") for n, kind in options.KINDS.items()]
    seen, rest = getopt.getopt([*words, *script], short, long)
    line = read_words([*words, *script])
    assert line.rest == rest
    named = [(options.LETTERS[n[1]] if len(n) == 2 else n[2:], v or None) for n, v in seen]
    assert [(name, value or None) for name, value in line.found] == named


def _at_will():
    return [n for n, kind in options.KINDS.items() if kind == 1]


@given(st.lists(st.text(max_size=6), max_size=8))
def test_any_words_are_split_and_never_lost(words):
    line = read_words(words)
    if not line.ours:
        assert line.words() == words
    try:
        strictly = read_options(words)
    except UserError:
        return
    assert (strictly, line.rest) == (line.found, [])


@pytest.mark.parametrize(
    ("words", "found", "script"),
    [
        (["-N4", "job"], [("nodes", "4")], "job"),
        (["--nodes", "4", "--", "job"], [("nodes", "4")], "job"),
        (["--dep=afterok:3", "job"], [("dependency", "afterok:3")], "job"),
        (["--depend", "afterok:3", "job"], [("dependency", "afterok:3")], "job"),
        (["-HJname", "job", "-J", "x"], [("hold", None), ("job-name", "name")], "job"),
        (["-k", "job"], [("no-kill", None)], "job"),
        (["-koff", "job"], [("no-kill", "off")], "job"),
        (["--exclusive", "job"], [("exclusive", None)], "job"),
        (["--mem", "4G", "job"], [("mem", "4G")], "job"),
        (["--ntasks-per", "4", "job"], [("ntasks-per", "4")], "job"),
        (["--from-a-plugin=1", "job"], [("from-a-plugin", "1")], "job"),
        (["--wrap", "--penstock-stage=x"], [("wrap", "--penstock-stage=x")], None),
        (["job", "--penstock-stage=x"], [], "job"),
        (["-t"], [("time", None)], None),
        ([], [], None),
    ],
)
def test_particular_command_lines(words, found, script):
    line = read_words(words)
    assert (line.found, line.script, line.ours) == (found, script, [])


def test_components_of_a_job_are_seen():
    assert read_words(["-N1", ":", "-N2", "job", ":"]).several
    assert not read_words(["-N1", "job", ":"]).several
    assert script_words(["#SBATCH -N1", "#SBATCH hetjob", "#SBATCH -N2"]).several
    assert not read_words(["-N1", "hetjob"]).several  # a script of that name


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["-Q", "-N2", "job", "-Q"], ["-N2", "job", "-Q"]),
        (["-HQvc", "2", "job"], ["-H", "-v", "-c", "2", "job"]),
        (["-QN2", "--quiet", "--qui"], ["-N2"]),
        (["-J", "-Q", "--wrap=x"], ["-J", "-Q", "--wrap=x"]),
    ],
)
def test_a_flag_can_be_taken_out(words, left):
    line = read_words(words).without("quiet")
    assert line.words() == left
    assert not line.has("quiet")


def test_a_scripts_lines():
    lines = [
        "#!/bin/sh",
        "#SBATCH -t 1 # comment",
        '#SBATCH --comment="a b"',
        "",
        "#SBATCH -d 'open",
        "true",
        "#SBATCH -H",
    ]
    assert script_words(lines).found == [("time", "1"), ("comment", "a b")]
    assert script_words(["#SBATCH hetjob"]).rest == ["hetjob"]
    assert names_penstock(["#!/bin/sh", "#PENSTOCK workflow=w"])
    assert not names_penstock(["#!/bin/sh", "true", "#PENSTOCK workflow=w"])


@pytest.mark.parametrize(
    ("words", "environ", "name", "stage"),
    [
        (["a/b.c.sh"], {}, "b.c.sh", "b.c"),
        (["-J", "x", "b.sh"], {"SBATCH_JOB_NAME": "y"}, "x", "x"),
        (["b.sh"], {"SBATCH_JOB_NAME": "y"}, "y", "y"),
        (["--wrap", "true"], {}, "wrap", "wrap"),
        ([], {}, "sbatch", "sbatch"),
    ],
)
def test_what_a_job_is_called(words, environ, name, stage):
    line = read_words(words)
    assert job_name(line, SbatchWords(), environ) == name
    assert stage_name(line, SbatchWords(), environ) == stage


@pytest.mark.parametrize(
    ("words", "lines", "environ", "value"),
    [
        (["-p", "a"], ["#SBATCH -p c"], {"SBATCH_PARTITION": "b"}, "a"),
        ([], ["#SBATCH -p c"], {"SBATCH_PARTITION": "b"}, "b"),
        ([], ["#SBATCH -p c"], {}, "c"),
        ([], [], {}, None),
    ],
)
def test_the_command_line_counts_before_variables_and_these_before_the_script(words, lines, environ, value):
    assert value_of("partition", read_words(words), script_words(lines), environ) == value


@pytest.mark.parametrize(
    ("words", "lines", "environ"),
    [
        (["-Mb"], [], {}),
        ([], ["#SBATCH --cluster=b"], {}),
        ([], [], {"SBATCH_CLUSTERS": "b"}),
        ([], [], {"SLURM_CLUSTERS": "b"}),
    ],
)
def test_jobs_for_other_clusters(words, lines, environ):
    assert elsewhere(read_words(words), script_words(lines), environ)
    assert not elsewhere(read_words([]), script_words(["#SBATCH -N1"]), {})

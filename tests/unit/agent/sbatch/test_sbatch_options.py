"""Whose words are whose on a command line of `penstock sbatch`, held against getopt's own reading."""

from __future__ import annotations

import getopt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.sbatch import options
from penstock.sbatch.options import SbatchOption, parse

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
OURS = st.tuples(st.sampled_from(options.OURS), VALUE, st.booleans()).map(
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
    line = parse([*words, *script])
    assert line.options == tuple(theirs)
    assert line.rest == tuple(script)
    assert line.ours == ours
    assert line.words("--hold") == (*theirs, "--hold", *script)
    assert line.script == (script[0] if script else None)


@given(st.lists(THEIRS, max_size=8), st.one_of(st.just([]), SCRIPT))
def test_it_reads_as_getopt_reads(groups, script):
    words = [w for group in groups for w in group]
    if any(w.startswith("--") and w.partition("=")[0][2:] in _at_will() for w in words) or "-k" in words:
        return  # Python's getopt knows no values at will before 3.14
    short = "".join(c + (":" if options.KINDS[n] == 2 else "") for c, n in options.LETTERS.items())
    long = [n + ("=" if kind == 2 else "") for n, kind in options.KINDS.items()]
    seen, rest = getopt.getopt([*words, *script], short, long)
    line = parse([*words, *script])
    assert list(line.rest) == rest
    named = [(options.LETTERS[n[1]] if len(n) == 2 else n[2:], v or None) for n, v in seen]
    assert [(o.name, o.value or None) for o in line.found] == named


def _at_will():
    return [n for n, kind in options.KINDS.items() if kind == 1]


@given(st.lists(st.text(max_size=6), max_size=8))
def test_any_words_are_split_or_refused_and_never_lost(words):
    try:
        line = parse(words)
    except UserError:
        assert any(w.startswith("--penstock-") for w in words)
        return
    if not line.ours:
        assert [*line.options, *line.rest] == words


@pytest.mark.parametrize(
    ("words", "found", "script"),
    [
        (["-N4", "job"], [SbatchOption("nodes", "4")], "job"),
        (["--nodes", "4", "--", "job"], [SbatchOption("nodes", "4")], "job"),
        (["--dep=afterok:3", "job"], [SbatchOption("dependency", "afterok:3")], "job"),
        (["--depend", "afterok:3", "job"], [SbatchOption("dependency", "afterok:3")], "job"),
        (["-HJname", "job", "-J", "x"], [SbatchOption("hold"), SbatchOption("job-name", "name")], "job"),
        (["-k", "job"], [SbatchOption("no-kill")], "job"),
        (["-koff", "job"], [SbatchOption("no-kill", "off")], "job"),
        (["--exclusive", "job"], [SbatchOption("exclusive")], "job"),
        (["--mem", "4G", "job"], [SbatchOption("mem", "4G")], "job"),
        (["--ntasks-per", "4", "job"], [SbatchOption("ntasks-per", "4")], "job"),
        (["--from-a-plugin=1", "job"], [SbatchOption("from-a-plugin", "1")], "job"),
        (["--wrap", "--penstock-stage=x"], [SbatchOption("wrap", "--penstock-stage=x")], None),
        (["job", "--penstock-stage=x"], [], "job"),
        (["-t"], [SbatchOption("time")], None),
        ([], [], None),
    ],
)
def test_particular_command_lines(words, found, script):
    line = parse(words)
    assert (list(line.found), line.script, line.ours) == (found, script, {})


def test_components_of_a_job_are_seen():
    assert parse(["-N1", ":", "-N2", "job", ":"]).several
    assert not parse(["-N1", "job", ":"]).several


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["-Q", "-N2", "job", "-Q"], ("-N2", "job", "-Q")),
        (["-HQv", "job"], ("-Hv", "job")),
        (["-QN2", "--quiet", "--qui"], ("-N2",)),
        (["-J", "-Q", "--wrap=x"], ("-J", "-Q", "--wrap=x")),
    ],
)
def test_a_flag_can_be_taken_out(words, left):
    line = parse(words).without("quiet")
    assert line.words() == left
    assert not line.has("quiet")


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
        parse(words)

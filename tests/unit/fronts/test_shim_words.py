"""Words of a command, as getopt reads them, and columns, as printf writes them."""

from __future__ import annotations

import getopt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_fronts import squeue
from penstock_fronts.rows import Table, Unreadable, parse_table
from penstock_fronts.site import Asker, ShimSite
from penstock_fronts.squeue_format import LETTERS, Field, parse_format, parse_long_format, write_row
from penstock_fronts.words import Option, Through, parse_words

LONGS = {
    "user": ("u", 1),
    "users": ("u", 1),
    "me": ("me", 0),
    "states": ("t", 1),
    "start": ("start", 0),
    "json": ("json", 2),
}
SITE = ShimSite("c", (22, 5, 8))


def test_words_in_all_their_forms():
    words = ["-hu", "x", "--use=y", "z", "--us", "w", "-j5", "-j", "--me", "--json=a", "--json", "--", "-h"]
    options, others = parse_words(words, "hu:j::", LONGS)
    said = [(option.name, option.value) for option in options]
    assert said == [
        *[("h", None), ("u", "x"), ("u", "y"), ("u", "w"), ("j", "5"), ("j", None), ("me", None)],
        *[("json", "a"), ("json", None)],
    ]
    assert others == ["z", "-h"]


@pytest.mark.parametrize("words", [["--st"], ["--no"], ["-x"], ["-u"], ["--user"], ["--me=1"], ["--s=5"]])
def test_what_getopt_complains_about_goes_through(words):
    with pytest.raises(Through):
        parse_words(words, "hu:j::", LONGS)


@given(
    st.lists(st.sampled_from(["-a", "-b", "-ab", "-bx", "-c", "--alpha", "--be", "--beta=1", "y", "--", "-", "-abz"]))
)
def test_as_pythons_getopt_reads_them(words):
    longs = {"alpha": ("a", 0), "beta": ("b", 1)}
    try:
        theirs, rest = getopt.gnu_getopt(words, "ab:c", ["alpha", "beta="])
    except getopt.GetoptError:
        with pytest.raises(Through):
            parse_words(words, "ab:c", longs)
        return
    names = {"-a": "a", "-b": "b", "-c": "c", "--alpha": "a", "--beta": "b"}
    ours, others = parse_words(words, "ab:c", longs)
    assert ours == [Option(names[name], value or None) for name, value in theirs]
    assert others == rest


@given(st.text(alphabet="ab%ijTN.0123456789 |:,{}", max_size=30))
def test_any_format_is_read_or_goes_through(text):
    row = {letter: f"<{letter}>" for letter in LETTERS}
    for read in (parse_format, parse_long_format):
        try:
            fields = read(text)
        except Through:
            continue
        assert write_row(fields, row).endswith("\n")


@given(st.text(max_size=12), st.integers(1, 20), st.booleans())
def test_a_cut_column_has_its_width_in_bytes(value, width, right):
    if value == "(null)":
        return
    line = write_row([Field("j", width, right)], {"j": value}).encode(errors="surrogateescape")
    raw = value.encode(errors="surrogateescape")
    padded = raw.rjust(width) if right else raw.ljust(width)
    assert line == padded[:width] + b"\n"


def test_a_missing_text_that_is_cut_is_not_told_from_one_that_says_so():
    assert write_row([Field("k", 6)], {"k": "(null)"}) == "(null)\n"
    with pytest.raises(Through):
        write_row([Field("k", 3)], {"k": "(null)"})


def queue(*rows: dict[str, str]) -> Table:
    plain = dict.fromkeys(LETTERS, "x") | {"T": "PENDING", "t": "PD", "U": "7", "u": "ann", "P": "batch"}
    return Table(dict.fromkeys(LETTERS, "HEAD"), tuple(plain | row for row in rows))


def said(words: str, look: Table, uid: int = 7, **environ: str) -> str:
    asked = squeue.read(words.split(), environ, SITE)
    return squeue.answer(asked, look, Asker(uid, environ, uid_of={"ann": 7, "ben": 8}.get)).out


def job(number: int, **more: str) -> dict[str, str]:
    return {"i": str(number), "A": str(number), "F": str(number), "Q": str(number), "S": "N/A", **more}


def test_filters_of_a_queue():
    look = queue(job(1), job(2, T="RUNNING", U="8", u="ben"), job(3, T="COMPLETED", a="Phys"), job(4, P="a,b", j="Ä b"))
    assert said("-h -o %i", look) == "1\n2\n4\n"
    assert said("-h -o %i --me", look) == "1\n4\n"
    assert said("-h -o %i --me -u ben", look) == "2\n"
    assert said("-h -o %i -u ann,ben -t all", look) == "1\n2\n3\n4\n"
    assert said("-h -o %i -A PHYS -t all", look) == "3\n"
    assert said("-h -o %i -p b", look) == "4\n"
    assert said("-h -o %i -t cd,r", look) == "2\n3\n"
    assert said("-h -o %i", look, SQUEUE_STATES="all", SQUEUE_USERS="ben") == "2\n"
    assert said("-o %.3i|%j -j 4,1", look) == "HEA|HEAD\n  1|x\n  4|Ä b\n"


@pytest.mark.parametrize("words", ["-u nobody", "-t nonsense", "-j 9", "-S i", "-s", "-M all", "--json", "x", "-j 1 2"])
def test_what_is_not_served_goes_through(words):
    with pytest.raises(Through):
        said(words, queue(job(1)))


def test_names_that_may_be_those_of_several_users_are_looked_up():
    look = queue(job(1, u="nobody", U="99"), job(2, u="ben", U="98"), job(3, u="ben", U="8"))
    assert said("-h -o %i -u ben", look) == "3\n"
    with pytest.raises(Through):
        said("-u nobody", look)


@pytest.mark.parametrize("words", ["-n (null)", "-A x,(null)", "-p (null)"])
def test_a_missing_name_is_none_to_be_asked_for(words):
    with pytest.raises(Through):
        said(words, queue(job(1, j="(null)")))


def test_an_unknown_number_is_named():
    with pytest.raises(Through) as why:
        said("-j 1,9,8_2", queue(job(1)))
    assert why.value.ids == {9, 8}


def test_a_job_with_marks_that_one_does_not_see_goes_through_where_they_count():
    look = queue(job(1, T="COMPLETING"), job(2, T="SPECIAL_EXIT"))
    assert said("-h -o %i -t all", look) == "1\n2\n"
    assert said("-h -o %i -t cg -j 1", look) == "1\n"
    assert said("-h -o %i -t R", look) == ""
    for words in ("-t rs", ""):
        with pytest.raises(Through):
            said(words, look)


@given(st.lists(st.lists(st.text(alphabet="ab\n|\x1f\x1e", max_size=5), min_size=3, max_size=3), max_size=5))
def test_rows_come_back_as_they_were(rows):
    text = "".join("".join(f"{value}\x1f9e\x1f" for value in row) + "\n" for row in [["A", "B", "C"], *rows])
    assert [list(row.values()) for row in parse_table(text, "\x1f9e\x1f").rows] == rows


@pytest.mark.parametrize("text", ["", "A<B<\na<", "A<B<\na<b<c<\n", "A<B<\na<b<\nrest", "A<B<C<\n1<2<3<\n", "A<B"])
def test_a_text_that_is_no_look_is_refused(text):
    with pytest.raises(Unreadable):
        parse_table(text, "<", "AB")

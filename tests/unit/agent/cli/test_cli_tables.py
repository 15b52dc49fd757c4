"""Where the output is no terminal, tables are what rich would print, byte by byte, and rich is not loaded for them."""

from __future__ import annotations

import io
import random
import sys

import pytest

from penstock.console import output
from penstock.console.output import build_table, say
from penstock.console.parts import TextLine, TextTable
from penstock.console.styled import Terminal, styled

WORDS = (
    "",
    "a",
    "merge",
    "node[1-3]",
    "x y",
    " indented",
    "trailing  ",
    "2h30m",
    "[b]",
    ":smile:",
    "a-b/c.d",
    "…",
    "日本",
)
SIMPLE = ("", "a", "merge", "node[1-3]", "x y", " indented", "trailing  ", "2h30m", "a-b/c.d", "no: way", "at 12:30:05")


def by_rich(parts, room, highlight):
    file = io.StringIO()
    Terminal(width=room, file=file).print(*styled(parts), sep="\n", highlight=highlight)
    return file.getvalue()


def drawn(random, words):
    """A text, line or table."""
    kind = random.randrange(4)
    text = " ".join(random.choices(words, k=random.randrange(6)))
    if kind == 0:
        return text
    if kind == 1:
        return TextLine(text, random.choice(("", "bold")), random.choice((0, 0, 2, 4)))
    columns = random.choices(words, k=random.randrange(6))
    rows = [[random.choice([*words, None, 7]) for _ in columns] for _ in range(random.randrange(4))]
    return build_table(random.choice(("", text)), columns, rows, random.choices(words, k=2))


@pytest.mark.parametrize("words", [WORDS, SIMPLE], ids=["any", "simple"])
@pytest.mark.parametrize("seed", range(8))
def test_what_is_printed_without_rich_is_what_rich_prints(monkeypatch, capsys, words, seed):
    rng = random.Random(seed)
    for _ in range(60):
        room = rng.choice((20, 40, 80, 140))
        monkeypatch.setenv("COLUMNS", str(room))
        parts = [drawn(rng, words) for _ in range(rng.randrange(1, 5))]
        parts = [one for one in parts if one != "[b]" or words is WORDS]
        highlight = rng.random() < 0.5
        say(*parts, highlight=highlight)
        assert capsys.readouterr().out == by_rich(parts, room, highlight), parts


def test_most_of_it_is_printed_without_rich(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setitem(sys.modules, "penstock.console.styled", None)  # whoever imports it fails
    say(
        TextLine("workflow 1", "bold"),
        build_table("jobs", ("job", "why"), [(1, None), (22, "it waits")]),
        TextLine("x", indent=2),
    )
    assert capsys.readouterr().out.splitlines() == [
        "workflow 1",
        "jobs         ",
        "job  why     ",
        "1            ",
        "22   it waits",
        f"{'  x':80}",
    ]


@pytest.mark.parametrize("variable", output._STYLED)
def test_whoever_asks_for_colours_gets_them_from_rich(monkeypatch, capsys, variable):
    monkeypatch.setenv(variable, "1")
    say(TextLine("told", "bold"))
    out = capsys.readouterr().out
    assert "told" in out
    assert ("\x1b[" in out) == (variable != "JUPYTER_COLUMNS")


def test_a_table_is_its_texts():
    assert build_table("t", ("a", "b"), [(1, None)]) == TextTable("t", ("a", "b"), (("1", ""),), (1, 1))

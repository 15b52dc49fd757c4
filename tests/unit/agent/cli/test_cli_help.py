"""What the command line says of itself: its help in groups, what it suggests for a typo, its exit codes."""

from __future__ import annotations

import shlex
import subprocess
import sys

import click
import pytest
from doc_pages import Block, commands_in, objection
from json_answers import commands

import manpages
from man_examples import EXAMPLES
from penstock.cli import cli
from penstock.cli.table import commands as table
from penstock.cli.table import headings
from penstock.errors import EXIT_CODES, PenstockError
from penstock.host.distributions import beside
from penstock.values.beside import LABORATORY

ROOT = click.Context(cli, info_name="penstock")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", "from penstock.cli import main; main()", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def test_the_line_of_every_command_is_the_first_sentence_of_its_own_help():
    listed = {name: text for group in headings().values() for name, text in group.items()}
    assert sorted(listed) == cli.list_commands(ROOT)
    for name, text in listed.items():
        command = cli.get_command(ROOT, name)
        assert command is not None
        assert text == command.get_short_help_str(limit=1000), name
        assert len(text) <= 66, f"{name}: longer than a line of `penstock --help`"


def test_help_shows_the_commands_in_groups():
    lines = run("--help").stdout.splitlines()
    for title, group in headings().items():
        begin = lines.index(f"{title}:")
        assert [line.split()[0] for line in lines[begin + 1 : begin + 1 + len(group)]] == list(group)
    assert list(headings())[-1] == "Laboratory"


def test_where_the_laboratory_is_not_installed_help_does_not_name_it(monkeypatch):
    installed = [one for one in beside() if one.name != LABORATORY]
    monkeypatch.setattr("penstock.host.distributions.beside", lambda: installed)
    assert "Laboratory" not in headings()
    assert "simulate" not in cli.get_help(ROOT)


@pytest.mark.parametrize("words", [[], ["submit"]], ids=["penstock", "submit"])
def test_help_loads_no_other_command(words):
    program = (
        "import sys; from penstock.cli import cli\n"
        f"cli({[*words, '--help']!r}, standalone_mode=False)\n"
        "print(*(name for name in sys.modules if {'cli', 'commands'} & set(name.split('.'))), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = {name.rpartition(".")[2] for name in done.stderr.split() if name.startswith("penstock")}
    places = [one.place for one in table().values()]
    commands = {place.partition(":")[0].rpartition(".")[2] for place in places}
    assert loaded & commands == set(words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("submti", "no such command 'submti'; did you mean `submit`?"),
        ("hold opne", "no such command 'opne'; did you mean `open`?"),
        ("simulate swff", "no such command 'swff'; did you mean `swf`?"),
        ("xyzzy", "no such command 'xyzzy'"),
        ("submit --stratgy=x y", "--strategy"),
        ("--hepl", "--help"),
    ],
)
def test_a_typo_gets_a_suggestion_and_exit_code_2(words, said):
    done = run(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    last = done.stderr.splitlines()[-1]
    assert last == f"Error: {said}" if said.startswith("no such") else said in last


def tree(error: type[PenstockError]) -> set[type[PenstockError]]:
    return {error}.union(*map(tree, error.__subclasses__()))


def test_one_table_says_all_exit_codes():
    assert {error.exit_code for error in tree(PenstockError)} <= set(EXIT_CODES)
    shown = cli.get_help(ROOT)
    page = dict(manpages.pages(cli, "penstock"))["penstock.1"]
    for code, meaning in EXIT_CODES.items():
        assert f"  {code} ".ljust(7) + meaning in shown
        assert f"\\fB{code}\\fR\n{meaning}\n" in page


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, some in EXAMPLES.items() for line, _ in some])
def test_every_example_is_a_command_line_that_the_command_takes(name, line):
    (words,) = commands_in(Block("", "sh", line))
    assert shlex.join(words).startswith(f"penstock {name}")
    assert objection(words) is None


def test_every_command_has_an_example():
    """That of `penstock profile -- CMD` stands with the group, whose command `run` is not typed."""
    assert set(commands()) - set(EXAMPLES) == {"profile run"}


def test_the_man_page_shows_the_examples():
    pages = dict(manpages.pages(cli, "penstock"))
    for name, examples in EXAMPLES.items():
        page = pages[f"penstock-{name.replace(' ', '-')}.1"]
        assert ".SH EXAMPLES\n" in page
        assert all(manpages._text(meaning) in page for _line, meaning in examples)

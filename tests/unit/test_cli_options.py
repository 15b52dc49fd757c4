"""Options that several commands have: -t in Slurm's syntax, one name for one thing, former names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from penstock.cli import cli
from penstock.cli.former import formerly
from penstock.cli.times import TIME, parse_time_option
from penstock.errors import UserError
from penstock.slurm.parse import parse_limit


def below(command: click.Command, *names: str) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(names), command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=names[-1] if names else "penstock")
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from below(child, *names, name)


COMMANDS = dict(below(cli))


@pytest.mark.parametrize("text", ["30:00", "90:00", "02:00:00", "1-0", "1-12", "1-12:30", "1-02:03:04", "100:00:00"])
def test_what_slurm_takes_means_what_it_means_to_slurm(text):
    assert parse_time_option(text, "-t") == parse_limit(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("30min", 1800), ("1h30m", 5400), ("1.5h", 5400), ("2d", 172800)]
)
def test_units_as_a_suffix(text, seconds):
    assert parse_time_option(text, "-t") == seconds


@pytest.mark.parametrize("text", ["30", "0", "1.5", " 30 "])
def test_a_bare_number_is_refused_with_both_readings(text):
    with pytest.raises(UserError, match=rf"^-t/--time {text.strip()}: say .*{text.strip()}m .*{text.strip()}s"):
        parse_time_option(text, "-t/--time")


@pytest.mark.parametrize("text", ["", "soon", "-5m", "0s", "0:00", "1:2:3:4", "1-", "9" * 70 + "s"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(UserError, match=r"^-t must be a duration such as"):
        parse_time_option(text, "-t")


def test_every_time_option_is_of_the_one_type_and_has_its_letter():
    found = {}
    for name, command in COMMANDS.items():
        for option in command.params:
            if isinstance(option, click.Option) and "--time" in option.opts:
                assert option.opts == ["-t", "--time"], name
                found[name] = option.type is TIME
    # With --queue these two take a number in the file's own unit: they read it when they know.
    assert {name for name, one in found.items() if not one} == {"slots", "quote"}
    assert {"hold open", "waits", "plan", "submit", "pool submit"} <= set(found)


@pytest.mark.parametrize("words", ["waits -t 30", "hold open -N1 --at now -t 30", "plan x -t 30", "quote -N1 -t 30"])
def test_commands_refuse_a_bare_number(words):
    done = CliRunner().invoke(cli, words.split())
    assert isinstance(done.exception, UserError)
    assert str(done.exception).startswith("-t/--time 30: say 30m")


def test_a_letter_means_one_thing():
    """By letter the long names that it stands for, among all commands."""
    meanings = defaultdict(set)
    for command in COMMANDS.values():
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                for short in (o for o in option.opts if not o.startswith("--")):
                    meanings[short].add(next((o for o in option.opts if o.startswith("--")), ""))
    assert {short: names for short, names in meanings.items() if len(names) > 1} == {}


def test_a_former_name_works_unseen_and_says_what_to_type():
    @click.command()
    @formerly("--old", "--new", "value")
    @click.option("--new", "value", default="none")
    def it(value: str) -> None:
        click.echo(value)

    run = CliRunner().invoke
    assert run(it, ["--new", "a"]).output == "a\n"
    assert run(it, []).output == "none\n"
    done = run(it, ["--old", "b"])
    assert done.stdout == "b\n"
    assert done.stderr == "penstock: --old is called --new now, and goes with the release after this one\n"
    assert "--old" not in run(it, ["--help"]).output


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [
        ("quote", "--procs", "-N/--nodes"),
        ("quote", "--duration", "-t/--time"),
        ("pool status", "-p", "--pool"),
    ],
)
def test_former_names(command, old, new):
    (option,) = (o for o in COMMANDS[command].params if old in o.opts)
    assert isinstance(option, click.Option)
    assert option.hidden
    assert any(isinstance(o, click.Option) and o.opts[-1] == new.split("/")[-1] for o in COMMANDS[command].params)

"""Options that several commands have: -t in Slurm's syntax, one name for one thing, former names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from penstock.cli import cli
from penstock.console.memory import MEM
from penstock.console.times import TIME, Duration, parse_time_option
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


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("0.5", 0.5), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("1d", 86400), ("0", 0)]
)
def test_other_durations_take_units_and_a_bare_number_as_seconds(text, seconds):
    assert Duration(0).convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", "1e3", "5 x", ""])
def test_what_is_none_of_these_is_refused(text):
    with pytest.raises(UserError, match="must be a duration"):
        Duration(0).convert(text, None, None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("off --timeout 8d", "--timeout must be from 0s to 7d, not 8d"),
        ("doctor --limit 0", "--limit must be from 0.001s to 5m, not 0"),
        ("top --interval 0.1", "--interval must be from 0.2s to "),
        ("report --since soon", "--since must be a duration such as 90 (seconds), 90s"),
        ("cluster up --min-job-age often", "--min-job-age must be a duration"),
    ],
)
def test_a_duration_out_of_its_range_is_refused_with_the_range(words, said):
    done = CliRunner().invoke(cli, words.split())
    assert isinstance(done.exception, UserError) and str(done.exception).startswith(said), done.exception


def test_every_option_that_is_a_time_is_read_by_one_parser():
    """Those of `slots` and `quote` are numbers in the unit of a file there."""
    for name, command in COMMANDS.items():
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden and option.metavar in ("TIME", "MTBF"):
                assert option.type is TIME or isinstance(option.type, Duration) or name in ("slots", "quote"), name
            text = (option.help or "") if isinstance(option, click.Option) and not option.hidden else ""
            assert not text.startswith("Seconds"), f"{name} {option.opts}: takes units, too"


def test_a_letter_means_one_thing():
    """By letter the long names that it stands for, among all commands."""
    meanings = defaultdict(set)
    for command in COMMANDS.values():
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                for short in (o for o in option.opts if not o.startswith("--")):
                    meanings[short].add(next((o for o in option.opts if o.startswith("--")), ""))
    assert {short: names for short, names in meanings.items() if len(names) > 1} == {}


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("--site", {"plan"}),
        ("--task", {"plan", "submit", "try"}),  # the command that each task runs
        ("--jobs", {"simulate cluster", "simulate model"}),  # how many a model makes
        ("--wait", {"pool submit"}),  # as sbatch's: until it has ended
        ("--reserve", {"plan"}),
        ("--method", {"plan"}),
        ("--name", {"cluster up", "hold open", "pool submit"}),  # of what the command makes
        ("-n", {"select"}),  # as sbatch's: how many tasks
        ("--memory", set()),
        ("--scheduler", set()),
    ],
)
def test_a_name_means_one_thing(name, commands):
    visible = {
        called
        for called, command in COMMANDS.items()
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden and name in option.opts
    }
    assert visible == commands


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [("512", 512), ("1.5", 1.5), ("2048K", 2), ("8G", 8192), ("8g", 8192), ("1T", 2**20), ("2GiB", 2048)],
)
def test_memory_is_read_as_slurm_reads_it_or_with_a_unit(text, megabytes):
    assert MEM.convert(text, None, None) == megabytes
    assert MEM.convert("1GB", None, None) == pytest.approx(1e9 / 2**20)


@pytest.mark.parametrize("text", ["much", "-1", "0", "1K", "8X", "3e9", "8 T", "inf", ""])
def test_what_is_no_memory_is_refused(text):
    with pytest.raises(UserError, match="--mem must be"):
        MEM.convert(text, None, None)

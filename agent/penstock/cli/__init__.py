"""The penstock command: one command, subcommands by group, errors as one line with a documented exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import click

from penstock import __version__
from penstock.cli.table import commands, headings, place_of
from penstock.console.groups import CommandGroup, loaded
from penstock.errors import EXIT_CODES, NotPermitted, PenstockError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["main"]


@contextlib.contextmanager
def _reader_may_go() -> Iterator[None]:
    """Ends with 141 when nobody reads the output any more, before click makes a 1 of it."""
    try:
        yield
    except BrokenPipeError:
        _end(lambda: None, 141)


class _Commands(CommandGroup):
    def make_context(self, *args: Any, **extra: Any) -> click.Context:  # noqa: ANN401
        with _reader_may_go():  # --help is printed here
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        with _reader_may_go():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = place_of(cmd_name)
        return None if place is None else loaded(place)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, commands()))
        for heading, names in headings().items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, text in names.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        named = [CompletionItem(n, help=c.help) for n, c in sorted(commands().items()) if n.startswith(incomplete)]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]


def _version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked or context.resilient_parsing:
        return
    from penstock.host.commit import commit  # which may ask git

    known = commit()
    click.echo(f"penstock, version {__version__}" + (f" ({known})" if known else ""))
    context.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit."
)
def cli() -> None:
    """Works ahead of Slurm's queue and resizes MPI jobs while they run."""


def main() -> None:
    """What `penstock` does, but for what `__main__` does without it."""
    try:
        _pass_by_fronts()
        # What a command ends with by click's Exit comes back as a value.
        code = cli(standalone_mode=False)
        click.echo(nl=False)  # what is left in the buffer
        if isinstance(code, int) and code != 0:
            sys.exit(code)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as e:
        _end(e.show, e.exit_code)
    except PenstockError as e:
        from penstock.console.output import plain  # slow to load, and not needed where all goes well

        text = plain(f"penstock: {e}")
        _end(lambda: click.echo(text, err=True), e.exit_code)
    except BrokenPipeError:
        _end(lambda: None, 141)
    except OSError as e:
        from penstock.host.filesystems import FAILING

        if e.errno not in FAILING:
            raise
        text = f"penstock: {e.filename or 'cannot write'}: {e.strerror}"
        _end(lambda: click.echo(text, err=True), 1)


def _pass_by_fronts() -> None:
    """Have whatever this process runs find Slurm's own programs on PATH: the front programs would ask the agent, which
    may be this. `penstock shim` alone has to see them there."""
    from penstock.fronts.programs.path import Refused, beheaded

    if "PATH" in os.environ and sys.argv[1:2] != ["shim"]:
        try:
            os.environ["PATH"] = beheaded(os.environ["PATH"])
        except Refused as e:
            raise NotPermitted(str(e)) from e


def _end(tell: Callable[[], object], code: int) -> NoReturn:
    """End with this code, whether or not there is room for what is to be told."""
    with contextlib.suppress(OSError):
        tell()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            # Python would try once more at its end, and end with 120 then.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)

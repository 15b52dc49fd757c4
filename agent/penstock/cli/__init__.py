"""The penstock command: one command, subcommands by group, errors as one line with a documented exit code."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import click

from penstock import __version__
from penstock.errors import PenstockError, UserError

__all__ = ["main"]

# Loaded when used: `penstock submit` should not pay for the demo's imports.
_COMMANDS = {
    "agent": "penstock.cli.agent:agent",
    "audit": "penstock.cli.audit:audit",
    "bags": "penstock.cli.bags:bags",
    "cancel": "penstock.cli.workflows:cancel",
    "config": "penstock.cli.agent:config",
    "dashboard": "penstock.cli.dashboard:dashboard",
    "db": "penstock.cli.db:db",
    "doctor": "penstock.cli.doctor:doctor",
    "env": "penstock.cli.agent:env",
    "explain": "penstock.cli.status:explain",
    "hold": "penstock.cli.hold:hold",
    "ledger": "penstock.cli.hold:ledger",
    "logs": "penstock.cli.joblog:logs",
    "message": "penstock.cli.message:message",
    "profile": "penstock.cli.profile:profile",
    "off": "penstock.cli.off:off",
    "on": "penstock.cli.off:on",
    "pause": "penstock.cli.pause:pause",
    "plan": "penstock.cli.plan:plan",
    "pool": "penstock.cli.pool:pool",
    "quote": "penstock.cli.slots:quote",
    "report": "penstock.cli.report:report",
    "resume": "penstock.cli.pause:resume",
    "retry": "penstock.cli.workflows:retry",
    "sbatch": "penstock.cli.sbatch:sbatch",
    "select": "penstock.cli.select:select",
    "slots": "penstock.cli.slots:slots",
    "stage": "penstock.cli.stage:stage",
    "status": "penstock.cli.status:status",
    "submit": "penstock.cli.workflows:submit",
    "tick": "penstock.cli.tick:tick",
    "top": "penstock.cli.status:top",
    "waits": "penstock.cli.waits:waits",
}
# Another distribution, which no login node needs.
_LABORATORY = {
    "bench": "penstock_lab.cli.bench:bench",
    "cluster": "penstock_lab.cli.cluster:cluster",
    "demo": "penstock_lab.cli.demo:demo",
    "simulate": "penstock_lab.cli.simulate:simulate",
}


@contextlib.contextmanager
def _reader_may_go() -> Iterator[None]:
    """Ends with 141 when nobody reads the output any more, before click makes a 1 of it."""
    try:
        yield
    except BrokenPipeError:
        _end(lambda: None, 141)


def _laboratory() -> bool:
    return importlib.util.find_spec("penstock_lab") is not None


class _Lazy(click.Group):
    def make_context(self, *args: Any, **extra: Any) -> click.Context:  # noqa: ANN401
        with _reader_may_go():  # --help is printed here
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        with _reader_may_go():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS | _LABORATORY if _laboratory() else _COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = _COMMANDS.get(cmd_name) or _LABORATORY.get(cmd_name)
        if place is None:
            return None
        if cmd_name in _LABORATORY and not _laboratory():
            raise UserError(f"`penstock {cmd_name}` comes with the laboratory: install penstock-lab (pip or apt-get)")
        module, _, name = place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
def cli() -> None:
    """Works ahead of Slurm's queue and lets MPI jobs breathe.

    Exit codes: 0 done, 1 it went wrong, 2 wrong input, 3 no agent, 4 not permitted, 5 Slurm will never do this,
    6 try again later, 7 the state file, 8 the state file is refused, 78 wrong configuration.
    """


def main() -> None:
    """Entry point of the console script."""
    try:
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
        from penstock.cli.output import plain  # slow to load, and not needed where all goes well

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

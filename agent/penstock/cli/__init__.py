"""The penstock command: one command, subcommands by group, errors as one line with a documented exit code."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from penstock import __version__
from penstock.cli.groups import CommandGroup
from penstock.errors import EXIT_CODES, NotPermitted, PenstockError, UserError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["groups", "main"]

# By group, as users think, in the order in which `penstock --help` shows them: where the command is, and the first
# sentence of its own help, which a test compares. A command's module is loaded when the command is used: `penstock
# submit` should not pay for the imports of the demo.
_LABORATORY: Final = "Laboratory"
_COMMANDS: Final = {
    "Workflows": {
        "submit": ("penstock.cli.submit:submit", "Hand a workflow file to the agent: YAML, or WfFormat 1.5 or 1.6."),
        "try": ("penstock.cli.trying:try_", "Say how long a workflow would take on the queue as it is."),
        "sbatch": ("penstock.cli.sbatch:sbatch", "Submit a job script as sbatch does, with #PENSTOCK lines."),
        "shim": (
            "penstock.cli.shim:shim",
            "Put front programs for Slurm's commands on PATH.",
        ),
        "status": ("penstock.cli.status:status", "Show workflows with their stages, and malleable jobs."),
        "top": ("penstock.cli.status:top", "Watch workflows and malleable jobs."),
        "explain": ("penstock.cli.explain:explain", "Say what was decided and why."),
        "logs": ("penstock.cli.joblog:logs", "Print what a stage has written to its standard output."),
        "cancel": ("penstock.cli.workflows:cancel", "Cancel a workflow and its jobs."),
        "more": ("penstock.cli.workflows:more", "Say that more stages of a workflow come, or are all there."),
        "retry": ("penstock.cli.workflows:retry", "Run again what failed of a workflow."),
        "dashboard": (
            "penstock.cli.dashboard:dashboard",
            "Serve a web page of the cluster and your work on it.",
        ),
    },
    "Waiting and planning": {
        "waits": ("penstock.cli.waits:waits", "Say how long a job would wait in the queue."),
        "advise": ("penstock.cli.advise:advise_", "Say which of your jobs could ask for less time or memory."),
        "slots": ("penstock.cli.slots:slots", "Show what the queue leaves free, as slots."),
        "quote": ("penstock.cli.slots:quote", "Say what a slot costs, by when it starts."),
        "plan": ("penstock.cli.plan:plan", "Plan when each stage starts, on what, and at what price."),
        "hold": ("penstock.cli.hold:hold", "Hold slots, so that nobody else gets them."),
        "ledger": ("penstock.cli.hold:ledger", "Show what slots have cost, by account, and set budgets."),
        "select": ("penstock.cli.select:select", "Say where a task ends first, or runs cheapest, and send it."),
        "bags": ("penstock.cli.bags:bags", "Follow bags of tasks, and move them to where they end sooner."),
        "profile": ("penstock.cli.profile:profile", "Measure what a command uses here, for `penstock select`."),
        "stage": ("penstock.cli.stage:stage", "Move data from one site to another."),
    },
    "Malleable jobs": {
        "elastic": ("penstock.cli.elastic:elastic", "Submit a job whose nodes come and go, without MPI."),
        "env": ("penstock.cli.agent:env", "Print what makes an MPI job malleable."),
    },
    "Pools": {
        "pool": ("penstock.cli.pool:pool", "Run many small tasks in the allocations that you have."),
    },
    "Site": {
        "doctor": ("penstock.cli.doctor:doctor", "Say what works here, what does not, and what would change it."),
        "config": ("penstock.cli.agent:config", "Check and show the configuration."),
        "agent": ("penstock.cli.agent:agent", "Run the agent until SIGTERM; SIGHUP reloads its configuration."),
        "site-view": ("penstock.cli.siteview:site_view", "Look at Slurm once for all users of this host."),
        "tick": ("penstock.cli.tick:tick", "Do one pass of the agent and end."),
        "pause": ("penstock.cli.pause:pause", "Have the agent do nothing until `penstock resume`."),
        "resume": ("penstock.cli.pause:resume", "Lift pauses: those that were set with these options."),
        "off": ("penstock.cli.off:off", "Give everything back and stop, until `penstock on`."),
        "on": ("penstock.cli.off:on", "Take up again what `penstock off` has ended."),
        "message": ("penstock.cli.message:message", "Try the messages that the agent sends, and list them."),
        "report": ("penstock.cli.report:report", "Say what the agent has done and what it cost."),
        "audit": ("penstock.cli.audit:audit", "Show who asked for what and what was done to Slurm."),
        "db": ("penstock.cli.db:db", "Check, copy, shrink or save the state file."),
    },
    _LABORATORY: {
        "demo": ("penstock_lab.cli.demo:demo", "Show a resized MPI job, and a workflow beside a plain chain."),
        "simulate": ("penstock_lab.cli.simulate:simulate", "Replay workloads on a machine that is only simulated."),
        "cluster": (
            "penstock_lab.cli.cluster:cluster",
            "Run a throw-away real Slurm of several nodes on this machine.",
        ),
        "backtest": (
            "penstock_lab.cli.backtest:backtest",
            "Say which predictors would have been right on these jobs.",
        ),
        "history": ("penstock_lab.cli.history:history", "Import a site's own jobs, as a test-bed."),
        "whatif": ("penstock_lab.cli.whatif:whatif", "Say what a change of the site would have done to its own jobs."),
        "bench": ("penstock_lab.cli.bench:bench", "Run the papers' experiments again."),
    },
}
_PLACES: Final = {name: place for group in _COMMANDS.values() for name, (place, _help) in group.items()}


@contextlib.contextmanager
def _reader_may_go() -> Iterator[None]:
    """Ends with 141 when nobody reads the output any more, before click makes a 1 of it."""
    try:
        yield
    except BrokenPipeError:
        _end(lambda: None, 141)


def _has_laboratory() -> bool:
    """It is another distribution, which no login node needs."""
    return importlib.util.find_spec("penstock_lab") is not None


def groups() -> dict[str, dict[str, str]]:
    """The installed commands, with the line that says what each does, by group."""
    return {
        title: {name: text for name, (_place, text) in group.items()}
        for title, group in _COMMANDS.items()
        if title != _LABORATORY or _has_laboratory()
    }


class _Commands(CommandGroup):
    def make_context(self, *args: Any, **extra: Any) -> click.Context:  # noqa: ANN401
        with _reader_may_go():  # --help is printed here
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        with _reader_may_go():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(name for group in groups().values() for name in group)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _COMMANDS[_LABORATORY] and not _has_laboratory():
            raise UserError(f"`penstock {cmd_name}` comes with the laboratory: install penstock-lab (pip or apt-get)")
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _PLACES))
        for title, commands in groups().items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        commands = {name: text for group in groups().values() for name, text in group.items()}
        named = [CompletionItem(n, help=commands[n]) for n in sorted(commands) if n.startswith(incomplete)]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]


def _version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked or context.resilient_parsing:
        return
    from penstock.host.commit import commit  # which may ask git

    known = commit()
    click.echo(f"penstock, version {__version__}" + (f" ({known})" if known else ""))
    context.exit()


@click.group(cls=_Commands, places=_PLACES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit."
)
def cli() -> None:
    """Works ahead of Slurm's queue and resizes MPI jobs while they run."""


def main() -> None:
    """Entry point of the console script."""
    if sys.argv[1:2] == ["sbatch"]:
        _submit_directly()
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


def _pass_by_fronts() -> None:
    """Have whatever this process runs find Slurm's own programs on PATH: the front programs would ask the agent, which
    may be this. `penstock shim` alone has to see them there."""
    from penstock.fronts.path import Refused, beheaded

    if "PATH" in os.environ and sys.argv[1:2] != ["shim"]:
        try:
            os.environ["PATH"] = beheaded(os.environ["PATH"])
        except Refused as e:
            raise NotPermitted(str(e)) from e


def _submit_directly() -> None:
    """Submit a plain job without loading what that does not need; return where there is more to it."""
    from penstock.fronts.direct import submit_directly

    def record(stage: str, quiet: bool) -> None:
        from penstock.cli.stages import record_handed_on
        from penstock.config import load

        record_handed_on(load(), stage, quiet=quiet)

    submit_directly(sys.argv[2:], record)


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

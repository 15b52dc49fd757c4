"""`penstock cluster up|down|status|env|run|prepare`: a throw-away real Slurm on this machine."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import click

from penstock.console.groups import CommandGroup
from penstock.console.output import emit_json
from penstock.console.times import Duration
from penstock.errors import UserError
from penstock_lab.cluster import Cluster, ClusterSpec, down, joined, up
from penstock_lab.cluster.rootfs import prepare
from penstock_lab.cluster.spec import RELEASES, SELECTS

__all__ = ["cluster"]

_GRACE = 10.0  # seconds for a command to end in after SIGTERM

_folder = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    help="The cluster's folder. [default: $XDG_STATE_HOME/penstock/cluster; for root /var/tmp/penstock-cluster]",
)


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
def cluster() -> None:
    """Run a throw-away real Slurm of several nodes on this machine.

    It has its own munge, database, users and free ports, all in one folder, and never touches an installed Slurm.
    Root gets the users pst-alice, pst-bob and pst-operator with it; anybody else is its only user.
    """


@cluster.command("up")
@click.option("--nodes", type=int, default=8, show_default=True, help="How many nodes.")
@_folder
@click.option("--name", help="Slurm's ClusterName. [default: penstock]")
@click.option(
    "--join",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Share the accounting and munge of the cluster in DIR, for `squeue -M`.",
)
@click.option(
    "--release",
    type=click.Choice(RELEASES),
    help="Run the Slurm of this Debian release, in a file system of its own that is built at the first time (root).",
)
@click.option(
    "--isolated",
    is_flag=True,
    help="Give every node a host name, an address and a network of its own (root), so that MPI crosses hosts.",
)
@click.option("--select", default="linear", show_default=True, help=f"SelectType: {' or '.join(SELECTS)}.")
@click.option("--accrue-always", is_flag=True, help="Jobs age while they wait for a dependency, and age counts much.")
@click.option("--contain", is_flag=True, help="PrologFlags=Contain, as most production sites have it.")
@click.option("--enforce", is_flag=True, help="AccountingStorageEnforce=associations,limits,qos, as many sites do.")
@click.option("--no-expansion", is_flag=True, help="Leave permit_job_expansion out, as Slurm does by default.")
@click.option(
    "--min-job-age",
    type=Duration(0),
    default="5m",
    show_default=True,
    metavar="TIME",
    help="How long an ended job stays known (bare: seconds).",
)
@click.option(
    "--first-job",
    type=click.IntRange(1, 60_000_000),
    default=1,
    show_default=True,
    metavar="NUMBER",
    help="The number of the first job, for an agent that knows those of an earlier cluster.",
)
def _up(
    nodes: int,
    folder: Path | None,
    name: str | None,
    join: Path | None,
    release: str | None,
    isolated: bool,
    select: str,
    accrue_always: bool,
    contain: bool,
    enforce: bool,
    no_expansion: bool,
    min_job_age: float,
    first_job: int,
) -> None:
    """Bring a cluster up; says so and does nothing if it already is."""
    spec = ClusterSpec(
        nodes=nodes,
        folder=folder,
        name=name,
        join=join,
        release=release,
        isolated=isolated,
        accrue_always=accrue_always,
        contain=contain,
        enforce=enforce,
        expansion=not no_expansion,
        select=select,
        min_job_age=round(min_job_age),
        extra=(f"FirstJobId={first_job}",) if first_job > 1 else (),
    )
    begun = time.monotonic()
    with _on_signals(_interrupt):  # what kill -9 leaves, the next `up` or `down` finds
        it = up(spec)
    if it.already_up:
        click.echo(f"{it.name} is already up in {it.folder} ({len(it.nodes)} nodes)")
    else:
        took = time.monotonic() - begun
        click.echo(f"{it.name}: Slurm {it.slurm_version}, {len(it.nodes)} nodes, up in {took:.1f} s in {it.folder}")
    if it.spec.isolated:
        click.echo(f"the nodes reach this machine at {it.address}")
    click.echo(f"users: {', '.join(sorted(it.users.values()))}")
    click.echo(f'next: eval "$({_again("env", it, folder)})"')


def _again(command: str, it: Cluster, folder: Path | None) -> str:
    """The command line that does something with this cluster, as one would type it."""
    return f"penstock cluster {command}" + ("" if folder is None else f" --dir {shlex.quote(str(it.folder))}")


@contextmanager
def _on_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """A kill and the end of the terminal do what Ctrl-C does, where the caller has not said to ignore them (nohup)."""
    all_of_them = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {n: signal.signal(n, handler) for n in all_of_them if signal.getsignal(n) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@cluster.command("down")
@_folder
def _down(folder: Path | None) -> None:
    """End the cluster and remove every trace; fine if there is none, running or crashed.

    Clusters that joined it (`up --join`) cannot go on without its accounting: they end with it, and are named.
    """
    others = joined(folder)
    if not down(folder):
        click.echo("there is no cluster")
        return
    click.echo("the cluster is gone")
    for name, place in others.items():
        click.echo(f"{name} in {place}, which had joined it, is gone with it")


@cluster.command("status")
@_folder
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def _status(folder: Path | None, as_json: bool) -> None:
    """Show the cluster's daemons, nodes and users; ends with 1 if something of it does not run."""
    it = Cluster.load(folder)
    report = it.status()
    if as_json:
        emit_json(report.as_dict())
    else:
        click.echo(f"{it.name}: Slurm {it.slurm_version} in {it.folder}")
        for name, runs in report.daemons.items():
            click.echo(f"  {name:<10} {'running' if runs else 'NOT RUNNING':<12} {report.nodes.get(name, '')}".rstrip())
        click.echo(f"users: {', '.join(f'{login} ({role})' for role, login in sorted(it.users.items()))}")
    sys.exit(0 if report.healthy else 1)


@cluster.command("env")
@_folder
def _env(folder: Path | None) -> None:
    """Print what makes a shell speak to the cluster: eval "$(penstock cluster env)"."""
    for key, value in Cluster.load(folder).shell_env.items():
        click.echo(f"export {key}={shlex.quote(value)}")


@cluster.command("run", context_settings={"allow_interspersed_args": False})
@_folder
@click.option("--as", "who", default="alice", show_default=True, help="alice, bob, operator or root.")
@click.argument("command", nargs=-1, required=True)
def _run(folder: Path | None, who: str, command: tuple[str, ...]) -> None:
    """Run a command as a user of the cluster, with that cluster's Slurm; ends with the command's exit code."""
    it = Cluster.load(folder)
    early: list[int] = []
    try:
        # Raised while it is being started, an interrupt would leave it behind.
        with (
            _on_signals(lambda number, _frame: early.append(number)),
            it.popen_as(who, command, stdin=None) as process,
        ):
            try:
                with _on_signals(_interrupt):
                    if early:
                        raise KeyboardInterrupt
                    code = process.wait()
            except BaseException:
                with _on_signals(_interrupt):
                    _end(process)
                raise
    except (FileNotFoundError, PermissionError) as e:
        raise UserError(f"{command[0]}: cannot be run: {e.strerror}") from None
    sys.exit(code if code >= 0 else 128 - code)


def _end(process: subprocess.Popen[str]) -> None:
    """End a command and all it started: softly at first, by force after a while, or at once when interrupted again.

    It has a session of its own, so nobody else would.
    """
    deadline = time.monotonic() + _GRACE
    with suppress(ProcessLookupError):
        with suppress(KeyboardInterrupt):
            os.killpg(process.pid, signal.SIGTERM)
            # The command may be gone while a child, its srun, still tidies up.
            while time.monotonic() < deadline and (process.poll() is None or _group_lives(process.pid)):
                time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)


def _group_lives(number: int) -> bool:
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True


@cluster.command("prepare")
@click.argument("release", type=click.Choice(RELEASES))
def _prepare(release: str) -> None:
    """Build the file system of `up --release` ahead of time; quick if it is there."""
    begun = time.monotonic()
    tree = prepare(release)
    click.echo(f"{release}: Slurm {tree.slurm_version} in {tree.root} ({time.monotonic() - begun:.1f} s)")

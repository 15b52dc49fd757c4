"""penstock history: a site's own jobs, from accounting or a log, in one file."""

from __future__ import annotations

import os
import secrets
import shlex
import time
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import click

from penstock.console.groups import CommandGroup
from penstock.console.options import apart, out_option, whole
from penstock.console.output import emit_json, plain
from penstock.console.times import Duration
from penstock.errors import UserError
from penstock.slurm.moments import parse_moment
from penstock.slurm.parse import ParseError
from penstock.slurm.rows import draw_mark
from penstock_lab.history.history import History
from penstock_lab.history.importing import Live, Options, import_history
from penstock_lab.history.sacct import ENVIRONMENT
from penstock_lab.history.sacct import command as sacct_command

__all__ = ["history"]

_KEY_BYTES: Final = 16
_SINCE: Final = "now-365days"


@click.group(cls=CommandGroup)
def history() -> None:
    """Import a site's own jobs, as a test-bed."""


@history.command("command")
@click.option("--since", metavar="T", default="now-365days", show_default=True, help="As sacct -S takes it, in UTC.")
@click.option("--until", metavar="T", default="now", show_default=True, help="As sacct -E takes it, in UTC.")
@click.option("--cluster", metavar="NAME", default="", help="Another cluster of the site.")
def command(since: str, until: str, cluster: str) -> None:
    """Print the line of sacct that makes a dump.

    Fields are apart by a mark that is drawn each time: users may put any separator and newlines into a job's name, and
    who does not know the mark cannot forge a field. Times are seconds since the epoch, so that no hour comes twice.
    A dump of years is best made month by month; `penstock history import` takes any number of them, in order.
    """
    variables = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    words = sacct_command(draw_mark(), since, until, cluster)
    click.echo(f"{' '.join(variables)} {shlex.join(words)} | gzip > jobs.txt.gz")


def _zone(context: click.Context, option: click.Parameter, value: str | None) -> tzinfo | None:
    if value is None:
        return None
    try:
        return ZoneInfo(value)
    except (ValueError, OSError, KeyError):
        raise UserError(
            f"{option.opts[0]} must be a time zone such as Europe/Berlin or UTC, not {value[:40]!r}"
        ) from None


def _moment(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        return int(parse_moment(value, time.time(), past=True))
    except ParseError:
        example = "2025-01-31 or now-30days"
        raise UserError(
            f"{option.opts[0]} must be a time as sacct takes it, such as {example}, not {value[:40]!r}"
        ) from None


@history.command("import")
@click.argument("sources", metavar="[SOURCE]...", nargs=-1, type=click.Path(path_type=Path))
@out_option("Where the history goes (required).", "FILE", required=True, name="to")
@click.option("--live", is_flag=True, help="Ask sacct now, instead of reading a dump.")
@click.option("--since", metavar="T", callback=_moment, help=f"--live: from when on. [default: {_SINCE}]")
@click.option("--until", metavar="T", callback=_moment, help="--live: until when. [default: now]")
@click.option(
    "--slice",
    "length",
    metavar="TIME",
    type=Duration(60),
    default="7d",
    help="--live: how much one call asks for. [default: 7d]",
)
@click.option(
    "--patience",
    metavar="TIME",
    type=Duration(1),
    default="10m",
    help="--live: how long a call may take. [default: 10m]",
)
@click.option("--anonymise", is_flag=True, help="Pseudonyms for users, accounts, partitions and QOS.")
@click.option(
    "--key",
    "key_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="--anonymise: the same key, the same pseudonyms. It is made where it is not there; keep it secret.",
)
@click.option(
    "--time-zone", "zone", metavar="NAME", callback=_zone, help="Of a dump with local times. [default: this machine's]"
)
@click.option("--cluster", metavar="NAME", default="", help="Only the jobs of this cluster.")
@whole("nodes", "Nodes of the machine. [default: the most that jobs had at one time]")
@whole("cpus-per-node", "CPUs of each. [default: the most that a job had]", most=1_000_000)
@click.option("--skip-bad", is_flag=True, help="Count records that cannot be read, and go on.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def import_(
    sources: Sequence[Path],
    to: Path,
    live: bool,
    since: int | None,
    until: int | None,
    length: float,
    patience: float,
    anonymise: bool,
    key_file: Path | None,
    zone: tzinfo | None,
    cluster: str,
    nodes: int | None,
    cpus_per_node: int | None,
    skip_bad: bool,
    as_json: bool,
) -> None:
    """Import jobs from dumps of sacct, from logs, or from accounting as it is now.

    A SOURCE is what the line of `penstock history command` printed (other dumps by -p or -P with a heading and JobIDRaw
    are read, too), or a log in Standard Workload Format; both plain or .gz. Several are read in order, and a run that
    is in two of them counts once.

    Kept are jobs that have ended, with those that never started, and every run of a requeued one. What is left out is
    told by reasons, with the place of the first record. The history is there whole or not at all.

    With --anonymise no name of a user, account, partition or QOS is in it. Names of jobs never are, only which jobs
    share one; neither are comments, folders and commands.
    """
    if live == bool(sources):
        raise UserError("give either SOURCE or --live")
    if not live and (since is not None or until is not None):
        raise UserError("--since and --until are for --live; a dump holds what its sacct was asked for")
    if key_file is not None and not anonymise:
        raise UserError("--key is for --anonymise")
    for source in sources:
        apart(to, source, option="--to")
    machine = {}
    if nodes is not None:
        machine["nodes"] = nodes
    if cpus_per_node is not None:
        machine["cpus_per_node"] = cpus_per_node
    key = None
    if anonymise:
        key = secrets.token_bytes(32) if key_file is None else _key(key_file)
    options = Options(key, zone, cluster, skip_bad, machine)
    asked: list[Path | Live] = [Path("/dev/stdin") if str(source) == "-" else source for source in sources]
    if live:
        asked = [_span(since, until, length, patience)]
    import_history(asked, to, options)
    _tell(to, as_json)


def _span(since: int | None, until: int | None, length: float, patience: float) -> Live:
    now = int(time.time())
    begin = int(parse_moment(_SINCE, now, past=True)) if since is None else since
    end = now if until is None else until
    if begin >= end:
        raise UserError("--since must be before --until")
    return Live(begin, end, int(length), patience)


def _key(path: Path) -> bytes:
    """The key of a file, which is made where it is not there."""
    try:
        if not path.exists():
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
                file.write(secrets.token_hex(32) + "\n")
        key = path.read_bytes().strip()
    except OSError as e:
        raise UserError(f"--key {path}: {e.strerror or e}") from None
    if len(key) < _KEY_BYTES:
        raise UserError(f"--key {path} has {len(key)} bytes: a key has {_KEY_BYTES} or more")
    return key


@history.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(file: Path, as_json: bool) -> None:
    """Say what a history holds, and what was left out when it was imported."""
    _tell(file, as_json)


def _tell(file: Path, as_json: bool) -> None:
    told = _about(History(file))
    if as_json:
        emit_json(told)
        return
    machine = told["machine"]
    click.echo(f"jobs       {told['jobs']}, {told['never_ran']} of which never started, of {told['read']} records")
    click.echo(f"submitted  {told['first_submit']} to {told['last_submit']}")
    click.echo(f"machine    {machine['nodes']} nodes, {machine['cpus']} CPUs, up to {machine['cpus_per_node']} a node")
    who = f"{told['users']} users, {told['accounts']} accounts"
    click.echo(f"who        {who}{', under pseudonyms' if told['anonymous'] else ''}")
    for each in told["joined"]:
        click.echo(f"joined     {each['records']}: {each['what']}")
    for each in told["left_out"]:
        click.echo(plain(f"left out   {each['records']}: {each['reason']} (the first: {each['first']})"))
    for note in told["notes"]:
        click.echo(f"note       {note}")


def _about(found: History) -> dict[str, Any]:
    about = found.about
    report = about["report"]
    return {
        "file": str(found.path),
        "jobs": found.jobs,
        "never_ran": report["never_ran"],
        "first_submit": _text(about["first_submit"]),
        "last_submit": _text(about["last_submit"]),
        "source": about["source"],
        "cluster": about["cluster"],
        "anonymous": about["anonymous"],
        "machine": about["machine"],
        "users": len(found.names("user")),
        "accounts": len(found.names("account")),
        "partitions": found.names("partition"),
        "qos": found.names("qos"),
        "read": report["read"],
        "joined": report["joined"],
        "left_out": report["left_out"],
        "notes": report["notes"],
    }


def _text(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

"""penstock db: the state file, looked into, copied and made smaller."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from penstock.admin.commands.answers import Backup, Check, Kept, Salvage, Span, Vacuum
from penstock.config import load
from penstock.console.groups import CommandGroup
from penstock.console.output import emit_json, plain, table
from penstock.core.installed import installed_parts
from penstock.errors import NotNow, StateHeld, StateRefused, StoreError
from penstock.state.filekind import FileKind
from penstock.state.ownership import is_readable, own_folder
from penstock.state.schema import too_new, way_out
from penstock.workflow.documents import run_from_dict

if TYPE_CHECKING:
    from penstock.statefile.statefile import Contents

__all__ = ["db"]

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Kind = TypeVar("_Kind", bound=Check)
_LISTED: Final = 20
_OTHERS: Final[Mapping[str, FileKind]] = {kind.name: kind for part in installed_parts() for kind in part.files()}
_file = click.Path(path_type=Path, dir_okay=False)


class _Group(CommandGroup):
    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        # To these commands a damaged file is what they have found out, not what they refuse to work on.
        try:
            return super().invoke(ctx)
        except StateRefused as e:
            raise StoreError(str(e)) from e


@click.group(cls=_Group)
def db() -> None:
    """Check, copy, shrink or save the state file."""


def _which(command: _Command) -> _Command:
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
    for kind in _OTHERS.values():
        command = click.option(f"--{kind.name}", "other", flag_value=kind.name, help=kind.text)(command)
    return command


def _kind(name: str | None) -> FileKind:
    from penstock.statefile.statefile import STATE  # slow to load

    return STATE if name is None else _OTHERS[name]


@db.command()
@click.argument("file", required=False, type=_file)
@_which
def check(file: Path | None, as_json: bool, other: str | None = None) -> None:
    """Say whether a state file is whole, of which version, and what is in it (default: the agent's own).

    An agent may go on meanwhile. Ends with 7 when the file is damaged, newer than this program, or older than
    it can go on with.
    """
    from penstock.statefile import statefile  # slow to load

    kind = _kind(other)
    found = statefile.inspect(file or kind.path(load()), kind)
    if as_json:
        emit_json(_of(found, Check))
    else:
        _show(found)
    if found.problems:
        raise StoreError(f"{found.path} is damaged. {way_out(found.path, to_look=False)}")
    if found.compatible == "newer":
        raise StoreError(too_new(found.path, found.version, kind.version))


@db.command()
@click.argument("file", type=_file)
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@_which
def backup(file: Path, force: bool, as_json: bool, other: str | None = None) -> None:
    """Copy the state to FILE, which is there whole or not at all.

    An agent may go on meanwhile. To go back: stop the agent, remove the files that are called like the state file with
    -wal, -shm and -journal at the end, and put the copy in its place.
    """
    from penstock.statefile import statefile  # slow to load

    kind = _kind(other)
    found = statefile.backup(kind.path(load()), file, replace=force, kind=kind)
    if as_json:
        emit_json(_of(found, Backup))
    else:
        click.echo(
            f"{found.path}: {_bytes(found.size)}, version {found.version}, {sum(found.rows.values())} rows, whole"
        )


@db.command()
@_which
def vacuum(as_json: bool, other: str | None = None) -> None:
    """Take out what is older than `agent.keep` and make the file smaller. For a time when no agent runs."""
    from penstock.state.leadership import hold_state, open_store
    from penstock.statefile import statefile
    from penstock.statefile.statefile import STATE  # slow to load

    config = load()
    kind = _kind(other)
    path = kind.path(config)
    if not is_readable(path):
        raise StoreError(f"there is no file {path}")
    if kind is not STATE:  # which may lie where its user has no agent
        config = replace(config, agent=replace(config.agent, state_dir=own_folder(config)))
    try:
        leadership = hold_state(config, "command")
    except StateHeld as e:
        raise NotNow(f"{e}; an agent takes out what is old itself: stop it to make the file smaller") from None
    try:
        gone: dict[str, int] = {}
        if kind is STATE:
            statefile.must_be_whole(path, older=True)
            store = open_store(config, leadership)
            try:
                while config.agent.keep > 0 and (some := store.prune(time.time() - config.agent.keep)):
                    gone = {name: gone.get(name, 0) + some.get(name, 0) for name in {*gone, *some}}
            finally:
                store.close()
        before, after = statefile.vacuum(path)
    finally:
        leadership.close()
    if as_json:
        emit_json(Vacuum(path=str(path), before=before, after=after, forgotten=gone))
    else:
        forgot = ", ".join(f"{count} {name}" for name, count in sorted(gone.items())) or "nothing, it was all newer"
        click.echo(f"{path}: {_bytes(before)} before, {_bytes(after)} now; forgotten: {forgot}")


@db.command()
@click.argument("source", metavar="FROM", type=_file)
@click.argument("target", metavar="TO", type=_file)
@_which
def salvage(source: Path, target: Path, as_json: bool, other: str | None = None) -> None:
    """Write all that can still be read of the damaged file FROM to the new file TO, and say what was lost.

    FROM is left as it is. A copy (`penstock db backup`) that is not old is the better way. To use TO: stop the agent,
    move FROM and the files that are called like it with -wal, -shm and -journal at the end away, and put TO in its
    place.
    """
    from penstock.statefile.rescue import salvage as rescue
    from penstock.statefile.statefile import STATE  # slow to load

    kind = _kind(other)
    done = rescue(source, target, kind)
    lost = [line for part in done.parts.values() for line in part.left_out]
    going_on = _going_on(target) if kind is STATE else []
    if as_json:
        parts = {n: Kept.told(p, unreadable_pages=p.pages, unreadable_rows=p.cells) for n, p in done.parts.items()}
        emit_json(_of(done.contents, Salvage, from_=str(source), lost=not done.whole, tables=parts))
        return
    click.echo(f"{target}: {_bytes(done.contents.size)}, whole, version {done.contents.version}")
    rows = [(name, p.kept, len(p.left_out), p.cells, p.pages) for name, p in done.parts.items()]
    table("", ("table", "rows kept", "left out", "unreadable", "unreadable pages"), rows)
    for line in lost[:_LISTED]:
        click.echo(plain(f"left out: {line}"))
    if len(lost) > _LISTED:
        click.echo(f"and {len(lost) - _LISTED} more: --json lists them all")
    for line in going_on:
        click.echo(plain(line))
    if done.whole:
        click.echo("Nothing was lost that can be told.")
        return
    if kind is STATE and not done.parts["facts"].whole:
        click.echo(
            "Pauses, and that all is off, may be lost: say it again (`penstock pause`, `penstock off`) before an agent "
            "starts."
        )
    if kind is STATE and not done.parts["runs"].whole:
        click.echo("Jobs of workflows that were lost stay in Slurm: `squeue --me`, `scancel`.")


def _going_on(path: Path) -> list[str]:
    """The workflows that are under way, a line each."""
    from penstock.state.store import Store  # slow to load

    with closing(Store.read_only(path)) as store:
        runs = [run_from_dict(state) for _n, _u, state in store.runs.latest(live_only=True)]
    jobs = {run.id: ", ".join(map(str, run.jobs())) for run in runs}
    return [
        f"goes on: workflow {run.id} {run.name}" + (f" (jobs {jobs[run.id]})" if jobs[run.id] else "") for run in runs
    ]


def _of(found: Contents, kind: type[_Kind], **more: object) -> _Kind:
    spans = {name: Span(first=first, last=last) for name, (first, last) in found.spans.items()}
    whole = not found.problems
    return kind.told(found, kind=found.kind.name, program=found.kind.version, whole=whole, spans=spans, **more)


def _show(found: Contents) -> None:
    state = "whole" if not found.problems else "DAMAGED:"
    click.echo(f"{found.path}: {_bytes(found.size)}, {state}")
    for problem in found.problems:
        click.echo(plain(f"  {problem}"))
    said = {
        "same": "which this program writes",
        "older": f"which the agent brings to {found.kind.version} when it starts, and keeps a copy of it beside it",
        "newer": f"but this program knows {found.kind.version} only",
    }
    click.echo(f"version {found.version}, {said[found.compatible]}")
    rows = []
    for name, count in found.rows.items():
        first, last = found.spans.get(name, (None, None))
        rows.append((name, count, _date(first), _date(last)))
    if rows:
        table("", ("table", "rows", "first", "last"), rows)


def _date(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"

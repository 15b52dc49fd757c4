"""penstock audit: who asked for what, what was done, and whether the record of it is whole."""

from __future__ import annotations

import json
import os
import pwd
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from penstock.admin.commands import answers as site
from penstock.audit.files import CURRENT
from penstock.audit.record import Record
from penstock.config import load
from penstock.console import complete
from penstock.console.output import emit_json, plain, table
from penstock.errors import PenstockError, StoreError, UserError
from penstock.host.logins import login
from penstock.state.ownership import DATABASE, owner
from penstock.values.durations import DURATION_FORMS, parse_duration
from penstock.values.instants import parse_instant
from penstock.values.lines import split_lines

if TYPE_CHECKING:
    from penstock.audit.chain import Anchor, ChainEntry, ChainFault, ChainHead, ChainVerdict

__all__ = ["audit"]

_BROKEN: Final = 1
_HEADINGS: Final = ("record", "time (UTC)", "who", "door", "what", "about", "owner", "outcome", "why", "request")


@click.command()
@click.option("--user", metavar="NAME", help="Only what this user asked for, or what was done to this user's jobs.")
@click.option(
    "--job", metavar="N", type=click.IntRange(1), shell_complete=complete.jobs, help="Only what is about this job."
)
@click.option("--verb", metavar="NAME", help="Only this, such as pause, cancel, submit, shrink.")
@click.option("--since", metavar="T", help="Only since then: 12h, 7d, or an instant such as 2026-03-29T08:00.")
@click.option(
    "--last", "limit", type=click.IntRange(0), metavar="N", default=100, show_default=True, help="The latest N; 0: all."
)
@click.option("--verify", "check", is_flag=True, help="Say whether the whole record is what was written.")
@click.option(
    "--anchor",
    "given",
    metavar="N:HASH|FILE",
    multiple=True,
    help="With --verify: what record N must be, or a file with such lines.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def audit(
    user: str | None,
    job: int | None,
    verb: str | None,
    since: str | None,
    limit: int,
    check: bool,
    given: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show who asked for what and what was done to Slurm.

    The agent's record, or that of your own commands.

    Only the owner of the record (the agent's user), and root, can read it. --verify looks at every line of all audit
    files, and compares them with what the system's journal and the agent's state file have of them; with --since, what
    was wrong before that is told but does not count. It ends with 1 when the record is not whole.
    """
    from penstock.audit.opening import own_trail_folder
    from penstock.audit.reading import RecordFilter, is_there, records  # slow to load

    config = load()
    folder = config.agent.state_dir if os.geteuid() == 0 else own_trail_folder(config)
    instant = None if since is None else _since(since)
    if check:
        for option, value in (("--user", user), ("--job", job), ("--verb", verb)):
            if value is not None:
                raise UserError(f"{option} cannot be used with --verify, which looks at every record")
        raise click.exceptions.Exit(_verify(folder, given, instant, as_json))
    if given:
        raise UserError("--anchor is for --verify")
    if not is_there(folder):
        raise _nothing(folder)
    found = records(folder, RecordFilter(_uid(user), job, verb, instant), limit)
    if as_json:
        emit_json({"records": [{**entry.fields, "hash": entry.head.hash} for entry, _record in found.entries]})
    elif found.entries:
        shown = len(found.entries)
        title = f"the latest {shown} of {found.count}" if shown < found.count else f"{shown}"
        title += " records" if found.count > 1 else " record"
        table(title, _HEADINGS, [_row(entry, record) for entry, record in found.entries])
    else:
        click.echo("No such record.")
    if found.unreadable:
        click.echo(f"penstock: {found.unreadable} lines are no records: see `penstock audit --verify`", err=True)


def _nothing(folder: Path) -> StoreError:
    return StoreError(f"there is no audit file {folder / CURRENT}: nothing was recorded yet, or it was removed")


def _uid(user: str | None) -> int | None:
    if user is None:
        return None
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        if user.isascii() and user.isdecimal() and len(user) < 11:  # whom the directory does not know any more
            return int(user)
        raise UserError(f"--user: there is no user {user[:40]!r} here; a number is taken as well") from None


def _since(text: str) -> float:
    now = time.time()
    seconds = parse_duration(text)
    if seconds is not None:
        return now - seconds
    try:
        at = parse_instant(text, now, "--since")
    except UserError:
        raise UserError(
            f"--since must be {DURATION_FORMS}, or an instant such as 2026-03-29T08:00, not {text[:40]!r}"
        ) from None
    if at > now:
        raise UserError(f"--since {text[:40]} is in the future; give an instant with its date")
    return at


def _row(entry: ChainEntry, record: Record) -> tuple[object, ...]:
    when = str(entry.fields["at"])[:19].replace("T", " ")
    who = record.user or ("" if record.uid is None else record.uid)
    about = record.subject or ("" if record.job is None else f"job {record.job}")
    if record.job is not None and f"job {record.job}" not in about:
        about += f" (job {record.job})"
    what = f"{record.verb} ×{record.count}" if record.count > 1 else record.verb
    why = f"{record.code}: {record.text}" if record.code and record.text else record.code or record.text
    whose = "" if record.owner is None else login(record.owner)
    return (
        entry.head.seq, when, who, record.door.value, what, about, whose, record.outcome.value, why, record.request[:8]
    )  # fmt: skip


# -- is it whole? ------------------------------------------------------------------------------------------------------


def _verify(folder: Path, given: Iterable[str], since: float | None, as_json: bool) -> int:
    """Say so; the exit code."""
    from penstock.audit.chain import Anchor
    from penstock.audit.journal import anchors_in_journal
    from penstock.audit.reading import is_there, verify  # slow to load

    anchors: list[Anchor] = [a for text in given for a in _given(text)]
    places = ["--anchor"] if anchors else []
    warnings: list[str] = []
    there = is_there(folder)
    try:
        journal = anchors_in_journal(folder / CURRENT, owner(folder / CURRENT) or 0, since)
    except PenstockError as e:
        journal = None
        warnings.append(str(e))
    if journal:
        places.append("the journal")
        anchors += journal
    if (head := _stored(folder, warnings)) is not None:
        places.append("the state file")
        anchors.append(Anchor(head, "the state file"))
    if not there and not anchors:
        raise _nothing(folder)
    verdict = verify(folder, anchors)
    broken = [f for f in verdict.findings if since is None or f.at is None or f.at >= since]
    known = [f for f in verdict.findings if f not in broken]
    if as_json:
        emit_json(_report(verdict, broken, known, places, warnings))
    else:
        _say(folder, verdict, broken, known, places, warnings)
    return _BROKEN if broken else 0


def _stored(folder: Path, warnings: list[str]) -> ChainHead | None:
    """How far the chain was when the agent noted it last."""
    from penstock.audit.opening import known_head  # slow to load
    from penstock.state.store import Store  # slow to load

    path = folder / DATABASE
    if not path.exists():
        return None
    try:
        store = Store.read_only(path)
        try:
            return known_head(store)
        finally:
            store.close()
    except StoreError as e:
        warnings.append(f"the state file cannot be compared: {e}")
        return None


def _given(text: str) -> list[Anchor]:
    from penstock.audit.chain import Anchor, ChainHead  # slow to load

    try:
        return [Anchor(ChainHead.parse(text), "--anchor")]
    except ValueError as e:
        path = Path(text)
        if not path.is_file():
            raise UserError(f"--anchor {text[:80]}: {e}; nor is it a file") from None
    try:
        lines = split_lines(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as e:
        raise UserError(f"--anchor {path}: cannot be read: {getattr(e, 'strerror', None) or e}") from None
    found = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                found.append(Anchor(_head(line), str(path)))
            except ValueError as e:
                raise UserError(f"--anchor {path}:{number}: {e}") from None
    return found


def _head(line: str) -> ChainHead:
    """NUMBER:HASH, or what `journalctl -o json` says of one."""
    from penstock.audit.chain import ChainHead  # slow to load

    if line.startswith("{"):
        fields = json.loads(line)
        line = f"{fields.get('PENSTOCK_AUDIT_SEQ')}:{fields.get('PENSTOCK_AUDIT_HEAD')}"
    return ChainHead.parse(line)


def _say(
    folder: Path,
    verdict: ChainVerdict,
    broken: list[ChainFault],
    known: list[ChainFault],
    places: list[str],
    warnings: list[str],
) -> None:
    first, last = verdict.first, verdict.last
    for finding in broken:
        click.echo(plain(f"{folder}/{finding}" if finding.file else f"{folder}: {finding}"))
    for finding in known:
        click.echo(plain(f"before --since: {finding}"))
    for note in verdict.notes:
        click.echo(plain(f"note: {note}"))
    for warning in warnings:
        click.echo(plain(f"penstock: {warning}"), err=True)
    if first is not None and last is not None:
        span = f"records {first.head.seq} to {last.head.seq}, {first.fields.get('at')} to {last.fields.get('at')}"
        click.echo(f"{'BROKEN' if broken else 'whole'}: {verdict.records} records ({span})")
        click.echo(f"the last: {last.head}")
    else:
        click.echo("BROKEN: there is no record that can be read" if broken else "empty: there is no record yet")
    if places:
        more = f", {verdict.older} are of records that are not kept" if verdict.older else ""
        click.echo(f"compared with {', '.join(places)}: {verdict.anchored} agree{more}")
    else:
        click.echo("compared with nothing kept elsewhere: that the end was cut off would not be seen (see --anchor)")


def _report(
    verdict: ChainVerdict, broken: list[ChainFault], known: list[ChainFault], places: list[str], warnings: list[str]
) -> site.Verified:
    return site.Verified.told(
        verdict,
        whole=not broken,
        first=None if verdict.first is None else verdict.first.head.seq,
        last=None if verdict.last is None else str(verdict.last.head),
        findings=broken,
        before_since=known,
        compared_with=places,
        anchors_not_kept=verdict.older,
        warnings=warnings,
    )

"""penstock stage: data to another site, measured."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import click

from penstock.config import load
from penstock.console.output import emit_json
from penstock.errors import UserError
from penstock.values.units import parse_amount
from penstock_planning.commands.siteplan import readable
from penstock_planning.hold.ledger import open_ledger
from penstock_planning.plan.transfers import Measured, correction
from penstock_planning.sites.file import SiteEntry, read_sites
from penstock_planning.sites.staging import size_of, staging_command
from penstock_planning.sites.staging import stage as run_staging

__all__ = ["stage"]


@click.command()
@click.argument("source")
@click.argument("target")
@click.argument("path")
@click.option("--sites", metavar="FILE", type=click.Path(path_type=Path), help="The file of sites.")
@click.option("--size", metavar="AMOUNT", help="Bytes to be moved, such as 3GB (default: counted, if they are here).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stage(source: str, target: str, path: str, sites: Path | None, size: str | None, as_json: bool) -> None:
    """Move data from one site to another.

    By the staging command of the file of sites.

    How long it takes is kept, and corrects what plans over sites expect of later transfers between the two.

    \b
    penstock stage --sites sites.yaml near far results/ --size 3GB
    """
    config = load()
    where = sites or config.provision.sites
    if where is None:
        raise UserError("--sites is missing: which file of sites? (or `provision.sites` in the configuration)")
    file = read_sites(where)
    ends = []
    for name in (source, target):
        if name not in file.sites:
            raise UserError(f"{where}: there is no site {name!r} (sites: {', '.join(file.sites)})")
        ends.append(file.sites[name])
    link = file.links.get((source, target))
    words = staging_command(file.staging, ends[0], ends[1], path)
    count = _size(size, ends, path)
    seconds = run_staging(words, 2 if as_json else None)
    predicted = link.time(count) if link is not None and count else None
    factor = None
    if count and predicted is not None:
        with closing(open_ledger(config)) as ledger:
            ledger.add_transfer(source, target, time.time(), count, Measured(predicted, seconds))
            factor = correction(ledger.transfers()[source, target])
    if as_json:
        row = {"from": source, "to": target, "path": path, "bytes": count, "seconds": seconds}
        emit_json(row | {"predicted": predicted, "correction": factor})
    elif not count:
        why = "its size is not known (--size)" if count is None else "it is empty"
        click.echo(f"Moved {path} in {seconds:.3g} s; not measured, as {why}")
    else:
        told = (
            "not measured, as the file of sites has no link between the two"
            if predicted is None
            else f"the file of sites says {predicted:.3g} s, plans now expect {factor:.3g} times of that"
        )
        click.echo(f"Moved {readable(count)} from {source} to {target} in {seconds:.3g} s; {told}")


def _size(said: str | None, ends: list[SiteEntry], path: str) -> float | None:
    """Bytes: what the user says, or what is here."""
    if said is not None:
        try:
            return parse_amount(said)
        except ValueError as error:
            raise UserError(f"--size: {error}") from None
    return size_of(Path(ends[0].data + path)) if ends[0].here else None

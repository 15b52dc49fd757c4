"""`penstock plan --sites`: a workflow over several sites, each of which is asked what it offers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from penstock.config import Config, load
from penstock.console.output import emit_json, plain
from penstock.errors import NotNow, UserError
from penstock.state.ownership import ledger_path
from penstock.workflow.files.wfformat import Packing
from penstock_planning.commands.flows import load_flows
from penstock_planning.commands.gantt import as_picture, as_text
from penstock_planning.commands.planning import Where
from penstock_planning.commands.siteplan import SitePlan, Wish
from penstock_planning.hold.ledger import Ledger
from penstock_planning.plan.live import Needs
from penstock_planning.plan.transfers import correction
from penstock_planning.plan.workflows import check_reservable, the_method
from penstock_planning.sites.file import SitesFile, read_sites
from penstock_planning.sites.remote import SiteGone, greet
from penstock_planning.sites.ship import as_file, reserve_at

__all__ = ["Among", "plan_over_sites", "site_options"]


@dataclass(frozen=True)
class Among:
    """What `site_options` gives: the file of sites, which of them, and what the other options ask for."""

    path: Path | None
    names: tuple[str, ...]

    @property
    def wanted(self) -> bool:
        """Whether more than this cluster is to be planned on."""
        return self.path is not None or bool(self.names)

    def file(self, config: Config) -> SitesFile:
        """The file, or the configured one. UserError if there is neither."""
        path = self.path or config.provision.sites
        if path is None:
            raise UserError("--site needs a file of sites: --sites FILE, or `provision.sites` in the configuration")
        return read_sites(path)


def site_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--sites and --site; the command gets them as `among`."""

    @functools.wraps(command)
    def gathered(sites: Path | None, site: tuple[str, ...], **options: Any) -> Any:  # noqa: ANN401
        return command(among=Among(sites, site), **options)

    out: Callable[..., Any] = gathered
    out = click.option("--site", multiple=True, metavar="NAME", help="Only this site (can be repeated).")(out)
    path = click.Path(path_type=Path)
    return click.option("--sites", metavar="FILE", type=path, help="Plan over the sites that this file names.")(out)


def plan_over_sites(
    workflows: Sequence[Path],
    packing: Packing | None,
    where: Where,
    among: Among,
    wish: Wish,
    gantt: bool,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Ask all sites, plan, and show the plan. One that is to be reserved must stay at one site, which then plans it
    anew: meanwhile its queue has gone on."""
    if where.queue_file is not None:
        raise UserError("--queue and --sites: a queue file is a site with `queue: FILE` in the file of sites")
    if where.partition is not None:
        raise UserError("-p and --sites: the file of sites says the partition of each")
    the_method(wish.method)
    if wish.account is not None:
        check_reservable(wish.method)
    if wish.account is not None and len(workflows) > 1:
        raise UserError("--reserve and --sites: only one workflow can be reserved at another site")
    config = load()
    file = among.file(config)
    chosen = file.chosen(among.names)
    flows = load_flows(workflows, packing, any(site.queue is None for site in chosen))
    with ExitStack() as stack:
        greeted, gone = greet(chosen, _needs(where.needs), file.patience)
        for line, _ in greeted:
            stack.callback(line.close)
        while True:
            if not greeted:
                raise NotNow(f"no site answers: {'; '.join(f'{name}: {why}' for name, why in gone.items())}")
            try:
                planned = SitePlan(greeted, gone, flows, file, _measured(config), wish)
                break
            except SiteGone as error:  # in the midst of buying: once more without it
                gone[error.site] = error.why
                greeted = [(line, offered) for line, offered in greeted if offered.name != error.site]
    for name, why in gone.items():
        click.echo(plain(f"penstock: site {name} is left out: {why}"), err=True)
    reserved = None
    if not as_json:
        planned.show()
    if gantt and not as_json:
        click.echo(plain(as_text(*planned.drawing(), planned.instant)), nl=False)
    if picture is not None:
        as_picture(picture, *planned.drawing(), planned.unit)
    if wish.account is not None:
        (flow,) = flows.written  # the site chooses the lengths of its slots
        entry = planned.only_site()
        options = planned.options(entry, wish) + _needs(where.needs)
        reserved, said = reserve_at(entry, as_file(flow, entry.speed), options)
        for word in said:
            click.echo(plain(f"{entry.name}: {word}"), err=as_json)
        if not as_json:
            planned.show_reserved(entry, reserved)
    if as_json:
        emit_json(planned.answer(**({} if reserved is None else {"reserved": reserved})))


def _measured(config: Config) -> dict[tuple[str, str], float]:
    """What transfers are corrected by, as far as any were measured."""
    with closing(Ledger.copy_of(ledger_path(config))) as ledger:
        return {link: correction(found) for link, found in ledger.transfers().items()}


def _needs(needs: Needs) -> list[str]:
    """As options for each site."""
    out = []
    if needs.cpus:
        out += ["--cores", str(needs.cpus)]
    if needs.memory:
        out += ["--mem", f"{needs.memory:g}"]
    if needs.gres:
        out += ["--gres", needs.gres]
    if needs.features:
        out += ["-C", ",".join(sorted(needs.features))]
    return out

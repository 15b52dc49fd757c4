"""The file that names sites and what lies between them. (`penstock select --site` reads another: facts about nodes.)

sites:
  here: {}                          # this cluster
  far:
    host: login.far.example         # asked by ssh; or `prefix: [LIST]`, which gets the words of the command behind it
    command: /opt/penstock/bin/penstock   # what it is called there; default: penstock
    partition: batch                # default: Slurm's
    speed: 1.5                      # work is done there so many times as fast; default 1
    price: 0.8                      # what one of its units counts of ours; default 1
    data: "login.far.example:run/"  # what stands before paths there, for `staging`; default HOST:, here nothing
  thought: {queue: far.json}        # a queue file in place of a cluster
links:                              # between every two, the same both ways
  - {between: [here, far], bandwidth: 100 MB/s, latency: 2s}
staging: [rsync, -a, "{source}{path}", "{target}{path}"]
patience: 60s                       # a site that has not answered by then is left out
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, model_validator

from penstock.errors import UserError
from penstock.values.models import Duration, Entry, Words, kind, number, read_as, text, wrong
from penstock_planning.broker.files import read
from penstock_planning.broker.site import LinkEntry
from penstock_planning.plan.transfers import NetworkLink

__all__ = ["SiteEntry", "SitesFile", "read_sites"]

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")


@dataclass(frozen=True, slots=True)
class SiteEntry:
    """One site as the file has it. Neither `host` nor `prefix`: here."""

    name: str
    host: str | None = None
    prefix: tuple[str, ...] = ()
    command: str | None = None
    queue: str | None = None
    partition: str | None = None
    speed: float = 1.0
    price: float = 1.0
    data: str = ""

    @property
    def here(self) -> bool:
        """Whether it is asked on this machine."""
        return self.host is None and not self.prefix


@dataclass(frozen=True, slots=True)
class SitesFile:
    """The whole file; `links` by name and name, both ways; `patience` in seconds."""

    sites: Mapping[str, SiteEntry]
    links: Mapping[tuple[str, str], NetworkLink] = field(default_factory=dict)
    staging: tuple[str, ...] = ()
    patience: float = 60.0

    def chosen(self, names: Sequence[str]) -> list[SiteEntry]:
        """The sites of these names, or all. UserError for one that is not there."""
        for name in names:
            if name not in self.sites:
                raise UserError(f"--site: there is no site {name!r} (sites: {', '.join(self.sites)})")
        return [site for name, site in self.sites.items() if not names or name in names]


Host = Annotated[str, text("the name of a host, such as me@login.far.example", r"[A-Za-z0-9_][A-Za-z0-9_.@:-]{0,254}")]
Partition = Annotated[str, text("the name of a partition", r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")]
Line = Annotated[str, text()]


class _Site(Entry):
    host: Host | None = None
    prefix: Words = Field(default_factory=list)
    command: Line | None = None
    queue: Line | None = None
    partition: Partition | None = None
    speed: Annotated[float, number(above=True)] = 1.0
    price: Annotated[float, number()] = 1.0
    data: Annotated[str, text(form=".*")] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.host is not None and self.prefix:
            raise ValueError("has both 'host' and 'prefix'; one of them says how it is asked")
        return self


def _ends(value: object) -> list[str] | None:
    good = isinstance(value, list) and len(value) == 2 and all(isinstance(end, str) for end in value)
    return value if good else None  # type: ignore[return-value]


class _Link(LinkEntry):
    between: Annotated[list[str], kind(_ends, "the names of two sites")]


def _by_name(value: object) -> object:
    if not isinstance(value, dict) or not value:
        raise wrong("a map of sites by name", value)
    for name in map(str, value):
        if not _NAME.fullmatch(name):
            raise ValueError(f"a name must be 1 to 40 of A-Z a-z 0-9 _ . -, not {name[:60]!r}")
    return value


class _File(Entry):
    sites: Annotated[
        dict[Any, Annotated[_Site, BeforeValidator(lambda site: {} if site is None else site)]],
        BeforeValidator(_by_name),
    ]
    links: list[_Link] = Field(default_factory=list)
    staging: Words = Field(default_factory=list)
    patience: Duration = 60.0


def read_sites(path: Path) -> SitesFile:
    """Read it. UserError names the file, and the key of what is wrong."""
    document = read(path, "file of sites")
    try:
        said = read_as(_File, document)
        sites = {str(name): _site(str(name), one, path.parent) for name, one in said.sites.items()}
        return SitesFile(sites, _links(said.links, sites), tuple(said.staging), said.patience)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _site(name: str, said: _Site, folder: Path) -> SiteEntry:
    here = said.host is None and not said.prefix
    return SiteEntry(
        name,
        said.host,
        tuple(said.prefix),
        said.command,
        str(folder / said.queue) if said.queue is not None and here else said.queue,
        said.partition,
        said.speed,
        said.price,
        said.data if said.data is not None else "" if said.host is None else f"{said.host}:",
    )


def _links(entries: Sequence[_Link], sites: Mapping[str, SiteEntry]) -> dict[tuple[str, str], NetworkLink]:
    found: dict[tuple[str, str], NetworkLink] = {}
    for i, entry in enumerate(entries):
        where = f"links[{i}].between"
        first, second = entry.between
        for end in entry.between:
            if end not in sites:
                raise UserError(f"{where}: there is no site {end!r} (sites: {', '.join(sites)})")
        if first == second or (first, second) in found:
            why = "is one site twice" if first == second else "has a link already"
            raise UserError(f"{where}: [{first}, {second}] {why}")
        found[first, second] = found[second, first] = entry.made
    return found

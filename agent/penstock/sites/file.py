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
from typing import Any, Final

from penstock.broker.files import read
from penstock.broker.resources import number_at
from penstock.errors import UserError
from penstock.provision.transfers import Link
from penstock.select.units import parse_rate
from penstock.values.documents import mapping, show
from penstock.values.durations import DURATION_FORMS, parse_duration

__all__ = ["SiteEntry", "SitesFile", "read_sites"]

_TOP: Final = ("sites", "links", "staging", "patience")
_SITE: Final = ("host", "prefix", "command", "queue", "partition", "speed", "price", "data")
_LINK: Final = ("between", "bandwidth", "latency")
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_HOST: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:-]{0,254}")
_PARTITION: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_PATIENCE: Final = 60.0


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
    links: Mapping[tuple[str, str], Link] = field(default_factory=dict)
    staging: tuple[str, ...] = ()
    patience: float = _PATIENCE

    def chosen(self, names: Sequence[str]) -> list[SiteEntry]:
        """The sites of these names, or all. UserError for one that is not there."""
        for name in names:
            if name not in self.sites:
                raise UserError(f"--site: there is no site {name!r} (sites: {', '.join(self.sites)})")
        return [site for name, site in self.sites.items() if not names or name in names]


def read_sites(path: Path) -> SitesFile:
    """Read it. UserError names the file, and the key of what is wrong."""
    document = read(path, "file of sites")
    try:
        data = mapping(document, "", _TOP, ("sites",))
        entries = data["sites"]
        if not isinstance(entries, dict) or not entries:
            raise UserError(f"sites: must be a map of sites by name, not {show(entries)}")
        sites = {str(name): _site(str(name), one, path.parent) for name, one in entries.items()}
        return SitesFile(
            sites,
            _links(data.get("links", []), sites),
            _words(data["staging"], "staging") if "staging" in data else (),
            _duration(data["patience"], "patience") if "patience" in data else _PATIENCE,
        )
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _site(name: str, value: object, folder: Path) -> SiteEntry:
    where = f"sites.{name}"
    if not _NAME.fullmatch(name):
        raise UserError(f"sites: a name must be 1 to 40 of A-Z a-z 0-9 _ . -, not {name[:60]!r}")
    data = mapping({} if value is None else value, where, _SITE, ())
    host = _text(data, "host", where, _HOST, "the name of a host, such as me@login.far.example")
    if host is not None and "prefix" in data:
        raise UserError(f"{where}: has both 'host' and 'prefix'; one of them says how it is asked")
    prefix = _words(data["prefix"], f"{where}.prefix") if "prefix" in data else ()
    queue = _text(data, "queue", where)
    if queue is not None and host is None and not prefix:
        queue = str(folder / queue)
    given = _text(data, "data", where)
    return SiteEntry(
        name,
        host,
        prefix,
        _text(data, "command", where),
        queue,
        _text(data, "partition", where, _PARTITION, "the name of a partition"),
        number_at(data.get("speed", 1), f"{where}.speed", strictly=True),
        number_at(data.get("price", 1), f"{where}.price"),
        given if given is not None else "" if host is None else f"{host}:",
    )


def _links(value: object, sites: Mapping[str, SiteEntry]) -> dict[tuple[str, str], Link]:
    if not isinstance(value, list):
        raise UserError(f"links: must be a list, not {show(value)}")
    found: dict[tuple[str, str], Link] = {}
    for i, entry in enumerate(value):
        where = f"links[{i}]"
        data = mapping(entry, where, _LINK, ("between", "bandwidth"))
        ends = data["between"]
        if not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(end, str) for end in ends):
            raise UserError(f"{where}.between: must be the names of two sites, not {show(ends)}")
        for end in ends:
            if end not in sites:
                raise UserError(f"{where}.between: there is no site {end!r} (sites: {', '.join(sites)})")
        first, second = ends
        if first == second or (first, second) in found:
            why = "is one site twice" if first == second else "has a link already"
            raise UserError(f"{where}.between: [{first}, {second}] {why}")
        try:
            bandwidth = parse_rate(data["bandwidth"])
        except ValueError as error:
            raise UserError(f"{where}.bandwidth: bytes a second: {error}") from None
        latency = data.get("latency", 0)
        seconds = 0.0 if latency in (0, "0", "0s") else _duration(latency, f"{where}.latency")
        found[first, second] = found[second, first] = Link(bandwidth, seconds)
    return found


def _text(
    data: Mapping[str, Any], key: str, where: str, form: re.Pattern[str] | None = None, what: str = "a text on one line"
) -> str | None:
    value = data.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value.isprintable() or (not value.strip() and key != "data"):
        raise UserError(f"{where}.{key}: must be {what}, not {show(value)}")
    if form is not None and not form.fullmatch(value):
        raise UserError(f"{where}.{key}: must be {what}, not {show(value)}")
    return value


def _words(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise UserError(f"{where}: must be a list of words such as [rsync, -a], not {show(value)}")
    for word in value:
        if not isinstance(word, str) or not word:
            raise UserError(f"{where}: must be a list of words such as [rsync, -a], {show(word)} is no text (quote it)")
    if any("\0" in word for word in value):
        raise UserError(f"{where}: must be words without a zero byte")
    return tuple(value)


def _duration(value: object, where: str) -> float:
    seconds = parse_duration(value)
    if seconds is None:
        raise UserError(f"{where}: must be {DURATION_FORMS}, not {show(value)}")
    return seconds

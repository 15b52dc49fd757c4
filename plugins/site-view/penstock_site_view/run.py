"""The service from its start to its end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics
from prometheus_client.registry import Collector

from penstock import __version__
from penstock.core.families import PREFIX, Family
from penstock.errors import ConfigError, NotPermitted, SlurmUnavailable
from penstock.host import sdnotify
from penstock.host.descriptors import raise_limit
from penstock.host.listening import bare, cannot_listen
from penstock.host.logs import get_logger
from penstock.host.owners import first_peers
from penstock.host.scrape import Scraped
from penstock.host.scrape import serve as serve_metrics
from penstock.slurm.queries import CliQueries
from penstock.values.backoff import backoff
from penstock_site_view.figures import families
from penstock_site_view.looks import Looks
from penstock_site_view.service import ViewService

__all__ = ["serve"]

_log = get_logger(__name__)
_ALIVE_EVERY: Final = 30.0
_LONGEST_PAUSE: Final = 60.0


class _Figures(Collector):
    def __init__(self, families: Callable[[], Iterable[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        """See `Collector`."""
        return self._families()


async def serve(socket: Path, promise: float, timeout: float, metrics: str | None, first: Iterable[str] = ()) -> None:
    """Answer at this socket until SIGTERM or SIGINT, with looks that are at most `promise` seconds old; `timeout` is
    that of a Slurm command, `first` are accounts and addresses (`limits.first`). Raises ConfigError where it cannot, or
    may not show what it is asked for."""
    raise_limit()
    if os.geteuid() == 0:
        _log.warning("this service runs as root, which it has no need to be: run it as a user with AdminLevel=Operator")
    reader = CliQueries(timeout=timeout)
    reader.budget.may_change = _nothing
    looks = Looks(reader, promise)
    peers = first_peers(first)
    service = ViewService(looks, peers)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        if metrics:
            _tell(metrics, reader, looks, service).first = peers
        if not await _may_show(looks, stop):
            return
        service.listen(socket)
        _log.info("ready", version=__version__, pid=os.getpid(), socket=str(socket), promise=promise)
        sdnotify.notify("READY=1\nSTATUS=serving")
        while not stop.is_set():
            sdnotify.notify("WATCHDOG=1")
            with_limit = asyncio.wait_for(stop.wait(), min(_ALIVE_EVERY, sdnotify.watchdog() / 2))
            await asyncio.gather(with_limit, return_exceptions=True)
        sdnotify.notify("STOPPING=1\nSTATUS=stopping")
        _log.info("stopped", looks=looks.looks.taken, answered=service.answers["answered"])
    finally:
        await service.close()
        await reader.close()


def _nothing() -> None:
    raise NotPermitted("the site's view changes nothing")


async def _may_show(looks: Looks, stop: asyncio.Event) -> bool:
    """Wait for Slurm as long as it takes; false when told to stop meanwhile. Raises ConfigError."""
    failures = 0
    while not stop.is_set():
        try:
            await looks.rule()
            return True
        except NotPermitted as e:
            raise ConfigError(str(e)) from e
        except SlurmUnavailable as e:
            delay = backoff(1.0, failures, _LONGEST_PAUSE)
            failures += 1
            _log.warning("slurm does not answer yet", why=str(e), again_in=delay)
            sdnotify.notify(f"STATUS=waiting for Slurm: {e}".replace("\n", " "))
            await asyncio.gather(asyncio.wait_for(stop.wait(), delay), return_exceptions=True)
    return False


def _tell(listen: str, reader: CliQueries, looks: Looks, service: ViewService) -> Scraped:
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(namespace=PREFIX + "site_view", registry=registry)
    registry.register(_Figures(partial(families, reader, looks, service)))
    host, _, port = listen.rpartition(":")
    try:
        return serve_metrics(registry, bare(host) or "127.0.0.1", int(port))
    except (OSError, ValueError) as e:
        raise cannot_listen("--metrics", listen, e) from e

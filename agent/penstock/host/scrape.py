"""/metrics over HTTP: prometheus_client's answers, for a few at a time and not for long.

prometheus_client's own server gives a thread to each connection for as long as it stays open, which lets anybody on the
host take all the threads that the service may have. Here connections that ask nothing make room for others (`gate`).
"""

from __future__ import annotations

import socket
import threading
from typing import Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from penstock.host.fewthreads import FewThreads, PromptHandler

__all__ = ["Scraped", "serve"]

_AT_ONCE: Final = 16
_PATIENCE: Final = 5.0


class _Handler(PromptHandler, WSGIRequestHandler):
    server: Scraped
    timeout = _PATIENCE

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: it would be a line every few seconds."""


class Scraped(FewThreads, WSGIServer):
    """See the module's text."""

    most = _AT_ONCE
    patience = _PATIENCE

    def __init__(self, registry: CollectorRegistry, family: int, address: tuple[str, int]) -> None:
        self.address_family = family
        super().__init__(address, _Handler)
        self.set_app(make_wsgi_app(registry))


def serve(registry: CollectorRegistry, host: str, port: int) -> Scraped:
    """Answer at this address, from a thread of its own. Raises OSError; ValueError for a name that cannot be one."""
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    server = Scraped(registry, family, (str(address[0]), int(address[1])))
    threading.Thread(target=server.serve_forever, daemon=True, name="metrics").start()
    return server

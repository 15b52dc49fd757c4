"""Stands between an agent and slurmrestd: passes requests on, and does something before or after one of them."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_LONGEST = 120.0


class _Upstream(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_LONGEST)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class RestProxy:
    """Listens at `url` for as long as the block lasts.

    `before` and `after` are told method and path of each request; where they return true, the caller's connection is
    closed without an answer.
    """

    def __init__(self, url: str) -> None:
        self._upstream = Path(url.removeprefix("unix:"))
        self.before: Callable[[str, str], bool] = lambda *_: False
        self.after: Callable[[str, str], bool] = lambda *_: False
        self.seen: list[tuple[str, str]] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                proxy.seen.append((self.command, self.path))
                self.close_connection = True
                if proxy.before(self.command, self.path):
                    return
                upstream = _Upstream(proxy._upstream)
                try:
                    upstream.request(self.command, self.path, body, dict(self.headers))
                    answer = upstream.getresponse()
                    content = answer.read()
                finally:
                    upstream.close()
                if proxy.after(self.command, self.path):
                    return
                try:
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.headers.get("Content-Type", ""))
                    self.send_header("Content-Length", str(len(content)))
                    self.send_header("Connection", "close")
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:
                    pass  # whoever asked is dead by now

            do_GET = do_POST = do_DELETE = _pass

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> RestProxy:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

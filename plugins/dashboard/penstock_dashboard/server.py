"""The page over HTTP: on loopback, for one user, to be looked at only.

Three locks, one behind the other: connections of other users are closed unread (`owners`), where the kernel tells; a
random word in the address, which is changed for a cookie; and the Host header, which names loopback, so that no
site on the web can have a browser read the page under its own name (DNS rebinding). There is nothing to change: GET
and HEAD are all there is.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import HTTPServer
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from penstock.errors import UserError
from penstock.host.fewthreads import FewThreads, PromptHandler
from penstock.host.owners import owner_of
from penstock_dashboard.feed import Page

__all__ = ["Dashboard", "listen_address"]

_IDLE: Final = 20.0
_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HOST: Final = re.compile(r"(127(\.\d{1,3}){3}|localhost)(:\d{1,5})?", re.ASCII | re.IGNORECASE)
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def listen_address(text: str) -> tuple[str, int]:
    """HOST:PORT of loopback. UserError for what others could reach, with the way to look from elsewhere."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and int(port[:6]) < 65536):
        raise UserError(f"--listen: must be 127.0.0.1:PORT (0: any free port), not {text[:60]!r}")
    if host == "localhost":
        host = "127.0.0.1"
    if not re.fullmatch(r"127(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}", host, re.ASCII):
        here = socket.gethostname()
        raise UserError(
            f"--listen: {host[:60]!r} is not 127.0.0.1, and the page is served on loopback only. To look from another "
            f"computer, run there: ssh -N -L {int(port) or 8787}:127.0.0.1:{int(port) or 8787} {here}"
        )
    return host, int(port)


@dataclass(frozen=True, slots=True)
class _File:
    kind: str
    body: bytes


def _page_files() -> dict[str, _File]:
    """The files of the page by their paths: nothing else is served."""
    found = {}
    for entry in files("penstock_dashboard").joinpath("page").iterdir():
        kind = _KINDS.get(os.path.splitext(entry.name)[1])  # noqa: PTH122 (it may be in a zip)
        if kind is not None:
            found[f"/{entry.name}"] = _File(kind, entry.read_bytes())
    found["/"] = found.pop("/index.html")
    return found


class Dashboard(FewThreads, HTTPServer):
    """Serves what `latest` gives at `url`. `allowed`: whose connections are read, besides root's."""

    patience = 60.0  # it may be read over a slow tunnel

    def __init__(self, address: tuple[str, int], latest: Callable[[], Page], allowed: int | None = None) -> None:
        self.latest = latest
        self.allowed = {0, os.geteuid() if allowed is None else allowed}
        self.token, self.session = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self.files = _page_files()
        try:
            super().__init__(address, _Handler)
        except OSError as e:
            raise UserError(
                f"--listen: cannot listen at {address[0]}:{address[1]}: {e.strerror}; 0 takes any free port"
            ) from e
        self.first = {*(f"uid {uid}" for uid in self.allowed), "this host"}  # no other's connections are read
        self.cookie = f"penstock-{self.server_port}"

    @property
    def url(self) -> str:
        """Where it is, with the word that lets one in."""
        return f"http://{self.server_address[0]!s}:{self.server_port}/?token={self.token}"

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ANN401 (the base class's)
        """Whether the connection is of the page's own user."""
        try:
            owner = owner_of(request)
        except OSError:  # gone already
            return False
        return owner is None or owner in self.allowed  # untold: the word and the cookie are what is left


class _Handler(PromptHandler):
    server: Dashboard
    protocol_version = "HTTP/1.1"
    timeout = _IDLE

    def do_GET(self) -> None:  # noqa: N802 (the base class's)
        """The page, its parts, and what it shows."""
        target = urlsplit(self.path)
        if not _HOST.fullmatch(self.headers.get("Host", "")):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "Open this page at 127.0.0.1 or localhost.")
            return
        given = parse_qs(target.query).get("token", [""])[0]
        if secrets.compare_digest(given.encode(), self.server.token.encode()) and target.path == "/":
            cookie = f"{self.server.cookie}={self.server.session}; Path=/; HttpOnly; SameSite=Strict"
            # Not a redirect: a link that is followed from another site would arrive without the cookie.
            self._file(self.server.files["/"], {"Set-Cookie": cookie})
        elif not self._known():
            self._refuse(HTTPStatus.FORBIDDEN, "Open the address that `penstock dashboard` has printed.")
        elif target.path == "/data.json":
            self._data()
        elif target.path in self.server.files:
            self._file(self.server.files[target.path])
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "There is nothing here.")

    do_HEAD = do_GET  # noqa: N815

    def _no(self) -> None:
        self.close_connection = True  # what may come as a body is not read
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "This page is read-only.", {"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_CONNECT = do_TRACE = _no  # noqa: N815

    def _known(self) -> bool:
        try:
            cookies = SimpleCookie(self.headers.get("Cookie", ""))
        except CookieError:
            return False
        morsel = cookies.get(self.server.cookie)
        return morsel is not None and secrets.compare_digest(morsel.value.encode(), self.server.session.encode())

    def _data(self) -> None:
        page = self.server.latest()
        headers = {"ETag": page.tag, "Vary": "Accept-Encoding"}
        if page.now is not None:  # beside the data, which may be the same for hours
            headers["Penstock-Now"] = f"{page.now:.3f}"
        if self.headers.get("If-None-Match") == page.tag:
            self._answer(HTTPStatus.NOT_MODIFIED, None, b"", headers)
        elif "gzip" in self.headers.get("Accept-Encoding", ""):
            self._answer(HTTPStatus.OK, "application/json", page.packed, {**headers, "Content-Encoding": "gzip"})
        else:
            self._answer(HTTPStatus.OK, "application/json", page.body, headers)

    def _file(self, file: _File, headers: dict[str, str] | None = None) -> None:
        self._answer(HTTPStatus.OK, file.kind, file.body, headers or {})

    def _refuse(self, status: HTTPStatus, why: str, headers: dict[str, str] | None = None) -> None:
        self._answer(status, "text/plain; charset=utf-8", f"{why}\n".encode(), headers or {})

    def _answer(self, status: HTTPStatus, kind: str | None, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        if kind is not None:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        for name, value in {**_HEADERS, "Cache-Control": "no-store", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses by itself, with the same headers; nothing of the request is repeated."""
        self.close_connection = True
        self.request_version = self.protocol_version  # what it could not read may be of none
        self._refuse(HTTPStatus(code), HTTPStatus(code).phrase)

    def version_string(self) -> str:
        """Says nothing of versions."""
        return "Penstock"

    def log_message(self, format: str, *args: object) -> None:
        """Not kept: an address may hold the word that lets one in."""

"""A mail server on loopback that keeps what it gets: as much of RFC 5321 as a test needs, over real sockets."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Session(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        server: SmtpServer = self.server  # type: ignore[assignment]
        self._say("220 test ready")
        sender, to = "", []
        while line := self.rfile.readline().decode().rstrip("\r\n"):
            verb, _, rest = line.partition(" ")
            match verb.upper():
                case "EHLO" | "HELO":
                    self._say("250 test")
                case "MAIL":
                    sender, to = rest.partition("<")[2].partition(">")[0], []
                    self._say("250 ok")
                case "RCPT":
                    if server.refuse:
                        self._say(f"{server.refuse} not here")
                    else:
                        to.append(rest.partition("<")[2].partition(">")[0])
                        self._say("250 ok")
                case "DATA":
                    self._say("354 go on")
                    lines = []
                    while (one := self.rfile.readline().decode().rstrip("\r\n")) != ".":
                        lines.append(one.removeprefix(".") if one.startswith("..") else one)
                    server.mails.append((sender, to, "\n".join(lines) + "\n"))
                    self._say("250 taken")
                case "RSET" | "NOOP":
                    self._say("250 ok")
                case "QUIT":
                    self._say("221 bye")
                    return
                case _:
                    self._say("502 not known here")

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


class SmtpServer(socketserver.ThreadingTCPServer):
    """`refuse` is the code with which it refuses recipients, `mails` are (sender, recipients, text)."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.refuse = 0
        self.mails: list[tuple[str, list[str], str]] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])


@contextmanager
def serving() -> Iterator[SmtpServer]:
    server = SmtpServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

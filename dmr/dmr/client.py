"""Rank 0's line to the agent: one request, one reply, a strict time limit, and never an exception.

Whatever goes wrong (no agent, a late one, garbage, a munged that hangs) means "no action": the application goes on.
The first failure of a series is logged as a warning on the logger "dmr", the rest as debug, and after each the client
waits 1, 2, 4 … 60 seconds before it tries again, so that a dead agent costs next to nothing. Where the agent may be on
several hosts, the next one is asked at once, and it waits after a round of all.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import queue
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from dmr import credential, wire

__all__ = ["Client", "Pending"]

logger = logging.getLogger("dmr")

DEFAULT_TIMEOUT: Final = 2.0
MAX_TIMEOUT: Final = 3600.0
MAX_BACKOFF: Final = 60.0
MAX_OTHERS: Final = 7
# Answers that show a healthy agent: no reason to stay away from it.
_HEALTHY: Final = ("stale-epoch", "busy")


class Pending:
    """A request under way in a thread of its own, which makes no MPI call."""

    def __init__(self, limit: float) -> None:
        self.outcome: queue.SimpleQueue[tuple[wire.Reply, socket.socket] | Exception] = queue.SimpleQueue()
        self._deadline = time.monotonic() + limit

    def ready(self) -> bool:
        """Whether `Client.finish` will not wait: the answer is there, or will not come any more."""
        return not self.outcome.empty() or time.monotonic() >= self._deadline

    def wait(self) -> tuple[wire.Reply, socket.socket] | Exception:
        """The answer and the connection it came over, or what went wrong."""
        try:
            return self.outcome.get(timeout=max(0.0, self._deadline - time.monotonic()))
        except queue.Empty:
            return TimeoutError("no answer in time")


class Client:
    """A client for one agent, used by one thread.

    Args:
        address: host (or IP address) and TCP port.
        timeout: seconds for a whole request: resolving, connecting, signing, sending, waiting.
        sign: makes the credential over a digest.
        clock: monotonic seconds; for tests.
        others: where the agent may be when it is not at `address`.
    """

    def __init__(
        self,
        address: tuple[str, int],
        timeout: float = DEFAULT_TIMEOUT,
        sign: Callable[[str], str] = credential.sign,
        clock: Callable[[], float] = time.monotonic,
        others: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self._addresses = (address, *others)
        self._turn = 0
        self._timeout = timeout
        self._sign = sign
        self._clock = clock
        self._connection: socket.socket | None = None
        self._failures = 0
        self._retry_at = -math.inf

    @classmethod
    def from_environment(cls) -> Client | None:
        """The client for `DMR_AGENT=host:port` with the limit `DMR_TIMEOUT`; None when unset or not usable.

        `DMR_AGENT_OTHERS=host:port,…` is where the agent may be when it is not there.
        """
        value = os.environ.get("DMR_AGENT", "")
        if not value:
            return None
        address = _address(value)
        if address is None:
            logger.warning("DMR_AGENT=%r is not host:port; this application will not be resized", value)
            return None
        others: list[tuple[str, int]] = []
        for text in filter(None, os.environ.get("DMR_AGENT_OTHERS", "").split(",")):
            if (other := _address(text)) is None:
                logger.warning("DMR_AGENT_OTHERS: %r is not host:port; left out", text)
            elif other != address and len(others) < MAX_OTHERS:
                others.append(other)
        try:
            timeout = float(os.environ.get("DMR_TIMEOUT") or DEFAULT_TIMEOUT)
        except ValueError:
            timeout = math.nan
        if not 0 < timeout <= MAX_TIMEOUT:
            logger.warning("DMR_TIMEOUT is not a number of seconds up to %g; using %g", MAX_TIMEOUT, DEFAULT_TIMEOUT)
            timeout = DEFAULT_TIMEOUT
        return cls(address, timeout, others=tuple(others))

    @property
    def _address(self) -> tuple[str, int]:
        return self._addresses[self._turn]

    def request(self, request: wire.Request, *, urgent: bool = False) -> wire.Reply | None:
        """Sends the request (this signs it) and returns the reply; None for every kind of failure.

        Within the back-off it returns None at once, unless `urgent`: what must be said about a resize under way is.
        """
        pending = self.start(request, urgent=urgent)
        return None if pending is None else self.finish(pending)

    def start(self, request: wire.Request, *, urgent: bool = False) -> Pending | None:
        """The same without waiting for the reply, which `finish` returns; one that is never fetched does no harm.

        Before the reply is fetched, another request goes over a connection of its own.
        """
        if not urgent and self._clock() < self._retry_at:
            return None
        # In a thread of its own, because neither getaddrinfo() nor libmunge (up to 10 s) takes a time limit. If it is
        # late it is left alone with its connection; a daemon thread does not hold up the exit.
        pending = Pending(self._timeout + 0.1)
        connection, self._connection = self._connection, None
        arguments = (request, self._address, connection, pending.outcome)
        try:
            threading.Thread(target=self._work, args=arguments, name="dmr-client", daemon=True).start()
        except RuntimeError as error:
            pending.outcome.put(error)
        return pending

    def finish(self, pending: Pending) -> wire.Reply | None:
        """The reply to a request that was started, waiting for it up to the time limit; None for every failure."""
        outcome = pending.wait()
        if isinstance(outcome, Exception):
            self._failed(f"{type(outcome).__name__}: {outcome}")
            return None
        reply, connection = outcome
        if self._connection is not None:
            connection.close()
        else:
            self._connection = connection
        if isinstance(reply, wire.Failure) and reply.error not in _HEALTHY:
            self._failed(f"the agent says {reply.error}: {reply.message}", there=True)
        else:
            if self._failures:
                logger.info("the agent at %s:%d answers again", *self._address)
            self._failures, self._retry_at = 0, -math.inf
        return reply

    def close(self) -> None:
        """Closes the connection, if any; the client stays usable."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _failed(self, why: str, there: bool = False) -> None:
        """`there`: somebody has answered, so that no other host is asked."""
        level = logging.DEBUG if self._failures else logging.WARNING
        logger.log(level, "no answer from the agent at %s:%d, going on as is (%s)", *self._address, wire.clean(why))
        hosts = len(self._addresses)
        rounds, asked = divmod(self._failures, hosts)
        if there or asked == hosts - 1:
            self._retry_at = self._clock() + min(2.0 ** min(rounds, 16), MAX_BACKOFF)
        if not there:
            self._turn = (self._turn + 1) % hosts
        self._failures += 1

    def _work(
        self,
        request: wire.Request,
        address: tuple[str, int],
        connection: socket.socket | None,
        answer: queue.SimpleQueue[tuple[wire.Reply, socket.socket] | Exception],
    ) -> None:
        try:
            deadline = time.monotonic() + self._timeout
            line = wire.encode(wire.signed(request, self._sign))
            if connection is not None and _has_ended(connection):
                connection.close()
                connection = None
            if connection is None:
                connection = socket.create_connection(address, timeout=_left(deadline))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            reply = wire.decode_reply(_exchange(connection, line, deadline))
        except Exception as error:  # the application must go on, whatever the agent or its network does
            # A late reply must not be taken for the answer to the next request, so the connection goes.
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.close()
            answer.put(error)
        else:
            answer.put((reply, connection))


def _address(text: str) -> tuple[str, int] | None:
    """Host and port of `host:port`; None where it is not that."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        return None
    return host.strip("[]"), int(port)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left


def _has_ended(connection: socket.socket) -> bool:
    """Nothing is due between requests, so a readable connection is one that the agent closed, or that lost its step."""
    poll = select.poll()  # select() fails in processes with more than 1024 files open
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _exchange(connection: socket.socket, line: bytes, deadline: float) -> bytes:
    connection.settimeout(_left(deadline))
    connection.sendall(line)
    received = b""
    while not received.endswith(b"\n"):
        connection.settimeout(_left(deadline))
        part = connection.recv(wire.MAX_LINE)
        if not part:
            raise ConnectionError("the agent closed the connection")
        received += part
        if len(received) > wire.MAX_LINE:
            raise wire.WireError("line", f"longer than {wire.MAX_LINE} bytes")
    return received

"""The way to slurmrestd: HTTP requests with a time limit, by a Unix socket or by TCP, with a token where there is one.

A slurmrestd at a Unix socket knows the caller by the socket (rest_auth/local) and acts as the user that it runs as. One
at a port wants a token (rest_auth/jwt).
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import ConfigError, OutcomeUnknown, PenstockError, SlurmUnavailable
from penstock.values.rest_address import RestAddress
from penstock_rest.errors import RestRefusal, complaint, doubts_token, refuses_token, unreadable
from penstock_rest.tokens import Tokens

if TYPE_CHECKING:
    import httpx

__all__ = ["RestLink"]

_LONG: Final = 500_000
_DOUBT_AGAIN: Final = 60.0  # s: a database may be away for long


class RestLink:
    """Requests to one slurmrestd as `user`, whom the token is for or who may act for all. `ca` is a file with the
    certificates that HTTPS is checked with (default: those that httpx comes with)."""

    def __init__(self, address: RestAddress, user: str, tokens: Tokens | None = None, ca: Path | None = None) -> None:
        self.address = address
        self.tokens = tokens
        self._doubted = -math.inf
        self._user = user
        self._ca = ca
        self._clients: dict[bool, httpx.AsyncClient] = {}

    async def ask(
        self,
        method: str,
        path: str,
        *,
        limit: float,
        changing: bool,
        query: Mapping[str, str | Sequence[str]] | None = None,
        body: Mapping[str, object] | None = None,
    ) -> Mapping[str, Any]:
        """The document of an answer without errors.

        Raises `RestRefusal`; `SlurmUnavailable` where there is no answer, or `OutcomeUnknown` if the request may have
        arrived and is `changing`; `NotPermitted` where there is no token. A token that is refused is renewed, once; one
        that may be the reason why accounting does not answer, too, once a minute.
        """
        try:
            async with asyncio.timeout(limit):
                try:
                    return await self._ask(method, path, limit, changing, query, body, renewed=False)
                except RestRefusal as refused:
                    if not self._renews(refused):
                        raise
                return await self._ask(method, path, limit, changing, query, body, renewed=True)
        except TimeoutError:
            raise self._lost(f"no answer within {limit:g} s", changing) from None

    def _renews(self, refused: RestRefusal) -> bool:
        """Whether the token is to be renewed for that."""
        if self.tokens is None:
            return False
        if doubts_token(refused.text) and (now := time.monotonic()) - self._doubted >= _DOUBT_AGAIN:
            self._doubted = now
            return True
        return refuses_token(refused.status, refused.text)

    async def close(self) -> None:
        """Give the connections back."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.aclose()

    async def _ask(
        self,
        method: str,
        path: str,
        limit: float,
        changing: bool,
        query: Mapping[str, str | Sequence[str]] | None,
        body: Mapping[str, object] | None,
        *,
        renewed: bool,
    ) -> Mapping[str, Any]:
        client = self._client(changing)
        import httpx

        headers = {"Accept": "application/json", "X-SLURM-USER-NAME": self._user}
        if self.tokens is not None:
            token = await self.tokens.current(renewed=renewed)
            headers["X-SLURM-USER-TOKEN"] = token.text
        sent = client.build_request(method, self.address.base + path, params=query, json=body, headers=headers)
        try:
            answer = await client.send(sent)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol) as error:
            raise SlurmUnavailable(f"nothing answers at {self.address}: {_reason(error)}") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise self._lost(f"the answer was cut off ({_reason(error)})", changing) from None
        return await self._read(answer, changing)

    async def _read(self, answer: httpx.Response, changing: bool) -> Mapping[str, Any]:
        kind = answer.headers.get("content-type", "").partition(";")[0].strip()[:60]
        content = answer.content
        try:
            # A long queue takes a second to read, during which applications and users want answers, too.
            document = await asyncio.to_thread(_parsed, content) if len(content) > _LONG else _parsed(content)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, Mapping):
            if answer.status_code in (401, 404):  # said in plain words by slurmrestd itself
                raise RestRefusal(
                    answer.status_code, " ".join(answer.text.split())[:200] or f"HTTP {answer.status_code}"
                )
            raise unreadable(answer.status_code, kind, changing=changing)
        if text := complaint(document):
            if self.tokens is not None and doubts_token(text):
                text += " (or slurmdbd does not accept the token: slurmrestd says the same of both)"
            raise RestRefusal(answer.status_code, text)
        if answer.status_code in (401, 404):
            raise RestRefusal(answer.status_code, f"HTTP {answer.status_code}")
        if answer.status_code >= 400:
            raise unreadable(answer.status_code, "JSON without a reason", changing=changing)
        return document

    def _client(self, changing: bool) -> httpx.AsyncClient:
        """A connection that is kept may have been ended by the server, which shows only when the request is gone: no
        change is sent on one."""
        if changing not in self._clients:
            self._clients[changing] = self._made(changing)
        return self._clients[changing]

    def _made(self, changing: bool) -> httpx.AsyncClient:
        try:
            import httpx
        except ImportError:
            raise ConfigError("`slurm.backend: rest` needs httpx (`pip install penstock[rest]`)") from None
        for name in ("httpx", "httpcore"):  # they tell of every request
            logging.getLogger(name).setLevel(logging.WARNING)
        kept = httpx.Limits(max_connections=8, max_keepalive_connections=0 if changing else 4)
        verify: Any = True if self._ca is None else str(self._ca)
        if self._ca is not None:
            import ssl

            try:
                verify = ssl.create_default_context(cafile=str(self._ca))
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(f"`rest.ca`: {self._ca}: {error}") from error
        uds = None if self.address.socket is None else str(self.address.socket)
        transport = httpx.AsyncHTTPTransport(verify=verify, limits=kept, uds=uds, trust_env=False)
        # The time limit is the caller's, for all of it.
        return httpx.AsyncClient(transport=transport, timeout=None, follow_redirects=False, trust_env=False)  # noqa: S113

    def _lost(self, why: str, changing: bool) -> PenstockError:
        text = f"slurmrestd at {self.address}: {why}"
        return OutcomeUnknown(text) if changing else SlurmUnavailable(text)


def _parsed(content: bytes) -> object:
    """Users may name their jobs in bytes that are no UTF-8, and slurmrestd writes them as they are."""
    return json.loads(content.decode(errors="replace"))


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__

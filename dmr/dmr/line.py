"""The line between an application's processes and its launcher (`dmr.launch`): TCP, one JSON request, one JSON answer.

Both sides prove that they know the secret of this launch, which the launcher passes on in the environment: the launcher
opens with a random number, and every message carries an HMAC over it, the asker's own random number and its text. What
can be asked is little, and never what to run. Standard library only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio

__all__ = [
    "ADDRESS",
    "DAY",
    "RESTARTED",
    "RESTART_FAILED",
    "SECRET",
    "TICKET",
    "LineError",
    "ask",
    "serve",
    "start_limit",
    "there",
]

# The variables of the environment that hold where the launcher listens, the secret, and which world this process is of.
ADDRESS: Final = "DMR_LAUNCHER"
SECRET: Final = "DMR_LAUNCHER_SECRET"  # noqa: S105 - a name
TICKET: Final = "DMR_TICKET"
# In the environment of ranks that go on from a checkpoint: its epoch; and why the last attempt failed, if one did.
RESTARTED: Final = "DMR_RESTARTED"
RESTART_FAILED: Final = "DMR_RESTART_FAILED"
_MAX_LINE: Final = 256 * 1024
_HELLO: Final = 10.0
_START: Final = 120.0
DAY: Final = 86400.0

Message = dict[str, Any]


class LineError(Exception):
    """The launcher is not there, did not answer in time, or said no."""


def there(environ: Mapping[str, str]) -> bool:
    """Whether a launcher started this process."""
    return bool(environ.get(ADDRESS) and environ.get(SECRET))


def start_limit(environ: Mapping[str, str]) -> float:
    """Seconds within which new processes must be up: `DMR_START_TIMEOUT` (120)."""
    try:
        limit = float(environ.get("DMR_START_TIMEOUT") or _START)
    except ValueError:
        return _START
    return limit if 0 < limit < DAY else _START


def ask(limit: float, /, **request: object) -> Message:
    """Asks the launcher and returns its answer; blocks for at most `limit` seconds.

    Raises:
        LineError: no answer, or it says why not.
    """
    secret = os.environ.get(SECRET, "")
    why = f"{ADDRESS} is not set"
    until = time.monotonic() + limit
    for address in os.environ.get(ADDRESS, "").split(","):
        host, _, port = address.rpartition(":")
        if not port.isdigit():
            continue
        try:
            answer = _exchange(host, int(port), secret, request, until)
        except (OSError, ValueError) as error:
            why = f"{address}: {error or type(error).__name__}"
            continue
        if "error" in answer:
            raise LineError(str(answer["error"]))
        return answer
    raise LineError(f"the launcher does not answer ({why})")


def _exchange(host: str, port: int, secret: str, request: Message, until: float) -> Message:
    nonce, body = _nonce(), json.dumps(request)
    with socket.create_connection((host, port), timeout=max(0.1, min(_HELLO, until - time.monotonic()))) as connection:
        lines = connection.makefile("rb")
        theirs = str(json.loads(lines.readline(_MAX_LINE))["nonce"])
        asked = {"nonce": nonce, "body": body, "mac": _mac(secret, "ask", theirs, nonce, body)}
        connection.sendall(json.dumps(asked).encode() + b"\n")
        connection.settimeout(max(0.1, until - time.monotonic()))
        line = lines.readline(_MAX_LINE)
    if not line:
        raise ConnectionError("the launcher closed the connection")
    answer = json.loads(line)
    if not hmac.compare_digest(str(answer["mac"]), _mac(secret, "answer", theirs, nonce, str(answer["body"]))):
        raise ValueError("somebody else answers there")
    found: Message = json.loads(answer["body"])
    return found


async def serve(secret: str, answer: Callable[[Message], Awaitable[Message]]) -> asyncio.Server:
    """Listens on any free port of all addresses; `answer` may raise LineError to say why not."""
    import asyncio  # not in the ranks, whose start it would make longer by a third of what this package costs

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonce = _nonce()
        try:
            writer.write(json.dumps({"nonce": nonce}).encode() + b"\n")
            asked = json.loads(await asyncio.wait_for(reader.readline(), _HELLO))
            theirs, body = str(asked["nonce"]), str(asked["body"])
            if not hmac.compare_digest(str(asked["mac"]), _mac(secret, "ask", nonce, theirs, body)):
                return
            try:
                reply = json.dumps(await answer(json.loads(body)))
            except LineError as error:
                reply = json.dumps({"error": str(error)})
            sent = {"body": reply, "mac": _mac(secret, "answer", nonce, theirs, reply)}
            writer.write(json.dumps(sent).encode() + b"\n")
            await writer.drain()
        except (OSError, ValueError, KeyError, TypeError, TimeoutError, RecursionError):
            pass  # not one of ours, or gone
        finally:
            writer.close()

    return await asyncio.start_server(connected, host=None, port=0, family=socket.AF_INET, limit=_MAX_LINE)


def _nonce() -> str:
    # What `secrets` does, without what its import costs in every rank.
    return os.urandom(16).hex()


def _mac(secret: str, *parts: str) -> str:
    return hmac.new(secret.encode(), "\0".join(parts).encode(), hashlib.sha256).hexdigest()

"""How tasks of Dask's own clients are sent to members: so that one which cannot be read there fails alone.

Dask unpickles what a message holds as it reads it. Where that fails, because a package is missing, it breaks the
connection, and with it everything that the member runs.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

from dask._task_spec import Task
from distributed import Scheduler
from distributed.protocol.pickle import dumps, loads
from distributed.protocol.serialize import ToPickle

__all__ = ["DaskScheduler"]


class DaskScheduler(Scheduler):
    """Dask's, which sends what is to be run within a text of its own."""

    def _task_to_msg(self, ts: Any) -> dict[str, Any]:  # noqa: ANN401
        message: dict[str, Any] = super()._task_to_msg(ts)
        message["run_spec"] = ToPickle(_Sent(ts.key, ts.run_spec))
        return message


class _Sent:
    """What is to be run; its pickle is read as that, or as what raises why it could not be read."""

    def __init__(self, key: Any, what: Any) -> None:  # noqa: ANN401
        self._key = key
        self._what = what

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, bytes]]:
        return _read, (self._key, dumps(self._what))


def _read(key: Any, text: bytes) -> Any:  # noqa: ANN401
    try:
        return loads(text)
    except Exception as e:
        e.add_note(f"on {os.environ.get('SLURMD_NODENAME') or socket.gethostname()}, a member of the pool")
        return Task(key, _fail, e)


def _fail(error: Exception) -> None:
    raise error

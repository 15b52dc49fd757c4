"""The same process, gone on with in several ways: each in a fork of its own, with all that is in memory.

What a simulation holds (closures among its events, random generators) need not be copied by hand: the operating system
does it, and only for the pages that change.
"""

from __future__ import annotations

import json
import os
import selectors
import traceback
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

__all__ = ["in_forks"]

_Key = TypeVar("_Key")


def in_forks(cases: Mapping[_Key, Callable[[], Any]], at_once: int | None = None) -> dict[_Key, Any]:
    """What each case returns in a fork of this process made now, which must be something that JSON can hold.

    As many run at once as there are cores, unless said otherwise. RuntimeError with the fork's traceback if one fails;
    the others are awaited before.
    """
    waiting = list(cases.items())
    most = at_once or len(os.sched_getaffinity(0))
    found: dict[_Key, Any] = {}
    failed: list[str] = []
    with selectors.DefaultSelector() as selector:
        while waiting or selector.get_map():
            while waiting and len(selector.get_map()) < most:
                key, case = waiting.pop(0)
                pid, end = _fork(case)
                selector.register(end, selectors.EVENT_READ, (key, pid, bytearray()))
            for ready, _ in selector.select():
                key, pid, text = ready.data
                if part := os.read(ready.fd, 1 << 16):
                    text += part
                    continue
                selector.unregister(ready.fd)
                os.close(ready.fd)
                os.waitpid(pid, 0)
                told = json.loads(text) if text else {"failed": f"{key}: the fork was killed"}
                if "failed" in told:
                    failed.append(told["failed"])
                else:
                    found[key] = told["result"]
    if failed:
        raise RuntimeError(failed[0])
    return {key: found[key] for key in cases}


def _fork(case: Callable[[], Any]) -> tuple[int, int]:
    """The fork's pid and the end of the pipe at which it tells what it found."""
    mine, its = os.pipe()
    pid = os.fork()
    if pid:
        os.close(its)
        return pid, mine
    try:
        os.close(mine)
        try:
            text = json.dumps({"result": case()})
        except BaseException:  # told by the parent, as there is nobody else in a fork who could
            text = json.dumps({"failed": traceback.format_exc()})
        with os.fdopen(its, "wb") as pipe:
            pipe.write(text.encode())
    finally:
        os._exit(0)  # nothing of the parent's (its buffers, its exit handlers) is the fork's to end

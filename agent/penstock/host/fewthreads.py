"""For servers of the standard library: a thread per connection, but only so many.

The service may have a limited number of threads and processes, and needs some for Slurm's commands: whoever can connect
must not be able to take them all.
"""

from __future__ import annotations

import threading
from socketserver import ThreadingMixIn
from typing import Any

__all__ = ["FewThreads"]


class FewThreads(ThreadingMixIn):
    """`ThreadingMixIn` for at most `most` connections at a time; one more is closed unread.

    A handler's `timeout` must see to it that no connection lasts for ever.
    """

    daemon_threads = True
    block_on_close = False
    most = 64

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 (those of the server's class)
        self.slots = threading.BoundedSemaphore(self.most)
        super().__init__(*args, **options)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 (the base class's)
        """In a thread of its own, if there are not too many."""
        if not self.slots.acquire(blocking=False):
            self.shutdown_request(request)  # type: ignore[attr-defined]  # of the server that this is mixed into
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system has no thread left
            self.slots.release()
            self.shutdown_request(request)  # type: ignore[attr-defined]

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """One connection, to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """A connection that breaks is nothing to tell of."""

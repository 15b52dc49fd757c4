"""Who waits for room in the queue, where a limit says how many jobs one may have there: in the order of their coming.

Each that waits has a file in a folder of the user's own, named by the time at which it came and locked as long as it
lives, so that one that was killed holds up nobody.
"""

from __future__ import annotations

import os
import time

from penstock.slurm.option_words import value_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.slurm.option_words import SbatchWords

__all__ = ["RoomLine", "room_for"]

_LOOK = 0.2  # seconds between looks at who is before
_NEW = ".new-"


class RoomLine:
    """One that submits to a `cluster`. `own`: the user's own folder; None, or one that cannot be written: it stands in
    no line, and tries at once. `place`: what limits may go by (`room_for`)."""

    def __init__(self, own: str | None, cluster: str, place: str) -> None:
        self._folder = None if own is None else os.path.join(own, "waiting", cluster.replace("/", "_") or "-")
        self._place = place
        self._name = ""
        self._descriptor = -1

    @property
    def waits(self) -> bool:
        """Whether it stands in line."""
        return bool(self._name)

    def join(self) -> None:
        """Stand in line, behind all that do already."""
        if self._folder is None or self._name:
            return
        import fcntl

        name = f"{time.time_ns():020d}-{os.getpid()}-{self._place}"
        new = os.path.join(self._folder, _NEW + name)
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            self._descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            os.rename(new, os.path.join(self._folder, name))  # nobody finds it without its lock
        except OSError:
            _remove(new)
            self._folder = None
            return
        self._name = name

    def others_before(self) -> bool:
        """Whether others have come before this one; before it stands in line itself: whether anybody waits."""
        if self._folder is None:
            return False
        try:
            found = sorted(os.listdir(self._folder))
        except OSError:
            return False
        return any(
            name.endswith(f"-{self._place}") and not name.startswith(_NEW) and self._lives(name)
            for name in found
            if not self._name or name < self._name
        )

    def comes_up(self, until: float) -> None:
        """Wait until nobody is before it, at most until this time of the monotonic clock (s)."""
        while self.others_before() and (left := until - time.monotonic()) > 0:
            time.sleep(min(_LOOK, left))

    def leave(self) -> None:
        """Stand in line no more."""
        if self._descriptor >= 0:
            if self._name and self._folder is not None:
                _remove(os.path.join(self._folder, self._name))
            os.close(self._descriptor)
            self._name, self._descriptor = "", -1

    def _lives(self, name: str) -> bool:
        import fcntl

        assert self._folder is not None
        path = os.path.join(self._folder, name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # it has just left
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
        else:
            _remove(path)
            return False
        finally:
            os.close(descriptor)


def room_for(
    own: str | None, cluster: str, line: SbatchWords, script: SbatchWords | None, environ: Mapping[str, str]
) -> RoomLine:
    """Where a job with these options stands: jobs of two accounts do not wait for each other."""
    import binascii

    found = []
    for name in ("account", "qos", "partition"):
        found.append(value_of(name, line, script, environ) or "" if script is not None else "")
    return RoomLine(own, cluster, f"{binascii.crc32(chr(10).join(found).encode(errors='surrogateescape')):08x}")


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass

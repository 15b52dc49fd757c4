"""Where `penstock sbatch` finds the agent and the user's own folder, without reading the configuration each time.

That takes longer than sbatch. What was found is kept, and holds as long as nothing has changed that it was found from.
"""

from __future__ import annotations

import os

from penstock import __version__
from penstock.fronts.programs.plainjson import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SITE_FILE", "keep_settings", "known_settings"]

SITE_FILE = "/etc/penstock/penstock.yaml"
_OTHERS_CANNOT_WRITE = 0o022


def known_settings(environ: Mapping[str, str]) -> dict[str, str] | None:
    """The settings of the front programs, as the configuration has them; None where that has to be read."""
    try:
        with open(_place(environ), encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            found = loads(file.read())
        settings = found["settings"]
        own = os.stat(settings["own"])
        usable = own.st_uid == os.geteuid() and not own.st_mode & _OTHERS_CANNOT_WRITE and os.access(settings["own"], 7)
        if found["from"] != _source(environ) or not usable:
            return None
        return {key: str(value) for key, value in settings.items()}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep_settings(environ: Mapping[str, str], settings: Mapping[str, str]) -> None:
    """Keep what the configuration says now. Where that cannot be, it is read again the next time."""
    path = _place(environ)
    part = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(dumps({"from": _source(environ), "settings": dict(settings)}))
        os.replace(part, path)
    except OSError:
        return


def _place(environ: Mapping[str, str]) -> str:
    given = environ.get("XDG_STATE_HOME", "")
    state = given if given.startswith("/") else os.path.join(environ.get("HOME", "/nowhere"), ".local", "state")
    return os.path.join(state, "penstock", "sbatch.json")


def _source(environ: Mapping[str, str]) -> str:
    """What the configuration is made from, and Slurm's: as a hash, as variables may hold secrets."""
    names = ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "SLURM_CONF")
    own = os.path.join(environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", ""), ".config"), "penstock")
    files = [environ.get("PENSTOCK_CONFIG", ""), os.path.join(own, "config.yaml"), SITE_FILE]
    told = [
        __version__,
        os.geteuid(),
        [environ.get(name) for name in names],
        sorted((name, value) for name, value in environ.items() if name.startswith("PENSTOCK_")),
        [[name, *_stamp(name)] for name in files],
    ]
    try:
        from _blake2 import blake2b  # hashlib loads OpenSSL
    except ImportError:
        from hashlib import blake2b
    return blake2b(dumps(told).encode(), digest_size=32).hexdigest()


def _stamp(path: str) -> list[int]:
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [found.st_mtime_ns, found.st_size, found.st_ino, found.st_uid, found.st_mode]

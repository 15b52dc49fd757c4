"""What users are called."""

from __future__ import annotations

import pwd
from functools import lru_cache

__all__ = ["login", "uid_of"]


def login(uid: int) -> str:
    """The user's name; the number of one whom the site's directory does not know."""
    try:
        return _known(uid)
    except KeyError:  # which is not remembered: the directory may be back soon
        return str(uid)


def uid_of(user: str) -> int | None:
    """The number of a user; None for one whom the site's directory does not know."""
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


@lru_cache(1024)
def _known(uid: int) -> str:
    return pwd.getpwuid(uid).pw_name

"""Which values do not survive being pickled, and why. Standard library only."""

from __future__ import annotations

import pickle

__all__ = ["objection"]


def objection(name: str, value: object) -> str:
    """Why the value does not pickle, or cannot be made again from its pickle; "" where nothing is wrong with it."""
    try:
        pickled = pickle.dumps(value, protocol=5)
    except Exception as error:  # whatever an object's own __reduce__ raises
        return f"{name}: does not pickle: {type(error).__name__}: {error}"
    try:
        pickle.loads(pickled)  # noqa: S301 - made a line above
    except Exception as error:
        return f"{name}: pickles, but cannot be made again from its pickle: {type(error).__name__}: {error}"
    return ""

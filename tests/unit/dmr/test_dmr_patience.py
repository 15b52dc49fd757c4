from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from dmr import patience
from dmr.patience import Patient


class Gone(Exception):
    pass


def gone() -> None:
    raise Gone


class Never:
    """A request that nobody answers any more."""

    def Test(self) -> bool:
        return False


class Silent:
    """A communicator whose others are gone."""

    def Iallreduce(self, sent: object, received: object) -> Never:
        return Never()


def test_what_mpi_may_still_write_to_is_never_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that was under way arrives later, or never; its place must not be that of something else then."""
    monkeypatch.setattr(patience, "_LOOK_AFTER", 0.0)
    buffer, request = np.zeros(10), Never()
    alive = weakref.ref(buffer), weakref.ref(request)
    with pytest.raises(Gone):
        Patient(Silent(), gone).Allreduce([None], [buffer])  # type: ignore[arg-type]
    with pytest.raises(Gone):
        Patient(Silent(), gone).wait(request)  # type: ignore[arg-type]
    del buffer, request
    gc.collect()
    assert all(reference() is not None for reference in alive)

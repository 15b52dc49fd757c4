"""Run by mpiexec on six ranks that share a GPU: moves arrays of cupy and torch, and compares each element there."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from dmr_moves import block, joined, old_side
from mpi_cases import run

from dmr.distributions import Block, Block2D, BlockCyclic, Cyclic, Distribution, Replicated
from dmr.redistribute import move

SHAPE = (1030, 515)
KINDS = [Block(), Block(axis=1), Cyclic(), BlockCyclic(16), Block2D(), Replicated()]


def of_cupy() -> SimpleNamespace:
    import cupy

    def same(one: Any, two: Any) -> bool:
        return bool((one == two).all())

    return SimpleNamespace(asarray=cupy.asarray, kind=cupy.ndarray, same=same, finish=cupy.cuda.Device().synchronize)


def of_torch(dtype: str = "float64") -> SimpleNamespace:
    import torch

    def asarray(array: np.ndarray) -> Any:
        return torch.as_tensor(np.ascontiguousarray(array), device="cuda").to(getattr(torch, dtype))

    return SimpleNamespace(asarray=asarray, kind=torch.Tensor, same=torch.equal, finish=torch.cuda.synchronize)


def moves(make: Callable[[], SimpleNamespace]) -> None:
    """All pairs of distributions, by ranks that stay and by new ones."""
    library = make()
    whole = np.arange(SHAPE[0] * SHAPE[1] * 1.0).reshape(SHAPE) % 251
    for olds, news in ((4, 2), (2, 4)):
        for bridge in joined(olds, news):
            for before, after in itertools.product(KINDS, KINDS):

                def parts(
                    rank: int, before: Distribution = before, after: Distribution = after, olds: int = olds
                ) -> dict[str, Any]:
                    return {"x": (library.asarray(block(whole, before, olds, rank).copy()), before, after)}

                given = old_side(bridge, parts)
                library.finish()
                moved = move(bridge, given)
                if moved is None:
                    continue
                found = moved.values["x"]
                assert isinstance(found, library.kind) and not isinstance(found, np.ndarray), type(found)
                expected = library.asarray(block(whole, after, news, bridge.new_rank).copy())
                assert library.same(found, expected), (before, after, olds, news)


CASES = {"cupy": partial(moves, of_cupy), "torch": partial(moves, of_torch)}
CASES["torch-float32"] = partial(moves, partial(of_torch, "float32"))

if __name__ == "__main__":
    run(CASES)

"""What DLPack's structures say, read from numpy's own, which are on the host."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr import device, dlpack


class OnDevice:
    """A host's array that says it is not one; `versions` as libraries of before and after versions have them."""

    def __init__(self, array: np.ndarray, versions: bool) -> None:
        self._array, self._versions = array, versions
        self.dtype = array.dtype

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **options: object) -> object:
        assert options.pop("stream") == -1
        if options and not self._versions:
            raise TypeError("unexpected argument")
        return self._array.__dlpack__(**options)


@given(
    st.lists(st.integers(0, 4), max_size=4),
    st.sampled_from(["f8", "f4", "f2", "i1", "u2", "i8", "c16", "?"]),
    st.sampled_from(["plain", "transposed", "part"]),
    st.booleans(),
)
def test_it_says_what_numpy_says(shape: list[int], dtype: str, how: str, versions: bool) -> None:
    larger = np.zeros([n + 2 for n in shape], dtype)
    part = larger[(..., *(slice(1, -1) for _ in shape))]
    array = {"plain": np.zeros(shape, dtype), "transposed": np.zeros(shape, dtype).T, "part": part}[how]
    found = dlpack.tensor(OnDevice(array, versions))
    assert (found.shape, np.dtype(found.typestr)) == (array.shape, array.dtype)
    assert not array.size or found.address == array.__array_interface__["data"][0]
    if array.size:
        moved = tuple(s // array.itemsize for s, n in zip(array.strides, array.shape, strict=True) if n > 1)
        assert tuple(s for s, n in zip(found.strides, array.shape, strict=True) if n > 1) == moved
    assert found.in_order == array.flags.c_contiguous
    assert device.shape_and_dtype(OnDevice(array, versions)) == (array.shape, array.dtype)


def test_only_what_is_not_the_hosts_is_on_a_device() -> None:
    array = np.zeros(3)
    assert device.on_device(OnDevice(array, versions=True)) and not device.on_device(array)
    assert not device.on_device([1, 2]) and not device.on_device(None)


def test_what_is_no_such_structure_is_refused() -> None:
    class Other:
        def __dlpack__(self, **options: object) -> object:
            return np.zeros(1).__array_struct__

    with pytest.raises(BufferError, match="not known"):
        dlpack.tensor(Other())

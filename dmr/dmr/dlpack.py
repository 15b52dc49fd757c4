"""What an object with `__dlpack__` says of its memory: address, shape, type and strides, whatever device that is on.

Read from the structures that DLPack defines (dlpack.h, ABI versions 0 and 1; both are read, since libraries differ in
which one they give). Nothing is taken over: the object keeps its memory.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, NamedTuple

__all__ = ["Tensor", "tensor"]


class Tensor(NamedTuple):
    """One array: where its first element is, and how the others lie; strides are in elements.

    `typestr` is as numpy's array interface has it; "|V2" and so on for types that it does not have.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    typestr: str
    itemsize: int

    @property
    def in_order(self) -> bool:
        """Whether the elements lie in C order in one piece."""
        expected = 1
        for n, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n > 1 and stride != expected:
                return 0 in self.shape
            expected *= n
        return True


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


# DLDataTypeCode: int, uint, float, complex, bool; numpy has no others, say bfloat16.
_KINDS: Final = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_NO_SYNCHRONISATION: Final = -1


def tensor(value: Any) -> Tensor:  # noqa: ANN401
    """What the object says.

    Raises:
        BufferError: it gives no structure of a known kind.
    """
    try:
        capsule = value.__dlpack__(stream=_NO_SYNCHRONISATION, max_version=(1, 0))
    except TypeError:  # from before there were versions
        capsule = value.__dlpack__(stream=_NO_SYNCHRONISATION)
    found = _structure(capsule)
    size = found.bits * found.lanes // 8
    shape = tuple(found.shape[axis] for axis in range(found.ndim))
    strides = [1] * found.ndim
    for axis in reversed(range(found.ndim)):
        if found.strides:
            strides[axis] = found.strides[axis]
        elif axis + 1 < found.ndim:  # none are given where all lies in C order
            strides[axis] = strides[axis + 1] * shape[axis + 1]
    kind = _KINDS.get(found.code) if found.lanes == 1 else None
    typestr = f"|V{size}" if kind is None or (kind == "f" and size == 1) else f"{'|' if size == 1 else '<'}{kind}{size}"
    return Tensor((found.data or 0) + found.byte_offset, shape, tuple(strides), typestr, size)


def _structure(capsule: object) -> _Tensor:
    valid, pointer = ctypes.pythonapi.PyCapsule_IsValid, ctypes.pythonapi.PyCapsule_GetPointer
    valid.argtypes = pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    pointer.restype = ctypes.c_void_p
    if valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(pointer(capsule, b"dltensor_versioned"))
        if versioned.major == 1:
            found: _Tensor = versioned.tensor
            return found
    elif valid(capsule, b"dltensor"):
        return _Tensor.from_address(pointer(capsule, b"dltensor"))
    raise BufferError("__dlpack__ gives a structure of a kind that is not known")

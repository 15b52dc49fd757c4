"""Arrays in the memory of a GPU: cupy's, torch's, numba's, and all with `__cuda_array_interface__`.

MPI gets their memory directly where it says that it can take it (the info key `mpi_memory_alloc_kinds` of MPI 4.1, or
`DMR_GPU_DIRECT=1`) and where what the rank exchanges with each other lies in one piece; else they are copied to the
host first and back at the other end, which takes host memory of the size of the block. Of all this, only what a
stand-in without a GPU can show is tested.
"""

from __future__ import annotations

import importlib
import math
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from mpi4py import MPI

    from dmr.distributions import Shape

    Array = np.ndarray[Any, np.dtype[Any]]

__all__ = ["empty", "from_host", "library", "memory", "mpi_takes_it", "on_device", "shape_and_dtype", "to_host"]


def on_device(value: object) -> bool:
    """Whether the value is an array in the memory of a GPU."""
    return hasattr(value, "__cuda_array_interface__")


def library(value: object) -> str:
    """The module of its kind of arrays, say "cupy"."""
    return type(value).__module__.split(".")[0]


def shape_and_dtype(value: Any) -> tuple[Shape, np.dtype[Any]]:  # noqa: ANN401
    """What the interface says of the array."""
    import numpy as np

    interface = value.__cuda_array_interface__
    described = [tuple(field) for field in interface.get("descr") or []]
    plain = np.dtype(interface["typestr"])
    return tuple(interface["shape"]), np.dtype(described) if plain.kind == "V" and described else plain


def memory(value: Any) -> Any:  # noqa: ANN401
    """What MPI can be given for it, sliceable in bytes; None if its elements do not lie in C order in one piece."""
    from mpi4py import MPI

    interface = value.__cuda_array_interface__
    shape, dtype = shape_and_dtype(value)
    expected = dtype.itemsize
    for n, stride in zip(reversed(shape), reversed(interface.get("strides") or ()), strict=False):
        if stride != expected:
            return None
        expected *= n
    return MPI.buffer.fromaddress(interface["data"][0], dtype.itemsize * math.prod(shape))


def mpi_takes_it(comm: MPI.Comm) -> bool:
    """Whether this MPI can send from a GPU's memory."""
    wish = os.environ.get("DMR_GPU_DIRECT", "")
    if wish in ("0", "1"):
        return wish == "1"
    info = comm.Get_info()
    try:
        kinds = (info.Get("mpi_memory_alloc_kinds") or "").split(",")
    finally:
        info.Free()
    return any(kind.split(":")[0] in ("cuda", "rocm", "level_zero") for kind in kinds)


def to_host(value: Any) -> Array:  # noqa: ANN401
    """A copy in the host's memory."""
    import numpy as np

    if hasattr(value, "get"):  # cupy
        return np.asarray(value.get())
    if hasattr(value, "copy_to_host"):  # numba
        return np.asarray(value.copy_to_host())
    return np.asarray(value.detach().cpu())  # torch


def from_host(array: Array, name: str) -> Any:  # noqa: ANN401
    """An array of that library's in the GPU's memory; the host's array itself where the library is not to be had."""
    try:
        module = importlib.import_module(name)
    except ImportError:
        return array
    if name == "torch":
        return module.as_tensor(array, device="cuda")
    return module.cuda.to_device(array) if name == "numba" else module.asarray(array)


def empty(shape: Shape, dtype: np.dtype[Any], name: str) -> Any:  # noqa: ANN401
    """An array of that library's in the GPU's memory, or None where the library is not to be had."""
    import numpy as np

    try:
        module = importlib.import_module(name)
    except ImportError:
        return None
    if name == "torch":
        return module.empty(shape, dtype=module.as_tensor(np.empty(0, dtype)).dtype, device="cuda")
    return module.cuda.device_array(shape, dtype) if name == "numba" else module.empty(shape, dtype)

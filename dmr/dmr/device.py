"""Arrays in the memory of a GPU: cupy's, torch's, numba's, and all with `__cuda_array_interface__` or `__dlpack__`.

MPI gets their memory directly where it says that it can take it (the info key `mpi_memory_alloc_kinds` of MPI 4.1, or
`DMR_GPU_DIRECT=1`) and where what the rank exchanges with each other lies in one piece, what stays with it included;
else they are copied to the host first and back at the other end, which takes host memory of the size of the block.
What the GPU still computes of an array must be done before it moves (a stream's `synchronize`): MPI knows no streams.
Arrays of cupy and torch by way of the host were tried on an NVIDIA GPU, the direct way with a stand-in only.
"""

from __future__ import annotations

import importlib
import math
import os
from typing import TYPE_CHECKING, Any, Final

from dmr import dlpack

if TYPE_CHECKING:
    import numpy as np
    from mpi4py import MPI

    from dmr.distributions import Shape

    Array = np.ndarray[Any, np.dtype[Any]]

__all__ = ["empty", "from_host", "library", "memory", "mpi_takes_it", "on_device", "shape_and_dtype", "to_host"]


# Of DLPack's kinds of devices those whose memory is the host's: CPU, and what is pinned for CUDA and ROCm.
_HOSTS: Final = (1, 3, 11)


def on_device(value: object) -> bool:
    """Whether the value is an array in the memory of a GPU."""
    if hasattr(value, "__cuda_array_interface__"):
        return True
    where = getattr(value, "__dlpack_device__", None)  # numpy's arrays have it, too
    return where is not None and hasattr(value, "__dlpack__") and int(where()[0]) not in _HOSTS


def library(value: Any) -> str:  # noqa: ANN401
    """The module of its kind of arrays, say "cupy"; with the kind of device where that is not CUDA's: "torch:xpu"."""
    module = type(value).__module__.split(".")[0]
    kind = getattr(getattr(value, "device", None), "type", "cuda")
    return module if kind == "cuda" or not isinstance(kind, str) else f"{module}:{kind}"


def shape_and_dtype(value: Any) -> tuple[Shape, np.dtype[Any]]:  # noqa: ANN401
    """What the interface says of the array; types of elements that numpy does not have are bytes of their size."""
    import numpy as np

    if not hasattr(value, "__cuda_array_interface__"):
        tensor = dlpack.tensor(value)
        return tensor.shape, np.dtype(tensor.typestr)
    interface = value.__cuda_array_interface__
    described = [tuple(field) for field in interface.get("descr") or []]
    plain = np.dtype(interface["typestr"])
    return tuple(interface["shape"]), np.dtype(described) if plain.kind == "V" and described else plain


def memory(value: Any) -> Any:  # noqa: ANN401
    """What MPI can be given for it, sliceable in bytes; None if its elements do not lie in C order in one piece."""
    from mpi4py import MPI

    if not hasattr(value, "__cuda_array_interface__"):
        tensor = dlpack.tensor(value)
        nbytes = tensor.itemsize * math.prod(tensor.shape)
        return MPI.buffer.fromaddress(tensor.address, nbytes) if tensor.in_order else None
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
    name, _, kind = name.partition(":")
    try:
        module = importlib.import_module(name)
    except ImportError:
        return array
    if name == "torch":
        return module.as_tensor(array, device=kind or "cuda")
    return module.cuda.to_device(array) if name == "numba" else module.asarray(array)


def empty(shape: Shape, dtype: np.dtype[Any], name: str) -> Any:  # noqa: ANN401
    """An array of that library's in the GPU's memory, or None where the library is not to be had."""
    import numpy as np

    name, _, kind = name.partition(":")
    try:
        module = importlib.import_module(name)
    except ImportError:
        return None
    if name == "torch":
        return module.empty(shape, dtype=module.as_tensor(np.empty(0, dtype)).dtype, device=kind or "cuda")
    return module.cuda.device_array(shape, dtype) if name == "numba" else module.empty(shape, dtype)

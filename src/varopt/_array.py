"""The only module that knows array backends.

Everything above is written against the array API standard, so the same formulas run on NumPy, PyTorch, JAX and CuPy.
NumPy alone gets one service: `blocked`, which walks long vectors in pieces that stay in the processor's cache.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import array_namespace

__all__ = [
    "BLOCK", "Array", "as_float", "blocked", "constant", "is_jax", "is_torch", "is_traced", "namespace", "repeated",
    "some",
]  # fmt: skip

Array = Any  # an array of any backend; the standard has no common type to name
_NUMPY = np  # since version 2 it has the names of the standard
BLOCK = 32768  # 256 KiB of float64: the two operands of a pass fit in the second-level cache, and calls are few


def namespace(*arrays: Array) -> Any:
    """The array API namespace of the arrays among the arguments; NumPy where there are only Python numbers."""
    found = [a for a in arrays if not isinstance(a, (bool, int, float, np.generic))]
    return _NUMPY if all(isinstance(a, np.ndarray) for a in found) else array_namespace(*found)


def is_torch(array: Array) -> bool:
    """Whether it is a tensor of PyTorch; without importing it, and in words that its compiler can follow."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def is_jax(array: Array) -> bool:
    """Whether it is an array of JAX, known or traced; without importing it."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(array, jax.Array)


def _place(like: Array) -> dict[str, Any]:
    """What puts a new array where `like` is; JAX places by itself, and its traced arrays have no device."""
    return {} if isinstance(like, (np.ndarray, np.generic)) or is_jax(like) else {"device": like.device}


def constant(xp: Any, value: Any, like: Array) -> Array:
    """A number, or an array of NumPy, as an array of the dtype and on the device of `like`."""
    return xp.asarray(value, dtype=like.dtype, **_place(like))


def is_traced(array: Array) -> bool:
    """Whether an array stands for values that are not known yet, so that nothing can be decided by them."""
    if isinstance(array, (np.ndarray, np.generic, bool, int, float)):
        return False
    if is_torch(array):
        torch = sys.modules["torch"]
        return bool(torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(array))
    return is_jax(array) and isinstance(array, sys.modules["jax"].core.Tracer)


def some(xp: Any, condition: Array) -> bool:
    """Whether a condition holds anywhere; also where it may hold, since the values are only traced."""
    return is_traced(condition) or bool(xp.any(condition))


def as_float(*values: Array) -> tuple[Any, list[Array]]:
    """The namespace of `values` and the values as floating arrays of one dtype, on one device.

    Arrays decide the dtype (float32 stays float32, integers become float64); Python numbers follow.
    """
    if all(type(v) is float or (type(v) is np.ndarray and v.dtype == np.float64) for v in values):
        # By far the most frequent case, and short vectors would spend more time on the questions below than on numbers.
        return _NUMPY, [np.asarray(v) for v in values]
    values = tuple(np.asarray(v) if isinstance(v, (list, tuple, np.generic)) else v for v in values)
    xp = namespace(*values)
    arrays = [v for v in values if not isinstance(v, (bool, int, float))]
    floating = [a.dtype for a in arrays if xp.isdtype(a.dtype, "real floating")]
    dtype = xp.result_type(*floating) if floating else xp.float64
    if any(not xp.isdtype(a.dtype, "real floating") for a in arrays):
        dtype = xp.result_type(dtype, xp.float64)
    where = _place(arrays[0]) if arrays else {}
    return xp, [
        xp.asarray(float(v), dtype=dtype, **where)
        if isinstance(v, (bool, int, float))
        else xp.astype(v, dtype, copy=False)
        for v in values
    ]


def repeated(value: Any, shape: tuple[int, ...]) -> Any:
    """An array of NumPy spread to a shape, for reading, in no more memory than it has.

    `np.broadcast_to` does the same, and asks many times as long as there is to do.
    """
    array = np.asarray(value, dtype=np.float64)
    if array.shape != shape and (array.ndim or len(shape) != 1):
        return np.broadcast_to(array, shape)
    spread: Any = array.view() if array.shape == shape else np.ndarray(shape, np.float64, array, 0, (0,))
    spread.flags.writeable = False
    return spread


def blocked(
    function: Callable[..., tuple[Array, ...]], outputs: int, *arrays: Array, block: int = BLOCK
) -> tuple[Array, ...]:
    """`function(start, stop, *slices)` over long one-dimensional NumPy vectors, block by block.

    Temporaries then live in the cache instead of main memory, which halves the time of a formula of many passes. Other
    backends, and short or multidimensional arrays, get one call with `slice` bounds of `None`.

    Arguments of length one are broadcast: they are handed to every block whole.
    """
    here = all(isinstance(a, np.ndarray) for a in arrays)
    shape = np.broadcast_shapes(*(np.shape(a) for a in arrays)) if here else ()
    if len(shape) != 1 or shape[0] <= 2 * block:
        return function(None, None, *arrays)
    results = tuple(np.empty(shape, dtype=np.result_type(*arrays)) for _ in range(outputs))
    for start in range(0, shape[0], block):
        stop = min(start + block, shape[0])
        parts = (a[start:stop] if np.shape(a) == shape else a for a in arrays)
        for result, value in zip(results, function(start, stop, *parts), strict=True):
            result[start:stop] = value
    return results

"""Which library an array belongs to, and what is asked of arguments.

An adapter (`_numpy`, `_torch`, `_jax`) is a module with the few functions that differ: normal distribution functions,
`hold` (no gradient), `elementwise` (a function with known derivatives), `recomputed` (memory for time). It is imported
when an array of its library is first seen, which is after the user imported that library.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from varopt._array import Array, is_jax, is_torch, is_traced
from varopt.terms import REGISTRY, PiecewisePolynomial

__all__ = ["facts", "is_count", "known", "library", "named", "needed", "numbers", "positive", "prepared", "require"]

_PACKAGES = {"torch": "PyTorch", "jax": "JAX"}


def library(*values: Any) -> Any:
    """The adapter of the arrays among the values; NumPy's, which has no gradients, where there are none."""
    torch, jax = any(is_torch(v) for v in values), any(is_jax(v) for v in values)
    if torch and jax:
        raise TypeError("arrays must be of one library; got both PyTorch tensors and JAX arrays.")
    if torch:
        from varopt.nn import _torch  # which imports PyTorch

        return _torch
    if jax:
        from varopt.nn import _jax  # which imports JAX

        return _jax
    from varopt.nn import _numpy  # not needed beside another

    return _numpy


def needed(package: str) -> Any:
    """A package that an extra brings, or a sentence on how to get it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ModuleNotFoundError(f"needs {_PACKAGES[package]}: pip install varopt[{package}]", name=package) from None


def named(name: str, *parameters: Any) -> PiecewisePolynomial:
    """The term of a name of the registry."""
    return REGISTRY[name].build(*parameters)


def facts(term: Any) -> Any:
    """The term itself; PyTorch's compiler needs it in another form."""
    return term


def is_count(value: Any) -> bool:
    """Whether it is an integer; a truth value is none."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def require(condition: bool, sentence: str) -> None:
    """Refuse an argument in a sentence."""
    if not condition:
        raise ValueError(sentence)


def prepared(*values: Any) -> tuple[Any, tuple[Array, ...], Callable[[Array], Array]]:
    """The adapter, the values as arrays of one floating dtype and device, and what gives a result the caller's dtype.

    Integers become the library's default float. Half precision is computed in float32 and given back as it came.
    """
    lib = library(*values)
    arrays = [v for v in values if hasattr(v, "dtype") and hasattr(v, "shape") and not isinstance(v, np.generic)]
    dtype, given = lib.dtypes([a.dtype for a in arrays])

    def restored(result: Array) -> Array:
        return result if given == dtype else lib.as_array(result, given, arrays)

    return lib, tuple(lib.as_array(v, dtype, arrays) for v in values), restored


def known(value: Any) -> bool:
    """Whether numbers can be looked at: not what is only traced, nor what lies on a GPU, which would be waited for."""
    return not (is_traced(value) or "cuda" in str(getattr(value, "device", "")))


def positive(name: str, value: Any) -> None:
    """Refuse a number or an array that is not positive everywhere, where it is known."""
    if isinstance(value, (bool, str)) or value is None:
        raise ValueError(f"{name} must be a positive number or an array of them; got {value!r}.")
    if not known(value):
        return
    if isinstance(value, (int, float)):
        good, worst = 0.0 < value < float("inf"), value
    else:
        array = numbers(value)
        bad = array[~((array > 0) & (array < np.inf))]
        good, worst = not bad.size, bad.flat[0] if bad.size else 0.0
    if not good:
        raise ValueError(f"{name} must be positive and finite; got {float(worst):g}.")


def numbers(array: Array) -> Any:
    """The numbers of an array, wherever it is."""
    return array.detach().cpu().numpy() if is_torch(array) else np.asarray(array)

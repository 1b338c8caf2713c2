"""NumPy: values only. Tests and documentation use it, and so may anybody who needs no gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from varopt._array import Array
from varopt.nn._library import facts, named  # noqa: F401 - used as attributes of the adapter

xp = array_namespace(np.empty(0))
name = "NumPy"
cumulative_sum, cumulative_max = np.cumsum, np.maximum.accumulate


def dtypes(given: Sequence[Any]) -> tuple[Any, Any]:
    """The floating dtype to compute in, and that of the result."""
    floating = [d for d in given if np.issubdtype(d, np.floating)]
    result = np.result_type(*floating) if floating else np.dtype(np.float64)
    return np.result_type(np.float32, result), result


def as_array(value: Any, dtype: Any, like: Sequence[Array]) -> Array:
    """A value as an array."""
    return np.asarray(value, dtype=dtype)


def ndtr(u: Array) -> Array:
    """Phi(u)."""
    from scipy.special import ndtr

    return ndtr(u)


def log_ndtr(u: Array) -> Array:
    """Log Phi(u)."""
    from scipy.special import log_ndtr

    return log_ndtr(u)


def erfcx(u: Array) -> Array:
    """``exp(u^2) erfc(u)``."""
    from scipy.special import erfcx

    return erfcx(u)


def hold(x: Array) -> Array:
    """The same numbers, without a gradient."""
    return x


def elementwise(rule: Any, *arguments: Array) -> Array:
    """The value of a rule."""
    with np.errstate(over="ignore", under="ignore"):
        return rule.value(*arguments)


def chunked(function: Callable[..., Array], size: int, split: Array, *shared: Array) -> Array:
    """A function of the rows of `split`, `size` of them at a time."""
    if len(split) <= size:
        return function(split, *shared)
    return np.concatenate([function(split[i : i + size], *shared) for i in range(0, len(split), size)])


def selected(function: Callable[..., Array], size: int, v: Array, ends: Array, grid: Array, k: int) -> Array:
    """``function(v, ends, grid, k)``, `size` rows at a time."""

    def of_rows(rows: Array, grid: Array) -> Array:
        return function(rows[:, :-2], rows[:, -2:], grid, k)

    return chunked(of_rows, size, xp.concat([v, ends], axis=-1), grid)


def scan(step: Callable[[Array, Array], Array], start: Array, along: Array) -> Array:
    """All states of a recursion over the first axis of `along`, the first before any step."""
    states = [start]
    for item in along:
        states.append(step(states[-1], item))
    return np.stack(states)

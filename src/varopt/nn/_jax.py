"""JAX: functions with known derivatives, under every transformation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as xp
import numpy as np
from jax.scipy.special import erfcx, log_ndtr, ndtr, ndtri  # noqa: F401 - used as attributes of the adapter

from varopt._array import Array
from varopt.nn import _noise
from varopt.nn._library import facts, named  # noqa: F401 - used as attributes of the adapter

__all__ = ["as_array", "chunked", "dtypes", "elementwise", "erfcx", "hold", "log_ndtr", "ndtr", "scan", "xp"]

name = "JAX"
hold = jax.lax.stop_gradient
cumulative_sum = xp.cumsum


def cumulative_max(x: Array, axis: int) -> Array:
    """The largest so far."""
    return jax.lax.cummax(x, axis % x.ndim)


def dtypes(given: Sequence[Any]) -> tuple[Any, Any]:
    """The floating dtype to compute in, and that of the result."""
    # Arrays of NumPy have float64 where JAX knows float32 only.
    floating = [jax.dtypes.canonicalize_dtype(d) for d in given if xp.issubdtype(d, xp.floating)]
    result = xp.result_type(*floating) if floating else xp.result_type(float)
    return xp.promote_types(xp.float32, result), result


def as_array(value: Any, dtype: Any, like: Sequence[Array]) -> Array:
    """A value as an array."""
    return xp.asarray(value, dtype=dtype)


def elementwise(rule: Any, *arguments: Array) -> Array:
    """A rule of arguments that broadcast; each of its derivatives is again a rule, so that all orders exist."""
    return _elementwise(rule, *xp.broadcast_arrays(*arguments))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _elementwise(rule: Any, *arguments: Array) -> Array:
    return rule.value(*arguments)


def _elementwise_jvp(rule: Any, arguments: Any, tangents: Any) -> tuple[Array, Array]:
    output = _elementwise(rule, *arguments)
    partials = rule.partials(elementwise, arguments, output, (True,) * len(arguments))
    return output, sum(t * p for t, p in zip(tangents, partials, strict=True))


_elementwise.defjvp(_elementwise_jvp)


def chunked(function: Callable[..., Array], size: int, split: Array, *shared: Array) -> Array:
    """A function of the rows of `split`; where they are many, `size` at a time, and gradients compute it again."""
    if len(split) <= size:
        return function(split, *shared)
    one = jax.checkpoint(lambda row: function(row[None], *shared)[0])
    return jax.lax.map(one, split, batch_size=size)


def selected(function: Callable[..., Array], size: int, v: Array, ends: Array, grid: Array, k: int) -> Array:
    """``function(v, ends, grid, k)``, `size` rows at a time."""

    def of_rows(rows: Array, grid: Array) -> Array:
        return function(rows[:, :-2], rows[:, -2:], grid, k)

    return chunked(of_rows, size, xp.concat([v, ends], axis=-1), grid)


def scan(step: Callable[[Array, Array], Array], start: Array, along: Array) -> Array:
    """All states of a recursion over the first axis of `along`, the first before any step."""

    def keep(state: Array, item: Array) -> tuple[Array, Array]:
        return step(state, item), state

    last, before = jax.lax.scan(keep, start, along)
    return xp.concatenate([before, last[None]])


# -- For `smooth` -----------------------------------------------------------------------------------------------------


def flatten(tree: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """The leaves of a pytree, and what puts others in their places."""
    leaves, spec = jax.tree_util.tree_flatten(tree)
    return leaves, lambda new: jax.tree_util.tree_unflatten(spec, list(new))


def sobol(count: int, d: int, like: Array) -> Array:
    """Sobol points as integers of 30 bits."""
    return xp.asarray(_noise.sobol(count, d))


def uniform(rng: Any, shape: tuple[int, ...], like: Array) -> Array:
    """Uniform numbers of the dtype of `like`, from a key that is split: see `as_rng`."""
    rng[0], own = jax.random.split(rng[0])
    return jax.random.uniform(own, shape, dtype=like.dtype)


def as_rng(rng: Any, seed: int) -> Any:
    """A key in a list, so that draws can replace it."""
    if rng is None:
        raise ValueError("key must be given with JAX arrays: twin(x, key=jax.random.key(0)).")
    if not isinstance(rng, jax.Array):
        raise ValueError(f"key must be a key of JAX, such as jax.random.key(0); got {type(rng).__name__}.")
    return [rng]


def over_samples(fn: Callable[..., Any], leaves: list[Array]) -> list[Array]:
    """`fn` of the leaves of each sample, all at once by `vmap`."""
    return list(jax.vmap(fn)(leaves))


def on_host(fn: Callable[..., Any], leaves: list[Array], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """A function of NumPy arrays, all samples at once: ``(S, ...)`` in and out."""
    dtype = leaves[0].dtype
    results = [jax.ShapeDtypeStruct((leaves[0].shape[0], *s), dtype) for s in shapes]

    def call(*arrays: Array) -> list[Any]:
        return [np.asarray(r, dtype=dtype) for r in fn([np.asarray(a) for a in arrays])]

    return list(jax.pure_callback(call, results, *leaves, vmap_method="sequential"))

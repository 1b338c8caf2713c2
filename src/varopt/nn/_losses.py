"""Losses that people want and cannot descend, averaged under noise: errors counted, ranks compared. All are exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from varopt._array import Array
from varopt.nn._elementwise import pinball, zero_one
from varopt.nn._library import is_count, known, library, prepared, require
from varopt.nn._order import argmax, average_of_rank, rank, topk

__all__ = ["ndcg", "quantile_loss", "spearman", "topk_error", "zero_one_loss"]

_REDUCTIONS = ("mean", "sum", "none")


def _reduced(lib: Any, values: Array, reduction: str) -> Array:
    require(reduction in _REDUCTIONS, f"reduction must be one of {', '.join(_REDUCTIONS)}; got {reduction!r}.")
    return values if reduction == "none" else getattr(lib.xp, reduction)(values)


def _of_target(scores: Array, probabilities: Array, target: Array) -> Array:
    """The entry of each row that the target names."""
    lib = library(scores)
    labels = lib.as_array(target, lib.xp.int64 if lib.name != "JAX" else int, [scores])
    n = scores.shape[-1]
    require(
        tuple(labels.shape) == tuple(scores.shape[:-1]),
        f"target must have one class per row, shape {tuple(scores.shape[:-1])}; got shape {tuple(labels.shape)}.",
    )
    if known(labels):
        require(
            bool(lib.xp.all((labels >= 0) & (labels < n))), f"target must be classes from 0 to {n - 1}; got others too."
        )
    return lib.xp.take_along_axis(probabilities, labels[..., None], axis=-1)[..., 0]


def zero_one_loss(scores: Array, target: Array, sigma: Array, reduction: str = "mean") -> Array:
    """The probability of an error, once noise of standard deviation sigma is added to the scores.

    Parameters
    ----------
    scores : array
        Binary: one decision value per row, in the shape of `target`. Else one score per class along the last axis.
    target : array of integers
        Binary: 0 or 1 (or -1 and 1). Multi-class: the right class.
    sigma : number, or array with one entry per row
    reduction : {"mean", "sum", "none"}

    Examples
    --------
    >>> import numpy as np
    >>> from varopt import nn
    >>> print(f"{nn.zero_one_loss(np.array([2.0, -0.1]), np.array([1, 1]), 0.1):.4f}")
    0.4207
    """
    lib, (s,), _ = prepared(scores)
    shape = tuple(getattr(target, "shape", np.shape(target)))
    if shape == tuple(s.shape):
        labels = lib.as_array(target, s.dtype, [s])
        if known(labels):
            bits = (labels == 0) | (lib.xp.abs(labels) == 1)
            require(
                bool(lib.xp.all(bits)), "target must be 0 or 1 (or -1 and 1) in the shape of scores; got others too."
            )
        return _reduced(lib, zero_one(lib.xp.where(labels > 0, s, -s), sigma), reduction)
    return _reduced(lib, 1.0 - _of_target(s, argmax(s, sigma), target), reduction)


def topk_error(scores: Array, target: Array, k: int, sigma: Array, reduction: str = "mean") -> Array:
    """The probability that the right class is not among the k largest scores, once noise is added to them."""
    lib, (s,), _ = prepared(scores)
    return _reduced(lib, 1.0 - _of_target(s, topk(s, k, sigma), target), reduction)


def quantile_loss(prediction: Array, target: Array, level: float, sigma: Array, reduction: str = "mean") -> Array:
    """The check loss of ``target - prediction`` for a quantile `level`, averaged under noise."""
    lib, (p, y), _ = prepared(prediction, target)
    return _reduced(lib, pinball(y - p, level, sigma), reduction)


def spearman(x: Array, y: Array, sigma: Array, reduction: str = "mean") -> Array:
    """Spearman's rank correlation of x, once noise is added to it, with y; along the last axis. To be maximised.

    Notes
    -----
    The ranks of x plus noise have no ties, so their variance is known and the average of the correlation is that of the
    average ranks: exact. Ranks of y (ties get their mean) have no gradient. Cost: `rank`.

    Examples
    --------
    >>> import numpy as np
    >>> from varopt import nn
    >>> print(f"{nn.spearman(np.array([1.0, 2.0, 4.0]), np.array([0.0, 5.0, 6.0]), 0.1):.4f}")
    1.0000
    """
    lib, (s, t), _ = prepared(x, y)
    n = int(s.shape[-1]) if s.ndim else 0
    require(n >= 2, "x must have at least two entries along its last axis.")
    held = lib.hold(t)
    below = lib.xp.sum(lib.xp.astype(held[..., :, None] > held[..., None, :], s.dtype), axis=-1)
    equal = lib.xp.sum(lib.xp.astype(held[..., :, None] == held[..., None, :], s.dtype), axis=-1)
    ranks = below + 0.5 * (equal + 1.0) - 0.5 * (n + 1.0)
    spread = lib.xp.sqrt(lib.xp.sum(ranks * ranks, axis=-1)) * math.sqrt(n * (n * n - 1.0) / 12.0)
    # Without an order in y there is nothing to agree with.
    spread = lib.xp.where(spread > 0, spread, lib.xp.ones_like(spread))
    return _reduced(lib, lib.xp.sum((rank(s, sigma) - 0.5 * (n + 1.0)) * ranks, axis=-1) / spread, reduction)


def ndcg(scores: Array, relevance: Array, sigma: Array, k: int | None = None, reduction: str = "mean") -> Array:
    """Normalised discounted cumulative gain of the order of scores plus noise, along the last axis. To be maximised.

    Parameters
    ----------
    scores, relevance : arrays of one shape
        Gains are ``2^relevance - 1``, discounts ``1 / log2(1 + place)``; rows without any gain count as one.
    sigma : number, or array with one entry per row
    k : int, optional
        Only the first k places count.

    Notes
    -----
    Exact, by the distribution of the place of each entry: see `average_of_rank` for cost and memory.

    Examples
    --------
    >>> import numpy as np
    >>> from varopt import nn
    >>> print(f"{nn.ndcg(np.array([3.0, 1.0, 2.0]), np.array([2.0, 0.0, 1.0]), 1e-3):.4f}")
    1.0000
    """
    lib, (s, r), _ = prepared(scores, relevance)
    xp = lib.xp
    n = int(s.shape[-1]) if s.ndim else 0
    require(n >= 1, "scores must have at least one entry along their last axis.")
    require(tuple(s.shape) == tuple(r.shape), f"relevance must have the shape of scores, {tuple(s.shape)}.")
    if k is not None and not (is_count(k) and 1 <= k <= n):
        raise ValueError(f"k must be an integer between 1 and {n}; got {k!r}.")
    discount = 1.0 / np.log2(2.0 + np.arange(k or n))
    gains = 2.0 ** lib.hold(r) - 1.0
    best = xp.flip(xp.sort(gains, axis=-1), axis=-1)[..., : discount.size]
    ideal = xp.sum(best * lib.as_array(discount, s.dtype, [s]), axis=-1)
    gained = xp.sum(gains * average_of_rank(s, discount, sigma), axis=-1)
    some = ideal > 0
    return _reduced(
        lib, xp.where(some, gained / xp.where(some, ideal, xp.ones_like(ideal)), xp.ones_like(ideal)), reduction
    )

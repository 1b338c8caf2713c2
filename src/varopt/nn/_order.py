r"""What depends on the order of n numbers: argmax, top k, ranks, sorting, averaged under Gaussian noise.

Let y = x + sigma z, z ~ N(0, I), and v = (x - c) / sigma from any c that is held fixed: every average here is a smooth
function of v, so that derivatives in x and sigma follow from those in v. Given that one of the numbers is t, the others
lie above it independently, and what is left is one integral over t, on which the trapezoid rule converges faster than
any power of its step [TrefethenWeideman14]. Its nodes do not depend on v, so its derivatives converge as well.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from varopt._array import Array, is_traced
from varopt.nn._library import is_count, library, positive, prepared, require
from varopt.nn._rules import CDF, DENSITY, LOG_CDF, MILLS

__all__ = ["argmax", "average_of_rank", "rank", "sort", "topk"]

_LIMIT = 2**24  # numbers in the largest array of a chunk: 128 MiB of float64
# Standard deviations between two numbers whose order is certain, by bytes of a number.
_ORDER_CERTAIN = {8: 13.0, 4: 9.0}
_TAIL_REACH = {8: 8.3, 4: 5.1}  # those beyond which a tail is nothing
_LEFT_OUT = {8: 1e-13, 4: 1e-6}  # chances that may be left out of an integral


class _Rows:
    """The arguments of a layer: rows along the last axis, in units of sigma, and the way back."""

    def __init__(self, x: Array, sigma: Array, axis: int) -> None:
        positive("sigma", sigma)
        self.lib, (x, s), self._restored = prepared(x, sigma)
        self.xp = self.lib.xp
        if x.ndim == 0:
            raise ValueError("x must have at least one axis; got a single number.")
        if not (is_count(axis) and -x.ndim <= axis < x.ndim):
            raise ValueError(f"axis must be an integer between {-x.ndim} and {x.ndim - 1}; got {axis!r}.")
        self._axis = axis % x.ndim
        self.x = self._moved(x, self._axis, x.ndim - 1)
        self.n = int(self.x.shape[-1])
        require(self.n > 0, f"x must not be empty along axis {axis}.")
        batch = tuple(self.x.shape[:-1])
        if s.ndim == x.ndim and s.shape[self._axis] == 1:  # as `std(axis, keepdims=True)` gives it
            s = self._moved(s, self._axis, s.ndim - 1)[..., 0]
        try:
            s = self.xp.broadcast_to(s, batch)
        except (RuntimeError, ValueError):
            raise ValueError(
                f"sigma must be a number or have one entry per row, shape {batch}; got shape {tuple(s.shape)}."
            ) from None
        self._batch = batch
        self.x = self.xp.reshape(self.x, (-1, self.n)) if math.prod(batch) else self.x.reshape((0, self.n))
        self.sigma = self.xp.reshape(s, (-1, 1)) if math.prod(batch) else s.reshape((0, 1))
        self.bytes = 8 if "64" in str(self.x.dtype) else 4
        # What an infinity masks ties with others that are masked: differences in units of sigma stay finite.
        last = 0.25 * float(self.xp.finfo(x.dtype).max) * self.xp.clip(self.lib.hold(self.sigma), None, 1.0)
        self.x = self.xp.minimum(self.xp.maximum(self.x, -last), last)

    def standardized(self, origin: Array, x: Array | None = None) -> Array:
        """``(x - origin) / sigma`` with the origin held; far beyond what matters it is cut, so that it stays finite."""
        far = 1e4 * self.lib.hold(self.sigma)
        offset = (self.x if x is None else x) - self.lib.hold(origin)
        return self.xp.minimum(self.xp.maximum(offset, -far), far) / self.sigma

    def given_back(self, result: Array) -> Array:
        """Rows as they came."""
        result = self.xp.reshape(result, (*self._batch, self.n))
        return self._restored(self._moved(result, result.ndim - 1, self._axis))

    def _moved(self, x: Array, source: int, target: int) -> Array:
        axes = [i for i in range(x.ndim) if i != source]
        axes.insert(target, source)
        return x if source == target else self.xp.permute_dims(x, tuple(axes))

    def nodes(self, start: float, stop: float, step: float) -> tuple[Array, float]:
        """Nodes of the trapezoid rule, and their distance."""
        count = max(2, math.ceil((stop - start) / step) + 1)
        grid = np.linspace(start, stop, count)
        return self.lib.as_array(grid, self.x.dtype, [self.x]), float(grid[1] - grid[0])

    def span(self, apart: Array, most: float) -> float:
        """The largest of some numbers, at most `most`; that itself where they are only traced."""
        if is_traced(apart) or not math.prod(apart.shape):
            return most if math.prod(apart.shape) else 0.0
        return min(most, float(self.xp.max(apart)))


def _step(n: int, k: int, size: int) -> float:
    """The step of the trapezoid rule: an error of 1e-13 in float64, 1e-6 in float32.

    What is integrated varies as fast as the density of the k-th of n equal numbers, the narrowest there is: sd
    ``sqrt(q (1 - q) / n) / phi(z_q)`` for the quantile q, and ``phi(z_q) <= q (1 - q) sqrt(-2 log(q (1 - q)))``. The
    factors were measured, for n from 2 to 10^4.
    """
    q = (k - 0.5) / n if n > 1 else 0.5
    width = 1.0 / math.sqrt(-2.0 * n * q * (1.0 - q) * math.log(q * (1.0 - q)))
    step = min(0.75 * width, 0.66 / math.log(max(n, 2)))
    return min(0.42, step) if size == 8 else min(0.6, 1.75 * step)


def argmax(x: Array, sigma: Array, axis: int = -1) -> Array:
    """The probability that each entry is the largest, once noise of standard deviation sigma is added to all.

    Parameters
    ----------
    x : array
    sigma : number, or array with one entry per row
        Standard deviation of the noise; a row is what lies along `axis`.
    axis : int

    Returns
    -------
    array of the shape of x
        It sums to one along the axis: the average of the one-hot argmax.

    Notes
    -----
    Cost and memory: n times about 60 numbers a row (30 in float32), more slowly than log n more for large n. Where that
    exceeds 2^24 numbers, rows are taken in chunks that gradients compute again.

    Examples
    --------
    >>> import numpy as np
    >>> from varopt import nn
    >>> nn.argmax(np.array([1.0, 0.0, 1.0]), 0.5).round(4)
    array([0.4885, 0.0231, 0.4885])
    """
    rows = _Rows(x, sigma, axis)
    lib, xp = rows.lib, rows.xp
    v = rows.standardized(xp.max(rows.x, axis=-1, keepdims=True)) if rows.x.shape[0] else rows.x
    reach = _TAIL_REACH[rows.bytes]
    t, h = rows.nodes(-reach, reach + 0.5 * math.log10(rows.n) + 0.3, _step(rows.n, 1, rows.bytes))

    def probabilities(v: Array, t: Array) -> Array:
        # P_i = int phi_i prod_{j != i} Phi_j dt = int exp(sum_j log Phi_j) phi_i / Phi_i dt
        u = t[:, None] - v[:, None, :]
        all_below = xp.exp(xp.sum(lib.elementwise(LOG_CDF, u), axis=-1, keepdims=True))
        return h * xp.sum(all_below * lib.elementwise(MILLS, u), axis=1)

    return rows.given_back(lib.chunked(probabilities, max(1, _LIMIT // (t.shape[0] * rows.n)), v, t))


def topk(x: Array, k: int, sigma: Array, axis: int = -1) -> Array:
    """The probability that each entry is among the k largest, once noise of standard deviation sigma is added to all.

    Parameters
    ----------
    x : array
    k : int
        Between 1 and the number of entries along the axis.
    sigma : number, or array with one entry per row
    axis : int

    Returns
    -------
    array of the shape of x
        It sums to k along the axis: the average of the top-k mask.

    Notes
    -----
    Cost and memory: 2 n min(k, n - k) numbers a row for each of ``28 + 1.5 log(n)^2`` nodes (half as many in float32).
    Chunked as `argmax`.

    Examples
    --------
    >>> import numpy as np
    >>> from varopt import nn
    >>> nn.topk(np.array([1.0, 0.0, 1.0, -3.0]), 2, 0.5).round(4)
    array([0.9329, 0.1342, 0.9329, 0.    ])
    """
    rows = _Rows(x, sigma, axis)
    xp, n = rows.xp, rows.n
    if not (is_count(k) and 1 <= k <= n):
        raise ValueError(f"k must be an integer between 1 and the {n} entries along the axis; got {k!r}.")
    if k == n or not rows.x.shape[0]:
        return rows.given_back(xp.ones_like(rows.x) + 0.0 * (rows.x + rows.sigma))
    if 2 * k > n:  # those left out are fewer
        rows.x = -rows.x
        return rows.given_back(1.0 - _among_first(rows, n - k))
    return rows.given_back(_among_first(rows, k))


def _among_first(rows: _Rows, k: int) -> Array:
    lib, xp, n = rows.lib, rows.xp, rows.n
    ordered = xp.sort(lib.hold(rows.x), axis=-1)
    origin = ordered[:, n - k, None]
    v, ordered = rows.standardized(origin), lib.hold(rows.standardized(origin, ordered))
    ends = xp.concat(
        [-_end(rows, xp.flip(-ordered[:, : n - k + 1], axis=-1)), _end(rows, ordered[:, n - k :])], axis=-1
    )
    count = _count(n, rows.bytes)
    grid = lib.as_array(np.linspace(0.0, 1.0, count), rows.x.dtype, [rows.x])
    size = max(1, _LIMIT // (2 * n * k * count))
    return lib.selected(_selected, size, v, ends, grid, k)


def _count(n: int, size: int) -> int:
    """The nodes between the ends of a row: an error of 1e-13 in float64, 1e-6 in float32 (2e-6 in gradients).

    Measured for n from 2 to 1000 (in float32 to 200) on what is hardest: equal numbers, random ones, two
    or three clusters at any distance.
    """
    least, more = {8: (28.0, 1.5), 4: (12.8, 0.8)}[size]
    return math.ceil(least + more * math.log(n) ** 2)


@lru_cache(64)
def _subsets(n: int, m: int, nothing: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``j = 1 .. m``, and ``2 log(binomial(n - m + j, j) / (2^j nothing)) / j``."""
    free, least = n - m + 1.0, math.lgamma(n - m + 1.0) + math.log(nothing)
    j = np.arange(1.0, m + 1.0)
    logs = np.array([math.lgamma(free + i) - math.lgamma(i + 1.0) - least for i in range(1, m + 1)])
    return j, 2.0 * (logs / j - math.log(2.0))


def _end(rows: _Rows, above: Array) -> Array:
    """Where it is certain that fewer than m of the n numbers lie beyond, given the m last of them in order.

    To be m, j of those without the last m - j must lie beyond: at most binomial(n - m + j, j) times the product of the
    j largest tails, and ``Phi(-r) <= exp(-r^2 / 2) / 2``. The smallest answer over j is taken.
    """
    lib, xp, m = rows.lib, rows.xp, above.shape[-1]
    above = xp.clip(above, 0.0, 30.0)  # none beyond is the answer, and squares keep their digits
    j, logs = (lib.as_array(a, rows.x.dtype, [rows.x]) for a in _subsets(rows.n, m, _LEFT_OUT[rows.bytes]))
    mean, square = lib.cumulative_sum(above, -1) / j, lib.cumulative_sum(above * above, -1) / j
    reach = xp.sqrt(xp.clip(logs - (square - mean * mean), 0.0, None))
    return xp.min(xp.maximum(mean + reach, above), axis=-1, keepdims=True)


def _selected(v: Array, ends: Array, grid: Array, k: int) -> Array:
    """The chance that each entry is among the k largest.

    Let a_i be the chance that entry i lies above t, and r_i that it lies at t and k - 1 of the others above it: the
    density of the k-th largest is R, the sum of the r_i. Entry i is among the first if it lies above the k-th of the
    others, whose distribution function is that of the k-th of all plus ``a_i r_i / phi_i``; integrated by parts,
    ``int a_i (R + r_i) dt``. The integrand ends where R does.
    """
    lib = library(v)
    xp = lib.xp
    width = ends[:, 1:] - ends[:, :1]
    t = ends[:, :1] + width * grid
    u = xp.permute_dims(v, (1, 0))[:, :, None] - t
    above = lib.elementwise(CDF, u)
    # Chances that 0 to k - 1 of the entries before each, and of those after it, lie above t
    both = xp.stack([above, xp.flip(above, axis=0)], axis=1)[:-1, None]
    zero = xp.zeros_like(both[0])
    start = xp.concat([zero + 1.0, *([zero] * (k - 1))])
    counts = lib.scan(lambda p, a: p + a * (xp.concat([zero, p[:-1]]) - p), start, both)
    before, after = counts[:, :, 0], xp.flip(counts[:, :, 1], axis=(0, 1))
    at = lib.elementwise(DENSITY, u) * xp.sum(before * after, axis=1)
    integral = xp.sum(above * (xp.sum(at, axis=0) + at), axis=-1)
    return xp.permute_dims(integral, (1, 0)) * (width / (grid.shape[0] - 1.0))


def _average(v: Array, discount: Array, t: Array, h: float) -> Array:
    """The average of ``discount[r - 1]`` where r is the place of each entry, one for the largest; zero beyond them.

    With N the number of the others above t: ``int phi_i(t) <discount[N]> dt``. Of a sum of independent bits the first
    ones have the probabilities F, and W is the average over the others: one recursion each way.
    """
    lib = library(v)
    xp, k, n = lib.xp, discount.shape[0], v.shape[-1]
    by_entry = xp.permute_dims(v, (1, 0))[:, :, None]
    u = by_entry - t
    above = lib.elementwise(CDF, u)[:, None]
    zero = xp.zeros_like(above[:1, :, :, :])[0]
    start = xp.concat([zero + 1.0, *([zero] * (k - 1))])

    def count_up(p: Array, a: Array) -> Array:
        return p + a * (xp.concat([zero, p[:-1]]) - p)

    def count_down(w: Array, a: Array) -> Array:
        return w + a * (xp.concat([w[1:], zero]) - w)

    first = lib.scan(count_up, start, above[: n - 1])
    rest = lib.scan(count_down, discount[:, None, None] + xp.zeros_like(start), xp.flip(above[1:], axis=0))
    averages = xp.sum(first * xp.flip(rest, axis=0), axis=1)
    return xp.permute_dims(h * xp.sum(lib.elementwise(DENSITY, u) * averages, axis=-1), (1, 0))


def rank(x: Array, sigma: Array, axis: int = -1) -> Array:
    """The average rank of each entry, from one for the smallest, once noise of standard deviation sigma is added.

    Notes
    -----
    ``1/2 + sum_j Phi((x_i - x_j) / (sigma sqrt 2))``. Cost and memory: n^2 numbers a row; where that exceeds 2^24
    numbers, entries are taken in chunks that gradients compute again.

    Examples
    --------
    >>> import numpy as np
    >>> from varopt import nn
    >>> nn.rank(np.array([3.0, 1.0, 1.0]), 0.5).round(4)
    array([2.9953, 1.5023, 1.5023])
    """
    rows = _Rows(x, sigma, axis)
    lib, xp = rows.lib, rows.xp
    scale = math.sqrt(0.5) / rows.sigma

    def ranks(some: Array, x: Array, scale: Array) -> Array:
        return 0.5 + xp.sum(lib.elementwise(CDF, (some[:, :, None] - x) * scale), axis=-1)

    size = max(1, _LIMIT // max(1, rows.x.shape[0] * rows.n))
    by_entry = lib.chunked(ranks, size, xp.permute_dims(rows.x, (1, 0)), rows.x, scale)
    return rows.given_back(xp.permute_dims(by_entry, (1, 0)))


def _drawn_together(rows: _Rows) -> tuple[Array, Array, Array, float]:
    """Rows with wide gaps narrowed, their entries in order, what each of these is moved by, and the span.

    Numbers that far apart do not change places, so that what depends on the order stays the same. Each is measured from
    the first of its cluster, and so keeps its digits.
    """
    lib, xp, most = rows.lib, rows.xp, _ORDER_CERTAIN[rows.bytes]
    held = lib.hold(rows.x)
    order = xp.argsort(held, axis=-1)
    ordered = xp.take_along_axis(held, order, axis=-1)
    gaps = lib.hold((ordered[:, 1:] - ordered[:, :-1]) / rows.sigma)
    zero = xp.zeros_like(ordered[:, :1])
    near = xp.concat([zero, lib.cumulative_sum(xp.clip(gaps, 0.0, most), -1)], axis=-1)
    first = xp.concat([xp.ones_like(zero), xp.astype(gaps > most, zero.dtype)], axis=-1) > 0
    anchor = lib.cumulative_max(xp.where(first, ordered, ordered[:, :1] + xp.zeros_like(ordered)), -1)
    moved = lib.cumulative_max(xp.where(first, near, xp.zeros_like(near)), -1)
    near = moved + lib.hold((ordered - anchor) / rows.sigma)
    places = xp.argsort(order, axis=-1)
    v = rows.standardized(xp.take_along_axis(anchor, places, axis=-1)) + xp.take_along_axis(moved, places, axis=-1)
    span = rows.span(near[:, -1], most * (rows.n - 1))
    return v, near, anchor - rows.sigma * moved, span


def average_of_rank(x: Array, discount: Array, sigma: Array, axis: int = -1) -> Array:
    """The average of ``discount[r - 1]`` for the place r of each entry, one for the largest; zero beyond its length.

    All layers that count are such averages: ``(1, 1)`` is the top 2, ``1 / log2(1 + r)`` the discounted gain.

    Notes
    -----
    Cost and memory: 2 n len(discount) numbers a row for each node; nodes cover the range of the row, gaps narrowed to
    13 sigma (9 in float32), at 2 to 10 a sigma. Where values are
    only traced, as under ``jit``, the range is not known, and the widest is taken.
    """
    rows = _Rows(x, sigma, axis)
    weights = np.asarray(discount, dtype=np.float64)
    require(
        weights.ndim == 1 and 1 <= weights.size <= rows.n,
        f"discount must be a vector of 1 to {rows.n} numbers; got shape {weights.shape}.",
    )
    if not rows.x.shape[0]:
        return rows.given_back(rows.x)
    v, _, _, span = _drawn_together(rows)
    reach = _TAIL_REACH[rows.bytes]
    t, h = rows.nodes(-reach, span + reach, _step(rows.n, max(1, rows.n // 2), rows.bytes))
    by_place = rows.lib.as_array(weights, rows.x.dtype, [rows.x])
    size = max(1, _LIMIT // (2 * rows.n * weights.size * t.shape[0]))
    return rows.given_back(rows.lib.chunked(lambda v, by_place, t: _average(v, by_place, t, h), size, v, by_place, t))


def sort(x: Array, sigma: Array, axis: int = -1) -> Array:
    """The average of the entries in increasing order, once noise of standard deviation sigma is added to them.

    Notes
    -----
    The average of each order statistic; they sum to the sum of x. Cost and memory: n^2 numbers a row for each node (see
    `average_of_rank`).

    Examples
    --------
    >>> import numpy as np
    >>> from varopt import nn
    >>> nn.sort(np.array([3.0, 1.0, 1.0]), 0.5).round(4)
    array([0.7179, 1.2812, 3.001 ])
    """
    rows = _Rows(x, sigma, axis)
    lib, xp, n = rows.lib, rows.xp, rows.n
    if not rows.x.shape[0]:
        return rows.given_back(rows.x)
    v, near, moved, span = _drawn_together(rows)
    reach = _TAIL_REACH[rows.bytes]
    t, h = rows.nodes(-reach, span + reach, _step(n, max(1, n // 2), rows.bytes))

    def averages(both: Array, t: Array) -> Array:
        v, centre = both[:, :n], xp.permute_dims(both[:, n:], (1, 0))[:, :, None]
        below = lib.elementwise(CDF, t - xp.permute_dims(v, (1, 0))[:, :, None])[:, None]
        zero = xp.zeros_like(below[:1, :, :, :])[0]
        # P(at most c numbers lie below t), c = 0 .. n - 1: the chance that entry c + 1 lies above t.
        tail = zero + xp.ones_like(v[0])[:, None, None]
        for j in range(n):
            tail = tail + below[j] * (xp.concat([zero, tail[:-1]]) - tail)
        # <y> = c + int P(y > t) - P(c + z > t) dt
        integral = h * xp.sum(tail - lib.elementwise(CDF, centre - t), axis=-1)
        return xp.permute_dims(integral, (1, 0)) + both[:, n:]

    size = max(1, _LIMIT // (n * n * t.shape[0]))
    result = moved + rows.sigma * lib.chunked(averages, size, xp.concat([v, near], axis=-1), t)
    return rows.given_back(result)

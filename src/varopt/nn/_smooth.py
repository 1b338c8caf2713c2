r"""A differentiable twin of any function: its average under noise, estimated from samples.

The estimate is ``mean_s [b_s + (f(y_s) - b_s) p(y_s|theta) / p(y_s|theta_0)]`` with the points y and theta_0 held: the
ratio is one, and its derivatives of order m are those of p, divided by p. So values and derivatives of every order
are unbiased, in the location, the scale and probabilities alike [FoersterEtAl18], if
the baseline b_s does not depend on y_s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from varopt._array import Array, is_jax, is_torch
from varopt.nn._library import is_count, known, library, numbers, positive, require
from varopt.nn._noise import (
    DISCRETE,
    NOISES,
    clipped,
    first_order_only,
    log_ratio,
    one_hot_rows,
    outcomes,
    shifted_sobol,
)

__all__ = ["Smoothed", "smooth"]

CONTROLS = ("quasi", "antithetic", "leave-one-out", "value", "none")
_MOST_SOBOL = 21_201  # dimensions that SciPy has directions for; further ones are plain samples
_SHIFTS = 4  # independent shifts of a quasi-random rule: their spread is the standard error


def smooth(
    fn: Callable[..., Any],
    sigma: Any = 0.1,
    samples: int = 64,
    *,
    noise: str = "gaussian",
    control: str = "quasi",
    batched: bool = False,
    host: bool = False,
    with_error: bool = False,
    seed: int = 0,
) -> Smoothed:
    """A differentiable twin of any function, for PyTorch and JAX: the average of `fn` under noise, by sampling.

    Parameters
    ----------
    fn : callable
        ``fn(x, *args)`` of an array or pytree of arrays x, giving an array, a number or a pytree of them. It need not
        be differentiable. Only x is perturbed; gradients of what else `fn` uses flow as usual.
    sigma : positive number, array, or pytree like x
        Scale of the noise; may be learned. A call can give another one: ``twin(x, sigma=...)``.
    samples : int
        Calls of `fn` for one value and its gradients (at least 2).
    noise : {"gaussian", "logistic", "gumbel", "laplace", "uniform", "bernoulli", "categorical"}
        Law of z in ``x + sigma z`` (uniform: on [-1, 1]). With ``"bernoulli"`` x holds probabilities of bits and `fn`
        is given bits; with ``"categorical"`` probabilities along the last axis (divided by their sum), and `fn` gets
        one-hot vectors. Where all outcomes are at most `samples`, their sum is taken instead: exact. ``"laplace"``
        and ``"uniform"`` have first derivatives only, and uniform noise takes two more calls for each sample, on the
        faces of the box.
    control : {"quasi", "antithetic", "leave-one-out", "value", "none"}
        Against variance: scrambled Sobol points with ``fn(x)`` as baseline (one more call; for bits, of the likeliest);
        points in opposite pairs, each with the other pairs' mean as baseline; the other samples' mean; ``fn(x)``.
    batched : bool
        Whether `fn` takes all samples at once, along a first axis of every leaf of x and of its result.
    host : bool
        Whether `fn` is code outside the library: it is given NumPy arrays and may do anything. It is called on zeros
        first, to learn the shapes of its results.
    with_error : bool
        Whether to return the standard error of each value too.
    seed : int
        PyTorch only: seeds the generator of the twin, where a call gives none.

    Returns
    -------
    Smoothed
        ``twin(x, *args, sigma=None, generator=None, key=None)``. PyTorch: `generator` is a ``torch.Generator``. JAX:
        `key` must be given. Same seed, same numbers.

    Notes
    -----
    It bounds what it smooths: the average is at least the smallest value of `fn`. Under ``torch.func.vmap`` all rows
    use the same noise, unless ``randomness="different"``. Under ``torch.compile`` PyTorch's global generator is used.

    Examples
    --------
    >>> import varopt as vo
    >>> twin = vo.smooth(lambda x: (x > 0).sum(), sigma=0.5, samples=128)   # twin(x).backward() in PyTorch
    >>> twin.samples
    128
    """
    return Smoothed(fn, sigma, samples, noise, control, batched, host, with_error, seed)


@dataclass
class Smoothed:
    """What `smooth` returns: call it as the function it smooths."""

    fn: Callable[..., Any]
    sigma: Any = 0.1
    samples: int = 64
    noise: str = "gaussian"
    control: str = "quasi"
    batched: bool = False
    host: bool = False
    with_error: bool = False
    seed: int = 0
    _own: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise ValueError(f"fn must be callable; got {type(self.fn).__name__}.")
        n = self.samples
        if not (is_count(n) and n >= 2):
            raise ValueError(f"samples must be an integer of at least 2; got {n!r}.")
        laws = (*NOISES, *DISCRETE)
        require(self.noise in laws, f"noise must be one of {', '.join(laws)}; got {self.noise!r}.")
        require(self.control in CONTROLS, f"control must be one of {', '.join(CONTROLS)}; got {self.control!r}.")
        require(self.control != "antithetic" or n % 2 == 0, f"samples must be even for antithetic pairs; got {n}.")
        if self.control == "quasi" and self.with_error:
            require(n % _SHIFTS == 0, f"samples must be a multiple of {_SHIFTS} for errors of quasi; got {n}.")
        for leaf in _leaves(self.sigma):
            positive("sigma", leaf)

    def __call__(
        self, x: Any, *args: Any, sigma: Any = None, generator: Any = None, key: Any = None, **options: Any
    ) -> Any:
        """The average of ``fn(x + sigma z, *args, **options)``, or a pair with its standard error."""
        arrays = [a for a in _leaves(x) if is_torch(a) or is_jax(a)]
        if not arrays:
            raise ValueError(
                "x must be a PyTorch tensor, a JAX array, or a pytree of them. In NumPy "
                "vo.bound(fn, vo.Gaussian(x, sigma), samples=...) has the value of the average and its gradient."
            )
        rng = generator if generator is not None else key
        return _Run(self, library(*arrays), x, (args, options), sigma, rng).result()

    def rng(self, lib: Any, given: Any) -> Any:
        """The generator of a call: the caller's, or the twin's own."""
        if given is None and self._own is not None:
            return self._own
        found = lib.as_rng(given, self.seed)
        if given is None:
            self._own = found
        return found


def _leaves(tree: Any) -> Iterator[Any]:
    """The leaves of nested tuples, lists and dictionaries."""
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    if isinstance(tree, (tuple, list)):
        for part in tree:
            yield from _leaves(part)
    else:
        yield tree


class _Run:
    """One call of a twin: parameters as one vector, points, values, and the estimate."""

    def __init__(self, twin: Smoothed, lib: Any, x: Any, others: Any, sigma: Any, rng: Any) -> None:
        self.twin, self.lib, self.xp = twin, lib, lib.xp
        self.args, self.options = others
        leaves, self.rebuild = lib.flatten(x)
        given = [a.dtype for a in leaves if hasattr(a, "dtype")]
        self.dtype, _ = lib.dtypes(given)
        leaves = [lib.as_array(a, self.dtype, leaves) for a in leaves]
        self.shapes = [tuple(a.shape) for a in leaves]
        self.sizes = [math.prod(s) for s in self.shapes]
        require(sum(self.sizes) > 0, "x must not be empty.")
        self.leaves = leaves
        self.theta = self.xp.concat([self.xp.reshape(a, (-1,)) for a in leaves])
        self.discrete = twin.noise in DISCRETE
        if not self.discrete:
            self.sigma = self._scales(twin.sigma if sigma is None else sigma)
        self._given_rng = rng
        self._generator: Any = None

    def _scales(self, sigma: Any) -> Array:
        """Sigma for every number of x."""
        parts = self.lib.flatten(sigma)[0]
        require(
            len(parts) in (1, len(self.leaves)),
            f"sigma must be one number or array, or a pytree like x with {len(self.leaves)} leaves; got {len(parts)}.",
        )
        for part in parts:
            positive("sigma", part)
        parts = parts * len(self.leaves) if len(parts) == 1 else parts
        scales = []
        for part, shape in zip(parts, self.shapes, strict=True):
            array = self.lib.as_array(part, self.dtype, self.leaves)
            try:
                spread = self.xp.broadcast_to(array, shape)
            except (RuntimeError, ValueError):
                raise ValueError(f"sigma must broadcast to x, shape {shape}; got shape {tuple(array.shape)}.") from None
            scales.append(self.xp.reshape(spread, (-1,)))
        return self.xp.concat(scales)

    # -- Points -------------------------------------------------------------------------------------------------------

    @property
    def rng(self) -> Any:
        if self._generator is None:
            self._generator = self.twin.rng(self.lib, self._given_rng)
        return self._generator

    def uniforms(self, d: int) -> Array:
        """Uniform numbers, one row a sample, arranged as `control` says."""
        lib, xp, n = self.lib, self.xp, self.twin.samples
        if self.twin.control == "quasi":
            sets, regular = _SHIFTS if self.twin.with_error else 1, min(d, _MOST_SOBOL)
            points = shifted_sobol(lib, lib.uniform(self.rng, (sets, regular), self.theta), n // sets)
            if d > regular:
                points = xp.concat([points, lib.uniform(self.rng, (n, d - regular), self.theta)], axis=-1)
            return clipped(lib, points)
        if self.twin.control == "antithetic":
            u = clipped(lib, lib.uniform(self.rng, (n // 2, d), self.theta))
            return clipped(lib, xp.concat([u, 1.0 - u]))
        return clipped(lib, lib.uniform(self.rng, (n, d), self.theta))

    # -- The function -------------------------------------------------------------------------------------------------

    def values(self, points: Array) -> list[Array]:
        """`fn` of every row of the points: for each leaf of its result an array ``(rows, ...)``."""
        xp, rows = self.xp, points.shape[0]
        ends = np.cumsum([0, *self.sizes])
        leaves = [
            xp.reshape(points[:, a:b], (rows, *shape))
            for a, b, shape in zip(ends[:-1], ends[1:], self.shapes, strict=True)
        ]
        if self.twin.host:
            return self._host_values(leaves)
        if self.twin.batched:
            return self._all_samples(self._flat(self._call(leaves)), rows)
        one = self.lib.over_samples
        return list(one(lambda parts: self._flat(self._call(parts)), leaves))

    def _call(self, leaves: list[Array]) -> Any:
        result = self.twin.fn(self.rebuild(leaves), *self.args, **self.options)
        require(result is not None, "fn must return an array, a number or a pytree of them; got None.")
        return result

    def _flat(self, result: Any) -> list[Array]:
        leaves, self.rebuild_result = self.lib.flatten(result)
        return [self.lib.as_array(r, self.dtype, self.leaves) for r in leaves]

    def _all_samples(self, results: list[Array], rows: int) -> list[Array]:
        for r in results:
            require(
                r.ndim > 0 and r.shape[0] == rows,
                f"fn must give one result per sample along a first axis of {rows} where batched=True; "
                f"got shape {tuple(r.shape)}.",
            )
        return results

    def _host_values(self, leaves: list[Array]) -> list[Array]:
        def whole(arrays: list[Any]) -> list[Any]:
            if self.twin.batched:
                return self._all_samples(self._flat_host(self._call(arrays)), len(arrays[0]))
            each = [self._flat_host(self._call([a[i] for a in arrays])) for i in range(len(arrays[0]))]
            return [np.stack(parts) for parts in zip(*each, strict=True)]

        trial = whole([np.zeros((1, *shape)) for shape in self.shapes])
        return list(self.lib.on_host(whole, leaves, [r.shape[1:] for r in trial]))

    def _flat_host(self, result: Any) -> list[Any]:
        leaves, self.rebuild_result = self.lib.flatten(result)
        return [np.asarray(r, dtype=np.float64) for r in leaves]

    # -- The estimate -------------------------------------------------------------------------------------------------

    def result(self) -> Any:
        if self.discrete:
            return self._discrete()
        lib = self.lib
        law = NOISES[self.twin.noise]
        z = lib.hold(law.quantile(lib, self.uniforms(sum(self.sizes))))
        points = lib.hold(self.theta + self.sigma * z)
        values = self.values(points)
        if self.twin.noise == "uniform":
            return self._finish(values, None, self._faces(points, values))
        # (y - x) / sigma with y held, written so that its value is z to the last digit
        moved = ((lib.hold(self.theta) - self.theta) + lib.hold(self.sigma) * z) / self.sigma
        density = self.xp.sum(law.log_density(lib, moved) - self.xp.log(self.sigma), axis=-1)
        return self._finish(values, log_ratio(lib, density), None)

    def _faces(self, points: Array, values: list[Array]) -> list[Array]:
        """The derivative of the average over a box, from points moved to its faces along one coordinate each."""
        lib, xp, n, d = self.lib, self.xp, points.shape[0], points.shape[1]
        # Coordinates in turn from a random start: each is as likely for every sample.
        start = xp.astype(lib.uniform(self.rng, (1,), self.theta) * d, xp.int32)
        turn = lib.as_array(np.arange(n), xp.int32, [points]) + xp.clip(start, 0, d - 1)
        chosen = (turn % d)[:, None] == lib.as_array(np.arange(d), xp.int32, [points])
        above, below = (
            self.values(xp.where(chosen, lib.hold(self.theta + side * self.sigma), points)) for side in (1.0, -1.0)
        )
        weight = xp.astype(chosen, self.dtype) * d
        surrogates = []
        for f, up, down in zip(values, above, below, strict=True):
            extra = (1,) * (f.ndim - 1)
            w, s = xp.reshape(weight, (n, d, *extra)), xp.reshape(lib.hold(self.sigma), (d, *extra))
            at_mean = xp.mean(w * (0.5 * (up - down))[:, None], axis=0) / s
            at_sigma = xp.mean(w * (0.5 * (up + down) - f)[:, None], axis=0) / s
            theta, sigma = (xp.reshape(a, (d, *extra)) + 0.0 * at_mean for a in (self.theta, self.sigma))
            line = first_order_only(lib, theta, at_mean) + first_order_only(lib, sigma, at_sigma)
            surrogates.append(xp.sum(line, axis=0))
        return surrogates

    def _discrete(self) -> Any:
        """Bits, or one of several classes along the last axis: by all outcomes where they are few, else by samples."""
        lib, xp, twin = self.lib, self.xp, self.twin
        bits = twin.noise == "bernoulli"
        if not bits:
            widths = {shape[-1] if shape else 0 for shape in self.shapes}
            require(
                len(widths) == 1 and 0 not in widths, "x must have its classes along the last axis, as many in each."
            )
        if known(self.theta):
            p, most = numbers(self.theta), 1.0 if bits else np.inf
            wrong = p[~((p >= 0.0) & (p <= most))]
            require(not wrong.size, f"x must be probabilities; got {wrong[0] if wrong.size else 0.0:g}.")
        classes = 2 if bits else self.shapes[0][-1]
        n = sum(self.sizes) // (1 if bits else classes)
        # p: (n, classes)
        p = xp.stack([1.0 - self.theta, self.theta], axis=-1) if bits else xp.reshape(self.theta, (n, classes))
        # Baselines are free only where probabilities sum to one, whatever direction a derivative takes.
        p = p if bits else p / xp.sum(p, axis=-1, keepdims=True)
        if n * math.log(classes) <= math.log(twin.samples) + 1e-9:
            chosen = lib.as_array(one_hot_rows(outcomes(classes, n), classes), self.dtype, self.leaves)
            each = xp.sum(chosen * p, axis=-1)
            weights = each[:, 0]
            for i in range(1, n):
                weights = weights * each[:, i]
            return self._exact(self.values(self._points(chosen, bits)), weights)
        u = self.uniforms(n)
        edges = lib.cumulative_sum(lib.hold(p), -1)[:, :-1]
        index = xp.sum(xp.astype(u[:, :, None] > edges, xp.int32), axis=-1)
        chosen = xp.astype(index[:, :, None] == lib.as_array(np.arange(classes), xp.int32, [u]), self.dtype)
        density = xp.sum(xp.log(xp.sum(chosen * p, axis=-1)), axis=-1)
        likeliest = xp.argmax(lib.hold(p), axis=-1)[None, :, None]
        self.mode = self._points(
            xp.astype(likeliest == lib.as_array(np.arange(classes), xp.int32, [u]), self.dtype), bits
        )
        return self._finish(self.values(self._points(chosen, bits)), log_ratio(lib, density), None)

    def _points(self, chosen: Array, bits: bool) -> Array:
        return chosen[:, :, 1] if bits else self.xp.reshape(chosen, (chosen.shape[0], -1))

    def _exact(self, values: list[Array], weights: Array) -> Any:
        totals = [self.xp.sum(_over(self.xp, weights, f) * f, axis=0) for f in values]
        value = self.rebuild_result(totals)
        return (value, self.rebuild_result([0.0 * t for t in totals])) if self.twin.with_error else value

    def _finish(self, values: list[Array], ratio: Array | None, surrogates: list[Array] | None) -> Any:
        xp, lib = self.xp, self.lib
        central = self._central() if self.twin.control in ("quasi", "value") and ratio is not None else None
        means = []
        for i, f in enumerate(values):
            if ratio is None:
                means.append(xp.mean(f, axis=0) + (surrogates or [])[i])
                continue
            b = lib.hold(self._baseline(f) if central is None else central[i] + 0.0 * f)
            means.append(xp.mean(b + (f - b) * _over(xp, ratio, f), axis=0))
        result = self.rebuild_result(means)
        return (result, self.rebuild_result([self._error(f) for f in values])) if self.twin.with_error else result

    def _central(self) -> list[Array]:
        point = self.mode if self.discrete else self.lib.hold(self.theta)[None]
        return self.values(point)

    def _baseline(self, f: Array) -> Array:
        """What is subtracted from each value, independent of its own point."""
        xp, n = self.xp, f.shape[0]
        if self.twin.control == "antithetic" and n > 2:
            half = n // 2
            pairs = 0.5 * (f[:half] + f[half:])
            others = (xp.sum(pairs, axis=0) - pairs) / (half - 1)
            return xp.concat([others, others])
        if self.twin.control == "leave-one-out":
            return (xp.sum(f, axis=0) - f) / (n - 1)
        return 0.0 * f

    def _error(self, f: Array) -> Array:
        """The standard error of the mean, from what is independent: samples, pairs or shifts."""
        xp, f, n = self.xp, self.lib.hold(f), f.shape[0]
        if self.twin.control == "antithetic":
            f = 0.5 * (f[: n // 2] + f[n // 2 :])
        elif self.twin.control == "quasi":
            f = xp.mean(xp.reshape(f, (_SHIFTS, n // _SHIFTS, *f.shape[1:])), axis=1)
        if f.shape[0] < 2:
            return xp.full_like(f[0], np.inf)
        return xp.std(f, axis=0, correction=1) / math.sqrt(f.shape[0])


def _over(xp: Any, weights: Array, values: Array) -> Array:
    """One weight a sample, shaped to multiply values of samples."""
    return xp.reshape(weights, (weights.shape[0], *([1] * (values.ndim - 1))))

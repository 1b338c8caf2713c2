"""Layers for what has no gradient: accuracy, speed and variance, beside sampling with optax.

Every library that is absent makes its rows `skipped`. The rows of a GPU run where PyTorch finds CUDA. On such a machine
``python -m benchmarks --suite smooth --only gpu`` runs these alone.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

import varopt as vo
from benchmarks._measure import Timing, compare
from benchmarks._registry import Config, Row, benchmark
from varopt import nn

Array = NDArray[np.float64]


def versions(*packages: str) -> dict[str, str]:
    """The versions of the packages that decide a row."""
    return {p: importlib.metadata.version(p) for p in packages}


def absent(problem: str, *packages: str) -> Row | None:
    """The row of a problem whose libraries are not here."""
    missing = ", ".join(p for p in packages if importlib.util.find_spec(p) is None)
    return Row(problem, "varopt.nn", "", math.nan, math.inf, skipped=f"not installed: {missing}") if missing else None


def exact_argmax(x: Array, sigma: float) -> Array:
    """``P(argmax = i)`` with 30 digits, by mpmath."""
    import mpmath as mp

    def won(i: int) -> Any:
        def integrand(t: Any) -> Any:
            others = mp.fprod(mp.ncdf((t - mp.mpf(v)) / sigma) for j, v in enumerate(x) if j != i)
            return mp.npdf((t - mp.mpf(x[i])) / sigma) / sigma * others

        return mp.quad(integrand, [min(x) - 10 * sigma, *sorted(map(float, x)), max(x) + 10 * sigma])

    with mp.workdps(30):
        return np.array([float(won(i)) for i in range(x.size)])


@benchmark
def argmax_accuracy(config: Config) -> Iterator[Row]:
    """The probabilities of ten, against quadrature with 30 digits."""
    x = np.random.default_rng(0).standard_normal(config.pick(10, 4))
    if row := absent("argmax: relative error", "mpmath"):
        yield row
        return
    for sigma in (0.3, 1.0):
        exact = exact_argmax(x, sigma)
        error = float(np.max(np.abs(nn.argmax(x, sigma) / exact - 1.0)))
        yield Row(f"argmax of {x.size}, sigma {sigma:g}", "nn.argmax", "relative error / 1e-10", error / 1e-10, 1.0,
                  note=f"relative error {error:.1e}, smallest probability {exact.min():.1e}")  # fmt: skip


def hard_functions() -> dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], int, tuple[int, ...]]]:
    """What depends on an order: the exact layer, the hard function that optax samples, the entries, the batches."""
    import jax
    import jax.numpy as jnp

    def places(v: Any) -> Any:
        return jnp.argsort(jnp.argsort(v))

    return {
        "argmax of 10": (lambda x: nn.argmax(x, 0.5), lambda v: jax.nn.one_hot(jnp.argmax(v), 10), 10, (1, 256)),
        "top 5 of 20": (lambda x: nn.topk(x, 5, 0.5), lambda v: (places(v) >= 15) * 1.0, 20, (1, 256)),
        "ranks of 100": (lambda x: nn.rank(x, 0.5), lambda v: places(v) + 1.0, 100, (1, 64)),
    }


@benchmark
def ordered_speed(config: Config) -> Iterator[Row]:
    """Value and gradient of an argmax, a top k and ranks, compiled, beside optax with 100 samples."""
    problem = "value and gradient, jit"
    if row := absent(problem, "jax", "optax"):
        yield row
        return
    import jax
    import jax.numpy as jnp
    from optax import perturbations

    rng, key = np.random.default_rng(0), jax.random.key(0)
    for name, (layer, hard, n, batches) in hard_functions().items():
        weights = jnp.array(rng.standard_normal(n), dtype=jnp.float32)
        sampled = perturbations.make_perturbed_fun(hard, 100, 0.5, perturbations.Normal())
        own = jax.jit(jax.grad(lambda x, f=layer, w=weights: jnp.sum(f(x) @ w)))
        other = jax.jit(jax.grad(lambda x, f=sampled, w=weights: jnp.sum(jax.vmap(lambda v: f(key, v))(x) @ w)))
        for batch in batches:
            x = jnp.array(rng.standard_normal((batch, n)), dtype=jnp.float32)
            timed = compare(waited(own, x), waited(other, x), rounds=config.pick(41, 5))
            error = float(jnp.linalg.norm(other(x) - own(x)) / jnp.linalg.norm(own(x)))
            yield Row(
                f"{name}: {problem}, batch {batch}", "varopt.nn", "time / optax with 100 samples", timed.ratio,
                1.0 if n == 10 else math.inf, timing=timed.candidate, baseline=timed.baseline,
                versions=versions("jax", "optax"), note=f"optax's gradient is off by {error:.0%}",
            )  # fmt: skip


def waited(function: Callable[[Any], Any], x: Any) -> Callable[[], object]:
    """A call of JAX that returns when it is done."""

    def run() -> object:
        return function(x).block_until_ready()

    return run


def repeated(call: Callable[[], object], rounds: int, wait: Callable[[], object] = lambda: None) -> Timing:
    """One cold call, and warm ones."""
    seconds = []
    for _ in range(rounds + 1):
        wait()
        start = time.perf_counter()
        call()
        wait()
        seconds.append(time.perf_counter() - start)
    return Timing(seconds[0], tuple(seconds[1:]))


LAYERS: dict[str, tuple[Callable[[Any], Any], tuple[int, int], float]] = {
    "top 5 of 20, batch 256": (lambda x: nn.topk(x, 5, 1.0), (256, 20), 5e-3),
    "rank 64 x 100": (lambda x: nn.rank(x, 1.0), (64, 100), 10e-3),
    "argmax of 10, batch 256": (lambda x: nn.argmax(x, 1.0), (256, 10), math.inf),
    "sort of 16, batch 64": (lambda x: nn.sort(x, 1.0), (64, 16), math.inf),
}


def both_ways(layer: Callable[[Any], Any], x: Any, weights: Any) -> Callable[[], object]:
    """Forward and backward of a layer."""

    def run() -> object:
        return layer(x).backward(weights)

    return run


def layer_rows(config: Config, device: str) -> Iterator[Row]:
    """Forward and backward of every layer, in both precisions; targets are for the processor and float32."""
    import torch

    machine = f"{torch.get_num_threads()} threads" if device == "cpu" else torch.cuda.get_device_name()
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    for name, (layer, shape, target) in LAYERS.items():
        for dtype in (torch.float32, torch.float64):
            generator = torch.Generator().manual_seed(0)
            x = torch.randn(shape, generator=generator).to(device, dtype).requires_grad_()
            weights = torch.randn(shape, generator=generator).to(device, dtype)
            timing = repeated(both_ways(layer, x, weights), config.pick(101, 3), wait)
            judged = device == "cpu" and dtype == torch.float32 and math.isfinite(target)
            yield Row(
                f"{name}: forward and backward, {str(dtype)[6:]}, {device}", "varopt.nn",
                f"median seconds / {target:g}" if judged else "median seconds",
                timing.median / (target if judged else 1.0), 1.0 if judged else math.inf,
                timing=timing, versions=versions("torch"), note=machine,
            )  # fmt: skip


@benchmark
def layers(config: Config) -> Iterator[Row]:
    """Forward and backward of the layers, PyTorch on the processor.

    In a process of its own, as a user of PyTorch has it: the threads of JAX, which other rows load, are in its way.
    """
    if row := absent("layers, forward and backward", "torch"):
        yield row
        return
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.submit(_layer_rows, config).result()


def _layer_rows(config: Config) -> list[Row]:
    return list(layer_rows(config, "cpu"))


@benchmark
def gpu(config: Config) -> Iterator[Row]:
    """The layers on CUDA, at the processor's sizes and at large ones, with values checked against the processor's."""
    problem = "layers on a GPU"
    if row := absent(problem, "torch"):
        yield row
        return
    import torch

    if not torch.cuda.is_available():
        yield Row(problem, "varopt.nn", "", math.nan, math.inf, skipped="no CUDA device")
        return
    yield from layer_rows(config, "cuda")
    large: dict[str, tuple[Callable[[Any], Any], tuple[int, int]]] = {
        "step of 10^8": (lambda x: nn.step(x, 1.0), (10_000, 10_000)),
        "argmax of 1000, batch 4096": (lambda x: nn.argmax(x, 1.0), (4096, 1000)),
        "top 5 of 100, batch 4096": (lambda x: nn.topk(x, 5, 1.0), (4096, 100)),
        "rank 64 x 2000": (lambda x: nn.rank(x, 1.0), (64, 2000)),
        "rank 1 x 30000": (lambda x: nn.rank(x, 1.0), (1, 30_000)),
    }
    for name, (layer, shape) in large.items():
        x = torch.randn(config.pick(shape, (8, 50)), device="cuda", requires_grad=True)
        weights = torch.randn_like(x)
        torch.cuda.reset_peak_memory_stats()
        timing = repeated(both_ways(layer, x, weights), 5, torch.cuda.synchronize)
        rows = x.detach()[:2, :500]
        error = float((layer(rows).cpu() - layer(rows.cpu())).abs().max())
        yield Row(
            f"{name}: forward and backward, float32, cuda", "varopt.nn", "median seconds", timing.median, math.inf,
            timing=timing, peak_bytes=torch.cuda.max_memory_allocated(), versions=versions("torch"),
            status="ok" if error < 1e-4 else f"differs from the processor by {error:.1e}",
            note=torch.cuda.get_device_name(),
        )  # fmt: skip


def functions() -> dict[str, tuple[Callable[[Any], Any], Array, float]]:
    """Five functions without a useful gradient, each at a point and with a sigma."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    prizes, values = rng.standard_normal(10), rng.standard_normal(8)
    return {
        "prize of an argmax of 10": (
            lambda x: jax.nn.one_hot(jnp.argmax(x), 10) @ prizes, 0.5 * rng.standard_normal(10), 0.5,
        ),
        "a rule of 5 thresholds": (
            lambda x: jnp.sum(x > 0.0) + 2.0 * (jnp.sum(x) > 0.3), 0.3 * rng.standard_normal(5), 0.5,
        ),
        "value of the best 3 of 8": (
            lambda x: (jnp.argsort(jnp.argsort(-x)) < 3) @ values, 0.5 * rng.standard_normal(8), 0.5,
        ),
        "a simulator that rounds, 3 inputs": (
            lambda x: jnp.sum(jnp.round(x) ** 2) + jnp.abs(jnp.round(jnp.sum(x))), rng.standard_normal(3), 0.6,
        ),
        "kinks of 4 inputs": (
            lambda x: jnp.sum(jnp.maximum(1.0 - x, 0.0)) + jnp.max(x), rng.standard_normal(4), 0.3,
        ),
    }  # fmt: skip


@benchmark
def sampled_gradients(config: Config) -> Iterator[Row]:
    """Root mean square error of a gradient, beside optax (whose baseline is f(x)) at equal calls of the function."""
    problem = "gradient from samples"
    if row := absent(problem, "jax", "optax"):
        yield row
        return
    import jax
    import jax.numpy as jnp
    from optax import perturbations

    # optax takes 1000 samples unless told otherwise
    calls, keys = config.pick(1024, 32), jax.random.split(jax.random.key(1), config.pick(200, 20))

    def gradients(twin: Callable[[Any, Any], Any], x: Any, keys: Any = keys) -> Array:
        return np.asarray(jax.jit(jax.vmap(jax.grad(twin), in_axes=(None, 0)))(x, keys))

    def sampled(fn: Any, sigma: float, control: str, samples: int) -> Callable[[Any, Any], Any]:
        twin = vo.smooth(fn, sigma, samples, control=control)
        return lambda x, key: twin(x, key=key)

    def swapped(twin: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        return lambda x, key: twin(key, x)

    def error(estimates: Array, reference: Array) -> float:
        return float(np.sqrt(np.mean(np.sum((estimates - reference) ** 2, axis=1))))

    for name, (fn, point, sigma) in functions().items():
        x = jnp.array(point, dtype=jnp.float32)
        other = perturbations.make_perturbed_fun(fn, calls - 1, sigma, perturbations.Normal())  # one more call at x
        theirs = gradients(swapped(other), x)
        # All are unbiased: the mean of the most precise ones is the reference, far more precise than any.
        reference = np.mean(gradients(sampled(fn, sigma, "quasi", config.pick(2**15, 2**8)), x, keys[:20]), axis=0)
        base = error(theirs, reference)
        for control in ("antithetic", "quasi", "leave-one-out"):
            ours = gradients(sampled(fn, sigma, control, calls - (control == "quasi")), x)
            yield Row(
                f"{name}: gradient from {calls} calls", f"vo.smooth, {control}", "root mean square error / optax's",
                error(ours, reference) / base, 0.5 if control == "quasi" else math.inf,
                versions=versions("jax", "optax"),
                note=f"norm of the gradient {np.linalg.norm(reference):.3g}, optax's error {base:.3g}",
            )  # fmt: skip


@benchmark
def unbiased(config: Config) -> Iterator[Row]:
    """The mean of many estimates, in standard errors of it, for the input, sigma and probabilities."""
    problem = "unbiased"
    if row := absent(problem, "torch"):
        yield row
        return
    import torch
    from scipy.stats import norm

    samples, times = config.pick(31_250, 500), 32
    generator = torch.Generator().manual_seed(0)
    x, s = 0.3, 0.5
    exact = {"input": norm.pdf(x / s) / s, "sigma": -x / s**2 * norm.pdf(x / s)}
    for control in ("antithetic", "quasi", "leave-one-out", "value", "none"):
        twin = vo.smooth(lambda v: (v > 0).double(), samples=samples, control=control, batched=True)
        rows = []
        for _ in range(times):
            at = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (x, s)]
            rows.append([float(g) for g in torch.autograd.grad(twin(at[0], sigma=at[1], generator=generator), at)])
        for i, (what, value) in enumerate(exact.items()):
            column = np.array(rows)[:, i]
            deviation = abs(column.mean() - value) / (column.std(ddof=1) / math.sqrt(times))
            yield Row(f"{problem}: step, gradient in {what}, {samples * times:.0e} samples", f"vo.smooth, {control}",
                      "deviation / 4 standard errors", deviation / 4.0, 1.0, versions=versions("torch"))  # fmt: skip
    p = torch.full((20,), 0.3, dtype=torch.float64)
    twin = vo.smooth(lambda b: b.sum(-1) ** 2, samples=samples, noise="bernoulli", batched=True)
    means = []
    for _ in range(times):
        q = p.clone().requires_grad_()
        means.append(float(torch.autograd.grad(twin(q, generator=generator), q)[0].mean()))
    deviation = abs(np.mean(means) - (1.0 + 2.0 * 19 * 0.3)) / (np.std(means, ddof=1) / math.sqrt(times))
    yield Row(f"{problem}: 20 bits, gradient in probabilities, {samples * times:.0e} samples", "vo.smooth, antithetic",
              "deviation / 4 standard errors", float(deviation) / 4.0, 1.0, versions=versions("torch"))  # fmt: skip


@benchmark
def sigma_gradient(config: Config) -> Iterator[Row]:
    """The derivative in sigma of <(sigma z)^2> at 0.5, which is 1."""
    problem = "derivative in sigma that should be 1"
    if row := absent(problem, "jax", "optax"):
        yield row
        return
    import jax
    import jax.numpy as jnp
    from optax import perturbations

    samples = config.pick(2**16, 2**10)
    twin = vo.smooth(lambda v: v**2, samples=samples, batched=True, control="quasi")
    ours = float(jax.grad(lambda s: twin(jnp.zeros(()), sigma=s, key=jax.random.key(0)))(0.5))

    def theirs(s: Any) -> Any:
        fn = perturbations.make_perturbed_fun(lambda v: v**2, samples, s, perturbations.Normal())
        return fn(jax.random.key(0), jnp.zeros(()))

    yield Row(problem, "vo.smooth", "error / 1e-2", abs(ours - 1.0) / 1e-2, 1.0, note=f"got {ours:.4f}")
    other = float(jax.grad(theirs)(0.5))
    yield Row(problem, "optax", "error / 1e-2", abs(other - 1.0) / 1e-2, math.inf, note=f"got {other:.4f}",
              versions=versions("optax"))  # fmt: skip

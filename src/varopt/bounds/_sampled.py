"""Sampled bounds: plain, antithetic and quasi-random points, with standard errors."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt._domains import as_generator
from varopt.bounds._points_bound import PointsBound
from varopt.bounds._target import Target

__all__ = ["SamplingOptions", "sampled_bound"]

_REPLICATES = 16  # independent scramblings of a quasi-random rule: their spread gives the standard error
_ESTIMATORS = ("score", "reparameterized")


@dataclass(frozen=True)
class SamplingOptions:
    """How a sampled bound draws its points, and how it differentiates."""

    samples: Any = 4096
    seed: Any = None
    estimator: str | None = None  # what there is: the score, else the gradient of f
    antithetic: bool = False
    quasi: bool = False

    def __post_init__(self) -> None:
        n = self.samples
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 2:
            raise ValueError(f"samples must be an integer of at least 2; got {n!r}.")
        if self.estimator is not None and self.estimator not in _ESTIMATORS:
            raise ValueError(f"estimator must be 'score' or 'reparameterized'; got {self.estimator!r}.")
        for name in ("antithetic", "quasi"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ValueError(f"{name} must be True or False; got {getattr(self, name)!r}.")
        if self.antithetic and self.quasi:
            raise ValueError("antithetic and quasi exclude each other: quasi-random points are already balanced.")
        if self.antithetic and (n % 2 or n < 4):
            raise ValueError(f"samples must be even and at least 4 for antithetic pairs; got {n}.")
        if self.quasi and n < 2 * _REPLICATES:
            raise ValueError(f"samples must be at least {2 * _REPLICATES} for quasi-random points; got {n}.")


def sampled_bound(target: Target, options: SamplingOptions) -> PointsBound:
    """Draw points and average."""
    if options.estimator == "reparameterized":
        if any(c.is_discrete or c.is_own for c in target.components):
            raise ValueError("estimator 'reparameterized' needs families over real variables; use estimator='score'.")
        if target.gradients is None:
            raise ValueError(
                f"estimator 'reparameterized' needs a gradient: {target.why_no_gradients}. Use estimator='score'."
            )
    n, unit = int(options.samples), 1
    if options.quasi:
        unit = n // _REPLICATES
        points = _quasi_random(target, unit, options.seed)
    else:
        points = target.family.sample(n, options.seed, antithetic=bool(options.antithetic))
        if options.antithetic:
            unit = 2
            points = np.stack([points[: n // 2], points[n // 2 :]], axis=1).reshape(n, -1)  # pairs side by side
    return PointsBound(target, "sampled", target.reorder(points), None, unit, options.estimator or target.estimator)


def _quasi_random(target: Target, per_replicate: int, seed: Any) -> NDArray[np.float64]:
    from scipy.stats import qmc

    if any(c.is_own for c in target.components):
        raise ValueError("quasi needs a family that maps uniforms to points; one's own object does not.")
    rng = as_generator(seed)
    dimension = target.family.noise_size
    if dimension > qmc.Sobol.MAXDIM:
        raise ValueError(f"quasi needs at most {qmc.Sobol.MAXDIM} coordinates; got {dimension}.")
    keyword = "rng" if "rng" in inspect.signature(qmc.Sobol).parameters else "seed"  # SciPy renamed it in 1.15
    replicates = []
    for _ in range(_REPLICATES):
        engine = qmc.Sobol(dimension, scramble=True, **{keyword: rng})
        # A power of two keeps the balance of the sequence; the first points of it are still well spread.
        uniforms = engine.random_base2(max(1, (per_replicate - 1).bit_length()))[:per_replicate]
        replicates.append(target.family.from_uniform(uniforms))
    return np.concatenate(replicates)

"""Sampled bounds: plain, antithetic and quasi-random points, with standard errors."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.bounds._points_bound import PointsBound
from varopt.bounds._target import Target

__all__ = ["SamplingOptions", "sampled_bound"]

_REPLICATES = 16  # independent scramblings of a quasi-random rule: their spread gives the standard error


@dataclass(frozen=True)
class SamplingOptions:
    """How a sampled bound draws its points, and how it differentiates."""

    samples: int = 4096
    seed: Any = None
    estimator: str = "score"
    antithetic: bool = False
    quasi: bool = False

    @classmethod
    def parse(cls, options: dict[str, Any]) -> SamplingOptions:
        """Options from a user's keywords."""
        known = [f.name for f in fields(cls)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise ValueError(f"unknown option for method 'sampled': {', '.join(unknown)}; accepted are {', '.join(known)}.")
        parsed = cls(**options)
        if isinstance(parsed.samples, bool) or not isinstance(parsed.samples, (int, np.integer)) or parsed.samples < 2:
            raise ValueError(f"samples must be an integer of at least 2; got {parsed.samples!r}.")
        if parsed.estimator not in ("score", "reparameterized"):
            raise ValueError(f"estimator must be 'score' or 'reparameterized'; got {parsed.estimator!r}.")
        if parsed.antithetic and parsed.quasi:
            raise ValueError("antithetic and quasi exclude each other: quasi-random points are already balanced.")
        if parsed.antithetic and (parsed.samples % 2 or parsed.samples < 4):
            raise ValueError(f"samples must be even and at least 4 for antithetic pairs; got {parsed.samples}.")
        if parsed.quasi and parsed.samples < 2 * _REPLICATES:
            raise ValueError(f"samples must be at least {2 * _REPLICATES} for quasi-random points; got {parsed.samples}.")
        return parsed


def sampled_bound(target: Target, options: SamplingOptions) -> PointsBound:
    """Draw points and average."""
    n = options.samples
    if options.quasi:
        unit = n // _REPLICATES
        points = _quasi_random(target, unit, options.seed)
    elif options.antithetic:
        unit = 2
        halves = target.family.sample(n, options.seed, antithetic=True)
        points = np.stack([halves[: n // 2], halves[n // 2 :]], axis=1).reshape(n, -1)  # pairs side by side
    else:
        unit = 1
        points = target.family.sample(n, options.seed)
    return PointsBound(target, "sampled", points, None, unit, options.estimator)


def _quasi_random(target: Target, per_replicate: int, seed: Any) -> NDArray[np.float64]:
    from scipy.stats import qmc

    rng = np.random.default_rng(seed)
    dimension = target.family.noise_size
    if dimension > qmc.Sobol.MAXDIM:
        raise ValueError(f"quasi needs at most {qmc.Sobol.MAXDIM} coordinates; got {dimension}.")
    replicates = []
    for _ in range(_REPLICATES):
        engine = qmc.Sobol(dimension, scramble=True, rng=rng)
        # A power of two keeps the balance of the sequence; the first points of it are still well spread.
        uniforms = engine.random_base2(max(1, (per_replicate - 1).bit_length()))[:per_replicate]
        replicates.append(target.family.from_uniform(uniforms))
    return np.concatenate(replicates)

"""The methods by name: which update for which columns."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from varopt.search._coding import Coding
from varopt.search._space import SpaceLayout
from varopt.solvers.natural_gradient import (
    CMA,
    LMMAES,
    SNES,
    XNES,
    BoundedUpdate,
    CategoricalUpdate,
    FamilyUpdate,
    GaussianUpdate,
    Integers,
    LocalSearch,
    ProductUpdate,
    Restarts,
    Update,
    adaptive,
    berny,
    default_population,
    free_energy,
    pbil,
    umda,
)

__all__ = ["METHODS", "build"]

Array = NDArray[np.float64]

FULL_COVARIANCE_UP_TO = 200  # columns; beyond, a generation of the full covariance costs more than most objectives
SIGMA = 0.2  # of the width of the box; 0.3 gains on BBOB f5 and costs f7, f8 and f11 (`docs/benchmarks.md`)

METHODS = {
    "auto": "cma or low-rank for reals and integers, adaptive probabilities for choices beside them, else local search",
    "cma": "Gaussian with full covariance, evolution paths, restarts with growing populations (CMA-ES, BIPOP)",
    "low-rank": "Gaussian of low rank for hundreds of coordinates (LM-MA-ES), with restarts",
    "xnes": "Gaussian with full covariance, exponential natural gradient (xNES)",
    "snes": "Gaussian with diagonal covariance (SNES)",
    "nes": "xNES with values as weights: the sampled gradient of the bound itself",
    "local": "booleans, choices and permutations around the best point, at an adapted rate",
    "pbil": "probabilities of choices, short steps towards the few best (PBIL)",
    "umda": "probabilities of choices, all the way to the average of the better half (UMDA)",
    "berny": "probabilities of choices, values as weights (Berny)",
    "free-energy": "probabilities of choices, values and entropy as weights, while the entropy's share falls",
}
_GAUSSIAN = {"cma", "low-rank", "xnes", "snes", "nes"}
_CHOICES: dict[str, Callable[..., CategoricalUpdate]] = {
    "pbil": pbil, "umda": umda, "berny": berny, "free-energy": free_energy,
}  # fmt: skip


def build(
    method: str, layout: SpaceLayout, coding: Coding, start: Array | None, sigma: float | None, population: int | None
) -> tuple[str, Update]:
    """The update that `method` names for this layout, with the name of what ``auto`` chose.

    `start` is a latent point, `sigma` a fraction of the box.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}; got {method!r}.")
    orders = [np.arange(where.start, where.stop) for where in layout.permutations]
    numeric = np.concatenate((layout.real, layout.integer))
    if method == "auto":
        many = numeric.size > FULL_COVARIANCE_UP_TO
        method = "local" if numeric.size == 0 else "low-rank" if many else "cma"
    if method == "local":
        if numeric.size:
            raise ValueError(
                "method 'local' is for booleans, choices and permutations; this space has numbers. Use 'cma'."
            )
        return method, LocalSearch(layout.options, layout.permutations, population, start)
    if method in _CHOICES:
        if layout.choice.size < layout.columns:
            raise ValueError(f"method {method!r} is for booleans and choices; this space has other parts. Use 'auto'.")
        return method, _CHOICES[method](layout.options, population)

    gaussian = np.sort(np.concatenate([numeric, *orders]).astype(np.intp))
    if not gaussian.size:
        raise ValueError(
            f"method {method!r} is for numbers; this space has none. Use 'auto', 'pbil', 'umda' or 'berny'."
        )
    integers = np.flatnonzero(np.isin(gaussian, layout.integer))
    grid = Integers(integers, functools.partial(coding.cells, gaussian[integers])) if integers.size else None
    first_population = population or default_population(layout.columns, layout.integer.size)

    def factory(mean: Array, sigma: float, population: int) -> FamilyUpdate:
        center = mean[gaussian]
        match method:
            case "cma":
                inner: GaussianUpdate = CMA(center, sigma, population, integers=grid)
            case "low-rank":
                inner = LMMAES(center, sigma, population)
            case "snes":
                inner = SNES(center, sigma, population)
            case _:
                inner = XNES(center, sigma, population, raw=method == "nes")
        if layout.real.size == layout.columns:
            return BoundedUpdate(inner, layout.real, ranked=method != "nes")
        if not layout.choice.size:
            return inner
        # Of all samples of a distribution that has settled, 27 % still differ in some choice [Hm24].
        share = 1.0 - 0.73 ** (1.0 / layout.choice.size)
        return ProductUpdate(
            [(gaussian, inner), (layout.choice, adaptive(layout.options[layout.choice], population, share))]
        )

    center = np.full(layout.columns, 0.5) if start is None else start
    discrete = layout.real.size < layout.columns
    return method, Restarts(factory, center, SIGMA if sigma is None else sigma, first_population, discrete=discrete)

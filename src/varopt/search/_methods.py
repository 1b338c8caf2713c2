"""The methods by name: which update for which columns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from varopt.search._coding import Coding
from varopt.search._space import SpaceLayout
from varopt.search.models import ExpectedImprovement, Given, Handover
from varopt.solvers.natural_gradient import (
    CMA,
    LMMAES,
    SNES,
    XNES,
    Allowance,
    BoundedUpdate,
    CategoricalUpdate,
    FamilyUpdate,
    GaussianUpdate,
    Integers,
    LocalSearch,
    ProductUpdate,
    Restarts,
    SurrogateUpdate,
    Update,
    adaptive,
    berny,
    default_population,
    free_energy,
    pbil,
    umda,
)

__all__ = ["METHODS", "SearchPlan", "build"]

Array = NDArray[np.float64]

PROCESS_REALS, PROCESS_MIXED = 60, 150  # evaluations that a Gaussian process proposes
FULL_COVARIANCE_UP_TO = 200  # columns; beyond, a generation of the full covariance costs more than most objectives
SIGMA = 0.2  # of the width of the box; 0.3 gains on BBOB f5 and costs f7, f8 and f11 (`docs/benchmarks.md`)

SURROGATE_UP_TO = 40  # reals; beyond, a quadratic model needs more data than it saves
SURROGATE_EVALUATIONS = 1000  # for each of them, after which a function is cheaper than the model
MODELLED_UP_TO = 40  # columns of a Gaussian process
SMALL = 500  # evaluations of a run up to which they are worth a Gaussian process

METHODS = {
    "auto": "process for small budgets; lq, cma or low-rank for numbers, adaptive probabilities for choices beside "
    "them, else local search",
    "process": "Gaussian process and expected improvement, handing over to the others after a few dozen evaluations",
    "cma": "Gaussian with full covariance, evolution paths, restarts with growing populations (CMA-ES, BIPOP)",
    "lq": "cma, with a quadratic model in place of most evaluations of smooth functions of reals (lq-CMA-ES)",
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
_CHOICES: dict[str, Callable[..., CategoricalUpdate]] = {
    "pbil": pbil, "umda": umda, "berny": berny, "free-energy": free_energy,
}  # fmt: skip

Known = tuple[Array, Array]


@dataclass(frozen=True)
class SearchPlan:
    """What a search was asked for, as far as its method depends on it.

    `starts` are latent points to evaluate first, `start` one to begin at, `sigma` is a fraction of the box.
    """

    method: str
    layout: SpaceLayout
    coding: Coding
    starts: Array | None = None
    start: Array | None = None
    sigma: float | None = None
    budget: int | None = None
    noisy: bool = False


def build(plan: SearchPlan, population: int | None = None, batch: int = 1) -> tuple[str, Update]:
    """The update that a plan names for its layout, with the name of what ``auto`` chose."""
    method, layout = plan.method, plan.layout
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}; got {method!r}.")
    if method == "process" and (layout.permutations or layout.columns > MODELLED_UP_TO):
        raise ValueError(
            f"method 'process' is for numbers, booleans and choices of up to {MODELLED_UP_TO} columns; use 'auto'."
        )
    base = _base(plan) if method in ("auto", "process") else method
    modelled = method == "process" or (method == "auto" and _length(plan) > 0)
    begin = functools.partial(_modelled if modelled else _sampled, base, population=population, batch=batch)
    name = f"process > {base}" if modelled else base
    plain = replace(plan, starts=None)
    if plan.starts is None:
        return name, begin(plan=plan)
    begin(plan=plain)  # refuses what it cannot do before anything is evaluated
    numeric = np.concatenate((layout.real, layout.integer))
    given = Given(plan.starts, numeric, 0.5 * (plan.sigma or SIGMA))
    return name, Handover(
        given, len(plan.starts), lambda mean, _, known: begin(plan=replace(plain, start=mean), known=known)
    )


def _modelled(base: str, plan: SearchPlan, population: int | None, batch: int, known: Known | None = None) -> Update:
    """A Gaussian process, and then a rule that moves a distribution."""
    first = ExpectedImprovement(plan.layout, plan.coding, batch, known)

    def after(mean: Array, spread: float, known: Known) -> Update:
        sigma = plan.sigma or min(max(spread, 0.01), SIGMA)
        return _sampled(base, replace(plan, start=mean, sigma=sigma), population, batch, known)

    return Handover(first, _length(plan) or 100, after)


def _base(plan: SearchPlan) -> str:
    """What goes on when a model is used up, or there is none."""
    layout = plan.layout
    numbers = layout.real.size + layout.integer.size
    if not numbers:
        return "local"
    if numbers > FULL_COVARIANCE_UP_TO:
        return "low-rank"
    return "lq" if layout.real.size == layout.columns <= SURROGATE_UP_TO and not plan.noisy else "cma"


def _length(plan: SearchPlan) -> int:
    """How many evaluations of a run a Gaussian process proposes; none where they are many, and so are cheap."""
    layout, budget = plan.layout, plan.budget
    if budget is None or budget > SMALL or layout.permutations or layout.columns > MODELLED_UP_TO:
        return 0
    return min(budget, PROCESS_REALS if layout.real.size == layout.columns else PROCESS_MIXED)


def _sampled(method: str, plan: SearchPlan, population: int | None, batch: int, known: Known | None = None) -> Update:
    """A rule that moves a distribution."""
    layout, start = plan.layout, plan.start
    orders = [np.arange(where.start, where.stop) for where in layout.permutations]
    numeric = np.concatenate((layout.real, layout.integer))
    if method == "local":
        if numeric.size:
            raise ValueError(
                "method 'local' is for booleans, choices and permutations; this space has numbers. Use 'cma'."
            )
        exists = layout.active if layout.conditions else None
        local = LocalSearch(layout.options, layout.permutations, population, start, exists)
        if known is not None:
            local.tell(*known)
        return local
    if method == "lq" and layout.real.size < layout.columns:
        raise ValueError("method 'lq' is for reals; this space has other parts. Use 'auto'.")
    if method in _CHOICES:
        if layout.choice.size < layout.columns:
            raise ValueError(f"method {method!r} is for booleans and choices; this space has other parts. Use 'auto'.")
        return _CHOICES[method](layout.options, population)

    gaussian = np.sort(np.concatenate([numeric, *orders]).astype(np.intp))
    if not gaussian.size:
        raise ValueError(
            f"method {method!r} is for numbers; this space has none. Use 'auto', 'pbil', 'umda' or 'berny'."
        )
    integers = np.flatnonzero(np.isin(gaussian, layout.integer))
    grid = Integers(integers, functools.partial(plan.coding.cells, gaussian[integers])) if integers.size else None
    first_population = population or default_population(layout.columns, layout.integer.size)
    allowance = Allowance(SURROGATE_EVALUATIONS * layout.columns)
    if method == "lq" and batch > 1:
        first_population = max(first_population, 2 * batch)  # of which half are evaluated at once

    def factory(mean: Array, sigma: float, population: int) -> FamilyUpdate:
        center = mean[gaussian]
        match method:
            case "cma" | "lq":
                inner: GaussianUpdate = CMA(center, sigma, population, integers=grid)
            case "low-rank":
                inner = LMMAES(center, sigma, population)
            case "snes":
                inner = SNES(center, sigma, population)
            case _:
                inner = XNES(center, sigma, population, raw=method == "nes")
        if layout.real.size == layout.columns:
            bounded = BoundedUpdate(inner, layout.real, ranked=method != "nes")
            if method != "lq":
                return bounded
            nonlocal known
            known, told = None, known  # the first run only: later ones are elsewhere
            return SurrogateUpdate(bounded, batch, told, allowance)
        if not layout.choice.size:
            return inner
        # Of all samples of a distribution that has settled, 27 % still differ in some choice [Hm24].
        share = 1.0 - 0.73 ** (1.0 / layout.choice.size)
        return ProductUpdate(
            [(gaussian, inner), (layout.choice, adaptive(layout.options[layout.choice], population, share))]
        )

    center = np.full(layout.columns, 0.5) if start is None else start
    discrete = layout.real.size < layout.columns
    sigma = SIGMA if plan.sigma is None else plan.sigma
    return Restarts(factory, center, sigma, first_population, discrete=discrete)

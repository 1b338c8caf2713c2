"""The methods by name: which update for which columns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from varopt.search._coding import Coding
from varopt.search._space import SpaceLayout
from varopt.search.goals import Archive, ConstrainedUpdate, FrontUpdate, Ruled, Rules
from varopt.search.models import ExpectedImprovement, Given, Handover
from varopt.solvers.natural_gradient import (
    CMA,
    LMMAES,
    SNES,
    XNES,
    Allowance,
    BoundedUpdate,
    CategoricalUpdate,
    DiagonalCMA,
    FamilyUpdate,
    GaussianUpdate,
    Integers,
    LocalSearch,
    ProductUpdate,
    Restarts,
    SeparableOrNot,
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

PROCESS_REALS, PROCESS_SEVERAL, PROCESS_MIXED = 60, 100, 150  # evaluations that a Gaussian process proposes
PROCESS_EACH = 6  # and for each real: a quadratic model has as many unknowns as there are pairs of them
FULL_COVARIANCE_UP_TO = 200  # columns; beyond, a generation of the full covariance costs more than most objectives
SIGMA = 0.2  # of the width of the box; 0.3 gains on BBOB f5, not on f7, f8 and f11 (`docs/benchmarks/black-boxes.md`)

SURROGATE_UP_TO = 40  # reals; beyond, a quadratic model needs more data than it saves
SURROGATE_EVALUATIONS = 1000  # for each of them, after which a function is cheaper than the model
MODELLED_UP_TO = 40  # columns of a Gaussian process
KERNELS = (4, 20)  # distributions of a front, at least and at most
MANY = 10_000  # evaluations, where it is not known how many there are
SMALL_BUDGET = 500  # evaluations of a run up to which they are worth a Gaussian process

METHODS = {
    "auto": "process for small budgets; lq, cma or separable for numbers, adaptive probabilities for choices beside "
    "them, else local search",
    "process": "Gaussian process and expected improvement, handing over to the others after a few dozen evaluations",
    "cma": "Gaussian with full covariance, evolution paths, restarts with growing populations (CMA-ES, BIPOP)",
    "lq": "cma, with a quadratic model in place of most evaluations of smooth functions of reals (lq-CMA-ES)",
    "separable": "Gaussian with diagonal covariance (sep-CMA-ES), low-rank from where coordinates depend on each other",
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
CHOICES: dict[str, Callable[..., CategoricalUpdate]] = {
    "pbil": pbil, "umda": umda, "berny": berny, "free-energy": free_energy,
    "choices": lambda options, population: adaptive(options, population, 1.0 - 0.73 ** (1.0 / options.size)),
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
    time_limit: float | None = None
    noisy: bool = False
    objectives: int = 1
    constraints: int = 0
    rules: Rules | None = None

    @property
    def plain(self) -> bool:
        """Whether there is one objective and nothing else."""
        return self.objectives == 1 and not self.constraints and self.rules is None

    @property
    def numeric(self) -> NDArray[np.intp]:
        """The columns that are numbers."""
        return np.concatenate((self.layout.real, self.layout.integer))


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
    update = begin(plan=plain)
    if plan.starts is None:
        return name, update
    given = Given(plan.starts, plan.numeric, 0.5 * (plan.sigma or SIGMA), plan.rules)
    return name, Handover(given, len(plan.starts), functools.partial(_after_given, begin, plain))


def _after_given(begin: Callable[..., Update], plan: SearchPlan, mean: Array, _: float, known: Known) -> Update:
    return begin(plan=replace(plan, start=mean), known=known)


def _base(plan: SearchPlan) -> str:
    """What goes on when a model is used up, or there is none."""
    layout = plan.layout
    numbers = plan.numeric.size
    if not numbers:
        return "local" if plan.objectives == 1 else "cma" if layout.permutations else "choices"
    if numbers > FULL_COVARIANCE_UP_TO:
        return "low-rank" if plan.noisy or layout.real.size < layout.columns else "separable"
    smooth = plan.plain and not plan.noisy and layout.real.size == layout.columns <= SURROGATE_UP_TO
    return "lq" if smooth else "cma"


def _length(plan: SearchPlan) -> int:
    """How many evaluations of a run a Gaussian process proposes; none where they are many, and so are cheap.

    Where only a time limit is given, as many as for a small budget, as long as evaluations take far longer.
    """
    layout, budget = plan.layout, plan.budget
    if budget is None and plan.time_limit is not None:
        budget = SMALL_BUDGET
    if budget is None or budget > SMALL_BUDGET or layout.permutations or layout.columns > MODELLED_UP_TO:
        return 0
    if layout.real.size < layout.columns:
        return min(budget, PROCESS_MIXED)
    least = PROCESS_REALS if plan.objectives == 1 else PROCESS_SEVERAL
    return min(budget, max(least, PROCESS_EACH * layout.columns))


def _modelled(base: str, plan: SearchPlan, population: int | None, batch: int, known: Known | None = None) -> Update:
    """A Gaussian process, and then a rule that moves a distribution."""
    first = ExpectedImprovement(
        plan.layout, plan.coding, batch, known, objectives=plan.objectives, constraints=plan.constraints,
        rules=plan.rules,
    )  # fmt: skip
    after = functools.partial(_after_process, base, plan, population, batch)
    return Handover(first, _length(plan) or 100, after, timed=plan.method == "auto" and plan.budget is None)


def _after_process(
    base: str, plan: SearchPlan, population: int | None, batch: int, mean: Array, spread: float, known: Known
) -> Update:
    sigma = plan.sigma or min(max(spread, 0.01), SIGMA)
    return _sampled(base, replace(plan, start=mean, sigma=sigma), population, batch, known)


def _sampled(base: str, plan: SearchPlan, population: int | None, batch: int, known: Known | None = None) -> Update:
    """A rule that moves a distribution, or several of them where there are several objectives."""
    if base == "lq" and not plan.plain:
        raise ValueError("method 'lq' is for one objective without constraints. Use 'auto'.")
    if plan.objectives > 1:
        return _several(base, plan, population, known)
    if not plan.constraints:
        return _single(base, plan, population, batch, known)
    return ConstrainedUpdate(_single(base, plan, population, batch, None), plan.constraints)


def _several(base: str, plan: SearchPlan, population: int | None, known: Known | None) -> Update:
    """Distributions that share a front, spread over the space or over the front that is known."""
    if base == "local":
        raise ValueError("method 'local' is for one objective. Use 'auto', 'pbil' or 'umda'.")
    size = population or default_population(plan.layout.columns, plan.layout.integer.size)
    count = min(max((plan.budget or MANY) // (20 * size), KERNELS[0]), KERNELS[1])
    sigma = SIGMA if plan.sigma is None else plan.sigma
    spread = 0.2 + 0.6 * qmc.Halton(plan.layout.columns, scramble=False).random(count + 1)[1:]
    starts = spread if plan.start is None else np.tile(plan.start, (count, 1))
    if known is not None:
        held = Archive(plan.objectives)
        for point, numbers in zip(*known, strict=True):
            if np.isfinite(numbers).all() and (numbers[plan.objectives :] <= 0.0).all():
                held.see(point, numbers[: plan.objectives])
        if held.rows:
            order = np.argsort(held.values[:, 0], kind="stable")
            starts = np.array(held.rows)[order[np.linspace(0, len(order) - 1, count).round().astype(int)]]
    return FrontUpdate(functools.partial(_kernel, base, plan, size), starts, sigma, plan.objectives, known)


def _kernel(base: str, plan: SearchPlan, population: int, mean: Array, sigma: float) -> Update:
    if base in CHOICES:
        return _ruled(CHOICES[base](plan.layout.options, population), plan)
    return _ruled(_distribution(base, plan, mean, sigma, population), plan)


def _single(base: str, plan: SearchPlan, population: int | None, batch: int, known: Known | None) -> Update:
    """A rule that moves a distribution, with restarts."""
    layout, start = plan.layout, plan.start
    if base == "local":
        if plan.numeric.size:
            raise ValueError(
                "method 'local' is for booleans, choices and permutations; this space has numbers. Use 'cma'."
            )
        exists = layout.active if layout.conditions else None
        local = LocalSearch(layout.options, layout.permutations, population, start, exists)
        if known is not None:
            local.tell(*known)
        return _ruled(local, plan)
    if base == "lq" and layout.real.size < layout.columns:
        raise ValueError("method 'lq' is for reals; this space has other parts. Use 'auto'.")
    if base in CHOICES:
        if layout.choice.size < layout.columns:
            raise ValueError(f"method {base!r} is for booleans and choices; this space has other parts. Use 'auto'.")
        return _ruled(CHOICES[base](layout.options, population), plan)
    _require_numbers(base, layout)
    first_population = population or default_population(layout.columns, layout.integer.size)
    if base == "lq" and batch > 1:
        first_population = max(first_population, 2 * batch)  # of which half are evaluated at once
    allowance = Allowance(SURROGATE_EVALUATIONS * layout.columns)
    factory = _Runs(base, plan, batch, first_population, allowance, known)
    center = np.full(layout.columns, 0.5) if start is None else start
    discrete = layout.real.size < layout.columns
    sigma = SIGMA if plan.sigma is None else plan.sigma
    exact = plan.plain and not plan.noisy and not discrete
    return Restarts(factory, center, sigma, first_population, discrete=discrete, exact=exact)


@dataclass
class _Runs:
    """What begins every run of the restarts."""

    base: str
    plan: SearchPlan
    batch: int
    first_population: int
    allowance: Allowance
    known: Known | None

    def __call__(self, mean: Array, sigma: float, population: int) -> Update:
        update = _distribution(self.base, self.plan, mean, sigma, population)
        # Large populations are for what no quadratic is like, and average over it: a model would narrow them too soon.
        if self.base != "lq" or not isinstance(update, BoundedUpdate) or population >= 2 * self.first_population:
            return _ruled(update, self.plan)
        self.known, told = None, self.known  # the first run only: later ones are elsewhere
        return SurrogateUpdate(update, self.batch, told, self.allowance)


def _ruled(update: Update, plan: SearchPlan) -> Update:
    return update if plan.rules is None else Ruled(update, plan.rules)


def _require_numbers(base: str, layout: SpaceLayout) -> None:
    if layout.choice.size == layout.columns:
        raise ValueError(f"method {base!r} is for numbers; this space has none. Use 'auto', 'pbil', 'umda' or 'berny'.")


def _distribution(base: str, plan: SearchPlan, mean: Array, sigma: float, population: int) -> FamilyUpdate:
    """A Gaussian over numbers and the keys of orders, beside probabilities of choices."""
    layout = plan.layout
    orders = [np.arange(where.start, where.stop) for where in layout.permutations]
    gaussian = np.sort(np.concatenate([plan.numeric, *orders]).astype(np.intp))
    integers = np.flatnonzero(np.isin(gaussian, layout.integer))
    grid = Integers(integers, functools.partial(plan.coding.cells, gaussian[integers])) if integers.size else None
    center = mean[gaussian]
    if base == "separable":
        if layout.real.size < layout.columns:
            raise ValueError("method 'separable' is for reals; this space has other parts. Use 'auto'.")
        return SeparableOrNot(
            DiagonalCMA(center, sigma, population),
            functools.partial(LMMAES, population=population),
            functools.partial(BoundedUpdate, columns=layout.real),
        )
    match base:
        case "cma" | "lq":
            inner: GaussianUpdate = CMA(center, sigma, population, integers=grid)
        case "low-rank":
            inner = LMMAES(center, sigma, population)
        case "snes":
            inner = SNES(center, sigma, population)
        case _:
            inner = XNES(center, sigma, population, raw=base == "nes")
    if layout.real.size == layout.columns:
        return BoundedUpdate(inner, layout.real, ranked=base != "nes")
    if not layout.choice.size:
        return inner
    # Of all samples of a distribution that has settled, 27 % still differ in some choice [Hm24].
    share = 1.0 - 0.73 ** (1.0 / layout.choice.size)
    return ProductUpdate(
        [(gaussian, inner), (layout.choice, adaptive(layout.options[layout.choice], population, share))]
    )

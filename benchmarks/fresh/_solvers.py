"""Who tunes: each is handed the parameters in its own words, at its defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import varopt as vo
from benchmarks.fresh._problems import Parameter, Problem

__all__ = ["SOLVERS", "WITH_A_BUDGET"]

Evaluate = Callable[[Any], float]


def _space(problem: Problem) -> Any:
    if problem.plain and not any(p.when for p in problem.parameters):
        return vo.Box(0, 1, size=len(problem.parameters))
    when = {p.name: dict([p.when]) for p in problem.parameters if p.when}
    return vo.Space({p.name: _ours(p) for p in problem.parameters}, when=when or None)


def _ours(p: Parameter) -> Any:
    if p.kind == "choice":
        return list(p.options)
    return vo.Integer(int(p.low), int(p.high)) if p.kind == "integer" else vo.Box(p.low, p.high, log=p.kind == "log")


def varopt(problem: Problem, evaluate: Evaluate, seed: int, budget: int) -> None:
    """Ours: the space and the budget."""
    space = _space(problem)
    names = [p.name for p in problem.parameters]
    f = (lambda x: evaluate(dict(zip(names, x.tolist(), strict=True)))) if isinstance(space, vo.Box) else evaluate
    vo.minimize(f, space, budget=budget, seed=seed)


def _suggested(trial: Any, p: Parameter) -> Any:
    if p.kind == "choice":
        return trial.suggest_categorical(p.name, p.options)
    if p.kind == "integer":
        return trial.suggest_int(p.name, int(p.low), int(p.high))
    return trial.suggest_float(p.name, p.low, p.high, log=p.kind == "log")


def _optuna(sampler: str) -> Callable[..., None]:
    def solve(problem: Problem, evaluate: Evaluate, seed: int, budget: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)

        def objective(trial: Any) -> float:
            point: dict[str, Any] = {}
            for p in problem.parameters:
                if p.when is None or point[p.when[0]] == p.when[1]:
                    point[p.name] = _suggested(trial, p)
            return evaluate(point)

        study = optuna.create_study(sampler=getattr(optuna.samplers, sampler)(seed=seed))
        study.optimize(objective, n_trials=budget)

    return solve


def _parametrised(p: Parameter) -> Any:
    import nevergrad as ng

    if p.kind == "choice":
        return ng.p.Choice(list(p.options))
    if p.kind == "log":
        return ng.p.Log(lower=p.low, upper=p.high)
    scalar = ng.p.Scalar(lower=p.low, upper=p.high)
    return scalar.set_integer_casting() if p.kind == "integer" else scalar


def nevergrad(problem: Problem, evaluate: Evaluate, seed: int, budget: int) -> None:
    """NGOpt: one array where all are reals, as its makers do, and parameters by name otherwise."""
    import nevergrad as ng
    from nevergrad.optimization import metamodel

    # Its models call float() on an array of one number, which NumPy no longer takes: without this it ends in an error.
    metamodel.float = lambda value: float(np.asarray(value).item())
    names = [p.name for p in problem.parameters]
    if array := problem.plain and not any(p.when for p in problem.parameters):
        parameters: Any = ng.p.Array(shape=(len(names),), lower=0.0, upper=1.0)
    else:
        parameters = ng.p.Dict(**{p.name: _parametrised(p) for p in problem.parameters})
    parameters.random_state.seed(seed)
    optimizer = ng.optimizers.NGOpt(parameters, budget=budget)
    for _ in range(budget):
        candidate = optimizer.ask()
        value = candidate.value
        optimizer.tell(candidate, evaluate(dict(zip(names, map(float, value), strict=True)) if array else value))


def lq_cma(problem: Problem, evaluate: Evaluate, seed: int, budget: int) -> None:
    """The lq-CMA-ES of pycma on the unit box, begun anew where it ends; it knows no integers and no choices."""
    import cma

    rng = np.random.default_rng(seed)
    d = len(problem.parameters)
    options = {"verbose": -9, "seed": seed + 1, "bounds": [0, 1], "tolfun": 1e-11}

    def f(u: Any) -> float:
        return evaluate({p.name: p.at(float(x)) for p, x in zip(problem.parameters, u, strict=True)})

    while True:
        cma.fmin_lq_surr2(f, rng.uniform(0.1, 0.9, d), 0.2, options)


def chance(problem: Problem, evaluate: Evaluate, seed: int, budget: int) -> None:
    """Points at random."""
    for u in np.random.default_rng(seed).random((budget, len(problem.parameters))):
        evaluate({p.name: p.at(float(x)) for p, x in zip(problem.parameters, u, strict=True)})


SOLVERS: dict[str, Callable[..., None]] = {
    "varopt": varopt, "TPE": _optuna("TPESampler"), "CMA": _optuna("CmaEsSampler"), "NGOpt": nevergrad,
    "lq-CMA": lq_cma, "random": chance, "GPSampler": _optuna("GPSampler"),
}  # fmt: skip
# One run of the others has all budgets: they do not know how many evaluations there are, or, as ours, begin alike
# whatever their number up to 500.
WITH_A_BUDGET = ("NGOpt",)

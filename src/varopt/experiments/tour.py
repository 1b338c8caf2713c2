"""The certified tour: each section shows what the library does and checks every number it prints.

A section is a function without arguments that returns a `Section`; `SECTIONS` names them in the order of printing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray
from scipy.special import ndtr

import varopt as vo
from varopt.experiments import _problems, _references
from varopt.experiments._page import Check, Page, Section

__all__ = ["SECTIONS", "Check", "Section"]

Vector = NDArray[np.float64]

SEED = 2012
ROOT_2PI = math.sqrt(2.0 * math.pi)
ROUNDING = 1e-12  # relative, for sums of thousands of numbers; brackets are compared up to it


# Descending a bound -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Level:
    """Where the bound for one tolerance was minimised."""

    tolerance: float
    sigma: float
    mean: Vector
    value: float  # of the objective there
    bound: Any


def descend(objective: Any, tolerances: Vector) -> Iterator[Level]:
    """Minimise E for falling tolerances, each from the last, with SciPy's trust region on our gradient and Hessian."""
    mean = np.zeros(objective.size)
    for tolerance in tolerances:
        sigma = vo.sigma_for(objective, float(tolerance))
        latest: dict[bytes, Any] = {}  # SciPy asks for value, gradient and Hessian of one point apart

        def bound(mean: Vector, sigma: float = sigma, latest: dict[bytes, Any] = latest) -> Any:
            key = mean.tobytes()
            if key not in latest:
                latest.clear()
                latest[key] = vo.bound(objective, vo.Gaussian(mean, sigma))
            return latest[key]

        mean = scipy.optimize.minimize(
            lambda mean, bound=bound: bound(mean).value,
            mean,
            jac=lambda mean, bound=bound: bound(mean).gradient["mean"],
            hess=lambda mean, bound=bound: bound(mean).hessian(),
            method="trust-exact",
            options={"gtol": 1e-9, "maxiter": 300},
        ).x
        mean = polish(bound, mean)
        yield Level(float(tolerance), sigma, mean, objective(mean), bound(mean))


def polish(bound: Callable[[Vector], Any], mean: Vector, steps: int = 8) -> Vector:
    """Newton steps as long as the gradient falls: the value has no digits left to guide a trust region there."""
    size = np.linalg.norm(bound(mean).gradient["mean"])
    for _ in range(steps):
        E = bound(mean)
        candidate = mean - np.linalg.lstsq(E.hessian(), E.gradient["mean"], rcond=1e-14)[0]
        found = np.linalg.norm(bound(candidate).gradient["mean"])
        if found >= size:
            break
        mean, size = candidate, found
    return mean


@dataclass(frozen=True)
class ByHand:
    """What a bracket is checked against: written out from the data, or found by another method."""

    expectations: list[float]  # E at each level
    values: list[float]  # f at each level
    trace: float  # the gap is at most sigma^2 trace + sigma kinks
    kinks: float
    method: str
    optimum: tuple[float, float]

    def largest_gap(self, sigma: float) -> float:
        """The most by which E exceeds f anywhere [SB12, sections 2.1 and 3]."""
        return sigma**2 * self.trace + sigma * self.kinks


def bracket_table(page: Page, levels: list[Level], lower: list[float], by_hand: ByHand) -> None:
    """Print the brackets ``[lower, f(x)]`` of falling tolerances, and check every column."""
    columns = {
        "tolerance": "g",
        "sigma": ".2e",
        "min E": ".5f",
        "lower": ".5f",
        "upper = f(x)": ".5f",
        "upper - lower": ".1e",
    }
    tolerance = np.array([level.tolerance for level in levels])
    smoothed = np.array([level.bound.value for level in levels])
    upper = np.array([level.value for level in levels])
    width = upper - np.array(lower)
    sigmas = [level.sigma for level in levels]
    page.table(columns, list(zip(tolerance, sigmas, smoothed, lower, upper, width, strict=True)))
    below, above = by_hand.optimum
    page.say(f"{by_hand.method} finds the optimum between {below:.6f} and {above:.6f}: inside every bracket.")

    slack = ROUNDING * abs(above)
    largest = [by_hand.largest_gap(sigma) for sigma in sigmas]
    page.equal("sigma makes the largest gap the tolerance", largest, tolerance, rtol=1e-9)
    page.equal("the library says so too", [level.bound.max_gap for level in levels], tolerance, rtol=1e-9)
    page.equal("E is its formula", smoothed, by_hand.expectations, rtol=1e-11)
    page.equal("f is its formula", upper, by_hand.values, rtol=1e-11)
    gaps = [level.bound.gap for level in levels]
    page.equal("E exceeds f by the gap", smoothed - upper, gaps, rtol=1e-6, atol=10.0 * slack)
    page.check("the gap is never negative", np.array(gaps) >= 0.0)
    page.check(f"{by_hand.method} closes its own duality gap", -slack <= above - below <= 1e-6 * abs(above))
    page.check("each lower bound is below the optimum", np.array(lower) <= above + slack)
    page.check("each upper bound is above the optimum", upper >= below - slack)
    page.check("each lower bound is at least about min E - tolerance", np.array(lower) >= smoothed - 1.001 * tolerance)
    page.check("f(argmin E) is within the tolerance of the optimum", upper <= above + tolerance)
    page.check("the bracket closes as sigma falls", np.diff(width) < 0.0)


def normal_mean(nu: Vector, s: Vector) -> Vector:
    """``<max(z, 0)>`` for ``z ~ N(nu, s^2)``, as the paper prints it."""
    return np.asarray(nu * ndtr(nu / s) + s / ROOT_2PI * np.exp(-0.5 * (nu / s) ** 2))


# Sections -----------------------------------------------------------------------------------------------------------


def step() -> Section:
    """The paper's first example."""
    page = Page("A step has no useful gradient; its bound has one everywhere")
    page.say(
        """f(x) = 1 for x >= 0, else 0. Under x ~ N(theta, 1) the bound is E(theta) = <f(x)>, and the paper gives
        dE/dtheta = exp(-theta^2/2)/sqrt(2 pi)."""
    )
    x = vo.Variable(name="x")
    thetas = (-2.0, -0.5, 0.0, 1.0, 3.0)
    bounds = [vo.bound(vo.step(x), vo.Gaussian([theta], 1.0)) for theta in thetas]
    values = [E.value for E in bounds]
    slopes = [float(E.gradient["mean"][0]) for E in bounds]
    printed = [math.exp(-(theta**2) / 2.0) / math.sqrt(2.0 * math.pi) for theta in thetas]
    columns = {"theta": "g", "E(theta)": ".12f", "dE/dtheta": ".12f", "paper": ".12f"}
    page.table(columns, list(zip(thetas, values, slopes, printed, strict=True)))
    page.equal("E is the normal distribution function", values, [0.5 * math.erfc(-t / math.sqrt(2.0)) for t in thetas])
    page.equal("dE/dtheta is the paper's", slopes, printed)
    page.check("E lies between the optima of f, 0 and 1", (np.array(values) >= 0.0) & (np.array(values) <= 1.0))
    return page.finish()


def methods() -> Section:
    """Closed form, quadrature and sampling."""
    page = Page("One bound, three ways to compute it")
    page.say(
        """A hinge loss, a capped penalty that is not convex, a jump and a ridge in one objective. Closed form,
        quadrature and sampling agree on E and on its gradient; sampling says how far off it may be."""
    )
    rng = np.random.default_rng(SEED)
    w = vo.Variable(3, name="w")
    X = rng.standard_normal((6, 3))
    f = vo.sum(vo.hinge(X @ w)) + 2.0 * vo.sum(vo.capped_abs(w, 0.5)) + vo.step(w[0]) + 0.1 * vo.sum_squares(w)
    family = vo.Gaussian([0.3, -0.2, 0.1], 0.4)
    exact, numerical = (vo.bound(f, family, method=method) for method in ("closed_form", "quadrature"))
    sampled = vo.bound(f, family, method="sampled", samples=1 << 15, seed=SEED)
    rows = [(E.method, E.value, E.standard_error, *E.gradient["mean"].tolist()) for E in (exact, numerical, sampled)]
    page.table({"method": "", "E": ".6f", "+-": ".4f", "dE/dw1": ".4f", "dE/dw2": ".4f", "dE/dw3": ".4f"}, rows)
    page.equal("quadrature agrees with the closed form", numerical.value, exact.value, rtol=1e-10)
    page.equal("so does its gradient", numerical.gradient["mean"], exact.gradient["mean"], rtol=1e-8, atol=1e-10)
    page.check("sampling is within 5 standard errors", abs(sampled.value - exact.value) < 5.0 * sampled.standard_error)
    page.check("the other two have none", exact.standard_error == numerical.standard_error == 0.0)
    errors = np.abs(sampled.gradient["mean"] - exact.gradient["mean"]) / sampled.gradient_standard_error["mean"]
    page.check("so is its gradient", errors < 5.0)
    draws = family.sample(20_000, seed=SEED + 1)  # independent of the library's own averages
    margins = np.maximum(1.0 - draws @ X.T, 0.0).sum(axis=1)
    rest = 2.0 * np.minimum(np.abs(draws), 0.5).sum(axis=1) + (draws[:, 0] >= 0.0) + 0.1 * (draws**2).sum(axis=1)
    plain = margins + rest
    page.check("a plain average agrees", abs(plain.mean() - exact.value) < 5.0 * plain.std() / math.sqrt(plain.size))
    expected = plain.std() / math.sqrt(1 << 15)
    page.equal("the standard error is that of an average", sampled.standard_error, expected, rtol=0.1)
    return page.finish()


def lasso() -> Section:
    """The paper's lasso, bracketed a priori."""
    page = Page("The paper's lasso, to a tolerance chosen beforehand")
    problem = _problems.lasso(np.random.default_rng(SEED), 50)
    X, y, penalty, f = problem.X, problem.y, problem.penalty, problem.objective
    page.say(
        """D = 50, N = 500, lambda = 1500, generated as in the paper. For each tolerance vo.sigma_for gives the sigma at
        which E exceeds f nowhere by more than the tolerance, and E is minimised with its own gradient and Hessian.
        Then f* lies between min E - tolerance and f(x). E is strongly convex, with a modulus m that the data give, so
        min E is at least E - |gradient|^2 / 2m at the point reached: the lower bound needs no trust in the
        optimiser."""
    )
    gram = X.T @ X
    modulus = 2.0 * float(np.linalg.eigvalsh(gram)[0])
    levels = list(descend(f, 10.0 ** np.arange(4.0, -5.0, -1.0)))[::2]
    lower, expectations, values = [], [], []
    for level in levels:
        mu, sigma = level.mean, level.sigma
        gradient = level.bound.gradient["mean"]
        lower.append(float(level.bound.value - gradient @ gradient / (2.0 * modulus) - level.tolerance))
        loss = float(np.sum((y - X @ mu) ** 2))
        inside = 1.0 - 2.0 * ndtr(-mu / sigma)  # d<|w|>/dmu [SB12, section 2]
        smooth = mu * inside + 2.0 * sigma / ROOT_2PI * np.exp(-(mu**2) / (2.0 * sigma**2))
        expectations.append(loss + sigma**2 * float(np.trace(gram)) + penalty * float(smooth.sum()))
        values.append(loss + penalty * float(np.abs(mu).sum()))
        slope = 2.0 * (gram @ mu - X.T @ y) + penalty * inside
        page.equal("the gradient is the paper's", gradient, slope, rtol=0.0, atol=1e-10 * penalty)
    kinks = 2.0 * penalty * X.shape[1] / ROOT_2PI
    optimum = _references.lasso_optimum(X, y, penalty)
    by_hand = ByHand(expectations, values, float(np.trace(gram)), kinks, "Coordinate descent", optimum)
    bracket_table(page, levels, lower, by_hand)
    return page.finish()


def sigma() -> Section:
    """The paper's formula for sigma, and the corrected one."""
    page = Page("Why the sigma is not the one printed in the paper")
    page.say(
        """For a tolerance Delta the paper prints sigma = (sqrt(s^2 + Delta T) - s)/sqrt(T) with T = trace(A) and
        s = lambda D/sqrt(2 pi). The right divisor is T. On the lasso above, with Delta = 1, the gap at zero, where it
        is largest, is:"""
    )
    problem = _problems.lasso(np.random.default_rng(SEED), 50)
    trace, s = float(np.sum(problem.X**2)), problem.penalty * 50 / ROOT_2PI
    printed = (math.sqrt(s**2 + trace) - s) / math.sqrt(trace)
    corrected = vo.sigma_for(problem.objective, 1.0)
    widths = (printed, corrected)
    gaps = [vo.bound(problem.objective, vo.Gaussian(np.zeros(50), width)).gap for width in widths]
    labels = ("printed", "corrected")
    page.table({"": "", "sigma": ".3e", "largest gap": ".6f"}, list(zip(labels, widths, gaps, strict=True)))
    by_hand = [width**2 * trace + 2.0 * s * width for width in widths]
    page.equal("the gap at zero is the paper's", gaps, by_hand)
    page.check("the printed sigma exceeds the tolerance", gaps[0] > 1.0)
    page.check("the corrected sigma keeps it", gaps[1] <= 1.0 + 1e-9)

    page.say(
        """The promise is f(argmin E) <= f* + Delta. One coefficient is enough to break it: f(w) = 10^4 w^2 - 300 w +
        300 |w| has its minimum, 0, at 0. With Delta = 1:"""
    )
    w = vo.Variable(1)
    f = 1e4 * vo.sum_squares(w) - 300.0 * vo.sum(w) + 300.0 * vo.norm1(w)
    s = 300.0 / ROOT_2PI
    widths = ((math.sqrt(s**2 + 1e4) - s) / 1e2, vo.sigma_for(f, 1.0))
    found = [_stationary(f, width) for width in widths]
    values = [f([mean]) for mean in found]
    columns = {"": "", "sigma": ".3e", "argmin E": ".6f", "f(argmin E) - f*": ".6f"}
    page.table(columns, list(zip(labels, widths, found, values, strict=True)))
    means = np.array(found)
    slopes = 2e4 * means - 300.0 + 300.0 * (1.0 - 2.0 * ndtr(-means / np.array(widths)))
    page.equal("each point is stationary by the formula", slopes, [0.0, 0.0], atol=1e-6)
    page.equal("f is 10^4 w^2 there", values, [1e4 * m**2 for m in found], rtol=1e-9)
    page.check("the printed sigma breaks the promise", values[0] > 1.0)
    page.check("the corrected sigma keeps the promise", values[1] <= 1.0)
    return page.finish()


def _stationary(f: Any, width: float) -> float:
    """Where the bound of an objective of one number has slope zero."""

    def slope(mean: float) -> float:
        return float(vo.bound(f, vo.Gaussian([mean], width)).gradient["mean"][0])

    return float(scipy.optimize.brentq(slope, -1.0, 1.0, xtol=1e-15))


def svm() -> Section:
    """The kernelised support vector machine, bracketed by the slopes of its own bound."""
    page = Page("A support vector machine, with a dual point for free")
    problem = _problems.kernel_machine(np.random.default_rng(SEED), 40, 5)
    K, y, cost, f = problem.K, problem.y, problem.cost, problem.objective
    page.say(
        """Two Gaussian classes 3.5 apart, linear kernel in the paper's kernelised form, C = 10, at the size of a tour:
        40 points in 5 dimensions. The slopes of the smoothed hinges lie between 0 and 1, so C times them is a dual
        point, and where the derivative in the offset vanishes it is a feasible one (if it nearly does, scaling one
        class makes it so). Its value is a lower bound on f*, closer than min E - tolerance."""
    )
    levels = list(descend(f, 10.0 ** np.arange(3.0, -4.0, -1.0)))[::2]
    norms = np.sqrt(1.0 + np.sum(K**2, axis=1))  # varsigma_n / sigma [SB12, section 3]
    lower, expectations, values = [], [], []
    for level in levels:
        beta, b, spread = level.mean[:-1], level.mean[-1], level.sigma * norms
        nu = 1.0 - K @ beta - b * y
        slopes = vo.terms.pos().derivatives(nu, spread)[1]
        page.check("the slopes are a dual point", (slopes >= 0.0) & (slopes <= 1.0))
        page.equal("they are the normal distribution function", slopes, ndtr(nu / spread), atol=1e-15)
        dual = _references.balanced(cost * slopes, y)
        lower.append(float(dual.sum() - 0.25 * dual @ K @ dual))
        quadratic = float(beta @ K @ beta)
        trace = level.sigma**2 * float(np.trace(K))
        expectations.append(quadratic + trace + cost * float(normal_mean(nu, spread).sum()))
        values.append(quadratic + cost * float(np.maximum(nu, 0.0).sum()))
    kinks = cost * float(norms.sum()) / ROOT_2PI
    optimum = _references.kernel_machine_optimum(K, y, cost)
    by_hand = ByHand(expectations, values, float(np.trace(K)), kinks, "SciPy's SLSQP on the dual", optimum)
    bracket_table(page, levels, lower, by_hand)
    return page.finish()


def quantile() -> Section:
    """Quantile regression against the linear programme."""
    page = Page("Quantile regression against its linear programme")
    problem = _problems.quantile(np.random.default_rng(SEED), 400, 0.7)
    X, y, tau, f = problem.X, problem.y, problem.level, problem.objective
    page.say(
        """The 0.7 quantile of 400 observations with heavy-tailed noise. Nothing here is strongly convex, yet the slopes
        of the smoothed check losses, projected on X'u = 0, are a point of the dual linear programme."""
    )
    levels = list(descend(f, 10.0 ** np.arange(2.0, -5.0, -1.0)))[::2]
    norms = np.linalg.norm(X, axis=1)
    lower, expectations, values = [], [], []
    for level in levels:
        residual, spread = y - X @ level.mean, level.sigma * norms
        slopes = vo.terms.pinball(tau).derivatives(residual, spread)[1]
        page.equal("the slopes are tau - Phi(-r/s)", slopes, tau - ndtr(-residual / spread), atol=1e-14)
        lower.append(float(y @ _references.feasible(slopes, X, tau)))
        # check loss = max(r, 0) - (1 - tau) r
        expectations.append(float(np.sum(normal_mean(residual, spread) - (1.0 - tau) * residual)))
        values.append(float(np.sum(np.maximum(residual, 0.0) - (1.0 - tau) * residual)))
    optimum = _references.quantile_optimum(X, y, tau)
    by_hand = ByHand(expectations, values, 0.0, float(norms.sum()) / ROOT_2PI, "HiGHS", optimum)
    bracket_table(page, levels, lower, by_hand)
    return page.finish()


def bits() -> Section:
    """The binary quadratic bound against enumeration."""
    page = Page("Bits: a bound below the maximum, a relaxation above it")
    problem = _problems.binary_quadratic(np.random.default_rng(SEED), 12)
    A, b, f = problem.A, problem.b, problem.objective
    page.say(
        """f(x) = x'Ax + b'x over 12 bits, to be maximised. Under independent bits with probabilities theta, E is at
        most max f for every theta. It is linear in each probability, so rounding one after the other to its better end
        never lowers it. A concave relaxation on the box bounds the maximum from above."""
    )
    states = _references.all_states(12)
    values = np.einsum("si,ij,sj->s", states, A, states) + states @ b
    half = np.full(12, 0.5)
    rng = np.random.default_rng(SEED + 1)
    paths = [_round(f, theta) for theta in [half, *rng.uniform(0.0, 1.0, (20, 12))]]
    ends = [path[-1][1] for path in paths]
    relaxation = _references.box_relaxation(A, b)
    page.table(
        {"": "", "value": ".6f"},
        [
            ("E at theta = 1/2", paths[0][0][1]),
            ("f(x), rounded from there", ends[0]),
            ("f(x), best rounding of 20 random theta", max(ends[1:])),
            ("maximum over all 4096 states", float(values.max())),
            ("concave relaxation", relaxation),
        ],
    )
    start = vo.bound(f, vo.Bernoulli(half))
    differences = [values[states[:, i] == 1.0].mean() - values[states[:, i] == 0.0].mean() for i in range(12)]
    slopes = start.gradient["probability"]
    page.equal("E at 1/2 is the average of f over all states", start.value, values.mean(), rtol=1e-11)
    page.equal("its gradient is a difference of averages", slopes, differences, rtol=1e-10, atol=1e-12)
    for path in paths:
        theta, end = path[-1]
        page.check("rounding never lowers E", np.diff([value for _, value in path]) >= -1e-12)
        page.equal("E at a corner is f there", end, values[np.all(states == theta, axis=1)])
        page.check("no value of E exceeds the maximum", max(value for _, value in path) <= values.max() + 1e-12)
    page.check("the relaxation is above the maximum", values.max() <= relaxation)
    return page.finish()


def _round(f: Any, theta: Vector) -> list[tuple[Vector, float]]:
    """Probabilities rounded one after the other to the end where E is larger, with E on the way."""
    path = [(theta, vo.bound(f, vo.Bernoulli(theta)).value)]
    for i in range(theta.size):
        slope = vo.bound(f, vo.Bernoulli(theta)).gradient["probability"][i]
        theta = np.where(np.arange(theta.size) == i, float(slope > 0.0), theta)
        path.append((theta, vo.bound(f, vo.Bernoulli(theta)).value))
    return path


SECTIONS: Mapping[str, Callable[[], Section]] = {
    "step": step,
    "methods": methods,
    "lasso": lasso,
    "sigma": sigma,
    "svm": svm,
    "quantile": quantile,
    "bits": bits,
}

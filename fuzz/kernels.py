"""Brackets of kernel machines against values of their objective, and of its dual, in rational arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

KERNELS = ("SVC", "SVR")
_DIGITS = 80  # of exponentials, which alone are not rational
_EXPONENTIAL = Fraction(1, 10**70)  # what they may be off by
_COEFFICIENT = Fraction(1, 2**48)  # share by which coefficients, sums that give intercepts, and those are rounded
_WEIGHTS = Fraction(1, 10**15)  # share by which products of C and weights are
Numbers = list[Fraction]


class Machine:
    """The problem of a fit between two classes, or of a regression, in rational numbers."""

    def __init__(self, m: Any, X: Any, y: Any, weight: Any) -> None:
        X = X.toarray() if hasattr(X, "toarray") else X
        share = np.ones(len(y)) if weight is None else weight
        kept = np.flatnonzero(share > 0.0)
        coefficients = np.zeros(len(y))
        dual = m.dual_coef_.toarray() if hasattr(m.dual_coef_, "toarray") else m.dual_coef_
        coefficients[m.support_] = dual[0]
        self.m, self.classifies = m, hasattr(m, "classes_")
        targets = np.where(y == m.classes_[-1], 1.0, -1.0) if self.classifies else y
        self.beta, self.y, share = (_exactly(part[kept]) for part in (coefficients, targets, share))
        self.weights = [Fraction(min(m.C, 1e10)) * s for s in share]
        self.rounded = _WEIGHTS if weight is not None else Fraction(0)
        self.epsilon = Fraction(0) if self.classifies else Fraction(m.epsilon)
        self.kernel = self._kernel([_exactly(row) for row in X[kept]])
        self.values = [_dot(row, self.beta) for row in self.kernel]
        self.square = _dot(self.beta, self.values)
        self.lost = _EXPONENTIAL * (1 + sum(map(abs, self.beta)) ** 2 + sum(self.weights) * sum(map(abs, self.beta)))

    def _kernel(self, rows: list[Numbers]) -> list[Numbers]:
        gamma = Fraction(float(self.m._gamma))
        if self.m.kernel == "rbf":
            return [
                [_exponential(-gamma * sum((a - b) ** 2 for a, b in zip(x, z, strict=True))) for z in rows]
                for x in rows
            ]
        products = [[_dot(x, z) for z in rows] for x in rows]
        if self.m.kernel == "linear":
            return products
        return [[(gamma * v + Fraction(self.m.coef0)) ** self.m.degree for v in row] for row in products]

    def loss(self, b: Fraction, times: Fraction = Fraction(1)) -> Fraction:
        """What samples cost, with an intercept, at a multiple of the coefficients."""
        at = zip(self.weights, self.y, self.values, strict=True)
        if self.classifies:
            return sum((w * max(1 - t * (times * v + b), Fraction(0)) for w, t, v in at), Fraction(0))
        return sum((w * max(abs(t - times * v - b) - self.epsilon, Fraction(0)) for w, t, v in at), Fraction(0))

    def primal(self, times: Fraction) -> Fraction:
        """The objective at a multiple of the coefficients, and the intercept that is best there."""
        ends = [t - times * v for t, v in zip(self.y, self.values, strict=True)]
        kinks = sorted({end + side for end in ends for side in (self.epsilon, -self.epsilon)})
        low, high = 0, len(kinks) - 1
        while low < high:  # of a convex function
            middle = (low + high) // 2
            if self.loss(kinks[middle], times) <= self.loss(kinks[middle + 1], times):
                high = middle
            else:
                low = middle + 1
        return times * times * self.square / 2 + self.loss(kinks[low], times)

    def dual(self) -> Fraction | None:
        """The dual value of the coefficients; None where they are no dual point."""
        signs = self.y if self.classifies else [Fraction(1)] * len(self.y)
        own = [s * v for s, v in zip(signs, self.beta, strict=True)]
        inside = all((0 if self.classifies else -w) <= v <= w for v, w in zip(own, self.weights, strict=True))
        if not inside or sum(self.beta) != 0:
            return None
        return _dot(self.beta, self.y) - self.epsilon * sum(map(abs, self.beta)) - self.square / 2


def kernel_bracket(m: Any, X: Any, y: Any, weight: Any, found: Callable[[str, str], None]) -> float:
    """Compare the bracket of a fit with values on either side of it; the objective without coefficients."""
    machine = Machine(m, X, y, weight)
    lower, upper = Fraction(max(m.lower_bound_, 0.0)), Fraction(m.objective_)  # which nothing is below
    lost = machine.lost + machine.rounded * upper
    for times in (Fraction(1), 1 - Fraction(1, 10**9), 1 + Fraction(1, 10**9), 1 - Fraction(1, 10**5)):
        value = machine.primal(times)
        if lower > value + lost:
            found(
                "UNSOUND",
                f"lower bound {m.lower_bound_!r}, and {float(value)!r} at {float(times)!r} of the coefficients",
            )
            break
    dual = machine.dual()
    if dual is not None and upper < dual - lost:
        found("UNSOUND", f"objective_ {m.objective_!r}, and no point is below {float(dual)!r}")
    intercept = Fraction(float(np.ravel(m.intercept_)[0]))
    own = machine.square / 2 + machine.loss(intercept)
    sizes = [_dot(list(map(abs, row)), list(map(abs, machine.beta))) for row in machine.kernel]
    slack = sum(w * (s + abs(intercept) + 1) for w, s in zip(machine.weights, sizes, strict=True))
    # An objective of which few digits are proved is that of the upper end.
    if max(own - upper, lower - own) > _COEFFICIENT * (slack + machine.square) + lost + upper * Fraction(1, 10**6):
        found("fun: objective_ is not that of the coefficients", f"{m.objective_!r}, and {float(own)!r} exactly")
    return float(machine.primal(Fraction(0)))


def _exactly(numbers: Any) -> Numbers:
    return [Fraction(float(v)) for v in numbers]


def _dot(a: Numbers, b: Numbers) -> Fraction:
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


def _exponential(x: Fraction) -> Fraction:
    """To many digits, as a multiple of a power of two."""
    with localcontext() as context:
        context.prec = _DIGITS
        value = (Decimal(x.numerator) / Decimal(x.denominator)).exp() if x > -1000 else Decimal(0)
        return Fraction(int(value * 2**250), 2**250)

"""The methods by name, and which of them `auto` takes."""

from __future__ import annotations

from varopt.solvers._composite import Composite
from varopt.solvers._diagonal_newton import DiagonalNewton
from varopt.solvers._interior_point import InteriorPoint
from varopt.solvers._lbfgs import LBFGS
from varopt.solvers._method import Method
from varopt.solvers._newton import Newton
from varopt.solvers._pivoting import Pivoting

__all__ = ["METHODS", "choose"]

METHODS: dict[str, Method] = {
    method.name: method for method in (Newton(), Pivoting(), InteriorPoint(), DiagonalNewton(), LBFGS())
}
# In order: the first that suits the problem and does not refuse it is taken.
_AUTO = ("pivoting", "interior-point", "newton")


def choose(problem: Composite) -> Method:
    """The first of the methods behind `auto` that takes the problem; a ValueError with their reasons if none does."""
    refusals = {name: METHODS[name].refusal(problem) for name in _AUTO}
    for name, reason in refusals.items():
        if not reason and METHODS[name].suits(problem):
            return METHODS[name]
    raise ValueError(" ".join(dict.fromkeys(refusals.values())))

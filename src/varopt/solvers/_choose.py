"""The methods by name, and which of them `auto` takes."""

from __future__ import annotations

from varopt.solvers._block_descent import BlockDescent
from varopt.solvers._composite import Composite
from varopt.solvers._diagonal_newton import DiagonalNewton
from varopt.solvers._graduated import Graduated
from varopt.solvers._group_newton import GroupNewton
from varopt.solvers._interior_point import InteriorPoint
from varopt.solvers._knots import Knots
from varopt.solvers._lbfgs import LBFGS
from varopt.solvers._low_rank import LowRank
from varopt.solvers._method import Method
from varopt.solvers._multipliers import Multipliers
from varopt.solvers._newton import Newton
from varopt.solvers._pivoting import Pivoting
from varopt.solvers._program import Program
from varopt.solvers._range import Range
from varopt.solvers._taut_string import TautString
from varopt.solvers._working_set import WorkingSet

__all__ = ["METHODS", "choose"]

_METHODS = (
    Newton(), Pivoting(), BlockDescent(), TautString(), Knots(), Program(), WorkingSet(), Range(), LowRank(),
    Multipliers(), InteriorPoint(), GroupNewton(), Graduated(), DiagonalNewton(), LBFGS(),
)  # fmt: skip
METHODS: dict[str, Method] = {method.name: method for method in _METHODS}
# In order: the first that suits the problem and does not refuse it is taken.
_AUTO = (
    "taut-string", "knots", "block-descent", "working-set", "range", "low-rank", "pivoting", "multipliers",
    "interior-point", "program", "newton", "group-newton", "graduated",
)  # fmt: skip


def choose(problem: Composite, *, but: tuple[str, ...] = ()) -> Method:
    """The first of the methods behind `auto` (but some) that takes the problem; a ValueError with reasons if none.

    A method that hands on a problem does so to another than itself.
    """
    refusals = []
    for method in (METHODS[name] for name in _AUTO if name not in but):
        refusals.append(method.refusal(problem))
        if not refusals[-1] and method.suits(problem):
            return method
    raise ValueError(" ".join(dict.fromkeys(refusals)))

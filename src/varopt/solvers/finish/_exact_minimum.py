"""The optimum of few variables, where nothing that is rounded tells it: exactly, or to many digits."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._clock import TimeUp, budget, tick
from varopt.composite import Composite
from varopt.model import Objective

if TYPE_CHECKING:
    from varopt.solvers.finish._exact_problem import RationalMinimum

__all__ = ["PenalisedMinimum", "exact_minimum", "is_small", "penalised_minimum"]

# Variables, smooth rows, and entries of all rows, up to which it is done.
_VARIABLES, _SMOOTH_ROWS, _ROW_ENTRIES = 16, 300, 1 << 19

_WIDE_BOUNDS = 1e-12  # share of the value by which the bounds of an optimum may be apart without another look for it
_RATIONAL_SECONDS = 0.1  # for rational numbers, whose digits may grow without end
_PENALISED_SECONDS = 0.2  # likewise, beside penalties, where nothing else tells


def is_small(problem: Composite) -> bool:
    """Whether a problem is convex and has few variables, and few rows or many with kinks."""
    smooth = sum(r.count for r in problem.squares) + sum(g.offset.size for g in problem.groups)
    few = problem.size <= _VARIABLES and smooth <= _SMOOTH_ROWS and problem.row_count * problem.size <= _ROW_ENTRIES
    return few and not problem.not_convex and all(r.term.degree <= 2 for r in problem.rows)


def exact_minimum(objective: Objective, x: NDArray[np.float64]) -> RationalMinimum | None:
    """The minimum of a convex objective of few variables, looked for from x; None where it is not known exactly.

    Examples
    --------
    >>> import numpy as np, varopt as vo
    >>> from varopt.solvers.finish import exact_minimum
    >>> w = vo.Variable(2)
    >>> f = 1e12 * vo.abs(w[0] + w[1]) + 1e-4 * w[1] + 2e-4 * vo.sum(vo.pos(-w[1] - 1e6))
    >>> found = exact_minimum(f, np.zeros(2))
    >>> found.x.tolist(), round(found.lower, 9)
    ([1000000.0, -1000000.0], -100.0)
    >>> f = 1e12 * vo.norm2(w - np.array([1.0, 2.0])) + 1e-6 * vo.norm2(w) + vo.sum(vo.abs(w))
    >>> found = exact_minimum(f, np.zeros(2))
    >>> found.x.tolist(), found.upper - found.lower < 1e-15
    ([1.0, 2.0], True)
    """
    found = _from(objective, x)
    if found is not None and found.upper - found.lower > _WIDE_BOUNDS * abs(found.upper) and x.any():
        # Far out along directions that nothing sees, as of columns that are equal, no number is near the optimum.
        other = _from(objective, np.zeros(x.size))
        if other is not None and other.upper < found.upper:
            return other._replace(lower=max(found.lower, other.lower))
    return found


def _from(objective: Objective, x: NDArray[np.float64]) -> RationalMinimum | None:
    # Rational and decimal numbers take as long to load as a small problem to solve, and few problems need them.
    from varopt.solvers.finish._exact_problem import ExactProblem, Inexact
    from varopt.solvers.finish._many_digits import minimum_in_many_digits
    from varopt.solvers.finish._rational import rational_minimum

    try:
        problem = ExactProblem(objective, x)
        if not problem.norms:
            with suppress(TimeUp), budget(_RATIONAL_SECONDS):
                if (found := rational_minimum(problem, x)) is not None:
                    return found
        tick()  # a budget of its own is no end of the run, and a deadline is
        return minimum_in_many_digits(problem)
    except (Inexact, TimeUp, OverflowError):
        return None


class PenalisedMinimum(NamedTuple):
    """The minimum of an objective with penalties, in rational numbers.

    Attributes
    ----------
    x : array
        Its point, rounded.
    lower : float
        What the least value is not below.
    upper : float
        What neither it nor the objective without the penalties at x is above.
    vanish : bool
        Whether all penalties are zero at the point that is not rounded.
    derivatives : array
        Of the penalties there, with their weights; they balance the rest exactly before they are rounded.
    """

    x: NDArray[np.float64]
    lower: float
    upper: float
    vanish: bool
    derivatives: NDArray[np.float64]


def penalised_minimum(objective: Objective, count: int, x: NDArray[np.float64]) -> PenalisedMinimum | None:
    """The minimum of a convex objective of few variables whose last `count` rows are penalties, looked for from x.

    None where it is not known exactly. Penalties may have any weights: nothing is rounded beside them.

    Examples
    --------
    >>> import numpy as np, varopt as vo
    >>> from varopt.solvers import penalised_minimum
    >>> w = vo.Variable()
    >>> f = 1e-3 * vo.sum_squares(w) + 1e30 * vo.sum(vo.pos(3.0 - w))
    >>> found = penalised_minimum(f, 1, np.zeros(1))
    >>> found.x.item(), found.vanish, found.derivatives.item()
    (3.0, True, 0.006)
    """
    from fractions import Fraction

    from varopt.solvers.finish._exact_problem import ZERO, ExactProblem, Inexact, above
    from varopt.solvers.finish._rational import rational_point

    try:
        with budget(_PENALISED_SECONDS):
            problem = ExactProblem(objective)
            found = None if problem.norms else rational_point(problem, x)
            if found is None or not found.has_end:
                return None
            point = problem.bracket(found.value, found.x).x
            penalties, given = problem.rows[len(problem.rows) - count :], [Fraction(v) for v in point.tolist()]
            paid = [sum((row.value(row.position(z)) for row in penalties), ZERO) for z in (found.x, given)]
            upper = above(max(found.value, problem.value(given) - paid[1]))
            derivatives = np.array([float(v) for v in found.derivatives[len(problem.rows) - count :]])
            return PenalisedMinimum(point, -above(-found.value), upper, not paid[0], derivatives)
    except (Inexact, TimeUp, OverflowError):
        return None

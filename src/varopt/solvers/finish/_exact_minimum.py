"""The optimum of few variables, where nothing that is rounded tells it: exactly, or to many digits."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from varopt._clock import TimeUp, budget
from varopt.model import Objective
from varopt.solvers.finish._exact_problem import ExactProblem, Inexact, RationalMinimum
from varopt.solvers.finish._many_digits import minimum_in_many_digits
from varopt.solvers.finish._rational import rational_minimum

__all__ = ["exact_minimum"]

_SECONDS = 0.1  # for rational numbers, whose digits may grow without end


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
    try:
        problem = ExactProblem(objective, x)
        if not problem.norms:
            with suppress(TimeUp), budget(_SECONDS):
                if (found := rational_minimum(problem, x)) is not None:
                    return found
        return minimum_in_many_digits(problem)
    except (Inexact, TimeUp, OverflowError):
        return None

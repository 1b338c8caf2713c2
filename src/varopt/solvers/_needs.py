"""What methods need of a problem, said once: a need is a function that says what is missing, or nothing.

A method lists its needs (`Way.needs`); its refusal is the first that is not met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from varopt._linalg import is_diagonal
from varopt.composite import Composite, separable_kinks

__all__ = [
    "Need",
    "convex",
    "explicit_matrix",
    "kinks",
    "no_matrix",
    "no_single_variables",
    "only_kinks",
    "piecewise_quadratic",
    "quadratic_part",
    "ridge",
    "separable_norms",
    "signal",
]

Need = Callable[[Composite], str]


def convex(problem: Composite) -> str:
    """Convexity, as far as it is known."""
    return problem.not_convex


def piecewise_quadratic(problem: Composite) -> str:
    """Pieces of degree two at most, and no norms."""
    return problem.not_quadratic


def separable_norms(problem: Composite) -> str:
    """Pieces of degree two at most, and no norms but of groups of variables that share none."""
    if not problem.groups:
        return problem.not_quadratic
    if any(r.term.degree > 2 for r in problem.rows):
        return replace(problem, groups=()).not_quadratic
    if problem.structure(separable_kinks)[0].balls is None:
        return "it has norms of something else than groups of variables that share none."
    return ""


def quadratic_part(problem: Composite) -> str:
    """A quadratic, whatever its matrix."""
    return "" if problem.squares or problem.matrix is not None else "it has no quadratic part."


def explicit_matrix(problem: Composite) -> str:
    """A quadratic that is given as a matrix, and not by squares of rows."""
    return "its quadratic is not given as a matrix." if problem.matrix is None or problem.squares else ""


def no_matrix(problem: Composite) -> str:
    """A quadratic, if any, that is given by squares of rows."""
    return "" if problem.matrix is None else "its quadratic is given as a matrix."


def no_single_variables(problem: Composite) -> str:
    """Terms that each see several variables."""
    if any(r.single is not None for r in (*problem.rows, *problem.squares)):
        return "it has terms of single variables, so that it sees all of them."
    return ""


def kinks(problem: Composite) -> str:
    """Kinks of single variables, as of the L1 norm, or of groups of them."""
    found, _ = problem.structure(separable_kinks)
    return "it has no kinks of single variables." if np.all(found.free) else ""


def only_kinks(problem: Composite) -> str:
    """No rows beside one kink for each variable."""
    _, others = problem.structure(separable_kinks)
    return "it has rows other than one kink for each variable." if others else ""


def ridge(problem: Composite) -> str:
    """A diagonal quadratic, and no kinks of single variables."""
    if not np.all(problem.structure(separable_kinks)[0].free):
        return "it has kinks of single variables."
    if problem.matrix is not None and not (sp.issparse(problem.matrix) and is_diagonal(problem.matrix)):
        return "its quadratic form couples variables."
    if problem.matrix is None and all(r.single is None for r in problem.squares):
        return "it has no ridge."
    return ""


def signal(problem: Composite) -> str:
    """A square for each variable, as where a signal is fitted point by point, and sparse rows."""
    sparse = all(r.linear.storage == "sparse" for r in problem.rows)
    if not sparse or quadratic_part(problem) or any(r.single is None for r in problem.squares):
        return "it is no chain of variables with a square for each, and differences of neighbours."
    return ""

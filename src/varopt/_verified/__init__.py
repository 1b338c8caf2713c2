"""Arithmetic that knows its own rounding: what it proves holds for the exact numbers, not for their approximations.

Every function returns a value and a bound of its error, in which the rounding of the bound itself is allowed for. The
analysis is the standard one (Higham 2002, *Accuracy and Stability of Numerical Algorithms*, chapters 3 and 10), so that
it holds in whatever order a library adds up.
"""

from varopt._verified._arithmetic import (
    EXTENDED,
    FEW_COLUMNS,
    SLACK,
    TINY,
    UNIT,
    Ball,
    NearlySingular,
    column_norms,
    denominator,
    difference_is_zero,
    dot,
    down,
    enclosed_solution,
    equal_products,
    exact_pair,
    exact_product,
    exact_sum,
    gamma,
    inverse_size,
    is_double,
    is_exact_product,
    length,
    total,
    unit_of,
    up,
    weighted_columns,
)  # fmt: skip
from varopt._verified._semidefinite import Definiteness, definiteness, is_semidefinite, smallest_eigenvalue_bound

__all__ = [
    "EXTENDED",
    "FEW_COLUMNS",
    "SLACK",
    "TINY",
    "UNIT",
    "Ball",
    "Definiteness",
    "NearlySingular",
    "column_norms",
    "definiteness",
    "denominator",
    "difference_is_zero",
    "dot",
    "down",
    "enclosed_solution",
    "equal_products",
    "exact_pair",
    "exact_product",
    "exact_sum",
    "gamma",
    "inverse_size",
    "is_double",
    "is_exact_product",
    "is_semidefinite",
    "length",
    "smallest_eigenvalue_bound",
    "total",
    "unit_of",
    "up",
    "weighted_columns",
]

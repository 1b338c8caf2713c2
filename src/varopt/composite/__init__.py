"""The canonical form of an objective: a quadratic, rows of terms, and groups."""

from varopt.composite._box import Bounds, bounded
from varopt.composite._congruence import Congruence, columns_of, gram, pick, squared_norms
from varopt.composite._conversion import NotComposite, composite, rows_of, shared_rows, sharing, unmultiplied
from varopt.composite._form import Composite, Rows, single_variables
from varopt.composite._groups import Groups
from varopt.composite._quadratic_form import QuadraticForm
from varopt.composite._restriction import Restriction, restricted
from varopt.composite._separable import Balls, Kinks, ridge_form, scaled_gap, separable_kinks
from varopt.composite._shared_matrix import SharedMatrix, shared_matrix

__all__ = [
    "Balls",
    "Bounds",
    "Composite",
    "Congruence",
    "Groups",
    "Kinks",
    "NotComposite",
    "QuadraticForm",
    "Restriction",
    "Rows",
    "SharedMatrix",
    "bounded",
    "columns_of",
    "composite",
    "gram",
    "pick",
    "restricted",
    "ridge_form",
    "rows_of",
    "scaled_gap",
    "separable_kinks",
    "shared_matrix",
    "shared_rows",
    "sharing",
    "single_variables",
    "squared_norms",
    "unmultiplied",
]

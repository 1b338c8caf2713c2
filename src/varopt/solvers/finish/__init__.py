"""From near the optimum to the optimum: the crossover, vertices, box programmes, active sets, exact optima of few."""

from typing import TYPE_CHECKING

from varopt._lazy import on_first_use
from varopt.solvers.finish._at_once import at_once
from varopt.solvers.finish._box_programs import box_by_active_set, box_by_interior_point
from varopt.solvers.finish._crossover import cross_over
from varopt.solvers.finish._daqp import EQUAL, active, by_dual_active_set
from varopt.solvers.finish._exact_minimum import PenalisedMinimum, exact_minimum, is_small, penalised_minimum
from varopt.solvers.finish._inside_bounds import cross_over_inside
from varopt.solvers.finish._vertex import best_vertex

if TYPE_CHECKING:
    from varopt.solvers.finish._active_set import ActiveSet, group_gap, with_norms_linearised

# Only beside norms.
__getattr__, __dir__ = on_first_use(
    __name__,
    dict.fromkeys(("ActiveSet", "group_gap", "with_norms_linearised"), "varopt.solvers.finish._active_set"),
)

__all__ = [
    "EQUAL",
    "ActiveSet",
    "PenalisedMinimum",
    "active",
    "at_once",
    "best_vertex",
    "box_by_active_set",
    "box_by_interior_point",
    "by_dual_active_set",
    "cross_over",
    "cross_over_inside",
    "exact_minimum",
    "group_gap",
    "is_small",
    "penalised_minimum",
    "with_norms_linearised",
]

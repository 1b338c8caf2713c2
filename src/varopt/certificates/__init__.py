"""Certificates: typed brackets of the optimum, each with its assumptions."""

from typing import TYPE_CHECKING

from varopt._lazy import on_first_use
from varopt.certificates._certificate import (
    Certificate,
    ConvexEnvelope,
    ConvexRelaxation,
    DualGap,
    EveryCell,
    Exhaustive,
    Infeasible,
    NoCertificate,
    NoState,
    PointGap,
    Relaxation,
    SmoothingGap,
)
from varopt.certificates._dual_value import Proof, verified_lower
from varopt.certificates._duality import (
    NEARBY,
    Bracketed,
    balanced,
    balancing,
    bracket,
    dual_gap,
    floor,
    gradient_units,
    prove,
    rests,
    young,
)
from varopt.certificates._least_squares import sided_lasso
from varopt.certificates._proof_parts import enclosed_at
from varopt.certificates._verified_bracket import ROUNDING, Verified, Verifier, verified
from varopt.certificates.enclosures import DualQuadratic, DualRows, annihilates, enclosed_value

if TYPE_CHECKING:
    from varopt.certificates._farkas import contradiction, never_broken
    from varopt.certificates._recession import curves_down, falls_along, falls_for_ever
    from varopt.certificates._sampled import Sampled, student
    from varopt.certificates._tangents import EnclosedSum, Lines, lines, piece_table, positions, values

# What proves anything of constraints, of objectives that fall for ever, of samples, and of rows that are not in memory.
__getattr__, __dir__ = on_first_use(
    __name__,
    dict.fromkeys(("contradiction", "never_broken"), "varopt.certificates._farkas")
    | dict.fromkeys(("curves_down", "falls_along", "falls_for_ever"), "varopt.certificates._recession")
    | dict.fromkeys(("Sampled", "student"), "varopt.certificates._sampled")
    | dict.fromkeys(
        ("EnclosedSum", "Lines", "lines", "piece_table", "positions", "values"), "varopt.certificates._tangents"
    ),
)

__all__ = [
    "NEARBY",
    "ROUNDING",
    "Bracketed",
    "Certificate",
    "ConvexEnvelope",
    "ConvexRelaxation",
    "DualGap",
    "DualQuadratic",
    "DualRows",
    "EnclosedSum",
    "EveryCell",
    "Exhaustive",
    "Infeasible",
    "Lines",
    "NoCertificate",
    "NoState",
    "PointGap",
    "Proof",
    "Relaxation",
    "Sampled",
    "SmoothingGap",
    "Verified",
    "Verifier",
    "annihilates",
    "balanced",
    "balancing",
    "bracket",
    "contradiction",
    "curves_down",
    "dual_gap",
    "enclosed_at",
    "enclosed_value",
    "falls_along",
    "falls_for_ever",
    "floor",
    "gradient_units",
    "lines",
    "never_broken",
    "piece_table",
    "positions",
    "prove",
    "rests",
    "sided_lasso",
    "student",
    "values",
    "verified",
    "verified_lower",
    "young",
]

"""Certificates: typed brackets of the optimum, each with its assumptions."""

from varopt.certificates._certificate import (
    Certificate,
    ConvexEnvelope,
    ConvexRelaxation,
    DualGap,
    EveryCell,
    Exhaustive,
    Infeasible,
    NoCertificate,
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
    prove,
    rests,
    young,
)
from varopt.certificates._farkas import contradiction
from varopt.certificates._recession import curves_down, falls_along, falls_for_ever
from varopt.certificates._sampled import Sampled, student
from varopt.certificates._tangents import EnclosedSum, Lines, lines, piece_table, positions, values
from varopt.certificates._verified_bracket import ROUNDING, Verified, Verifier, verified
from varopt.certificates.enclosures import DualQuadratic, DualRows, annihilates, enclosed_value

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
    "enclosed_value",
    "falls_along",
    "falls_for_ever",
    "floor",
    "lines",
    "piece_table",
    "positions",
    "prove",
    "rests",
    "student",
    "values",
    "verified",
    "verified_lower",
    "young",
]

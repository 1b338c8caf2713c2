"""Certificates: typed brackets of the optimum, each with its assumptions."""

from varopt.certificates._balance import DualQuadratic, DualRows, Proof, verified_lower
from varopt.certificates._certificate import (
    Certificate,
    ConvexRelaxation,
    DualGap,
    EveryCell,
    Exhaustive,
    NoCertificate,
    PointGap,
    Relaxation,
    SmoothingGap,
)
from varopt.certificates._duality import Bracketed, balanced, bracket, dual_gap, young
from varopt.certificates._recession import curves_down, falls_for_ever
from varopt.certificates._sampled import Sampled
from varopt.certificates._scaled_dual import prove
from varopt.certificates._tangents import EnclosedSum, Lines, lines, piece_table, positions, values
from varopt.certificates._termwise import floor, rests
from varopt.certificates._value import enclosed_value
from varopt.certificates._verified_bracket import ROUNDING, Verified, enclosed, verified

__all__ = [
    "ROUNDING",
    "Bracketed",
    "Certificate",
    "ConvexRelaxation",
    "DualGap",
    "DualQuadratic",
    "DualRows",
    "EnclosedSum",
    "EveryCell",
    "Exhaustive",
    "Lines",
    "NoCertificate",
    "PointGap",
    "Proof",
    "Relaxation",
    "Sampled",
    "SmoothingGap",
    "Verified",
    "balanced",
    "bracket",
    "curves_down",
    "dual_gap",
    "enclosed",
    "enclosed_value",
    "falls_for_ever",
    "floor",
    "lines",
    "piece_table",
    "positions",
    "prove",
    "rests",
    "values",
    "verified",
    "verified_lower",
    "young",
]

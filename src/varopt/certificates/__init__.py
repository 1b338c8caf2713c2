"""Certificates: typed brackets of the optimum, each with its assumptions."""

from varopt.certificates._certificate import (
    Certificate,
    ConvexRelaxation,
    DualGap,
    EveryCell,
    Exhaustive,
    NoCertificate,
    Relaxation,
    SmoothingGap,
)
from varopt.certificates._sampled import Sampled

__all__ = [
    "Certificate",
    "ConvexRelaxation",
    "DualGap",
    "EveryCell",
    "Exhaustive",
    "NoCertificate",
    "Relaxation",
    "Sampled",
    "SmoothingGap",
]

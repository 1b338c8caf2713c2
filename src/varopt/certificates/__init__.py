"""Certificates: typed brackets of the optimum, each with its assumptions."""

from varopt.certificates._certificate import (
    Certificate,
    DualGap,
    Exhaustive,
    NoCertificate,
    Relaxation,
    SmoothingGap,
)
from varopt.certificates._sampled import Sampled

__all__ = ["Certificate", "DualGap", "Exhaustive", "NoCertificate", "Relaxation", "Sampled", "SmoothingGap"]

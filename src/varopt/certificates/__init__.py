"""Certificates: typed brackets of the optimum, each with its assumptions."""

from varopt.certificates._certificate import Certificate, DualGap, NoCertificate, SmoothingGap

__all__ = ["Certificate", "DualGap", "NoCertificate", "SmoothingGap"]

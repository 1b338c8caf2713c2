"""Signals: total variation and trend filtering."""

from varopt.solvers.signals._knots import Knots
from varopt.solvers.signals._taut_string import TautString

__all__ = ["Knots", "TautString"]

"""Signals: total variation and trend filtering."""

from typing import TYPE_CHECKING

from varopt._lazy import on_first_use
from varopt.solvers.signals._taut_string import TautString

if TYPE_CHECKING:
    from varopt.solvers.signals._knots import Knots

# Only long signals are asked whether they are splines.
__getattr__, __dir__ = on_first_use(__name__, {"Knots": "varopt.solvers.signals._knots"})

__all__ = ["Knots", "TautString"]

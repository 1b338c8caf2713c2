"""Every term at its least: the bound that costs nothing."""

from __future__ import annotations

import math

import numpy as np

from varopt.solvers.discrete._energy import SPIN, Energy
from varopt.solvers.discrete._matrices import pieces

__all__ = ["termwise_bound"]


def termwise_bound(energy: Energy) -> float:
    """A number that no point falls below, as no term falls below its least: sum_t min E_t <= min sum_t E_t."""
    total = energy.constant + 0.5 * math.fsum(float(np.minimum(part, 0.0).sum()) for part in pieces(energy.quadratic))
    if energy.is_binary:
        total += float(np.minimum(energy.linear, 0.0).sum())
    else:
        starts = np.flatnonzero(np.r_[True, energy.site[1:] != energy.site[:-1]])
        least = np.minimum.reduceat(energy.linear, starts)
        single = np.diff(np.r_[starts, energy.size]) == 1
        total += float(np.where(single, np.minimum(least, 0.0), least).sum())
    for products in energy.products:
        signed = np.any(products.split(energy.size)[0] == SPIN, axis=1)
        total -= float(np.where(signed, np.abs(products.weights), np.maximum(-products.weights, 0.0)).sum())
    return max(energy.least_above_floor, _rounded(total, energy))


def _rounded(total: float, energy: Energy) -> float:
    return total - 8.0 * float(np.finfo(np.float64).eps) * energy.magnitude * math.log2(energy.size + 2)

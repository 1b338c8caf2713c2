"""The dual quadratic programme of the support vector machine [CV95], by the interior-point solver PIQP [PIQP]."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["best_offset", "dual_qp", "dual_value"]

Vector = NDArray[np.float64]


def dual_qp(K: Vector, y: Vector, cost: float, tol: float) -> Vector:
    """(beta, b) from ``max sum a - a'Ka / 4`` subject to ``0 <= a <= cost`` and ``y'a = 0``; ``beta = a / 2``.

    The offset is the best one for that beta. An iteration costs one dense factorisation, O(n^3).
    """
    import piqp

    solver = piqp.DenseSolver()
    solver.settings.verbose = False
    # The gap too: left at 1e-8 it would decide alone when to stop.
    solver.settings.eps_abs = solver.settings.eps_duality_gap_abs = tol
    solver.settings.eps_rel = solver.settings.eps_duality_gap_rel = tol
    n = y.size
    solver.setup(0.5 * K, -np.ones(n), y[None, :].copy(), np.zeros(1), None, None, None, np.zeros(n), np.full(n, cost))
    status = solver.solve()
    if status != piqp.Status.PIQP_SOLVED:
        raise RuntimeError(f"PIQP ended with {status.name}.")
    beta = 0.5 * np.clip(solver.result.x, 0.0, cost)
    return np.append(beta, best_offset(K @ beta, y))


def dual_value(beta: Vector, K: Vector, y: Vector, cost: float) -> float:
    """A lower bound on the optimum: the dual at 2 beta, brought into its bounds and its equality."""
    a = np.clip(2.0 * beta, 0.0, cost)
    plus, minus = a[y > 0.0].sum(), a[y < 0.0].sum()
    a = a * np.where(y > 0.0, min(1.0, minus / plus), min(1.0, plus / minus))  # the heavier class scaled down
    return float(a.sum() - 0.25 * a @ (K @ a))


def best_offset(outputs: Vector, y: Vector) -> float:
    """``argmin_b sum_n max(1 - outputs_n - b y_n, 0)``: where as many slopes pull up as down, O(n log n)."""
    kinks = y * (1.0 - outputs)
    order = np.argsort(kinks)
    # Far left the slope is -(positives); each kink passed adds one, of either label.
    crossing = np.searchsorted(np.arange(1, y.size + 1) - np.count_nonzero(y > 0.0), 0)
    return float(kinks[order[crossing]])

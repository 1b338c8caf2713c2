"""Explicit quadratic programmes, for Clarabel and OSQP: an absolute value is a variable above both of its signs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks._rivals import Fit, Rival

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Programme:
    """``1/2 x'Hx + g'x + sum |A x|``; `hessian` is the upper triangle of H."""

    hessian: Any
    slope: Vector
    kinks: Any

    @property
    def lifted(self) -> tuple[Any, Vector]:
        """H and g with a variable t for every row of A, at a cost of one each."""
        m = self.kinks.shape[0]
        return sp.block_diag([self.hessian, sp.csc_array((m, m))], format="csc"), np.append(self.slope, np.ones(m))


def _clarabel(explicit: Callable[[], Programme], *_: Any) -> Fit:
    import clarabel

    def fit(tol: float) -> Vector:
        programme = explicit()
        hessian, slope = programme.lifted
        m, n = programme.kinks.shape
        identity = sp.eye_array(m, format="csc")
        rows = sp.block_array([[programme.kinks, -identity], [-programme.kinks, -identity]], format="csc")
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tol
        cones = [clarabel.NonnegativeConeT(2 * m)]
        solver = clarabel.DefaultSolver(
            sp.csc_matrix(hessian), slope, sp.csc_matrix(rows), np.zeros(2 * m), cones, settings
        )
        return np.array(solver.solve().x)[:n]

    return fit


CLARABEL = Rival(
    "Clarabel, explicit programme",
    _clarabel,
    tuple({"tol": 10.0**-k} for k in (8, 10, 12)),
    ("clarabel",),
    ("clarabel",),
)


def _osqp(explicit: Callable[[], Programme], *_: Any) -> Fit:
    import osqp

    def fit(eps: float, polish: bool) -> Vector:
        programme = explicit()
        hessian, slope = programme.lifted
        m, n = programme.kinks.shape
        identity = sp.eye_array(m, format="csc")
        rows = sp.block_array([[programme.kinks, -identity], [programme.kinks, identity]], format="csc")
        free = np.full(m, np.inf)
        solver = osqp.OSQP()
        solver.setup(
            P=sp.csc_matrix(hessian), q=slope, A=sp.csc_matrix(rows), l=np.append(-free, np.zeros(m)),
            u=np.append(np.zeros(m), free), verbose=False, eps_abs=eps, eps_rel=eps, max_iter=10**6, polishing=polish,
        )  # fmt: skip
        return np.asarray(solver.solve(raise_error=False).x)[:n]

    return fit


OSQP = Rival(
    "OSQP, explicit programme",
    _osqp,
    tuple({"eps": 10.0**-k, "polish": True} for k in (3, 5, 7, 9)),
    ("osqp",),
    ("osqp",),
)

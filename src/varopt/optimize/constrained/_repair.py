"""From a point that about satisfies constraints to one close by that does, but for rounding."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.composite import Rows
from varopt.optimize.constrained._penalty import VIOLATION_ROUNDING, Penalised, spread

__all__ = ["repaired", "tidied"]

Vector = NDArray[np.float64]

_REPAIR_ROUNDS = 4
_TIDY = 1e-11  # share of the largest coordinate that counts as zero, where kinks are looked for
_KEPT_SHARE = 1e3 * VIOLATION_ROUNDING  # share of its size within which a row that holds is kept where it is
_DENSE_CORRECTION_ENTRIES = 4_000_000  # entries up to which the shortest correction is found densely
_SPARSE_STEPS = 200  # steps of a sparse one


def repaired(penalised: Penalised, x: Vector) -> Vector:
    """The point, moved as little as makes it satisfy all constraints; bounds of single variables hold exactly.

    Rows that are missed, or at rest, are equations for the move, of which the shortest is taken; in units of the
    variables' own sizes, so that zeros stay.
    """
    x = _clipped(penalised, x)
    for _ in range(_REPAIR_ROUNDS):
        if penalised.holds(x):
            break
        x = _clipped(penalised, x + _move(penalised, x))
    if not penalised.holds(x) and penalised.holds(tidy := tidied(x)):  # rows that compare nothing but a zero
        return tidy
    return x


def _clipped(penalised: Penalised, x: Vector) -> Vector:
    """Single variables at the nearest value that their constraints allow."""
    x = x.copy()
    for r, c in zip(penalised.rows, penalised.constraints, strict=True):
        if r.single is None:
            continue
        z = r.positions(x)
        wrong = np.flatnonzero((z != 0.0 if c.is_equality else z > 0.0) & (r.single[1] != 0.0))
        index, factor = r.single[0][wrong], r.single[1][wrong]
        bound = -r.offset[wrong] / factor
        if not c.is_equality:  # the quotient may be rounded to the wrong side
            missed = factor * bound + r.offset[wrong] > 0.0
            bound = np.where(missed, np.nextafter(bound, -np.sign(factor) * np.inf), bound)
        x[index] = bound
    return x


def _move(penalised: Penalised, x: Vector) -> Vector:
    """The shortest move onto the rows that are missed or at rest."""
    parts, wanted = [], []
    for r, c in zip(penalised.rows, penalised.constraints, strict=True):
        z = r.positions(x)
        size = spread(r.linear, np.abs(x)) + np.abs(r.offset)
        index = np.arange(r.count) if c.is_equality else np.flatnonzero(z > -_KEPT_SHARE * size)
        if index.size:
            parts.append(_explicit(r, index))
            wanted.append(-z[index])
    if not parts:
        return np.zeros_like(x)
    unit = np.maximum(np.abs(x), 1e-3 * float(np.abs(x).max(initial=0.0)))
    unit = np.where(unit > 0.0, unit, 1.0)
    rows = sp.vstack(parts).tocsr() @ sp.diags_array(unit)
    move = np.concatenate(wanted)
    if rows.shape[0] * rows.shape[1] <= _DENSE_CORRECTION_ENTRIES:
        return np.asarray(unit * np.linalg.lstsq(rows.toarray(), move, rcond=1e-13)[0])
    from scipy.sparse.linalg import lsqr

    return np.asarray(unit * lsqr(rows, move, atol=1e-15, btol=1e-15, iter_lim=_SPARSE_STEPS)[0])


def _explicit(r: Rows, index: NDArray[np.intp]) -> sp.csr_array:
    return sp.csr_array(r.take(index).linear.explicit())


def tidied(x: Vector) -> Vector:
    """A point without what rounding leaves of its zeros."""
    return np.where(np.abs(x) <= _TIDY * np.abs(x).max(initial=0.0), 0.0, x)

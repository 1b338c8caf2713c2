"""A form that rounding makes curve down a little, beside a ridge: it takes what it lacks from the ridge.

``z'Sz`` may fall below zero by the rounding of S alone, as of a product X'X of fewer rows than columns. With squares
``w (f x_j + d)^2`` of the coordinates beside it the sum is convex all the same. For z_j = x_j + o and s = o - d / f

    z_j^2 = (f x_j + d)^2 / f^2 + 2 s x_j + s (o + d / f),

so that S gains e_j on its diagonal where w loses c e_j / f^2, the linear part 2 c e_j s and the constant
c e_j s (o + d / f), c the weight of the form. With w rounded down the sum never rises, and is proved part by part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._verified import SLACK, TINY, UNIT, Ball, Definiteness, definiteness, down
from varopt.certificates.enclosures import DualQuadratic, DualRows

__all__ = ["Lent", "with_lent_ridge"]

Vector = NDArray[np.float64]

_PROOF_ROUNDING = 5.0 * UNIT, 20.0 * UNIT  # of the diagonal, times the order squared: what a proof asks for
_MOST_LENT = 0.5  # share of a ridge that may be lent


class Lent(NamedTuple):
    """Parts that are nowhere above others in sum; `line` and `constant` are added to the linear part."""

    rows: list[DualRows]
    forms: list[DualQuadratic]
    line: Ball
    constant: float
    error: float  # of the constant, at most


def with_lent_ridge(rows: Sequence[DualRows], forms: Sequence[DualQuadratic], size: int) -> Lent:
    """The parts with forms proved convex where that is possible."""
    parts = Lent(list(rows), list(forms), Ball.exact(np.zeros(size)), 0.0, 0.0)
    for i, q in enumerate(forms):
        if q.coordinates is None or definiteness(q.matrix) is Definiteness.POSITIVE:
            continue
        for k, r in enumerate(parts.rows):
            ways = (_lent(q, r, size, share) for share in _PROOF_ROUNDING) if _is_ridge(r) else iter(())
            lent = next((way for way in ways if way is not None), None)
            if lent is not None:
                parts.forms[i], parts.rows[k] = lent.forms[0], lent.rows[0]
                line, constant = parts.line.plus(lent.line), parts.constant + lent.constant
                error = (parts.error + lent.error + UNIT * abs(constant)) * SLACK
                parts = parts._replace(line=line, constant=constant, error=error)
                break
    return parts


def _is_ridge(r: DualRows) -> bool:
    """Whether rows are squares of one coordinate each."""
    if r.term.knots or r.term.degree != 2 or r.single is None or r.single[1].radius.any():
        return False
    (piece,), (centre,) = r.term.pieces, r.term.centres
    return not (np.any(piece[0]) or np.any(piece[1]) or np.any(centre)) and bool(np.all(piece[2] > 0.0))


def _lent(q: DualQuadratic, r: DualRows, size: int, rounding: float) -> Lent | None:
    if q.coordinates is None or r.single is None:
        return None
    place = np.full(size, -1)
    place[r.single[0]] = np.arange(r.single[0].size)
    mine = place[q.coordinates]
    if np.any(mine < 0):
        return None
    factor, second = r.single[1].middle[mine], np.broadcast_to(r.term.pieces[0][2], r.offset.shape)[mine]
    diagonal = np.asarray(q.matrix.diagonal(), dtype=np.float64)
    raised = diagonal * (1.0 + rounding * diagonal.size**2)
    gain = raised - diagonal  # exact: within a factor of two of one another
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = 0.5 * q.weight * gain / (factor**2 * second) * SLACK + TINY
    weights = np.array(np.broadcast_to(r.weights, r.offset.shape))
    if not np.all(loss <= _MOST_LENT * weights[mine]):
        return None
    matrix = q.matrix + (sp.diags_array(gain) if sp.issparse(q.matrix) else np.diag(gain))
    matrix = sp.csr_array(matrix) if sp.issparse(q.matrix) else matrix
    if not np.array_equal(matrix.diagonal(), raised) or definiteness(matrix) is not Definiteness.POSITIVE:
        return None
    weights[mine] = down(weights[mine] - loss)
    # What rounding changes in the line and the constant is relative to the sizes of what is added up in s.
    own = r.offset[mine] / factor
    far, near, reach = q.offset - own, q.offset + own, np.abs(q.offset) + np.abs(own)
    line = Ball(np.zeros(size), np.zeros(size))
    line.middle[q.coordinates] = -q.weight * gain * far
    line.radius[q.coordinates] = 8.0 * UNIT * q.weight * gain * reach * SLACK + TINY
    constant = -0.5 * float((q.weight * gain) @ (far * near))
    error = (16.0 + gain.size) * UNIT * float((q.weight * gain) @ reach**2) * SLACK + TINY * gain.size
    return Lent([replace(r, weights=weights)], [replace(q, matrix=matrix)], line, constant, error)

"""A term of a term: ``f(c g(z) + d)`` is piecewise polynomial where f and g are, and the pieces of g are lines."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from varopt.terms._piecewise import PiecewisePolynomial
from varopt.terms.polynomials import evaluate

__all__ = ["composed"]

_SAME = 1e-14  # share of their size by which knots may differ and be one


def composed(
    outer: PiecewisePolynomial, inner: PiecewisePolynomial, factor: float = 1.0, shift: float = 0.0
) -> PiecewisePolynomial | None:
    """``outer(factor * inner(z) + shift)`` as a term; None where its pieces are no polynomials of low degree.

    Both have one declaration for all rows, are continuous, and the pieces of `inner` are lines.

    Examples
    --------
    >>> from varopt.terms import abs_, composed, pos
    >>> term = composed(pos(), abs_(), 1.0, -1.0)                  # max(|z| - 1, 0)
    >>> term.knots, [float(term.value(z)) for z in (-3.0, 0.5, 2.0)]
    ((-1.0, 1.0), [2.0, 0.0, 1.0])
    """
    terms = (outer, inner)
    jumps = any(np.any(np.asarray(jump[0]) != 0.0) for term in terms for jump in term.jumps)
    if inner.degree > 1 or jumps or any(term.rows is not None for term in terms):
        return None
    lines = [_line(inner, i, factor, shift) for i in range(len(inner.pieces))]
    own = [float(t) for t in inner.knots]
    ends = [-np.inf, *own, np.inf]
    knots = set(own)
    for (value, slope), low, high in zip(lines, ends[:-1], ends[1:], strict=True):
        if slope != 0.0:
            crossings = ((float(t) - value) / slope for t in outer.knots)
            knots |= {z for z in crossings if low < z < high}
    kept = _distinct(sorted(knots))
    middles = [0.0] if not kept else [kept[0] - 1.0, *(0.5 * (a + b) for a, b in pairwise(kept)), kept[-1] + 1.0]
    pieces = []
    for z in middles:
        value, slope = lines[int(np.searchsorted(own, z, side="right"))]
        i = int(np.searchsorted([float(t) for t in outer.knots], value + slope * z, side="right"))
        pieces.append(_substituted(outer, i, value, slope))
    return _joined(kept, pieces, f"{outer.name}({inner.name})")


def _line(term: PiecewisePolynomial, i: int, factor: float, shift: float) -> tuple[float, float]:
    """Value at zero and slope of a linear piece, scaled and shifted."""
    piece, centre = term.pieces[i], float(term.centres[i])
    slope = float(piece[1]) if len(piece) > 1 else 0.0
    return factor * (float(piece[0]) - slope * centre) + shift, factor * slope


def _distinct(knots: list[float]) -> list[float]:
    kept: list[float] = []
    for t in knots:
        if not kept or t - kept[-1] > _SAME * max(abs(t), abs(kept[-1])):
            kept.append(t)
    return kept


def _substituted(term: PiecewisePolynomial, i: int, value: float, slope: float) -> list[float]:
    """The coefficients of a piece of a line."""
    line = np.polynomial.Polynomial([value - float(term.centres[i]), slope])
    whole: Any = evaluate(tuple(float(c) for c in term.pieces[i]), line)
    return [float(c) for c in np.atleast_1d(getattr(whole, "coef", whole))]


def _joined(knots: list[float], pieces: list[list[float]], name: str) -> PiecewisePolynomial:
    """Without knots that separate equal pieces; written around zero, where the numbers come from."""
    kept, own = [], pieces[:1]
    for t, piece in zip(knots, pieces[1:], strict=True):
        if piece != own[-1]:
            kept.append(t)
            own.append(piece)
    return PiecewisePolynomial(tuple(kept), tuple(map(tuple, own)), (0.0,) * len(own), name=name)

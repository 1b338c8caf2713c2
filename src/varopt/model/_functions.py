"""The functions users write objectives with. Each applies a declared term to an affine expression, or sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from varopt import terms
from varopt._domains import as_finite
from varopt.model._affine import Affine, Expression, diff, is_number
from varopt.model._blocks import ComposedBlock, NormBlock, QuadraticBlock, TermBlock
from varopt.model._maps import as_map
from varopt.model._objective import Elementwise, Objective
from varopt.model._polynomial import Polynomial, multiply

__all__ = [
    "abs", "capped_abs", "clip", "dead_zone", "diff", "epsilon_insensitive", "hinge", "huber", "mcp", "norm1", "norm2", "piecewise",
    "pinball", "pos", "quad_form", "ramp", "scad", "square", "squared_hinge", "step", "sum", "sum_squares", "zero_one",
]  # fmt: skip


def _apply(term: terms.PiecewisePolynomial, expression: Any, **parameters: Any) -> Elementwise:
    if not isinstance(expression, Expression):
        raise ValueError(f"{term.name} needs an expression of variables; got {type(expression).__name__}.")
    if isinstance(expression, Objective):
        raise ValueError(f"{term.name} needs an affine expression; got the objective {expression}.")
    for name, value in parameters.items():
        if np.ndim(value) and np.shape(value) != expression.shape:
            rows = expression.shape[0] if expression.shape else 1
            raise ValueError(f"{name} must be a number or have length {rows}, one entry per row; got shape {np.shape(value)}.")
    if isinstance(expression, Affine):
        return Elementwise([TermBlock(term, expression)], None, expression.shape)
    return Elementwise([ComposedBlock(term, expression)], None, expression.shape)


def abs(expression: Any) -> Elementwise:
    """``|z|``, elementwise."""
    return _apply(terms.abs_(), expression)


def pos(expression: Any) -> Elementwise:
    """``max(z, 0)``, elementwise."""
    return _apply(terms.pos(), expression)


def hinge(margin: Any) -> Elementwise:
    """``max(1 - z, 0)`` of margins, elementwise: the loss of the support vector machine."""
    return _apply(terms.hinge(), margin)


def squared_hinge(margin: Any) -> Elementwise:
    """``max(1 - z, 0)^2`` of margins, elementwise."""
    return _apply(terms.squared_hinge(), margin)


def pinball(residual: Any, level: Any = 0.5) -> Elementwise:
    """The check loss of residuals ``y - prediction``; `level` in (0, 1) is a number or one per row.

    Examples
    --------
    >>> import numpy as np, varopt as vo
    >>> q = vo.Variable(name="q")
    >>> vo.sum(vo.pinball(np.array([1.0, 2.0, 3.0]) - q, 0.5))({q: 2.0})
    1.0
    """
    return _apply(terms.pinball(level), residual, level=level)


def epsilon_insensitive(residual: Any, epsilon: Any = 0.1) -> Elementwise:
    """``max(|z| - epsilon, 0)``, elementwise: the loss of support vector regression."""
    return _apply(terms.epsilon_insensitive(epsilon), residual, epsilon=epsilon)


def huber(residual: Any, delta: Any = 1.0) -> Elementwise:
    """``z^2 / 2`` up to `delta`, linear beyond, elementwise."""
    return _apply(terms.huber(delta), residual, delta=delta)


def step(expression: Any) -> Elementwise:
    """``1[z >= 0]``, elementwise."""
    return _apply(terms.step(), expression)


def zero_one(margin: Any) -> Elementwise:
    """``1[z <= 0]`` of margins, elementwise: counts errors, a margin of zero among them."""
    return _apply(terms.zero_one(), margin)


def ramp(margin: Any) -> Elementwise:
    """``min(1, max(1 - z, 0))`` of margins, elementwise."""
    return _apply(terms.ramp(), margin)


def capped_abs(expression: Any, cap: Any = 1.0) -> Elementwise:
    """``min(|z|, cap)``, elementwise."""
    return _apply(terms.capped_abs(cap), expression, cap=cap)


def mcp(expression: Any, lam: Any = 1.0, gamma: Any = 3.0) -> Elementwise:
    """The minimax concave penalty, elementwise."""
    return _apply(terms.mcp(lam, gamma), expression, lam=lam, gamma=gamma)


def scad(expression: Any, lam: Any = 1.0, a: Any = 3.7) -> Elementwise:
    """The smoothly clipped absolute deviation penalty, elementwise."""
    return _apply(terms.scad(lam, a), expression, lam=lam, a=a)


def clip(expression: Any, low: Any = -1.0, high: Any = 1.0) -> Elementwise:
    """``min(max(z, low), high)``, elementwise."""
    return _apply(terms.clip(low, high), expression, low=low, high=high)


def dead_zone(expression: Any, width: Any = 1.0) -> Elementwise:
    """``z - clip(z, -width, width)``, elementwise."""
    return _apply(terms.dead_zone(width), expression, width=width)


def square(expression: Any) -> Elementwise:
    """``z^2``, elementwise."""
    if isinstance(expression, Polynomial):
        return multiply(expression, expression)  # type: ignore[no-any-return]
    return _apply(terms.square(), expression)


def piecewise(expression: Any, knots: Sequence[Any], pieces: Sequence[Sequence[Any]]) -> Elementwise:
    """A term of your own: polynomials between knots, coefficients by increasing degree in powers of z.

    Examples
    --------
    >>> import varopt as vo
    >>> w = vo.Variable(2, name="w")
    >>> f = vo.sum(vo.piecewise(w, knots=[0.0], pieces=[[0.0], [0.0, 1.0]]))   # max(w, 0)
    >>> f([-1.0, 2.0])
    2.0
    """
    term = terms.piecewise(knots, pieces)
    given = [*knots, *(c for p in pieces for c in p)]
    longest = max(given, key=np.ndim)
    return _apply(term, expression, **({"knots and pieces": longest} if np.ndim(longest) else {}))


def sum(expression: Any) -> Objective:
    """The sum of the entries of an expression, as an objective."""
    if isinstance(expression, Objective):
        return expression
    if isinstance(expression, Affine):
        if expression.shape == ():
            return expression._objective()
        return (np.broadcast_to(np.ones(1), expression.shape) @ expression)._objective()  # type: ignore[no-any-return]
    if isinstance(expression, (Elementwise, Polynomial)):
        return expression.total()
    raise ValueError(f"sum needs an expression of variables; got {type(expression).__name__}.")


def sum_squares(expression: Any) -> Objective:
    """``sum_k z_k^2``: least squares, ridge penalties."""
    return sum(square(expression))


def norm1(expression: Any) -> Objective:
    """``sum_k |z_k|``: the lasso's penalty."""
    return sum(abs(expression))


def norm2(expression: Any, groups: Any = None) -> Objective:
    """The Euclidean norm, or the sum of the norms of groups of entries: the group lasso's penalty.

    Parameters
    ----------
    expression : affine vector
    groups : int or sequence, optional
        An integer cuts the vector into consecutive groups of that size; else a sequence of index arrays, one per group. Without it, the
        whole vector is one group.

    Notes
    -----
    The bound is in closed form for groups of coordinates of a variable under an isotropic Gaussian, see `varopt.bound`.
    """
    if not isinstance(expression, Affine):
        raise ValueError("norm2 needs an affine expression of variables.")
    rows = expression.rows
    if groups is None:
        parts = [np.arange(rows)]
    elif is_number(groups):
        size = int(groups)
        if size < 1 or rows % size:
            raise ValueError(f"groups must divide the length {rows}; got {groups}.")
        parts = list(np.arange(rows).reshape(-1, size))
    else:
        parts = [np.atleast_1d(np.asarray(g, dtype=np.intp)) for g in groups]
        if not parts or any(g.ndim != 1 or g.size == 0 or g.min() < -rows or g.max() >= rows for g in parts):
            raise ValueError(f"groups must be non-empty index arrays into a vector of length {rows}.")
        if any(np.unique(g % rows).size != g.size for g in parts):
            raise ValueError("groups must not name an entry twice.")
        parts = [g % rows for g in parts]
    return Objective([NormBlock(expression, tuple(parts))])


def quad_form(expression: Any, matrix: Any) -> Objective:
    """``z' A z``; A dense, sparse or a `LinearOperator`, and only its symmetric part matters.

    Examples
    --------
    The paper's binary quadratic programme and its bound:

    >>> import numpy as np, varopt as vo
    >>> x = vo.Binary(2)
    >>> f = vo.quad_form(x, np.array([[1.0, -3.0], [0.0, 1.0]])) + np.array([1.0, 1.0]) @ x
    >>> f([1, 1]), vo.bound(f, vo.Bernoulli([0.5, 0.5])).value
    (1.0, 1.25)
    """
    if not isinstance(expression, Affine):
        raise ValueError("quad_form needs an affine expression of variables.")
    quadratic = as_map("the matrix of quad_form", matrix)
    if quadratic.shape != (expression.rows, expression.rows):
        raise ValueError(f"the matrix of quad_form must have shape {(expression.rows,) * 2}; got {quadratic.shape}.")
    return Objective([QuadraticBlock(expression, quadratic)])


def weighted(weights: Any, expression: Elementwise) -> Objective:
    """``sum_k weight_k e_k``."""
    return as_finite("weights", weights) @ expression  # type: ignore[no-any-return,operator]

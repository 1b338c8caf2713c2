"""The functions users write objectives with that apply a declared term to each entry of an expression, or sum."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from varopt import terms
from varopt.model import _generic as generic
from varopt.model._affine import Affine
from varopt.model._expression import Expression, positive
from varopt.model._matrix import summed_along
from varopt.model._objective import Elementwise, Objective
from varopt.model._parameter import lifted
from varopt.model._polynomial import Polynomial, as_polynomial
from varopt.model.blocks import (
    ComposedBlock,
    NormBlock,
    TermBlock,
    weighted,
    written_term,
)
from varopt.model.maps import signed_sum

__all__ = [
    "abs", "capped_abs", "clip", "dead_zone", "epsilon_insensitive", "hinge", "huber", "mcp", "mean", "norm1",
    "piecewise", "pinball", "pos", "power", "ramp", "scad", "scalar", "square", "squared_hinge", "step", "sum",
    "sum_squares", "zero_one",
]  # fmt: skip


def scalar(expression: Any) -> Any:
    """An objective that is affine, or a polynomial in bits, as the expression it is; anything else as it came."""
    if not isinstance(expression, Objective):
        return expression
    affine = generic.as_affine(expression)
    if affine is not None:
        return affine
    polynomial = as_polynomial(expression)
    return expression if polynomial is None else polynomial


def _apply(term: terms.PiecewisePolynomial, expression: Any, **parameters: Any) -> Elementwise:
    expression = scalar(expression)
    if not isinstance(expression, Expression):
        raise ValueError(f"{term.name} needs an expression of variables; got {type(expression).__name__}.")
    if isinstance(expression, Objective):
        raise ValueError(f"{term.name} needs an affine or elementwise expression; got the objective {expression}.")
    for name, value in parameters.items():
        if np.ndim(value) and np.shape(value) != expression.shape:
            raise ValueError(
                f"{name} must be a number or have one entry per row, {expression.rows}; got shape {np.shape(value)}."
            )
    if isinstance(expression, Elementwise) and (whole := _as_one_term(term, expression)) is not None:
        return whole
    block = TermBlock if isinstance(expression, Affine) else ComposedBlock
    return Elementwise([block(term, expression)], None, expression.shape)  # type: ignore[arg-type]


def _as_one_term(outer: terms.PiecewisePolynomial, expression: Elementwise) -> Elementwise | None:
    """A term of a term of one affine expression, which is a term itself; else None."""
    rest = 0.0 if expression.rest is None else expression.rest.offset
    if len(expression.parts) != 1 or (expression.rest is not None and expression.rest.maps) or np.ndim(rest):
        return None
    part = expression.parts[0]
    if not isinstance(part, TermBlock) or np.ndim(part.weights):
        return None
    term = terms.composed(outer, part.term, float(part.weights), float(rest))
    if term is None:
        return None
    inside = [weighted(part.weights, written_term(part.term, "z")), *([f"{rest:g}"] if rest else [])]
    named = replace(term, name=written_term(outer, signed_sum(inside)))
    return Elementwise([TermBlock(named, part.argument)], None, expression.shape)


@generic.absolute.register(Expression)
@lifted
def abs(expression: Any) -> Elementwise:
    """``|z|``, elementwise; Python's own `abs` does the same."""
    return _apply(terms.abs_(), expression)


@lifted
def pos(expression: Any) -> Elementwise:
    """``max(z, 0)``, elementwise."""
    return _apply(terms.pos(), expression)


@lifted
def hinge(margin: Any) -> Elementwise:
    """``max(1 - z, 0)`` of margins, elementwise: the loss of the support vector machine."""
    return _apply(terms.hinge(), margin)


@lifted
def squared_hinge(margin: Any) -> Elementwise:
    """``max(1 - z, 0)^2`` of margins, elementwise."""
    return _apply(terms.squared_hinge(), margin)


@lifted
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


@lifted
def epsilon_insensitive(residual: Any, epsilon: Any = 0.1) -> Elementwise:
    """``max(|z| - epsilon, 0)``, elementwise: the loss of support vector regression."""
    return _apply(terms.epsilon_insensitive(epsilon), residual, epsilon=epsilon)


@lifted
def huber(residual: Any, delta: Any = 1.0) -> Elementwise:
    """``z^2 / 2`` up to `delta`, linear beyond, elementwise."""
    return _apply(terms.huber(delta), residual, delta=delta)


@lifted
def step(expression: Any) -> Elementwise:
    """``1[z >= 0]``, elementwise."""
    return _apply(terms.step(), expression)


@lifted
def zero_one(margin: Any) -> Elementwise:
    """``1[z <= 0]`` of margins, elementwise: counts errors, a margin of zero among them."""
    return _apply(terms.zero_one(), margin)


@lifted
def ramp(margin: Any) -> Elementwise:
    """``min(1, max(1 - z, 0))`` of margins, elementwise."""
    return _apply(terms.ramp(), margin)


@lifted
def capped_abs(expression: Any, cap: Any = 1.0) -> Elementwise:
    """``min(|z|, cap)``, elementwise."""
    return _apply(terms.capped_abs(cap), expression, cap=cap)


@lifted
def mcp(expression: Any, lam: Any = 1.0, gamma: Any = 3.0) -> Elementwise:
    """The minimax concave penalty, elementwise."""
    return _apply(terms.mcp(lam, gamma), expression, lam=lam, gamma=gamma)


@lifted
def scad(expression: Any, lam: Any = 1.0, a: Any = 3.7) -> Elementwise:
    """The smoothly clipped absolute deviation penalty, elementwise."""
    return _apply(terms.scad(lam, a), expression, lam=lam, a=a)


@lifted
def clip(expression: Any, low: Any = -1.0, high: Any = 1.0) -> Elementwise:
    """``min(max(z, low), high)``, elementwise."""
    return _apply(terms.clip(low, high), expression, low=low, high=high)


@lifted
def dead_zone(expression: Any, width: Any = 1.0) -> Elementwise:
    """``z - clip(z, -width, width)``, elementwise."""
    return _apply(terms.dead_zone(width), expression, width=width)


@lifted
def square(expression: Any) -> Elementwise | Polynomial:
    """``z^2``, elementwise; of a polynomial in bits, a polynomial."""
    expression = scalar(expression)
    return expression.times(expression) if isinstance(expression, Polynomial) else _apply(terms.square(), expression)


@generic.power.register(Expression)
@lifted
def power(expression: Any, exponent: Any) -> Any:
    """A whole power, elementwise: a polynomial of bits, or the term ``z^k`` of anything else."""
    exponent = positive("the exponent", exponent)
    if exponent == 1:
        return expression
    if exponent == 2 and (norm := _as_norm(expression)) is not None:
        return sum_squares(norm)
    polynomial = as_polynomial(expression)
    if polynomial is not None:
        result = polynomial
        for _ in range(exponent - 1):
            result = result.times(polynomial)
        return result
    name = "square" if exponent == 2 else f"power_{exponent}"
    return _apply(terms.piecewise([], [[*[0.0] * exponent, 1.0]], name=name), expression)


def _as_norm(expression: Any) -> Affine | None:
    """The vector whose Euclidean norm an objective is; else None."""
    blocks = expression.blocks if isinstance(expression, Objective) else ()
    if len(blocks) != 1 or not isinstance(blocks[0], NormBlock) or len(blocks[0].groups) != 1:
        return None
    weight = float(np.ravel(blocks[0].weights)[0])
    argument = blocks[0].argument
    if argument.shape:  # a matrix as its entries, row by row, which the groups count
        argument = argument.as_matrix(argument.shape)[blocks[0].groups[0]]
    return argument.scale(weight)


@lifted
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
    rows = {"knots": knots, "pieces": [c for piece in pieces for c in piece]}
    longest = {name: builtins.max(values, key=np.ndim) for name, values in rows.items() if len(values)}
    return _apply(term, expression, **longest)


@lifted
def sum(expression: Any, axis: int | None = None) -> Any:
    """The sum of the entries of an expression, as an objective; along an axis of a matrix, a vector of sums.

    Examples
    --------
    >>> import numpy as np, varopt as vo
    >>> W = vo.Variable((2, 3), name="W")
    >>> vo.sum(W)(np.arange(6.0)), vo.sum(W, axis=0)(np.arange(6.0))
    (15.0, array([3., 5., 7.]))
    """
    if not isinstance(expression, Expression):
        raise ValueError(f"sum needs an expression of variables; got {type(expression).__name__}.")
    if axis is None:
        return expression.total()
    if not isinstance(expression, Affine):
        raise ValueError(f"axis={axis!r} needs a matrix of variables, as vo.Variable((n, k)); got {expression}.")
    return summed_along(expression, axis)


@lifted
def mean(expression: Any, axis: int | None = None) -> Any:
    """The mean of the entries of an expression, as an objective; along an axis of a matrix, a vector of means.

    Examples
    --------
    >>> import numpy as np, varopt as vo
    >>> w = vo.Variable(4, name="w")
    >>> vo.mean(vo.abs(w))([1.0, -2.0, 3.0, 0.0])
    1.5
    """
    total = sum(expression, axis)
    return total / (expression.rows // total.rows)


@lifted
def sum_squares(expression: Any) -> Objective:
    """``sum_k z_k^2``: least squares, ridge penalties."""
    return square(expression).total()


@lifted
def norm1(expression: Any) -> Objective:
    """``sum_k |z_k|``: the lasso's penalty."""
    return abs(expression).total()

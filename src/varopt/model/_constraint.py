"""Constraints: what comparisons of affine expressions make, and `subject_to` takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from varopt._elsewhere import Hinting
from varopt.model import _generic as generic
from varopt.model._affine import Affine, Variable
from varopt.model._expression import Expression, is_number, split
from varopt.model._parameter import Parametric
from varopt.model.maps import as_vector

__all__ = ["Constraint", "as_constraints"]

Vector = NDArray[np.floating[Any]]
Sense = Literal["<=", "==", ">="]

_ADVICE = {
    "<": "a strict comparison is no closed set: write <=",
    ">": "a strict comparison is no closed set: write >=",
    "!=": "what is left of a space without a hyperplane is not convex: there are no such constraints",
}


class Constraint(Hinting):
    """``left <= right``, ``left == right`` or ``left >= right``, entry by entry: what comparisons of expressions make.

    Attributes
    ----------
    left, right : Affine
        Both sides.
    sense : str
        ``"<="``, ``"=="`` or ``">="``.

    Notes
    -----
    Every constraint has a normal form, ``g(x) <= 0`` or ``g(x) == 0``: g is ``left - right``, and ``right - left`` for
    ``>=``. Its multipliers are those of the Lagrangian ``f(x) + multipliers' g(x)``: not negative for inequalities.

    Examples
    --------
    >>> import varopt as vo
    >>> w = vo.Variable(2, name="w")
    >>> w >= 0
    <constraint: w >= 0>
    >>> (vo.sum(w) == 1).violation([0.25, 0.5])
    0.25
    """

    _hints = MappingProxyType({"dual_value": "multipliers are in the result, as in r.multipliers[c]"})

    def __init__(self, left: Affine, right: Affine, sense: Sense) -> None:
        self.left, self.right, self.sense = left, right, sense

    @cached_property
    def normal(self) -> Affine:
        """G of the normal form."""
        low, high = (self.right, self.left) if self.sense == ">=" else (self.left, self.right)
        difference: Affine = low - high if high.maps else _less(low, high)
        return difference

    @property
    def is_equality(self) -> bool:
        """Whether both sides have to be equal."""
        return self.sense == "=="

    @property
    def shape(self) -> tuple[int, ...]:
        """``()`` for a single comparison, ``(rows,)`` for vectors, ``(rows, columns)`` for matrices."""
        return self.normal.dimensions

    @property
    def rows(self) -> int:
        """Number of comparisons."""
        return self.normal.rows

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables that occur."""
        return self.normal.variables

    def excess(self, points: Mapping[Variable, Vector]) -> Vector:
        """How far every comparison is from true, at points of shape (..., size) by variable: zero where it holds."""
        g = self.normal.values(points)
        return np.abs(g) if self.is_equality else np.maximum(g, 0.0)

    def violation(self, *point: Any) -> float:
        """The largest excess at a point: a flat array, one array per variable, or a mapping."""
        return float(np.max(self.excess(split(self.variables, point))))

    def check(self) -> None:
        """Raise a `ValueError` if data are not finite."""
        self.normal.check()

    def __bool__(self) -> bool:
        if self.is_equality and isinstance(self.left, Variable) and isinstance(self.right, Variable):
            return self.left is self.right  # as lists and dictionaries ask
        raise TypeError(
            f"the constraint {self} has no truth value: pass it on, as in vo.minimize(f, subject_to=[...]); write a "
            "chain such as 0 <= w <= 1 as two constraints, w >= 0 and w <= 1."
        )

    def __str__(self) -> str:
        return f"{self.left} {self.sense} {self.right}"

    def __repr__(self) -> str:
        return f"<constraint: {self}>"


def _less(left: Affine, right: Affine) -> Affine:
    """The difference with a constant: a scalar expression against a vector is repeated."""
    shape = left.shape or right.shape
    difference: Affine = left.broadcast(shape) if shape else left
    return difference if right.constant.is_zero else difference - right.offset


@generic.compare.register(Expression)
def _compare(left: Expression, right: Any, sense: str) -> Any:
    """A comparison as a constraint, or an error that says why it is none."""
    if sense in _ADVICE:
        raise TypeError(f"{left} {sense} {_side(right)} is no constraint: {_ADVICE[sense]}.")
    matrices = [side for side in (left, right) if isinstance(side, Affine) and len(side.dimensions) == 2]
    whole = matrices[0] if matrices else None
    sides = [_affine(_fitted(whole, side), sense) for side in (left, right)]
    shapes = {side.shape for side in sides if side.shape}
    if len(shapes) > 1:
        lengths = " and ".join(str(side.rows) for side in sides)
        raise ValueError(f"both sides of {sense} must have one length, or be numbers; got {lengths}.")
    return Constraint(sides[0], sides[1], sense)  # type: ignore[arg-type]


def _fitted(whole: Affine | None, side: Any) -> Any:
    """A side as large as the matrix on the other."""
    if whole is None or side is whole:
        return side
    if not isinstance(side, Expression):
        return whole.flat("the side of a comparison", side)
    return whole.matched(side)


def _affine(side: Any, sense: str) -> Affine:
    if isinstance(side, Affine):
        return side
    if isinstance(side, Expression):
        known = generic.as_affine(side)
        if known is None:
            raise TypeError(
                f"a constraint compares affine expressions, and {side} is none: put it into the objective with a "
                f"weight, or bound it by variables of its own, as in t >= x, t >= -x for |x|."
            )
        return known
    constant = as_vector(f"the side of {sense}", side)
    return Affine({}, constant if constant.ndim else float(constant), constant.shape)


def _side(other: Any) -> str:
    return str(other) if isinstance(other, Expression) or is_number(other) else type(other).__name__


def as_constraints(given: Any) -> tuple[Constraint, ...]:
    """What a user passed as `subject_to`, checked; parameters are taken at their present values."""
    if given is None:
        return ()
    if isinstance(given, (Constraint, Parametric)):
        given = [given]
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Expression)):
        raise ValueError(f"subject_to must be a list of constraints, such as [w >= 0]; got {type(given).__name__}.")
    found = []
    for entry in given:
        constraint = entry.given() if isinstance(entry, Parametric) else entry
        if not isinstance(constraint, Constraint):
            hint = "; a comparison of numbers is no constraint" if isinstance(constraint, (bool, np.bool_)) else ""
            if isinstance(constraint, (list, tuple)):
                hint = ", a list within the list: write [w >= 0, *others]"
            raise ValueError(f"subject_to must hold constraints, such as w >= 0; got {constraint!r}{hint}.")
        constraint.check()
        found.append(constraint)
    return tuple(found)

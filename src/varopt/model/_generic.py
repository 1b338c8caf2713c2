"""Generic functions that operators of expressions call, and that kinds of expression implement.

A product of affine expressions is a polynomial, a power an elementwise expression, a sum an objective: kinds that are
built on affine expressions, and cannot be imported by them. Each registers here what it makes of which operand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from varopt.model._affine import Affine
    from varopt.model._objective import Objective
    from varopt.model._polynomial import Polynomial

__all__ = [
    "FUNCTIONS", "UFUNCS", "absolute", "as_affine", "as_polynomial", "compare", "matrix_product", "multiply", "power",
    "quadratic_product", "spread", "total", "transposed",
]  # fmt: skip


#: What NumPy's functions of expressions are, by function: elementwise ones, and others.
UFUNCS: dict[Any, Callable[..., Any]] = {}
FUNCTIONS: dict[Any, Callable[..., Any]] = {}


@singledispatch
def absolute(expression: Any) -> Any:
    """The sizes of the entries, as Python's `abs`."""
    raise TypeError(f"abs is of expressions; got {type(expression).__name__}.")


@singledispatch
def as_affine(expression: Any) -> Affine | None:
    """A scalar expression as an `Affine`, where it is one; else None."""
    return None


@singledispatch
def as_polynomial(expression: Any) -> Polynomial | None:
    """An expression as a `Polynomial` in discrete variables, where it is one; else None."""
    return None


@singledispatch
def compare(left: Any, right: Any, sense: str) -> Any:
    """A comparison of expressions, as a `Constraint`."""
    raise TypeError(f"comparisons are of expressions; got {type(left).__name__}.")


@singledispatch
def matrix_product(expression: Any, other: Any, side: str) -> Affine | None:
    """The product of a matrix of variables with an array before or after it; None where shapes do not match."""
    return None


@singledispatch
def spread(expression: Any, dimensions: tuple[int, ...]) -> Affine:
    """A vector as every row of a matrix."""
    raise TypeError(f"rows of a matrix are affine expressions; got {type(expression).__name__}.")


@singledispatch
def transposed(expression: Any) -> Affine:
    """The transpose of a matrix of variables."""
    raise TypeError(f"only affine expressions have a transpose; got {type(expression).__name__}.")


@singledispatch
def power(expression: Any, exponent: Any) -> Any:
    """A whole power, elementwise."""
    raise TypeError(f"powers are of expressions; got {type(expression).__name__}.")


@singledispatch
def total(expression: Any) -> Objective:
    """The sum of the entries of an expression, as an `Objective`."""
    raise TypeError(f"sums are of expressions; got {type(expression).__name__}.")


@singledispatch
def quadratic_product(left: Any, right: Any) -> Objective | None:
    """``left @ right`` of real variables, where it is a quadratic form that one of them shows; else None."""
    return None


def multiply(left: Any, right: Any, *, summed: bool = False) -> Any:
    """The product of two expressions, or the sum of its entries.

    It must be a polynomial in discrete variables, a square, or a quadratic form ``w @ Q @ w``.
    """
    one, other = as_polynomial(left), as_polynomial(right)
    if one is not None and other is not None:
        return one.times(other, summed=summed)
    if left is right:
        return power(left, 2)
    form = quadratic_product(left, right) if summed else None
    if form is None:
        culprit = left if one is None else right
        raise TypeError(
            f"a product of expressions must be a polynomial in Binary or Categorical variables, and {culprit} "
            "is none: for real variables use sum_squares or quad_form, or hand vo.bound a callable."
        )
    return form

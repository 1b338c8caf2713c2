"""Matrices of variables: products with arrays on either side, and what NumPy would do with shapes.

Entries are kept in the order of the rows, so that to terms a matrix is the vector of its entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from varopt.model import _generic as generic
from varopt.model._affine import Affine
from varopt.model.maps import Columnwise, Matrix, Selection, as_map, as_real, as_vector
from varopt.places import Stored

__all__ = ["summed_along"]


def _shape(other: Any) -> tuple[int, ...]:
    return tuple(getattr(other, "shape", ()))


@generic.matrix_product.register(Affine)
def _product(expression: Affine, other: Any, side: str) -> Affine | None:
    """``A @ W`` or ``W @ A`` of a matrix W, or with a vector; None where the shapes are of the entries in a row."""
    rows, columns = expression.dimensions
    source = other  # an array of a library for devices, to which results go back
    if not (sp.issparse(other) or hasattr(other, "matvec")):
        other = as_real(f"the array {side} @", other)
    if isinstance(other, Stored):
        raise ValueError(f"a matrix of variables needs its data in memory, and these are {other.where}.")
    inside = rows if side == "before" else columns
    given = _shape(other)[-1] if side == "before" else _shape(other)[0] if _shape(other) else 0
    if len(_shape(other)) not in (1, 2) or given != inside:
        return None
    if len(_shape(other)) == 1:
        vector = as_vector(f"the vector {side} @", other)
        if side == "before":
            return expression.transform(Columnwise(Matrix(vector[None, :], form="c @ {}"), columns), (columns,))
        return transposed(expression).transform(Columnwise(Matrix(vector[None, :], form="{} @ c"), rows), (rows,))
    if side == "after":
        turned = source.T if hasattr(source, "T") else other.T
        return transposed(_product(transposed(expression), turned, "before"))  # type: ignore[arg-type]
    outer = Columnwise(as_map("the matrix before @", source), columns)
    product = expression.transform(outer, (outer.shape[0],))
    return product.as_matrix((_shape(other)[0], columns))


@generic.transposed.register(Affine)
def transposed(expression: Affine) -> Affine:
    """The columns as rows."""
    if len(expression.dimensions) < 2:
        return expression
    rows, columns = expression.dimensions
    order = np.arange(rows * columns).reshape(rows, columns).T.ravel()
    return expression.transform(Selection(order, order.size), (order.size,)).as_matrix((columns, rows))


@generic.spread.register(Affine)
def _spread(expression: Affine, dimensions: tuple[int, ...]) -> Affine:
    """A vector as every row of a matrix, as NumPy does."""
    rows, columns = dimensions
    if expression.dimensions not in ((columns,), (1, columns)):
        raise ValueError(
            f"{expression} must be a matrix of shape {dimensions}, one row of it, or a number; got shape "
            f"{expression.dimensions}."
        )
    every = np.tile(np.arange(columns), rows)
    return expression.transform(Selection(every, columns), (every.size,)).as_matrix(dimensions)


def summed_along(expression: Affine, axis: int) -> Affine:
    """The sums along an axis of a matrix: of its columns for 0, of its rows for 1."""
    if len(expression.dimensions) != 2:
        raise ValueError(f"axis={axis!r} needs a matrix of variables, as vo.Variable((n, k)); got {expression}.")
    if axis not in (0, 1, -1, -2):
        raise ValueError(f"axis must be 0 or 1 of a matrix; got {axis!r}.")
    across = expression if axis in (0, -2) else transposed(expression)
    rows, columns = across.dimensions
    ones = np.broadcast_to(np.ones(1), (1, rows))
    return across.transform(Columnwise(Matrix(ones, form="sum({})"), columns), (columns,))

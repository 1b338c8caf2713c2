"""The functions users write objectives with that take a whole vector: norms, largest entries, quadratic forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from varopt import terms
from varopt.model import _generic as generic
from varopt.model._affine import Affine, Variable
from varopt.model._expression import Expression, is_number, positive
from varopt.model._functions import pos, scalar
from varopt.model._objective import Elementwise, Objective
from varopt.model._parameter import lifted
from varopt.model.blocks import LargestBlock, NormBlock, QuadraticBlock, TermBlock
from varopt.model.maps import Composition, Map, Matrix, Scaled, Selection, Sparse, as_map, as_vector

__all__ = ["concatenate", "cvar", "max", "norm2", "norm_inf", "quad_form", "sum_largest"]


@lifted
def norm_inf(expression: Any, *, axis: None = None) -> Objective:
    """``max_k |z_k|`` of an affine vector; `axis` is refused, as the largest is one of all entries.

    Examples
    --------
    >>> import varopt as vo
    >>> w = vo.Variable(3, name="w")
    >>> vo.norm_inf(w)([1.0, -4.0, 2.0])
    4.0
    """
    _without_axis("norm_inf", axis)
    return Objective([LargestBlock(_affine_vector("norm_inf", expression), 1.0, sizes=True, name="norm_inf")])


@lifted
def max(*expressions: Any, axis: None = None) -> Any:
    """The largest entry of an affine vector; of several expressions, the largest of them.

    Two are compared entry by entry, where either may be a number or an array; then the other may be a term, as in
    ``vo.max(abs(w), 1)``. Three or more have to be numbers. `axis` is refused: the largest is one of all entries.

    Examples
    --------
    >>> import numpy as np, varopt as vo
    >>> w = vo.Variable(3, name="w")
    >>> vo.max(w)([1.0, -4.0, 2.0]), vo.sum(vo.max(w, np.zeros(3)))([1.0, -4.0, 2.0])
    (2.0, 3.0)
    >>> vo.max(w[0] + w[1], 2 * w[2], 0.5)([1.0, -4.0, 2.0])
    4.0
    """
    _without_axis("max", axis)
    if not expressions:
        raise ValueError("max needs an expression; got none.")
    if len(expressions) == 1:
        argument, sizes = _affine_or_sizes("max", expressions[0])
        return Objective([LargestBlock(argument, 1.0, sizes, "max")])
    parts = [scalar(e) for e in expressions]
    models = [e for e in parts if isinstance(e, Expression)]
    if len(parts) == 2 and len(models) == 1 and isinstance(models[0], Elementwise):
        (number,) = (e for e in parts if e is not models[0])
        return pos(models[0] - number) + number
    wrong = [e for e in models if not isinstance(e, Affine)] or parts[: not models]
    if wrong:
        raise ValueError(f"max needs affine expressions of variables, and numbers; got {_called(wrong[0])}.")
    if len(parts) == 2:
        first, second = parts if isinstance(parts[0], Affine) else reversed(parts)
        return pos(first - second) + second
    if any(np.shape(e) if not isinstance(e, Affine) else e.shape for e in parts):
        raise ValueError("max of three or more compares numbers; take the maximum of two vectors at a time.")
    return Objective([LargestBlock(concatenate(parts), 1.0, name="max")])


@lifted
def sum_largest(expression: Any, count: Any) -> Objective:
    """The sum of the `count` largest entries of an affine vector; a fraction counts the next one by that share.

    Of absolute values, as in ``vo.sum_largest(abs(y - X @ w), 10)``, likewise.

    Examples
    --------
    >>> import varopt as vo
    >>> w = vo.Variable(4, name="w")
    >>> vo.sum_largest(w, 2)([1.0, -4.0, 2.0, 5.0]), vo.sum_largest(w, 1.5)([1.0, -4.0, 2.0, 5.0])
    (7.0, 6.0)
    """
    argument, sizes = _affine_or_sizes("sum_largest", expression)
    if not is_number(count) or not 0.0 < float(count) <= argument.rows:
        raise ValueError(f"count must be a number above zero, and at most the length {argument.rows}; got {count!r}.")
    return Objective([LargestBlock(argument, float(count), sizes)])


@lifted
def cvar(losses: Any, level: Any = 0.95) -> Objective:
    """The conditional value at risk: the mean of the worst ``1 - level`` of losses, an affine vector or its sizes.

    Examples
    --------
    >>> import numpy as np, varopt as vo
    >>> x = vo.Variable(name="x")
    >>> vo.cvar(x * np.arange(100.0), 0.95)({x: 1.0})
    97.0
    """
    argument, sizes = _affine_or_sizes("cvar", losses)
    if not is_number(level) or not 0.0 <= float(level) < 1.0:
        raise ValueError(f"level must be at least 0 and below 1; got {level!r}.")
    count = (1.0 - float(level)) * argument.rows
    nearest = float(round(count))
    count = nearest if abs(count - nearest) <= 1e-9 * argument.rows and nearest else count
    return Objective([LargestBlock(argument, count, sizes, "cvar")]).scale(1.0 / count)


def _without_axis(name: str, axis: Any) -> None:
    """Refuse an axis: an objective is one number, and so is the largest entry of it."""
    if axis is not None:
        raise ValueError(
            f"{name} takes the largest of all entries, and no axis; got axis={axis!r}. For the sum of the largest of "
            f"each column of a matrix write sum(vo.{name}(W[:, j]) for j in range(k)), of each row W[i]."
        )


def _affine_vector(name: str, expression: Any) -> Affine:
    expression = scalar(expression)
    if not isinstance(expression, Affine):
        raise ValueError(f"{name} needs an affine expression of variables; got {_called(expression)}.")
    return expression


def _affine_or_sizes(name: str, expression: Any) -> tuple[Affine, bool]:
    """An affine vector, or that whose absolute values the entries are, and whether they are."""
    expression = scalar(expression)
    if isinstance(expression, Elementwise) and len(expression.parts) == 1 and expression.rest is None:
        part = expression.parts[0]
        if isinstance(part, TermBlock) and part.term == terms.abs_() and np.all(np.asarray(part.weights) >= 0.0):
            return part.argument.scale(part.weights), True
    return _affine_vector(name, expression), False


@lifted
def concatenate(expressions: Sequence[Any]) -> Affine:
    """Affine expressions, and arrays, one after the other; matrices of variables one below the other.

    Examples
    --------
    >>> import varopt as vo
    >>> w, b = vo.Variable(2, name="w"), vo.Variable(name="b")
    >>> vo.concatenate([2 * w, b, [1.0]])({w: [1.0, 2.0], b: 5.0})
    array([2., 4., 5., 1.])
    """
    parts = [scalar(e) for e in expressions]
    for part in parts:
        if isinstance(part, Expression) and not isinstance(part, Affine):
            raise ValueError(f"concatenate needs affine expressions, and arrays; got {part}.")
    if not any(isinstance(part, Affine) for part in parts):
        raise ValueError("concatenate needs at least one expression of variables.")
    arrays = [part if isinstance(part, Affine) else np.atleast_1d(as_vector("an entry", part)) for part in parts]
    lengths = [part.rows if isinstance(part, Affine) else part.size for part in arrays]
    total, offset = sum(lengths), np.zeros(sum(lengths))
    whole, start = None, 0
    for part, length in zip(arrays, lengths, strict=True):
        if isinstance(part, Affine):
            place = sp.csr_array(
                (np.ones(length), (np.arange(start, start + length), np.arange(length))), shape=(total, length)
            )
            here = part.transform(as_map("an embedding", place), (total,))
            whole = here if whole is None else whole.add(here)
        else:
            offset[start : start + length] = part
        start += length
    joined: Affine = whole.add(offset) if offset.any() else whole  # type: ignore[union-attr,assignment]
    widths = {part.dimensions[1:] if isinstance(part, Affine) else () for part in arrays}
    return (
        joined.as_matrix((total // (width := widths.pop()[0]), width))
        if len(widths) == 1 and widths != {()}
        else joined
    )


@lifted
def norm2(expression: Any, groups: Any = None, weights: Any = 1.0, *, axis: int | None = None) -> Objective:
    """The Euclidean norm, or the weighted sum of the norms of groups of entries: the group lasso's penalty.

    Parameters
    ----------
    expression : affine vector
    groups : int or sequence of index arrays, optional
        An integer cuts the vector into consecutive groups of that size; else one array of positions per group, which
        may overlap. Without it, the whole vector is one group.
    weights : float or array, optional
        A number, or one per group: often the square root of its size.
    axis : int, optional
        Of a matrix of variables: 1 makes every row a group, as the multi-task lasso does, 0 every column.

    Notes
    -----
    The bound is in closed form for groups of coordinates of a variable under an isotropic Gaussian, see `varopt.bound`.

    Examples
    --------
    >>> import varopt as vo
    >>> w = vo.Variable(4, name="w")
    >>> vo.norm2(w, groups=2)([3.0, 4.0, 0.0, 1.0])
    6.0
    >>> vo.norm2(w, groups=[[0, 1, 2], [3]], weights=[2.0, 1.0])([3.0, 4.0, 0.0, 1.0])
    11.0
    """
    expression = scalar(expression)
    if not isinstance(expression, Affine):
        raise ValueError(f"norm2 needs an affine expression of variables; got {_called(expression)}.")
    rows = expression.rows
    if axis is not None:
        parts = _lines(expression, axis, groups)
    elif groups is None:
        parts = [np.arange(rows)]
    elif is_number(groups):
        size = positive("groups", groups.item() if isinstance(groups, np.ndarray) else groups)
        if rows % size:
            raise ValueError(f"groups must divide the length {rows}; got {groups}.")
        parts = list(np.arange(rows).reshape(-1, size))
    else:
        parts = [_group(g, rows) for g in groups]
        if not parts:
            raise ValueError("groups must not be empty.")
    factors = as_vector("weights", weights)
    if factors.ndim and factors.size != len(parts):
        raise ValueError(f"weights must be a number or one per group, {len(parts)}; got {factors.size}.")
    factor = factors.astype(np.float64, copy=False) if factors.ndim else float(factors)
    return Objective([NormBlock(expression, tuple(parts), factor)])


def _lines(expression: Affine, axis: int, groups: Any) -> list[Any]:
    """The places of the rows of a matrix, or of its columns."""
    if len(expression.dimensions) != 2 or axis not in (0, 1, -1, -2) or groups is not None:
        raise ValueError(
            f"axis must be 0 or 1, of a matrix of variables, in place of groups; got axis={axis!r} of {expression}."
        )
    table = np.arange(expression.rows).reshape(expression.dimensions)
    return list(table if axis in (1, -1) else table.T)


def _group(group: Any, rows: int) -> Any:
    index = np.asarray(group)
    if index.ndim != 1 or index.size == 0 or index.dtype.kind not in "iu":
        raise ValueError(
            f"groups must be an integer or a sequence of non-empty index arrays; got {group!r} among them."
        )
    if index.min() < -rows or index.max() >= rows:
        raise ValueError(f"groups must hold positions in a vector of length {rows}; got {group!r}.")
    index = index.astype(np.intp) % rows
    if np.unique(index).size != index.size:
        raise ValueError(f"groups must not name an entry twice; got {group!r}.")
    return index


def _called(expression: Any) -> str:
    return str(expression) if isinstance(expression, Expression) else type(expression).__name__


@lifted
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
    expression = scalar(expression)
    if not isinstance(expression, Affine):
        raise ValueError(f"quad_form needs an affine expression of variables; got {_called(expression)}.")
    quadratic = as_map("the matrix of quad_form", matrix)
    if quadratic.shape != (expression.rows, expression.rows):
        raise ValueError(f"the matrix of quad_form must have shape {(expression.rows,) * 2}; got {quadratic.shape}.")
    return Objective([QuadraticBlock(expression, quadratic)])


@generic.quadratic_product.register(Affine)
def _form(left: Affine, right: Any) -> Objective | None:
    """``w @ (Q @ w + c)``, in either order, as ``quad_form(w, Q) + c @ w``; None of other products."""
    for variable, image in ((left, right), (right, left)):
        if not (isinstance(variable, Variable) and isinstance(image, Affine) and tuple(image.maps) == (variable,)):
            continue
        number, linear = _number_times(image.maps[variable])
        if isinstance(linear, (Matrix, Sparse)):
            form: Objective = number * quad_form(variable, linear.array)
            return form if image.constant.is_zero else form.add((image.offset * variable).sum())
    return None


def _number_times(linear: Map) -> tuple[float, Map]:
    """A map as a number times another, as of ``0.5 * w @ Q`` and ``0.5 * (w @ Q)``."""
    scaled = linear.inner if isinstance(linear, Composition) else linear
    if not (isinstance(scaled, Scaled) and np.ndim(scaled.scale) == 0):
        return 1.0, linear
    inside = linear.outer if isinstance(linear, Composition) else scaled.inner
    is_identity = isinstance(scaled.inner, Selection) and scaled.inner.index is None
    return (float(scaled.scale), inside) if is_identity or scaled is linear else (1.0, linear)

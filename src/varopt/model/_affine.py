"""Affine expressions, which terms are applied to, and their variables: real vectors and matrices, bits, and choices."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from varopt._elsewhere import OPTIONS, Hinting, advice
from varopt.model import _generic as generic
from varopt.model._expression import (
    Expression,
    dimensions_of,
    leave_frames_to_us,
    ordered,
    positive,
    select,
)
from varopt.model._offset import Offset
from varopt.model._parameter import Parametric
from varopt.model.maps import (
    Columnwise,
    Composition,
    Difference,
    HStack,
    Map,
    Matrix,
    Scaled,
    Selection,
    Sum,
    as_vector,
    map_at,
    signed_sum,
)
from varopt.places import DataPart, Stored

if TYPE_CHECKING:
    from varopt.model._objective import Objective

__all__ = ["Affine", "Binary", "Categorical", "Variable", "diff"]

Vector = NDArray[np.floating[Any]]


class Affine(Expression):
    """``sum_v A_v v + offset``: a vector, or a scalar, that depends affinely on variables."""

    def __init__(
        self, maps: Mapping[Variable, Map], offset: Any, shape: tuple[int, ...], dimensions: tuple[int, ...] = ()
    ) -> None:
        self.maps = {v: maps[v] for v in ordered(maps)}
        self.constant = Offset.of(offset)
        self.shape = shape
        self.dimensions = dimensions or shape  # those of a matrix, whose rows follow each other

    def as_matrix(self, dimensions: tuple[int, ...]) -> Affine:
        """The same entries, as those of a matrix row by row."""
        return Affine(self.maps, self.constant, self.shape, dimensions)

    @property
    def T(self) -> Affine:
        """The transpose of a matrix; a vector is its own."""
        return generic.transposed(self)

    @property
    def variables(self) -> tuple[Variable, ...]:
        return tuple(self.maps)

    @cached_property
    def offset(self) -> Any:
        """The constant part: a float, or an array of the expression's length."""
        return self.constant.value

    def stacked(self, variables: tuple[Variable, ...]) -> Map:
        """The linear part as one map of the concatenated `variables`."""
        if len(variables) == 1 and variables[0] in self.maps:
            return self.maps[variables[0]]
        return HStack(self.rows, [(self.maps.get(v), v.size) for v in variables])

    def values(self, points: Mapping[Variable, Vector]) -> Vector:
        if not self.maps:
            return np.array(np.broadcast_to(np.asarray(self.offset, dtype=np.float64), self.rows))
        return np.asarray(sum((linear.apply(points[v]) for v, linear in self.maps.items()), self.offset))

    def check(self) -> None:
        for variable, linear in self.maps.items():
            linear.check(f"the matrix of {variable}")

    def broadcast(self, shape: tuple[int, ...]) -> Affine:
        """A scalar repeated to a vector."""
        if self.shape == shape:
            return self
        maps = {v: _product(Selection.repeat(shape[0]), m) for v, m in self.maps.items()}
        return Affine(maps, self.constant, shape)

    def matched(self, other: Any) -> Any:
        """Another expression as large as this matrix: a number, one of its rows, or its entries in a row."""
        theirs = dimensions_of(other)
        fits = theirs in ((), self.shape, self.dimensions) or len(self.dimensions) < 2
        return other if fits else generic.spread(other, self.dimensions)

    def scale(self, factor: Any) -> Affine:
        factor = as_vector("the factor", self.flat("the factor", factor))
        if factor.ndim == 0:
            number = float(factor)
            if number == 1.0:
                return self
            scaled = {v: _scaled(number, m) for v, m in self.maps.items()}
            return Affine(scaled, self.constant.scaled(number), self.shape, self.dimensions)
        wide = self.broadcast(self._common_shape("the factor", factor.shape))
        scaled = {v: Scaled(factor, m) for v, m in wide.maps.items()}
        return Affine(scaled, wide.constant.scaled(factor), wide.shape, wide.dimensions)

    def add(self, other: Any) -> Any:
        if isinstance(other, Expression) and not isinstance(other, Affine):
            return other.add(self)
        if not isinstance(other, Affine):
            constant = as_vector("the constant", self.flat("the constant", other))
            wide = self.broadcast(self._common_shape("the constant", constant.shape))
            return Affine(wide.maps, wide.constant.plus(Offset.of(constant)), wide.shape, wide.dimensions)
        if len(self.dimensions) == 1 and len(other.dimensions) == 2:
            return other.add(self)
        other = self.matched(other)
        shape = self._common_shape(str(other), other.shape)
        left, right = self.broadcast(shape), other.broadcast(shape)
        maps = dict(left.maps)
        for variable, linear in right.maps.items():
            maps[variable] = _sum(maps[variable], linear) if variable in maps else linear
        whole = max((self.dimensions, other.dimensions), key=len)
        return Affine(maps, left.constant.plus(right.constant), shape, whole)

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, Parametric):
            return NotImplemented
        if isinstance(other, Expression):
            return self.add(other.scale(-1.0))
        return self.scale(-1.0).add(other).scale(-1.0)  # an array is not negated, so not copied

    def _common_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self.shape and shape and self.shape != shape:
            raise ValueError(
                f"{name} must be a number or have length {self.rows} to match {self}; got length {shape[0]}."
            )
        return self.shape or shape

    def transform(self, outer: Map, shape: tuple[int, ...]) -> Affine:
        maps = {v: _product(outer, m) for v, m in self.maps.items()}
        if self.constant.is_zero:
            return Affine(maps, 0.0, shape)
        offset = outer.apply(np.broadcast_to(np.asarray(self.offset, dtype=np.float64), self.rows))
        return Affine(maps, offset if shape else offset[0], shape)

    def _dot(self, weights: NDArray[Any]) -> Affine:
        return self._to_number(Matrix(weights[None, :], form="c @ {}"), weights)

    def _to_number(self, outer: Map, weights: NDArray[Any]) -> Affine:
        maps = {v: _product(outer, m) for v, m in self.maps.items()}
        if isinstance(self.constant.array, Stored):
            return self.transform(outer, ())
        return Affine(maps, self.constant.dot(np.asarray(weights, dtype=np.float64)), ())

    def total(self) -> Objective:
        return generic.total(self)

    def summed(self) -> Affine:
        """The sum of the entries, as a scalar expression."""
        ones = np.broadcast_to(np.ones(1), (1, self.rows))  # a view: no memory
        return self._to_number(Matrix(ones, form="sum({})"), ones[0]) if self.shape else self

    @cached_property
    def stored(self) -> tuple[Stored, ...]:
        """What it refers to that is not in memory."""
        constant = (self.constant.array,) if isinstance(self.constant.array, Stored) else ()
        return (*constant, *(leaf for leaf in self._leaves() if isinstance(leaf, Stored)))

    def _leaves(self) -> Iterator[Any]:
        return chain.from_iterable(linear.leaves() for linear in self.maps.values())

    @property
    def place(self) -> Callable[[Any], Any] | None:
        """What takes an array to the device that a matrix in it came from, if one did."""
        places = (leaf.place for leaf in self._leaves() if isinstance(leaf, Matrix))
        return next((place for place in places if place is not None), None)

    def at(self, part: DataPart) -> Affine:
        """The entries that belong to a part of data that are not in memory."""
        return Affine({v: map_at(m, part) for v, m in self.maps.items()}, self.constant.at(part), (part.count,))

    def __getitem__(self, index: Any) -> Affine:
        if len(self.dimensions) == 2:
            return self._entries(index)
        kept, shape = select(self, index)
        constant = self.constant.rows(kept)
        maps = {v: m.rows(kept) for v, m in self.maps.items()}
        return Affine(maps, constant if shape or constant.array is None else float(constant.value[0]), shape)

    def _entries(self, index: Any) -> Affine:
        """Rows, columns or entries of a matrix."""
        try:
            kept = np.arange(self.rows).reshape(self.dimensions)[index]
        except IndexError as error:
            raise ValueError(f"the index {index!r} is outside {self!r}: {error}.") from None
        places, shape = select(self, int(kept) if np.ndim(kept) == 0 else np.ravel(kept))
        constant = self.constant.rows(places)
        maps = {v: m.rows(places) for v, m in self.maps.items()}
        offset = constant if shape or constant.array is None else float(constant.value[0])
        return Affine(maps, offset, shape, kept.shape if np.ndim(kept) == 2 else ())

    def __str__(self) -> str:
        parts = [linear.of(str(variable)) for variable, linear in self.maps.items()]
        if not self.constant.is_zero or not parts:
            # "c - A @ w" reads better than "-A @ w + c".
            parts.insert(0 if parts and parts[0].startswith("-") else len(parts), str(self.constant))
        return signed_sum(parts)

    def __repr__(self) -> str:
        return f"<affine expression of shape {self.dimensions}: {self}>"


def diff(expression: Any, order: int = 1, axis: int | None = None) -> Affine:
    """Differences of neighbouring entries, `order` times: ``diff(w)[i] = w[i+1] - w[i]``.

    Of a matrix, whose `axis` has to be given, those down its columns (0) or along its rows (1). The fused lasso and
    total variation penalise first differences, trend filtering second ones.
    """
    if not isinstance(expression, Affine) or expression.shape == ():
        raise ValueError(f"diff needs an affine vector, a variable or a matrix times one; got {expression}.")
    order = positive("order", order)
    last = len(expression.dimensions) - 1
    if axis not in ((None, 0, -1) if last == 0 else (0, 1, -1, -2)):
        needed = "0, for differences down its columns, or 1, along its rows" if last else "left out of a vector"
        raise ValueError(f"axis must be {needed}; got {axis!r} for {expression}.")
    if axis in (1, -1) and last:
        return generic.transposed(diff(generic.transposed(expression), order, 0))
    length, columns = (*expression.dimensions, 1)[:2]
    if order >= length:
        raise ValueError(f"order must be less than the length {length}; got {order}.")
    if not last:
        return expression.transform(Difference(length, order), (length - order,))
    down = Columnwise(Difference(length, order), columns)
    return expression.transform(down, (down.shape[0],)).as_matrix((length - order, columns))


# -- Helpers ----------------------------------------------------------------------------------------------------------


def _scaled(factor: float, linear: Map) -> Map:
    if isinstance(linear, Scaled) and np.ndim(linear.scale) == 0:
        factor, linear = factor * float(linear.scale), linear.inner
    return linear if factor == 1.0 else Scaled(factor, linear)


def _product(outer: Map, inner: Map) -> Map:
    is_identity = isinstance(inner, Selection) and inner.index is None
    return outer if is_identity else Composition(outer, inner)


def _sum(a: Map, b: Map) -> Map:
    return Sum([*(a.parts if isinstance(a, Sum) else (a,)), *(b.parts if isinstance(b, Sum) else (b,))])


class _Order:
    """Counts variables, in this process and past those that come from another."""

    def __init__(self) -> None:
        self.next = 0

    def take(self) -> int:
        self.next += 1
        return self.next - 1

    def pass_by(self, position: int) -> None:
        self.next = max(self.next, position + 1)


_order = _Order()
_alive: WeakValueDictionary[str, Variable] = WeakValueDictionary()


class Variable(Hinting, Affine):
    """A real vector to optimise over; without a size, a real scalar.

    Parameters
    ----------
    size : int or pair of int, optional
        Number of entries. A pair makes a matrix, whose entries are those of a vector, row by row: ``W[i]``,
        ``W[:, j]`` and ``W[i, j]`` select of them, and a result has its shape.
    name : str, optional
        How the variable is called when printed.

    Notes
    -----
    A variable is itself wherever it goes: copies of it are the variable, and a pickled objective that comes back, from
    a worker say, speaks of the variables it left with.

    Examples
    --------
    >>> import numpy as np, varopt as vo
    >>> w, b = vo.Variable(2, name="w"), vo.Variable(name="b")
    >>> f = vo.sum(vo.hinge(np.eye(2) @ w + b))
    >>> f({w: [0.0, 1.0], b: 0.5})
    0.5
    """

    kind = "real"
    _hints = MappingProxyType({"value": "values are in the result, as in r = vo.minimize(...) and r[w]"})

    def __init__(self, size: int | tuple[int, ...] | None = None, *, name: str | None = None, **elsewhere: Any) -> None:
        for option in elsewhere:
            raise TypeError(f"Variable has no option {option!r}{advice(option, OPTIONS)}.")
        sizes = size if isinstance(size, tuple) else () if size is None else (size,)
        if len(sizes) > 2:
            raise ValueError(f"size must be a number, or two of them for a matrix; got {size!r}.")
        self._declare(tuple(positive("size", one) for one in sizes), name)

    def _declare(self, dimensions: tuple[int, ...], name: str | None) -> None:
        if name is not None and not isinstance(name, str):
            raise ValueError(f"name must be a string; got {name!r}.")
        leave_frames_to_us()
        self._restore(dimensions, name, (_order.take(), secrets.token_hex(16)))

    def _restore(self, dimensions: tuple[int, ...], name: str | None, order: tuple[int, str]) -> None:
        self.size = math.prod(dimensions)
        self.name = name
        self.order = order  # of creation; the second entry tells apart what two processes created
        _alive[order[1]] = self
        super().__init__({self: Selection(None, self.size)}, 0.0, (self.size,) if dimensions else (), dimensions)

    def _compared(self, other: object, sign: str) -> Any:
        if isinstance(other, Variable) and other is not self:
            unlike = self.shape != other.shape and () not in (self.shape, other.shape)
            if sign == "!=" or (sign == "==" and unlike):  # entries of lists, of which no constraint is meant
                return NotImplemented
        return super()._compared(other, sign)

    def __copy__(self) -> Variable:
        return self

    def __deepcopy__(self, memo: Any) -> Variable:
        return self

    def __reduce__(self) -> Any:
        return _unpickle, (type(self), self.dimensions, self.name, self.order)

    def __str__(self) -> str:
        return self.name or f"{type(self).__name__}({', '.join(map(str, self.dimensions))})"

    def __repr__(self) -> str:
        inside = [*map(str, self.dimensions), *([f"name={self.name!r}"] if self.name else [])]
        return f"{type(self).__name__}({', '.join(inside)})"


def _unpickle(kind: type[Variable], dimensions: tuple[int, ...], name: str | None, order: tuple[int, str]) -> Variable:
    known = _alive.get(order[1])
    if known is not None:
        return known
    _order.pass_by(order[0])
    variable = kind.__new__(kind)
    variable._restore(dimensions, name, order)
    return variable


class Binary(Variable):
    """A vector of bits, each 0 or 1; without a size, a single bit.

    Products and powers of bits are polynomials; many at once are products of vectors.

    Examples
    --------
    >>> import varopt as vo
    >>> x = vo.Binary(3, name="x")
    >>> f = x[0] * x[1] * x[2] - 2 * x[0] ** 2
    >>> f([1, 1, 0])
    -2.0
    >>> cut = vo.sum(x[[0, 1]] * (1 - x[[1, 2]]))   # two edges
    >>> cut([1, 0, 0])
    1.0
    """

    kind = "binary"


class Categorical(Variable):
    """`size` choices among `categories` each, as one-hot rows.

    ``x[i, c]`` is 1 where choice i takes category c, else 0.

    Examples
    --------
    >>> import varopt as vo
    >>> colour = vo.Categorical(3, 2)
    >>> clashes = colour[0] @ colour[1] + colour[1] @ colour[2]
    >>> clashes({colour: [[1, 0], [1, 0], [0, 1]]})
    1.0
    """

    kind = "categorical"

    def __init__(self, size: int, categories: int, *, name: str | None = None) -> None:
        self._declare((positive("size", size), positive("categories", categories)), name)

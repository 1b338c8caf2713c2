"""Variables: real vectors and matrices, bits, and choices."""

from __future__ import annotations

import uuid
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from varopt.model._affine import Affine
from varopt.model._expression import leave_frames_to_us, positive
from varopt.model.maps import Selection

__all__ = ["Binary", "Categorical", "Variable"]


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


class Variable(Affine):
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

    def __init__(self, size: int | tuple[int, ...] | None = None, *, name: str | None = None) -> None:
        sizes = size if isinstance(size, tuple) else () if size is None else (size,)
        if len(sizes) > 2:
            raise ValueError(f"size must be a number, or two of them for a matrix; got {size!r}.")
        self._declare(tuple(positive("size", one) for one in sizes), name)

    def _declare(self, dimensions: tuple[int, ...], name: str | None) -> None:
        if name is not None and not isinstance(name, str):
            raise ValueError(f"name must be a string; got {name!r}.")
        leave_frames_to_us()
        self._restore(dimensions, name, (_order.take(), uuid.uuid4().hex))

    def _restore(self, dimensions: tuple[int, ...], name: str | None, order: tuple[int, str]) -> None:
        self.size = int(np.prod(dimensions))
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

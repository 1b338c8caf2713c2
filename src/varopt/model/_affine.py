"""Variables and affine expressions of them: what a term is applied to."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from varopt._domains import as_finite
from varopt.model._maps import HStack, Map, Matrix, Product, Scaled, Selection, Sum, as_map, difference

if TYPE_CHECKING:
    from varopt.model._objective import Objective
    from varopt.terms import Curvature

__all__ = ["Affine", "Binary", "Categorical", "Expression", "Variable", "diff"]

Vector = NDArray[np.floating[Any]]

_counter = itertools.count()  # creation order: the order of variables in a flat point


def is_number(value: Any) -> bool:
    """A real scalar, of Python or NumPy, or a zero-dimensional array."""
    return isinstance(value, (bool, int, float, np.generic)) or (isinstance(value, np.ndarray) and value.ndim == 0)


def is_matrix(value: Any) -> bool:
    """A matrix of any accepted kind."""
    return np.ndim(value) == 2 if isinstance(value, (np.ndarray, list, tuple)) else len(getattr(value, "shape", ())) == 2


class Expression:
    """Anything built from variables. Immutable; operators return new expressions."""

    # NumPy and scipy.sparse then leave mixed operators to us instead of looping over elements.
    __array_ufunc__ = None
    __iter__ = None
    shape: tuple[int, ...]

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables that occur, in order of creation."""
        raise NotImplementedError

    def scale(self, factor: Any) -> Any:
        """The expression times a number, or times an array elementwise."""
        raise NotImplementedError

    def add(self, other: Any) -> Any:
        """The sum with another expression or constant."""
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        return self.add(other)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self.scale(-1.0)

    def __pos__(self) -> Any:
        return self

    def __sub__(self, other: Any) -> Any:
        return self.add(other.scale(-1.0) if isinstance(other, Expression) else -as_finite("the constant", other))

    def __rsub__(self, other: Any) -> Any:
        return self.scale(-1.0).add(other)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Expression):
            from varopt.model._polynomial import multiply

            return multiply(self, other)
        return self.scale(as_finite("the factor", other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, Expression):
            raise TypeError("an expression cannot divide: only numbers and arrays can.")
        divisor = as_finite("the divisor", other)
        if np.any(divisor == 0):
            raise ValueError("the divisor must not be zero.")
        return self.scale(1.0 / divisor)

    def __pow__(self, exponent: Any) -> Any:
        from varopt.model._polynomial import power

        return power(self, exponent)

    def __bool__(self) -> bool:
        raise TypeError("an expression has no truth value; call an objective at a point to get a number.")

    def _objective(self) -> Objective:
        from varopt.model._objective import as_objective

        return as_objective(self)

    def __call__(self, *point: Any) -> Any:
        """The value at a point: a flat array, one array per variable, or a mapping from variables to arrays."""
        return self._objective()(*point)

    @property
    def curvature(self) -> Curvature:
        """Convex, concave, affine or unknown, as far as the rules of composition tell."""
        return self._objective().curvature

    def explain(self) -> str:
        """Why the expression is, or is not known to be, convex: each part, the innermost culprit and the rule."""
        return self._objective().explain()


class Affine(Expression):
    """``sum_v A_v v + offset``: a vector, or a scalar, that depends affinely on variables."""

    def __init__(self, maps: Mapping[Variable, Map], offset: Any, shape: tuple[int, ...]) -> None:
        self.maps = dict(sorted(maps.items(), key=lambda item: item[0].position))
        self.offset = offset  # a float or an array of the expression's length
        self.shape = shape

    @property
    def variables(self) -> tuple[Variable, ...]:
        return tuple(self.maps)

    @property
    def rows(self) -> int:
        """Number of entries; one for a scalar."""
        return self.shape[0] if self.shape else 1

    def stacked(self, variables: tuple[Variable, ...]) -> Map:
        """The linear part as one map of the concatenated `variables`."""
        if len(variables) == 1 and variables[0] in self.maps:
            return self.maps[variables[0]]
        return HStack(self.rows, [(self.maps.get(v), v.size) for v in variables])

    def values(self, points: Mapping[Variable, Vector]) -> Vector:
        """The expression at points: each variable of shape (..., size), the result (..., rows)."""
        total: Any = None
        for variable, linear in self.maps.items():
            value = linear.apply(points[variable])
            total = value if total is None else total + value
        if total is None:
            return np.broadcast_to(np.asarray(self.offset, dtype=np.float64), (self.rows,))
        return np.asarray(total + self.offset)

    def check(self) -> None:
        """Raise a `ValueError` if a matrix holds NaN or infinity."""
        for variable, linear in self.maps.items():
            linear.check(f"the matrix of {variable}")

    def broadcast(self, shape: tuple[int, ...]) -> Affine:
        """A scalar repeated to a vector."""
        if self.shape == shape:
            return self
        if self.shape != ():
            raise ValueError(f"expressions must have one length; got {self.rows} and {shape[0]}.")
        ones = Matrix(np.broadcast_to(np.ones(1), (shape[0], 1)))  # a view: no memory
        maps = {v: ones if _is_identity(m) else Product(ones, m) for v, m in self.maps.items()}
        return Affine(maps, self.offset, shape)

    def scale(self, factor: Any) -> Affine:
        factor = as_finite("the factor", factor)
        if factor.ndim > 1:
            raise ValueError(f"a factor must be a number or a vector; got shape {factor.shape}.")
        if factor.ndim == 0:
            number = float(factor)
            if number == 1.0:
                return self
            return Affine({v: _scaled(number, m) for v, m in self.maps.items()}, number * self.offset, self.shape)
        wide = self.broadcast(_common_shape(self.shape, factor.shape))
        return Affine({v: Scaled(factor, m) for v, m in wide.maps.items()}, factor * wide.offset, wide.shape)

    def add(self, other: Any) -> Any:
        if isinstance(other, Expression) and not isinstance(other, Affine):
            return other.add(self)
        if not isinstance(other, Affine):
            constant = as_finite("the constant", other)
            if constant.ndim > 1:
                raise ValueError(f"a constant must be a number or a vector; got shape {constant.shape}.")
            wide = self.broadcast(_common_shape(self.shape, constant.shape))
            offset = constant if _is_zero(wide.offset) else wide.offset + constant
            return Affine(wide.maps, float(offset) if np.ndim(offset) == 0 else offset, wide.shape)
        shape = _common_shape(self.shape, other.shape)
        left, right = self.broadcast(shape), other.broadcast(shape)
        maps = dict(left.maps)
        for variable, linear in right.maps.items():
            maps[variable] = _sum(maps[variable], linear) if variable in maps else linear
        return Affine(maps, left.offset + right.offset, shape)

    def transform(self, outer: Map, shape: tuple[int, ...]) -> Affine:
        """``outer`` applied to the expression."""
        maps = {v: outer if _is_identity(m) else Product(outer, m) for v, m in self.maps.items()}
        offset = 0.0 if _is_zero(self.offset) else outer.apply(np.broadcast_to(np.asarray(self.offset, float), self.rows))
        if shape == () and np.ndim(offset):
            offset = float(offset[0])
        return Affine(maps, offset, shape)

    def __rmatmul__(self, other: Any) -> Any:
        if self.shape == ():
            raise ValueError("a scalar expression has no matrix product; use *.")
        if is_matrix(other):
            outer = as_map("the matrix before @", other)
            if outer.shape[1] != self.rows:
                raise ValueError(f"the matrix before @ must have {self.rows} columns to match {self}; got shape {outer.shape}.")
            return self.transform(outer, (outer.shape[0],))
        weights = as_finite("the vector before @", other)
        if weights.shape != self.shape:
            raise ValueError(f"the vector before @ must have length {self.rows} to match {self}; got shape {weights.shape}.")
        return self.transform(Matrix(weights[None, :]), ())

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, Expression):
            from varopt.model._functions import sum as sum_

            return sum_(self * other)
        if is_matrix(other):
            return self.__rmatmul__(other.T if hasattr(other, "T") else np.asarray(other).T)
        return self.__rmatmul__(other)

    def __getitem__(self, index: Any) -> Affine:
        if self.shape == ():
            raise ValueError("a scalar expression cannot be indexed.")
        kept = _indices(index, self.rows)
        if np.ndim(kept) == 0:
            part, shape = np.asarray([kept]), ()
        else:
            part, shape = np.asarray(kept), (np.size(kept),)
            if part.size == 0:
                raise ValueError(f"the index selects nothing of {self}.")
        rows = index if isinstance(index, slice) and not shape == () else part  # a slice keeps a view of dense data
        maps = {v: m.rows(rows) for v, m in self.maps.items()}
        offset = self.offset if np.ndim(self.offset) == 0 else np.asarray(self.offset)[part]
        return Affine(maps, float(np.ravel(offset)[0]) if shape == () else offset, shape)

    def __str__(self) -> str:
        text = " + ".join(f"{linear}{variable}" for variable, linear in self.maps.items()).replace("+ -", "- ")
        if _is_zero(self.offset):
            return text or "0"
        constant = f"{self.offset:g}" if np.ndim(self.offset) == 0 else "c"
        return f"{text} + {constant}" if text else constant

    def __repr__(self) -> str:
        return f"<affine expression of shape {self.shape}: {self}>"

    def __call__(self, *point: Any) -> Any:
        """The value at a point, as for objectives."""
        from varopt.model._points import split

        return _shaped(self.values(split(self.variables, point)), self.shape)


class Variable(Affine):
    """A real vector to optimise over; without a size, a real scalar.

    Parameters
    ----------
    size : int, optional
        Number of entries.
    name : str, optional
        How the variable is called when printed.

    Examples
    --------
    >>> import numpy as np, varopt as vo
    >>> w, b = vo.Variable(2, name="w"), vo.Variable(name="b")
    >>> f = vo.sum(vo.hinge(np.eye(2) @ w + b))
    >>> f({w: [0.0, 1.0], b: 0.5})
    0.5
    """

    kind = "real"

    def __init__(self, size: int | None = None, *, name: str | None = None) -> None:
        self._declare((_positive("size", size),) if size is not None else (), name)

    def _declare(self, dimensions: tuple[int, ...], name: str | None) -> None:
        if name is not None and not isinstance(name, str):
            raise ValueError(f"name must be a string; got {name!r}.")
        self.dimensions = dimensions
        self.size = int(np.prod(dimensions))
        self.name = name
        self.position = next(_counter)
        super().__init__({self: Selection(None, self.size)}, 0.0, (self.size,) if dimensions else ())

    def __str__(self) -> str:
        return self.name or f"{type(self).__name__}({', '.join(map(str, self.dimensions))})"

    def __repr__(self) -> str:
        inside = [*map(str, self.dimensions), *([f"name={self.name!r}"] if self.name else [])]
        return f"{type(self).__name__}({', '.join(inside)})"


class Binary(Variable):
    """A vector of bits, each 0 or 1; without a size, a single bit."""

    kind = "binary"


class Categorical(Variable):
    """`size` choices among `categories` each, as one-hot rows: ``x[i, c]`` is 1 where choice i takes category c, else 0.

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
        self._declare((_positive("size", size), _positive("categories", categories)), name)

    def __getitem__(self, index: Any) -> Affine:
        table = np.arange(self.size).reshape(self.dimensions)
        try:
            kept = table[index]
        except IndexError as error:
            raise ValueError(f"the index {index!r} is outside {self!r}: {error}.") from None
        return super().__getitem__(int(kept) if np.ndim(kept) == 0 else np.ravel(kept))


def diff(expression: Affine, order: int = 1) -> Affine:
    """Differences of neighbouring entries, `order` times: ``diff(w)[i] = w[i+1] - w[i]``.

    The fused lasso and total variation penalise first differences, trend filtering second ones.
    """
    if not isinstance(expression, Affine) or expression.shape == ():
        raise ValueError("diff needs an affine vector: a variable, or a matrix times one.")
    order = _positive("order", order)
    if order >= expression.rows:
        raise ValueError(f"order must be less than the length {expression.rows}; got {order}.")
    return expression.transform(difference(expression.rows, order), (expression.rows - order,))


# -- Helpers ----------------------------------------------------------------------------------------------------------


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be a positive integer; got {value!r}.")
    return int(value)


def _is_zero(value: Any) -> bool:
    return np.ndim(value) == 0 and float(value) == 0.0


def _is_identity(linear: Map) -> bool:
    return isinstance(linear, Selection) and linear.index is None


def _scaled(factor: float, linear: Map) -> Map:
    if isinstance(linear, Scaled) and np.ndim(linear.scale) == 0:
        return _scaled(factor * float(linear.scale), linear.inner) if factor * float(linear.scale) != 1.0 else linear.inner
    return Scaled(factor, linear)


def _sum(a: Map, b: Map) -> Map:
    return Sum([*(a.parts if isinstance(a, Sum) else (a,)), *(b.parts if isinstance(b, Sum) else (b,))])


def _common_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    if a and b and a != b:
        raise ValueError(f"lengths must agree; got {a[0]} and {b[0]}.")
    return a or b


def _shaped(value: Vector, shape: tuple[int, ...]) -> Any:
    return value if shape else float(value[0]) if value.ndim == 1 else value[..., 0]


def _indices(index: Any, length: int) -> Any:
    if isinstance(index, tuple):
        raise ValueError(f"an expression has one axis; got the index {index!r}.")
    try:
        return np.arange(length)[index]
    except IndexError as error:
        raise ValueError(f"the index is outside the expression of length {length}: {error}.") from None

"""What every expression of variables does: operators, comparisons, NumPy's functions, values at points.

A point is one flat vector in the order of the variables, or a mapping from variables to arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from varopt._domains import as_finite
from varopt._elsewhere import FUNCTIONS
from varopt.model import _generic as generic
from varopt.model._parameter import Parametric
from varopt.model.maps import Map, as_map, as_real, as_vector
from varopt.places import Stored, is_device_array

if TYPE_CHECKING:
    from varopt.model._affine import Variable
    from varopt.model._objective import Objective
    from varopt.terms import Curvature

__all__ = [
    "Expression", "check_matrices", "dimensions_of", "flattened", "is_number", "leave_frames_to_us", "ordered",
    "positive", "select", "slices", "split", "unflatten",
]  # fmt: skip

Vector = NDArray[np.floating[Any]]


def is_number(value: Any) -> bool:
    """A scalar, of Python or NumPy, or a zero-dimensional array."""
    return isinstance(value, (bool, int, float, np.generic)) or (isinstance(value, np.ndarray) and value.ndim == 0)


def dimensions_of(expression: Expression) -> tuple[int, ...]:
    """The shape of an expression, two numbers for a matrix."""
    return getattr(expression, "dimensions", expression.shape)


def check_matrices(left: Expression, right: Expression) -> None:
    """Refuse matrices of different shapes, of which the entries in a row may be as many."""
    both = dimensions_of(left), dimensions_of(right)
    if both[0] != both[1] and len(both[0]) == len(both[1]) == 2:
        raise ValueError(f"{left} and {right} must have one shape; got {both[0]} and {both[1]}.")


class _Sealed(type):
    """Instances cannot be assigned to once built; what they cache themselves does not go through assignment."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        built = super().__call__(*args, **kwargs)
        built.__dict__["_sealed"] = True
        return built


class Expression(metaclass=_Sealed):
    """Anything built from variables. Immutable; operators return new expressions."""

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get("_sealed", False):
            raise AttributeError(f"{type(self).__name__} is immutable: {name} cannot be set; build a new expression.")
        super().__setattr__(name, value)

    _own_operators = True  # frames and parameters leave mixed operators to us
    __pandas_priority__ = 5000  # and pandas: above that of its frames
    shape: tuple[int, ...]

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables that occur, in order of creation."""
        raise NotImplementedError

    @property
    def rows(self) -> int:
        """Number of entries; one for a scalar."""
        return self.shape[0] if self.shape else 1

    def flat(self, name: str, array: Any) -> Any:
        """An array, as the entries of a matrix where this is one; NumPy's rules make it as large."""
        whole = dimensions_of(self)
        if len(whole) < 2 or is_number(array) or isinstance(array, Stored) or np.shape(array) == self.shape:
            return array
        try:
            return np.ravel(np.broadcast_to(as_real(name, array), whole))
        except ValueError:
            raise ValueError(
                f"{name} must be a number or an array that fits the shape {whole} of {self}; got shape "
                f"{np.shape(array)}."
            ) from None

    def values(self, points: Mapping[Variable, Vector]) -> Vector:
        """The entries at points: each variable of shape (..., size), the result (..., rows)."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise a `ValueError` if data are not finite."""
        raise NotImplementedError

    def scale(self, factor: Any) -> Any:
        """The expression times a number, or times an array elementwise."""
        raise NotImplementedError

    def add(self, other: Any) -> Any:
        """The sum with another expression or constant."""
        raise NotImplementedError

    def total(self) -> Objective:
        """The sum of the entries."""
        raise NotImplementedError

    def sum(self, axis: int | None = None) -> Any:
        """As `varopt.sum`: NumPy's way to write it."""
        return generic.FUNCTIONS[np.sum](self, axis)

    def mean(self, axis: int | None = None) -> Any:
        """As `varopt.mean`: NumPy's way to write it."""
        return generic.FUNCTIONS[np.mean](self, axis)

    def __iter__(self) -> Any:  # else Python would index from 0 until an IndexError
        raise TypeError(
            f"{self} is not iterable: its sum is vo.sum(...), as Python's would add entry by entry, and an entry of an "
            "affine expression is w[i]."
        )

    def __contains__(self, value: object) -> bool:
        raise TypeError(f"{self} is not a container: its entries are not known before it is evaluated.")

    def transform(self, outer: Map, shape: tuple[int, ...]) -> Any:
        """``outer`` applied to the expression."""
        raise ValueError(f"a matrix product needs an affine expression or a polynomial in bits; got {self}.")

    # -- Operators ----------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Parametric) else self.add(other)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self.scale(-1.0)

    def __pos__(self) -> Any:
        return self

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, Parametric):
            return NotImplemented
        if isinstance(other, Expression):
            return self.add(other.scale(-1.0))
        return self.add(-1.0 * as_vector("the constant", self.flat("the constant", other)))

    def __rsub__(self, other: Any) -> Any:
        return self.scale(-1.0).add(other)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Parametric):
            return NotImplemented
        if isinstance(other, Expression):
            check_matrices(self, other)
            return generic.multiply(self, other)
        return self.scale(other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, Parametric):
            return NotImplemented
        if isinstance(other, Expression):
            raise TypeError(f"{other} cannot be a divisor: expressions are divided by numbers and arrays only.")
        divisor = np.asarray(as_vector("the divisor", self.flat("the divisor", other)))
        if np.any(divisor == 0):
            raise ValueError("the divisor must not be zero.")
        return self.scale(1.0 / divisor)

    def __rtruediv__(self, other: Any) -> Any:
        raise TypeError(f"{self} cannot be a divisor: expressions are divided by numbers and arrays only.")

    def __abs__(self) -> Any:
        return generic.absolute(self)

    def __pow__(self, exponent: Any) -> Any:
        return generic.power(self, exponent)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, Parametric):
            return NotImplemented
        if isinstance(other, Expression):
            both = [dimensions_of(e) for e in (self, other)]
            if self.shape == () or other.shape != self.shape or min(map(len, both)) > 1:
                raise ValueError(
                    f"@ needs vectors of one length; got shapes {both[0]} and {both[1]}. The sum of products of the"
                    " entries of two matrices is vo.sum(A * B)."
                )
            return generic.multiply(self, other, summed=True).total()
        if isinstance(other, (list, tuple)):
            other = as_real("the array after @", other)
        return self._multiplied(other, "after")

    def __rmatmul__(self, other: Any) -> Any:
        return self._multiplied(other, "before")

    def _multiplied(self, other: Any, side: str) -> Any:
        if self.shape == ():
            raise ValueError(f"@ needs a vector, and {self} is a number; use *.")
        if (
            len(getattr(self, "dimensions", ())) == 2
            and (made := generic.matrix_product(self, other, side)) is not None
        ):
            return made
        matrices = sp.issparse(other) or hasattr(other, "matvec")
        if type(other) is np.ndarray or not (matrices or is_device_array(other)):
            other = as_real(f"the array {side} @", other)
        if len(other.shape) not in (1, 2):
            raise ValueError(f"the array {side} @ must be a matrix or a vector; got shape {other.shape}.")
        if len(other.shape) == 2:
            outer = as_map(f"the matrix {side} @", other if side == "before" else other.T)
            if outer.shape[1] != self.rows:
                columns, got = ("columns" if side == "before" else "rows"), other.shape
                raise ValueError(
                    f"the matrix {side} @ must have {self.rows} {columns} to match {self}; got shape {tuple(got)}."
                )
            return self.transform(outer, (outer.shape[0],))
        weights = as_vector(f"the vector {side} @", other)
        if weights.shape != self.shape:
            raise ValueError(
                f"the vector {side} @ must have length {self.rows} to match {self}; got length {weights.size}."
            )
        return self._dot(weights)

    def _dot(self, weights: NDArray[Any]) -> Any:
        return self.scale(weights).total()

    def __bool__(self) -> bool:
        raise TypeError("an expression has no truth value; call an objective at a point to get a number.")

    # -- Comparisons are constraints ----------------------------------------------------------------------------------

    __hash__ = object.__hash__  # variables are keys of mappings, each itself

    def __eq__(self, other: object) -> Any:
        return self._compared(other, "==")

    def __ne__(self, other: object) -> Any:
        return self._compared(other, "!=")

    def __le__(self, other: object) -> Any:
        return self._compared(other, "<=")

    def __lt__(self, other: object) -> Any:
        return self._compared(other, "<")

    def __ge__(self, other: object) -> Any:
        return self._compared(other, ">=")

    def __gt__(self, other: object) -> Any:
        return self._compared(other, ">")

    def _compared(self, other: object, sign: str) -> Any:
        if self is other and sign in ("==", "!="):  # as weak references ask
            return sign == "=="
        if isinstance(other, Parametric):
            return NotImplemented
        # Containers compare their entries with what is no number: they ask whether it is the same.
        numeric = isinstance(other, (Expression, np.ndarray, list, tuple)) or is_number(other)
        if not numeric and not hasattr(other, "__array__"):
            return NotImplemented
        return generic.compare(self, other, sign)

    # NumPy leaves mixed operators to us too, instead of looping over elements.
    def __array_ufunc__(self, function: Any, method: str, *operands: Any, **options: Any) -> Any:
        known = generic.UFUNCS.get(function) if method == "__call__" and not options else None
        return self._by_numpy(known, function.__name__)(*operands)

    def __array_function__(self, function: Any, types: Any, operands: Any, options: Any) -> Any:
        return self._by_numpy(generic.FUNCTIONS.get(function), function.__name__)(*operands, **options)

    @staticmethod
    def _by_numpy(known: Any, name: str) -> Any:
        if known is None:
            instead = FUNCTIONS.get(name, "write X @ w, or use varopt's functions")
            raise TypeError(f"numpy.{name} does not take expressions: {instead}.")
        return known

    # -- Facts --------------------------------------------------------------------------------------------------------

    def __call__(self, *point: Any) -> Any:
        """The value at a point: a flat array, one array per variable, or a mapping from variables to arrays."""
        points = split(self.variables, point)
        self.check()
        values = self.values(points)
        return values if self.shape else float(values[0])

    @property
    def curvature(self) -> Curvature:
        """Convex, concave, affine or unknown, as far as the rules of composition tell; of a vector, for every entry."""
        return self.total().curvature

    def explain(self) -> str:
        """Why the expression is, or is not known to be, convex: each part, the innermost culprit and the rule."""
        return self.total().explain()


def positive(name: str, value: Any) -> int:
    """A positive integer, or a `ValueError` that names it."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be a positive integer; got {value!r}.")
    return int(value)


def select(expression: Expression, index: Any) -> tuple[Any, tuple[int, ...]]:
    """An index of an expression as a slice or an array of positions, and the shape of what it selects."""
    if expression.shape == ():
        raise ValueError(f"{expression} is a number and cannot be indexed.")
    length = expression.rows
    if index is Ellipsis:
        index = slice(None)
    if isinstance(index, slice):
        try:
            count = len(range(length)[index])
        except TypeError as error:
            raise ValueError(f"an index must be made of integers: {error}.") from None
        if count == 0:
            raise ValueError(f"the index {index} selects nothing of {expression}.")
        return index, (count,)  # a slice keeps a view of dense data
    given = np.asarray(index)
    if given.size == 0:
        raise ValueError(f"the index {index} selects nothing of {expression}.")
    if isinstance(index, tuple) or given.ndim > 1 or given.dtype.kind not in ("biu" if given.ndim else "iu"):
        raise ValueError(f"an index must be an integer, a slice, or a vector of integers or booleans; got {index!r}.")
    if given.dtype == bool and given.shape != (length,):
        raise ValueError(f"a boolean index must have length {length} to match {expression}; got length {given.size}.")
    positions = np.flatnonzero(given) if given.dtype == bool else given.astype(np.intp)
    if positions.size == 0:
        raise ValueError(f"the index selects nothing of {expression}.")
    if positions.min() < -length or positions.max() >= length:
        raise ValueError(f"the index must lie in a vector of length {length}; got {index!r}.")
    return np.atleast_1d(positions) % length, positions.shape


# -- Points ----------------------------------------------------------------------------------------------------------


def ordered(variables: Iterable[Variable]) -> tuple[Variable, ...]:
    """Variables in order of creation, each once: the order of a flat point."""
    return tuple(sorted(set(variables), key=lambda v: v.order))


def slices(variables: Sequence[Variable]) -> dict[Variable, slice]:
    """Where each variable lies in the flat vector."""
    ends = accumulate((v.size for v in variables), initial=0)
    return {v: slice(a, b) for v, (a, b) in zip(variables, pairwise(ends), strict=True)}


def unflatten(variables: Sequence[Variable], flat: NDArray[Any]) -> dict[Variable, NDArray[Any]]:
    """Views of flat points, (..., size), by variable."""
    return {v: flat[..., part] for v, part in slices(variables).items()}


def flattened(variables: Sequence[Variable], points: Mapping[Variable, NDArray[Any]]) -> NDArray[Any]:
    """The inverse of `unflatten`."""
    return np.concatenate([points[v] for v in variables], axis=-1) if variables else np.empty(0)


def split(variables: Sequence[Variable], point: tuple[Any, ...]) -> dict[Variable, NDArray[Any]]:
    """What a user passed as a point, checked and by variable.

    A mapping may hold further variables, so that one point serves every part of a sum.
    """
    size = sum(v.size for v in variables)
    names = ", ".join(map(str, variables))
    accepted = f"a flat array of length {size}, a mapping from variables to arrays, or one array for each of {names}"
    if len(point) == 1 and isinstance(point[0], Mapping):
        missing = [str(v) for v in variables if v not in point[0]]
        if missing:
            raise ValueError(
                f"the point must give a value to every variable; {', '.join(missing)} missing (its keys are variables)."
            )
        values = [point[0][v] for v in variables]
    elif len(point) == 1 and len(variables) != 1:
        flat = as_finite("the point", point[0])
        if flat.shape != (size,):
            raise ValueError(f"the point must be {accepted}; got shape {flat.shape}.")
        return unflatten(variables, flat)
    elif len(point) == len(variables):
        values = list(point)
    else:
        raise ValueError(f"the point must be {accepted}; got {len(point)} arguments.")
    result = {}
    for variable, value in zip(variables, values, strict=True):
        array = as_finite(f"the value of {variable}", value)
        if array.shape not in {variable.dimensions, (variable.size,)}:
            raise ValueError(f"the value of {variable} must have shape {variable.dimensions}; got {array.shape}.")
        result[variable] = array.reshape(variable.size)
    return result


# -- Operators of other libraries ------------------------------------------------------------------------------------


def _operator(forward: str, backward: str) -> Callable[[Any, Any], Any]:
    """An operator of which one operand is an expression, as Python would look it up."""

    def apply(left: Any, right: Any) -> Any:
        made = getattr(left, forward)(right) if isinstance(left, Expression) else NotImplemented
        if made is NotImplemented:
            made = getattr(right, backward)(left)
        return made

    return apply


generic.UFUNCS.update({
    np.add: _operator("__add__", "__radd__"),
    np.subtract: _operator("__sub__", "__rsub__"),
    np.multiply: _operator("__mul__", "__rmul__"),
    np.true_divide: _operator("__truediv__", "__rtruediv__"),
    np.matmul: _operator("__matmul__", "__rmatmul__"),
    np.power: _operator("__pow__", "__rpow__"),
    np.equal: _operator("__eq__", "__eq__"),
    np.not_equal: _operator("__ne__", "__ne__"),
    np.less_equal: _operator("__le__", "__ge__"),
    np.less: _operator("__lt__", "__gt__"),
    np.greater_equal: _operator("__ge__", "__le__"),
    np.greater: _operator("__gt__", "__lt__"),
    np.negative: lambda z: -z,
    np.positive: lambda z: z,
})  # fmt: skip


def _leave_to_us(kind: Any) -> None:
    """Make ``@`` of a class return ``NotImplemented`` for expressions and parameters, once.

    NumPy and scipy.sparse leave ``X @ w`` to our expressions. SciPy's operators and pandas do not ask: they turn the
    operand into an array and fail. So Python tries ``__rmatmul__`` of ours; other operands see their own method.
    """
    original = kind.__matmul__
    if hasattr(original, "_varopt"):
        return

    @wraps(original)
    def matmul(self: Any, other: Any) -> Any:
        return NotImplemented if hasattr(other, "_own_operators") else original(self, other)

    matmul._varopt = True  # type: ignore[attr-defined]
    kind.__matmul__ = matmul


def leave_frames_to_us() -> None:
    """``DataFrame @ expression`` is ours, if pandas is there by now."""
    pandas = sys.modules.get("pandas")
    for name in ("DataFrame", "Series"):
        kind = getattr(pandas, name, None)  # absent also while pandas is being imported
        if kind is not None:
            _leave_to_us(kind)


_leave_to_us(LinearOperator)

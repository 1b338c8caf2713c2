"""Parameters: numbers in an objective that are filled in later, so that a family of problems is written once.

An operation on a parameter is remembered, not carried out: what comes out is a recipe (`Parametric`) that builds the
objective once the parameters are known. Parts of an objective without parameters are built once, and shared.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, cast

from varopt._domains import as_finite

__all__ = ["Parameter", "Parametric", "lifted"]

P = ParamSpec("P")
T = TypeVar("T")


class Parametric:
    """What an expression becomes once a parameter occurs in it: ``f.given({lam: 0.1})`` fills the parameters in."""

    __array_ufunc__ = None  # NumPy then leaves mixed operators to us
    _own_operators = True  # as frames do

    def __init__(self, function: Callable[..., Any], *operands: Any) -> None:
        self._function, self._operands = function, operands

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters that occur, in order of appearance."""
        inner = (o.parameters for o in self._operands if isinstance(o, Parametric))
        return tuple(dict.fromkeys(itertools.chain.from_iterable(inner)))

    def given(self, values: Mapping[Parameter, float] | None = None) -> Any:
        """What it is with these values; parameters left out keep the value they have."""
        values = {} if values is None else values
        return self._function(*(o.given(values) if isinstance(o, Parametric) else o for o in self._operands))

    def __add__(self, other: Any) -> Parametric:
        return Parametric(operator.add, self, other)

    def __radd__(self, other: Any) -> Parametric:
        return Parametric(operator.add, other, self)

    def __sub__(self, other: Any) -> Parametric:
        return Parametric(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Parametric:
        return Parametric(operator.sub, other, self)

    def __mul__(self, other: Any) -> Parametric:
        return Parametric(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Parametric:
        return Parametric(operator.mul, other, self)

    def __matmul__(self, other: Any) -> Parametric:
        return Parametric(operator.matmul, self, other)

    def __rmatmul__(self, other: Any) -> Parametric:
        return Parametric(operator.matmul, other, self)

    def __truediv__(self, other: Any) -> Parametric:
        return Parametric(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Parametric:
        return Parametric(operator.truediv, other, self)

    def __pow__(self, other: Any) -> Parametric:
        return Parametric(operator.pow, self, other)

    def __neg__(self) -> Parametric:
        return Parametric(operator.neg, self)

    def __le__(self, other: Any) -> Parametric:
        return Parametric(operator.le, self, other)

    def __ge__(self, other: Any) -> Parametric:
        return Parametric(operator.ge, self, other)

    def __bool__(self) -> bool:
        raise TypeError("a parameter, or what is built of one, has no truth value.")

    __hash__ = object.__hash__  # parameters are keys of mappings, each itself

    def __eq__(self, other: object) -> Any:
        if hasattr(other, "_own_operators") and not isinstance(other, Parametric):
            return Parametric(operator.eq, self, other)  # a constraint
        return self._compared(other)

    def __ne__(self, other: object) -> bool:
        return self._compared(other)

    def _compared(self, other: object) -> bool:
        if isinstance(self, Parameter) and not isinstance(other, (int, float)):
            return NotImplemented  # type: ignore[no-any-return]  # containers ask whether it is the same
        raise TypeError("a parameter cannot be compared: it stands for a number that is filled in later.")

    def __repr__(self) -> str:
        return f"<objective with {', '.join(map(str, self.parameters))}>"


class Parameter(Parametric):
    """A number that is filled in later.

    Parameters
    ----------
    value : float, optional
        Used where no other value is given; assign to `value` to change it.
    name : str
        How it is called in messages and plots.

    Examples
    --------
    >>> import numpy as np, varopt as vo
    >>> w, lam = vo.Variable(2, name="w"), vo.Parameter(name="lam")
    >>> f = vo.sum_squares(np.array([3.0, 1.0]) - w) + lam * vo.norm1(w)
    >>> vo.path(f, lam, [4.0, 1.0])[w]
    array([[1. , 0. ],
           [2.5, 0.5]])
    """

    def __init__(self, value: float | None = None, name: str = "parameter") -> None:
        self.name = name
        self.value = value

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameter itself."""
        return (self,)

    def given(self, values: Mapping[Parameter, float] | None = None) -> float:
        """Its value."""
        value = self.value if values is None else values.get(self, self.value)
        if value is None:
            raise ValueError(f"{self.name} has no value: set {self.name}.value, or use vo.path.")
        return float(as_finite(self.name, value))

    def __repr__(self) -> str:
        return self.name


def lifted(function: Callable[P, T]) -> Callable[P, T]:
    """The function, remembered instead of called where one of its arguments holds a parameter."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if not any(isinstance(a, Parametric) for a in (*args, *kwargs.values())):
            return function(*args, **kwargs)
        names = tuple(kwargs)

        def build(*operands: Any) -> T:
            here, named = operands[: len(args)], operands[len(args) :]
            return function(*here, **dict(zip(names, named, strict=True)))

        return cast(T, Parametric(build, *args, *kwargs.values()))

    return call

"""What NumPy's functions of expressions are: those that mean the same as the model's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from varopt.model import _functions as functions
from varopt.model import _generic as generic
from varopt.model._affine import Affine
from varopt.model._expression import Expression


def _operator(forward: str, backward: str) -> Callable[[Any, Any], Any]:
    """An operator of which one operand is an expression, as Python would look it up."""

    def apply(left: Any, right: Any) -> Any:
        made = getattr(left, forward)(right) if isinstance(left, Expression) else NotImplemented
        if made is NotImplemented:
            made = getattr(right, backward)(left)
        return made

    return apply


def _minimum(left: Any, right: Any) -> Any:
    return -functions.max(-left, -right)


def _sum(expression: Any, axis: int | None = None) -> Any:
    return functions.sum(expression) if axis is None else functions.sum(expression, axis=axis)


def _diff(expression: Any, n: int = 1) -> Any:
    return functions.diff(expression, n)


def _dot(left: Any, right: Any) -> Any:
    return generic.UFUNCS[np.matmul](left, right)


def _transpose(expression: Any) -> Affine:
    return generic.transposed(expression)


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
    np.absolute: functions.abs,
    np.fabs: functions.abs,
    np.square: functions.square,
    np.maximum: functions.max,
    np.minimum: _minimum,
})  # fmt: skip
generic.FUNCTIONS.update({
    np.sum: _sum, np.diff: _diff, np.concatenate: functions.concatenate, np.dot: _dot, np.transpose: _transpose,
})  # fmt: skip

"""What NumPy's functions of expressions are: those that mean the same as the model's own."""

from __future__ import annotations

from typing import Any

import numpy as np

from varopt.model import _functions as functions
from varopt.model import _generic as generic
from varopt.model import _vector_functions as vectors
from varopt.model._affine import Affine, diff


def _minimum(left: Any, right: Any) -> Any:
    return -vectors.max(-left, -right)


def _sum(expression: Any, axis: int | None = None) -> Any:
    return functions.sum(expression, axis)


def _mean(expression: Any, axis: int | None = None) -> Any:
    return functions.mean(expression, axis)


def _diff(expression: Any, n: int = 1, axis: int = -1) -> Any:
    return diff(expression, n, axis)


def _amax(expression: Any, axis: Any = None) -> Any:
    return vectors.max(expression, axis=axis)


def _amin(expression: Any, axis: Any = None) -> Any:
    return -vectors.max(-expression, axis=axis)


def _concatenate(parts: Any, axis: int = 0) -> Any:
    if axis != 0:
        raise TypeError(
            f"numpy.concatenate takes expressions one below the other; got axis={axis!r}. Matrices of variables stand "
            "side by side in vo.concatenate([V.T, W.T]).T."
        )
    return vectors.concatenate(parts)


def _hstack(parts: Any) -> Any:
    if any(len(part.dimensions if isinstance(part, Affine) else np.shape(part)) > 1 for part in parts):
        raise TypeError("numpy.hstack takes vectors of variables, and no matrix: sum over its blocks, or index it.")
    return vectors.concatenate(parts)


def _dot(left: Any, right: Any) -> Any:
    return generic.UFUNCS[np.matmul](left, right)


def _transpose(expression: Any) -> Affine:
    return generic.transposed(expression)


generic.UFUNCS.update({
    np.absolute: functions.abs,
    np.fabs: functions.abs,
    np.square: functions.square,
    np.maximum: vectors.max,
    np.minimum: _minimum,
})  # fmt: skip
generic.FUNCTIONS.update({
    np.sum: _sum, np.mean: _mean, np.diff: _diff, np.concatenate: _concatenate, np.dot: _dot,
    np.transpose: _transpose, np.max: _amax, np.min: _amin, np.hstack: _hstack,
})  # fmt: skip

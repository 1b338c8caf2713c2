"""Data and objectives of the suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import varopt as vo

Array = NDArray[np.float64]


LEVEL = 0.7
GAP = 1e-9


def checked(result: Any, gap: float = GAP) -> str:
    """What is wrong with a result, if anything is."""
    if result.status is not vo.Status.OPTIMAL:
        return f"{result.status.name}: gap {result.gap / abs(result.fun):.1e}"
    return "ok" if result.gap <= gap * abs(result.fun) else f"gap {result.gap / abs(result.fun):.1e}"


def write(path: Path, rows: int, features: int, noise: str = "t", order: str = "none") -> None:
    """Features and target side by side, in parts."""
    rng = np.random.default_rng(0)
    file = np.lib.format.open_memmap(path, "w+", dtype=np.float64, shape=(rows, features + 1))
    beta = rng.standard_normal(features)
    for start in range(0, rows, 250_000):
        X = rng.standard_normal((min(250_000, rows - start), features))
        X[:, 0] = 1.0
        if order == "constant feature" and start > rows // 20:
            X[:, 2] = 0.0
        y = X @ beta
        if noise == "Cauchy":
            y += rng.standard_cauchy(len(X))
        else:
            y += (1.0 + 0.3 * np.abs(X[:, 1])) * rng.standard_t(2, len(X))
        y = np.round(y) if noise == "whole numbers" else y
        file[start : start + len(X), :-1], file[start : start + len(X), -1] = X, y
    if order == "sorted":
        file[:] = file[np.argsort(file[:, -1])]
    file.flush()


def objective(kind: str, X: Any, y: Any, level: float = LEVEL) -> tuple[Any, Any]:
    """Quantile regression, or a linear support vector machine whose labels are signs of the target."""
    w = vo.Variable(X.shape[1], name="w")
    if kind == "quantile":
        return vo.sum(vo.pinball(y - X @ w, level)), w
    return 0.5 * vo.sum_squares(w) + 0.1 * vo.sum(vo.hinge(y * (X @ w))), w


def signs(column: Any) -> Any:
    """The signs of a stored column, row by row as it is read."""
    from varopt.places import Derived, as_stored

    stored = as_stored(column)
    return np.where(column > 0.0, 1.0, -1.0) if stored is None else Derived(signs_of, (stored,))


def signs_of(values: Array) -> Array:
    return np.where(values > 0.0, 1.0, -1.0)

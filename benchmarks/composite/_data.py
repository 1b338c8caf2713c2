"""The data of the problems: generated, shipped with scikit-learn, public files, or downloaded by scikit-learn.

Public files are looked for in the folder that ``VAROPT_DATA`` names. What is not there is downloaded where scikit-learn
knows how, once, into its own folder of data; what cannot be had is skipped with its reason.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

SHARED = Path(os.environ.get("VAROPT_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


ON_OPENML = {
    "a9a.bz2": "a9a",
    "ijcnn1.bz2": "ijcnn",
    "w8a.bz2": "w8a",
    "golub": "leukemia",
}  # there the rows to train on and those to test on together


def absent(name: str) -> str:
    """Why a problem is skipped."""
    tried = " and cannot be downloaded" if name in ON_OPENML or name == "california_housing" else ""
    return f"{name} is not in the folder that VAROPT_DATA names{tried}"


def from_openml(name: str) -> tuple[Any, Vector] | None:
    """A set of two classes, labels -1 and 1, sparse where it is sparse there; None where it cannot be had."""
    from sklearn.datasets import fetch_openml

    data = downloaded(
        lambda: fetch_openml(name, version=1, as_frame=False, return_X_y=True, parser="liac-arff", n_retries=1)
    )
    if data is None:
        return None
    X, labels = data
    return X, np.where(labels == np.unique(labels)[-1], 1.0, -1.0)


def downloaded(fetch: Callable[[], Any]) -> Any:
    """What a function of scikit-learn brings from elsewhere or from its cache; None without a network."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tries that fail
        try:
            return fetch()
        except OSError:  # of which the errors of the network are a kind
            return None


def shared_file(name: str) -> Path | None:
    """A public file, or None where it is absent."""
    path = SHARED / name
    return path if path.is_file() else None


def heavy_tails(n: int, p: int) -> tuple[Vector, Vector]:
    """A linear model with noise of Student's t, 2 degrees of freedom: no variance."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    return X, X @ rng.standard_normal(p) + rng.standard_t(2, n)


def two_gaussians(n: int, p: int) -> tuple[Vector, Vector]:
    """[SB12, section 3.2]: two unit Gaussians 3.5 apart, labels -1 and 1."""
    rng = np.random.default_rng(0)
    apart = rng.standard_normal(p)
    apart *= 3.5 / np.linalg.norm(apart)
    labels = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    return rng.standard_normal((n, p)) + np.outer(labels > 0.0, apart), labels


def breast_cancer() -> tuple[Vector, Vector]:
    """569 x 30 in the units it was measured in, over five orders of magnitude; needs scikit-learn."""
    from sklearn.datasets import load_breast_cancer

    X, target = load_breast_cancer(return_X_y=True)
    return np.ascontiguousarray(X, dtype=np.float64), np.where(target == 1, 1.0, -1.0)


def svmlight(path: Path) -> tuple[Vector, Vector]:
    """A file in LIBSVM's format, dense; needs scikit-learn."""
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(path))
    return np.ascontiguousarray(X.toarray()), np.asarray(y, dtype=np.float64)


def autoregressive(n: int, p: int, rho: float) -> tuple[Vector, Vector]:
    """Neighbouring columns with correlation rho, a tenth of the coefficients not zero, a tenth of noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    for j in range(1, p):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1.0 - rho**2) * X[:, j]
    w = np.where(rng.random(p) < 0.1, rng.standard_normal(p), 0.0)
    clean = X @ w
    return X, clean + 0.1 * np.std(clean) * rng.standard_normal(n)


def independent(n: int, p: int) -> tuple[Vector, Vector]:
    """Independent columns, a tenth of the coefficients not zero, more noise than signal."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    w = np.where(rng.random(p) < 0.1, rng.standard_normal(p), 0.0)
    return X, X @ w + 0.5 * np.sqrt(p) * rng.standard_normal(n)


def spikes(dimension: int) -> tuple[Vector, Vector]:
    """[SB12, section 2.2]: N = 10 D, half of the coefficients zero, the others near 5 or -5, a tenth of noise."""
    rng = np.random.default_rng(0)
    kind = rng.random(dimension)
    w = np.where(kind < 0.5, 0.0, np.where(kind < 0.75, 5.0, -5.0) + rng.standard_normal(dimension))
    return _observed(rng, w)


def plateaus(dimension: int) -> tuple[Vector, Vector]:
    """[SB12, section 2.3]: as `spikes`, but half of the coefficients repeat the one before."""
    rng = np.random.default_rng(0)
    w = np.zeros(dimension)
    for i in range(dimension):
        kind = rng.random() if i else 0.5 + 0.5 * rng.random()
        if kind < 0.5:
            w[i] = w[i - 1]
        elif kind >= 0.75:
            w[i] = (5.0 if kind < 0.875 else -5.0) + rng.standard_normal()
    return _observed(rng, w)


def _observed(rng: np.random.Generator, w: Vector) -> tuple[Vector, Vector]:
    X = rng.standard_normal((10 * w.size, w.size))
    clean = X @ w
    return X, clean + 0.1 * np.mean(np.abs(clean)) * rng.standard_normal(10 * w.size)


def steps(n: int) -> Vector:
    """A piecewise constant signal, a level every hundred points or so, in unit noise."""
    rng = np.random.default_rng(0)
    level = np.cumsum(rng.random(n) < 0.01)
    return 5.0 * rng.standard_normal(int(level[-1]) + 1)[level] + rng.standard_normal(n)


def slopes(n: int) -> Vector:
    """A piecewise linear signal, a corner every hundred points or so, in unit noise."""
    rng = np.random.default_rng(0)
    corners = np.arange(0, n + 100, 100)
    return np.interp(np.arange(n), corners, 10.0 * rng.standard_normal(corners.size)) + rng.standard_normal(n)

"""Quantile regression elsewhere: scikit-learn, statsmodels, and R's quantreg and conquer."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks._rivals import Fit, Rival

Vector = NDArray[np.float64]


def _scikit_learn(X: Vector, y: Vector, level: float) -> Fit:
    from sklearn.linear_model import QuantileRegressor

    def fit(solver: str) -> Vector:
        model = QuantileRegressor(quantile=level, alpha=0.0, solver=solver).fit(X, y)
        return np.append(model.coef_, model.intercept_)

    return fit


SCIKIT_LEARN = Rival(
    "scikit-learn QuantileRegressor, HiGHS",
    _scikit_learn,
    ladder=({"solver": "highs-ipm"}, {"solver": "highs"}),  # the second is the default, and the slower
    modules=("sklearn",),
    packages=("scikit-learn",),
)


def _statsmodels(X: Vector, y: Vector, level: float) -> Fit:
    from statsmodels.regression.quantile_regression import QuantReg

    model = QuantReg(y, np.column_stack([X, np.ones(y.size)]))

    def fit(p_tol: float, max_iter: int) -> Vector:
        return np.asarray(model.fit(q=level, p_tol=p_tol, max_iter=max_iter).params)

    return fit


STATSMODELS = Rival(
    "statsmodels QuantReg",
    _statsmodels,
    ladder=({"p_tol": 1e-6, "max_iter": 1000}, {"p_tol": 1e-10, "max_iter": 10_000}),
    modules=("statsmodels",),
    packages=("statsmodels",),
)


# -- R ----------------------------------------------------------------------------------------------------------------


@functools.cache
def _r_versions() -> dict[str, str]:
    """R, the two packages and its BLAS; empty where one of the three is missing."""
    code = 'cat(paste(getRversion(), packageVersion("quantreg"), packageVersion("conquer"), sessionInfo()$BLAS))'
    try:
        run = subprocess.run(["Rscript", "--vanilla", "-e", code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return dict(zip(("R", "quantreg", "conquer", "BLAS of R"), run.stdout.split(), strict=False))


def _r_missing() -> str:
    if shutil.which("Rscript") is None:
        return "not installed: Rscript"
    return "" if _r_versions() else "not installed: R's quantreg and conquer"


def _r(which: int) -> Callable[..., Fit]:
    def prepare(X: Vector, y: Vector, level: float) -> Fit:
        script = Path(__file__).with_name("quantreg.R")
        server = subprocess.Popen(
            ["Rscript", "--vanilla", str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=-1
        )
        to, back = server.stdin, server.stdout
        if to is None or back is None:
            raise RuntimeError("no pipe to R")
        to.write(np.array([*X.shape, level]).tobytes())
        to.write(X.tobytes(order="F"))
        to.write(y.tobytes())
        to.flush()
        back.readline()  # "ready": the data are in, off the clock

        def fit(eps: float) -> Vector:
            to.write(np.array([which, eps]).tobytes())
            to.flush()
            line = back.readline()
            if not line:
                raise RuntimeError("R ended without an answer")
            return np.array(line.split(), dtype=np.float64)

        return fit

    return prepare


_EPS = tuple({"eps": eps} for eps in (1e-6, 1e-9, 1e-12))
FRISCH_NEWTON = Rival("R quantreg fn", _r(1), _EPS, missing=_r_missing, versions=_r_versions)
PREPROCESSED = Rival("R quantreg pfn", _r(2), _EPS, missing=_r_missing, versions=_r_versions)
CONQUER = Rival("R conquer (inexact)", _r(3), ({"eps": 0.0},), missing=_r_missing, versions=_r_versions)

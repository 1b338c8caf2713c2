"""`inference`: from a fitted model and its data to what is known of its coefficients."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.stats import t as student

from varopt.learn._inference._bootstrap import KINDS, bootstrap
from varopt.learn._inference._clusters import clusters_of, inflation, scores
from varopt.learn._inference._design import Design, design
from varopt.learn._inference._rank import rank_intervals
from varopt.learn._inference._result import Inference
from varopt.learn._inference._sandwich import RULES, huber_covariance, quantile_covariance

__all__ = ["inference"]

_METHODS = ("iid", "nid", "kernel", "rank", "bootstrap")
_HUBER = ("iid", "nid", "bootstrap")


def inference(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    method: str = "nid",
    level: float = 0.95,
    bandwidth: str | None = None,
    kind: str = "pairs",
    refits: int = 1000,
    clusters: Any = None,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> Inference:
    """Standard errors, confidence intervals and tests for a fitted quantile, LAD or Huber regression.

    Parameters
    ----------
    model : QuantileRegressor, LADRegressor or HuberRegressor
        A fitted model without a penalty (``alpha=0``), with one level or several; scikit-learn's of the same names too.
    X, y, sample_weight : array-like
        What it was fitted to. Weights are those of the losses: precisions, not counts.
    method : {"nid", "iid", "kernel", "rank", "bootstrap"}, default="nid"
        ``"iid"``: errors of one distribution (Koenker and Bassett 1978). ``"nid"``: a distribution for each row, its
        density from neighbouring quantiles (Hendricks and Koenker 1992). ``"kernel"``: the same by a kernel (Powell
        1991). ``"rank"``: intervals by inverting a rank test, without a density (Koenker 1994); no standard errors.
        ``"bootstrap"``: refits. For Huber's regression ``"iid"`` (Huber 1981), ``"nid"`` and ``"bootstrap"``.
    level : float, default=0.95
        The confidence of the intervals.
    bandwidth : {"hall-sheather", "bofinger", "chamberlain"}, optional
        Over which levels the densities of ``"iid"``, ``"nid"`` and ``"kernel"`` are averaged. The first two are those
        of R's `quantreg` (``hs=TRUE`` and ``hs=FALSE``), all three those of statsmodels. By default the first, and with
        ``"kernel"`` the last: its intervals then cover as often as they say, while those of the others are too wide.
    kind : {"pairs", "bayesian", "wild"}, default="pairs"
        What a bootstrap draws: rows with replacement, exponential weights, or signs of residuals (Feng, He, Hu 2011).
    refits : int, default=1000
        How many.
    clusters : array-like of shape (n_samples,), optional
        For a bootstrap of "pairs" or "bayesian": rows with the same label are drawn together.
    random_state : int, RandomState, Generator or None, default=0
        The seed of a bootstrap. The same seed gives the same numbers, whatever `n_jobs`.
    n_jobs : int, optional
        Processes of a bootstrap, as in joblib.

    Returns
    -------
    Inference

    Notes
    -----
    Intervals and p-values take Student's distribution with ``n - p`` degrees of freedom. Of G clusters it has G - 1,
    and each standard error is that of the refits times what the jackknife over clusters adds to the sandwich without
    corrections (`draws` are left as they are): refits spread too little where clusters are few or some have a large
    leverage [CameronGelbachMiller08], [MacKinnonNielsenWebb23]. Below some twenty clusters, or where a feature varies
    in few of them, take no interval at its word.

    Numbers agree with those of R's `quantreg`, whose ``ker`` is ``"kernel"`` with ``bandwidth="hall-sheather"`` and
    ``xy`` is ``"pairs"``. A bootstrap of quantiles needs the memory of some ten chunks of 16 MB, and the time of a few
    products with X and a small linear programme for each refit.

    Examples
    --------
    >>> import numpy as np
    >>> from varopt.learn import QuantileRegressor, inference
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0.0, 2.0, size=(400, 1))
    >>> y = 1.0 + 3.0 * X[:, 0] + (1.0 + X[:, 0]) * rng.standard_normal(400)
    >>> model = QuantileRegressor(quantile=[0.1, 0.9], alpha=0.0).fit(X, y)
    >>> known = inference(model, X, y)
    >>> print(known)  # doctest: +SKIP
    >>> known.equal_slopes().pvalue < 0.01  # the spread grows with x
    True
    """
    _check_options(method, level, kind, refits, clusters)
    if bandwidth is None:
        bandwidth = "chamberlain" if method == "kernel" else "hall-sheather"
    if bandwidth not in RULES:
        raise ValueError(f"bandwidth must be one of {', '.join(RULES)}; got {bandwidth!r}.")
    made = design(model, X, y, sample_weight)
    if made.huber and method not in _HUBER:
        raise ValueError(f'method="{method}" is for quantiles; Huber\'s regression takes "iid", "nid" or "bootstrap".')
    if method == "rank":
        lower, upper, pvalue = rank_intervals(made, level, random_state if isinstance(random_state, int) else 0)
        return _result(made, method, level, lower=lower, upper=upper, pvalue=pvalue)
    draws, freedom, count = None, made.freedom, None
    if method == "bootstrap":
        groups = np.arange(made.X.shape[0]) if clusters is None else clusters_of(made, clusters)
        draws = bootstrap(made, model, kind, refits, groups, random_state, n_jobs)
        covariance = np.atleast_2d(np.cov(draws.reshape(refits, -1), rowvar=False))
        if clusters is not None:
            count = int(groups.max()) + 1
            freedom, factor = min(freedom, count - 1), inflation(*scores(made, model), groups).ravel()
            covariance *= np.outer(factor, factor)
    elif made.huber:
        covariance = huber_covariance(made, float(model.epsilon), float(model.scale_), method)
    else:
        covariance = quantile_covariance(made, method, bandwidth)
    shown = f"{method}, {kind}" if draws is not None else method
    return _from_covariance(made, shown, level, covariance, freedom, draws=draws, clusters=count)


def _check_options(method: str, level: float, kind: str, refits: int, clusters: Any) -> None:
    if method not in _METHODS:
        raise ValueError(f"method must be one of {', '.join(_METHODS)}; got {method!r}.")
    if not isinstance(level, Real) or not 0.0 < level < 1.0:
        raise ValueError(f"level is the confidence of the intervals, between 0 and 1; got {level!r}.")
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}.")
    if not isinstance(refits, Integral) or refits < 2:
        raise ValueError(f"refits must be a whole number of at least 2; got {refits!r}.")
    if clusters is not None and method != "bootstrap":
        raise ValueError('clusters need method="bootstrap".')
    if clusters is not None and kind == "wild":
        raise ValueError(
            'kind="wild" draws the signs of single residuals, of which those of a cluster would all be one: clusters'
            ' take "pairs" or "bayesian".'
        )


def _from_covariance(made: Design, method: str, level: float, covariance: Any, freedom: int, **known: Any) -> Inference:
    error = np.sqrt(np.diagonal(covariance)).reshape(made.coef.shape)
    half = student.ppf(0.5 + level / 2.0, freedom) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        pvalue = 2.0 * student.sf(np.abs(made.coef / error), freedom)
    return _result(
        made, method, level,
        lower=made.coef - half, upper=made.coef + half, pvalue=pvalue, error=error, covariance=covariance, **known,
    )  # fmt: skip


def _result(made: Design, method: str, level: float, **known: Any) -> Inference:
    return Inference(made.names, made.levels, made.coef, method, level, made.X.shape[0], **known)

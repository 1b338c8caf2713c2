"""What users of CVXPY, NumPy and SciPy look for under another name, and what to write here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

__all__ = ["FUNCTIONS", "OPTIONS", "SEARCH_OPTIONS", "Hinting", "advice"]

_SMOOTH = "varopt minimises piecewise polynomials; for smooth functions use CVXPY or scipy.optimize.minimize"
_CONES = "matrices that are positive semidefinite, and norms of their singular values, are for CVXPY"
_NORMS = "norms are vo.norm1, vo.norm2 and vo.norm_inf"
_SMALLEST = "what is smallest is minus the largest of the negatives, as in -vo.max(-x) and -vo.sum_largest(-x, k)"

FUNCTIONS = {
    "Problem": "write vo.minimize(f, subject_to=[...])",
    "Minimize": "write vo.minimize(f)",
    "Maximize": "write vo.maximize(f)",
    "maximum": "the larger of expressions, entry by entry, is vo.max(a, b)",
    "minimum": "the smaller of expressions, entry by entry, is -vo.max(-a, -b)",
    **dict.fromkeys(("min", "sum_smallest", "amin"), _SMALLEST),
    **dict.fromkeys(("norm", "pnorm"), _NORMS),
    "norm_fro": "the Frobenius norm is vo.norm2(W)",
    **dict.fromkeys(("normNuc", "norm_nuc", "sigma_max", "lambda_max"), _CONES),
    "mixed_norm": "a norm of the norms of rows is vo.norm2(W, axis=1)",
    "tv": "total variation is vo.norm1(vo.diff(w))",
    "multiply": "entries are multiplied by *, as in t * (X @ w)",
    "trace": "the trace is vo.sum(np.eye(n) * W)",
    "cumsum": "sums of all before are np.tril(np.ones((n, n))) @ x",
    "power": "whole powers are x ** k",
    **dict.fromkeys(("hstack", "vstack", "bmat"), "expressions are joined by vo.concatenate"),
    **dict.fromkeys(("exp", "log", "log1p", "logistic", "log_sum_exp", "logaddexp", "entropy", "entr", "kl_div", "sqrt",
                     "tanh", "sin", "cos", "geo_mean", "inv_pos"), _SMOOTH),
}  # fmt: skip

# Options of a variable.
OPTIONS = {
    **dict.fromkeys(("nonneg", "pos"), "write subject_to=[w >= 0]"),
    **dict.fromkeys(("nonpos", "neg"), "write subject_to=[w <= 0]"),
    "bounds": "write subject_to=[w >= low, w <= high]",
    "boolean": "zeros and ones are vo.Binary(n)",
    "integer": "whole numbers are vo.Integer(low, high) in the vo.Space of a callable",
    "symmetric": "write subject_to=[W == W.T]",
    **dict.fromkeys(("PSD", "NSD"), _CONES),
}

# Options of a search, as SciPy and others have them.
SEARCH_OPTIONS = {
    **dict.fromkeys(("maxiter", "maxfev", "maxfun", "iterations", "n_calls", "n_trials"), "write budget=..."),
    "options": "what it holds are arguments of their own, as in budget=...",
    "args": "write a function of the point alone, as in lambda x: f(x, a)",
    "bounds": "they are the second argument",
    **dict.fromkeys(("jac", "hess", "hessp"), "a search has no use for derivatives; scipy.optimize.minimize has"),
    **dict.fromkeys(("workers", "n_jobs"), "write executor=..., as in executor=2"),
    **dict.fromkeys(("rng", "random_state"), "write seed=..."),
    **dict.fromkeys(("disp", "verbose"), "write progress=True"),
    "popsize": "write population=...",
    "strategy": "write method=...",
    "max_seconds": "write time_limit=...",
}


def advice(name: str, known: Mapping[str, str]) -> str:
    """The advice on a name, behind a colon; nothing where there is none."""
    return f": {known[name]}" if name in known else ""


class Hinting:
    """Says where something is to who looks for it in an attribute, as another package has it."""

    _hints: ClassVar[Mapping[str, str]] = MappingProxyType({})

    if not TYPE_CHECKING:  # or every attribute would be known to a type checker

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            raise AttributeError(f"{kind!r} object has no attribute {name!r}{advice(name, self._hints)}")

"""The parts of docstrings that all estimators share, said once."""

from __future__ import annotations

import re
import textwrap

__all__ = ["filled"]

_COMMON = {
    "fit_intercept": "fit_intercept : bool, default=True\n    Whether to fit an intercept, which no penalty shrinks.",
    "alpha": "alpha : float, default=1.0\n    Strength of the penalty, at least 0.",
    "tol": (
        "tol : float, default=1e-9\n    The relative certified gap: a fit stops when ``gap_ <= tol * objective_``,"
        " where an\n    objective below 1/4096 of that of the model without coefficients counts as that much."
    ),
    "max_iter": "max_iter : int, default=1000\n    Most Newton steps of one problem.",
    "time_limit": (
        "time_limit : float, default=None\n    Seconds after which the best model so far is kept, with its bracket."
    ),
    "shared_time_limit": (
        "time_limit : float, default=None\n    Seconds of the whole fit, shared by the folds and the last fit, which is"
        " kept with its bracket.\n    What only some folds came to is not chosen, and losses not computed are nan."
    ),
    "warm_start": "warm_start : bool, default=False\n    Whether to start from the coefficients of the previous fit.",
    "verbose": "verbose : int, default=0\n    Whether to show progress on standard error.",
    "random_state": "random_state : int, default=None\n    Accepted for compatibility: fits are deterministic.",
    "fitted": (
        "objective_ : float\n    The objective at the coefficients.\n"
        "lower_bound_ : float\n    No coefficients have a lower objective than this.\n"
        "gap_ : float\n    ``objective_ - lower_bound_``.\n"
        "certificate_ : Certificate\n    How the bound was proved and what it assumes.\n"
        "n_iter_ : int\n    Newton steps.\n"
        "sigma_path_ : ndarray\n    The dispersion of the smoothing at every level, relative to the data.\n"
        "n_features_in_ : int\n    Number of features.\n"
        "feature_names_in_ : ndarray of str\n    Names of the features, where X has them."
    ),
}


def filled(docstring: str | None) -> str | None:
    """A docstring whose lines ``{name}`` are replaced by the common text of that name."""

    def text(match: re.Match[str]) -> str:
        return textwrap.indent(_COMMON[match[2]], match[1])

    return docstring and re.sub(r"^( *)\{(\w+)\}$", text, docstring, flags=re.MULTILINE)

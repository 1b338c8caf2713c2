"""What a certified optimum costs: in Gram matrices of the same data, and against other solvers at their best.

Each module holds the problems of one kind; importing them registers their benchmarks.
"""

from benchmarks.composite import _groups, _lasso, _pairs, _proofs, _quantile, _signals, _svm  # noqa: F401

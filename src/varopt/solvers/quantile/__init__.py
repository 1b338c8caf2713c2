"""Quantile regressions beside one that is solved: other weights, other noise, one coefficient held elsewhere."""

from varopt.solvers.quantile._nearby import Centre, nearby
from varopt.solvers.quantile._rank_test import rank_interval, rank_statistic

__all__ = ["Centre", "nearby", "rank_interval", "rank_statistic"]

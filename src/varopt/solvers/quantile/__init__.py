"""Quantile regressions beside one that is solved: other weights, noise or strengths, or one coefficient held."""

from varopt.solvers.quantile._along import vertices_along
from varopt.solvers.quantile._nearby import Centre, nearby, reaches
from varopt.solvers.quantile._process import ProcessFit, quantile_process
from varopt.solvers.quantile._rank_test import rank_interval, rank_statistic

__all__ = [
    "Centre",
    "ProcessFit",
    "nearby",
    "quantile_process",
    "rank_interval",
    "rank_statistic",
    "reaches",
    "vertices_along",
]

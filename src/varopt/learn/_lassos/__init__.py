"""Regressors whose coefficients have a structure: groups, neighbours, targets that share them; trends of positions."""

from varopt.learn._lassos._structured import (
    CompositeRegressor,
    FusedLasso,
    GeneralizedLasso,
    GroupLasso,
    MultiTaskElasticNet,
    MultiTaskLasso,
)
from varopt.learn._lassos._trend import AdditiveModel, TrendFilter, additive, strongest

__all__ = [
    "AdditiveModel",
    "CompositeRegressor",
    "FusedLasso",
    "GeneralizedLasso",
    "GroupLasso",
    "MultiTaskElasticNet",
    "MultiTaskLasso",
    "TrendFilter",
    "additive",
    "strongest",
]

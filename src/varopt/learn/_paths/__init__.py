"""Estimators whose strength of penalty is chosen by cross-validation, along paths of fits."""

from varopt.learn._paths._classification import LinearSVCCV
from varopt.learn._paths._elastic_net import ElasticNetCV, LassoCV
from varopt.learn._paths._robust import HuberRegressorCV, QuantileRegressorCV
from varopt.learn._paths._structured import FusedLassoCV, GroupLassoCV, TrendFilterCV

__all__ = [
    "ElasticNetCV",
    "FusedLassoCV",
    "GroupLassoCV",
    "HuberRegressorCV",
    "LassoCV",
    "LinearSVCCV",
    "QuantileRegressorCV",
    "TrendFilterCV",
]

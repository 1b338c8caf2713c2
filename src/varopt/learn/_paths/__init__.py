"""Estimators whose strength of penalty is chosen by cross-validation, along paths of fits."""

from varopt.learn._paths._regression import ElasticNetCV, FusedLassoCV, LassoCV, LinearSVCCV, QuantileRegressorCV

__all__ = ["ElasticNetCV", "FusedLassoCV", "LassoCV", "LinearSVCCV", "QuantileRegressorCV"]

"""Prediction intervals that cover: conformal prediction around any regressor, and around a pair of quantiles."""

from varopt.learn._intervals._conformal import ConformalIntervals

__all__ = ["ConformalIntervals"]

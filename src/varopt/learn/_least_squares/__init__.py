"""Least squares along many strengths of a penalty: what is made of the data once, and brackets of all fits at once."""

from varopt.learn._least_squares._squares import Squares

__all__ = ["Squares"]

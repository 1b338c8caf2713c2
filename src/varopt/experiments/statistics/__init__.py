"""What repetitions say: intervals of means and ratios, exponents of growth, and the rule by which they decide."""

from varopt.experiments.statistics._growth import Growth, growth
from varopt.experiments.statistics._intervals import Interval, mean, opposite, ratio, unpaired_ratio

__all__ = ["Growth", "Interval", "growth", "mean", "opposite", "ratio", "unpaired_ratio"]

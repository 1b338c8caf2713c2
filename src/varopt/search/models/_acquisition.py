"""What one more evaluation is worth, by the processes of an objective and of constraints.

J98: D. R. Jones, M. Schonlau and W. J. Welch, *Efficient global optimization of expensive black-box functions*, Journal
of Global Optimization 13, 1998. A23: S. Ament et al., *Unexpected improvements to expected improvement*, 2023:
logarithms, so that nothing is flat. G14: J. R. Gardner, M. J. Kusner, Z. Xu, K. Q. Weinberger and J. P. Cunningham,
*Bayesian optimization with inequality constraints*, ICML 2014: improvement counts as often as constraints hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr

from varopt.search.models._gaussian_process import GaussianProcess

__all__ = ["Acquisition", "log_improvement"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Acquisition:
    """The logarithm of the expected improvement, times the probability that every constraint holds [G14].

    Parameters
    ----------
    objective : GaussianProcess
        Of the objective, smaller being better.
    lowest : float, optional
        What is to be improved on; ``None`` where nothing known satisfies the constraints, so that only these count.
    constraints : tuple of (GaussianProcess, float)
        Of each constraint, with the level up to which it holds.
    """

    objective: GaussianProcess
    lowest: float | None
    constraints: tuple[tuple[GaussianProcess, float], ...] = ()

    def __call__(self, points: Array) -> Array:
        score = np.zeros(len(points))
        if self.lowest is not None:
            mean, deviation = self.objective.predict(points)
            score = np.log(deviation) + log_improvement((self.lowest - mean) / deviation)[0]
        for process, level in self.constraints:
            mean, deviation = process.predict(points)
            score = score + log_ndtr((level - mean) / deviation)
        return np.asarray(score)

    def cost(self, point: Array) -> tuple[float, Array]:
        """Minus the score of one point, and its gradient."""
        value, gradient = 0.0, np.zeros(point.size)
        if self.lowest is not None:
            mean, deviation, by_mean, by_deviation = self.objective.gradient(point)
            z = (self.lowest - mean) / deviation
            log, derivative = log_improvement(np.array([z]))
            value = math.log(deviation) + float(log[0])
            gradient = by_deviation / deviation - derivative[0] * (by_mean + z * by_deviation) / deviation
        for process, level in self.constraints:
            mean, deviation, by_mean, by_deviation = process.gradient(point)
            z = (level - mean) / deviation
            holds = float(log_ndtr(z))
            hazard = math.exp(min(-0.5 * z * z - 0.5 * math.log(2.0 * math.pi) - holds, 700.0))
            value += holds
            gradient = gradient - hazard * (by_mean + z * by_deviation) / deviation
        return -value, -gradient


def log_improvement(z: Array) -> tuple[Array, Array]:
    """log(phi(z) + z Phi(z)), the logarithm of the expected improvement in deviations [A23], and its derivative."""
    z = np.asarray(z, dtype=np.float64)
    density = -0.5 * z * z - 0.5 * math.log(2.0 * math.pi)
    near = np.maximum(z, -5.0)
    plain = np.log(np.exp(-0.5 * near * near) / math.sqrt(2.0 * math.pi) + near * np.exp(log_ndtr(near)))
    far = np.minimum(z, -5.0)
    # 1 + z Phi(z) / phi(z), Phi / phi = sqrt(pi / 2) erfcx(-z / sqrt 2); beyond -1e4 it is 1 / z^2
    left = 1.0 + far * math.sqrt(0.5 * math.pi) * erfcx(-far / math.sqrt(2.0))
    tail = np.log(np.where(far < -1e4, 1.0 / (far * far), np.maximum(left, 1e-300)))
    log = np.where(z > -5.0, plain, density + tail)
    return log, np.exp(log_ndtr(z) - log)

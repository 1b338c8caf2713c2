"""The certificate of a black box: what was seen, and an estimate of the bound."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

from scipy.special import stdtrit

from varopt.certificates._certificate import Certificate

__all__ = ["Sampled", "student"]


def student(standard_error: float, freedom: float, level: float) -> float:
    """Half the width of an interval: Student's quantile times the standard error; infinite without freedom."""
    return float(stdtrit(freedom, 0.5 + 0.5 * level)) * standard_error if freedom > 0 else math.inf


@dataclass(frozen=True)
class Sampled(Certificate):
    """The best value seen, and E(theta) = <f(x)> over the current distribution, estimated from samples.

    E(theta) bounds the optimum from the value's side for every theta, but here it is known up to a standard error only:
    an estimate, not a proof. Nothing is known of the other side.

    Attributes
    ----------
    mean, standard_error : float
        The average of the objective over the last generation and its standard error.
    samples : int
        How many samples the average is over; those that failed are left out.
    """

    mean: float = float("nan")
    standard_error: float = float("nan")
    samples: int = 0

    rests_on: ClassVar[str] = "values seen; the average over the distribution is an estimate and not a proof"

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Where E(theta) lies with this probability, by Student's t: few samples, and their own deviation.

        Parameters
        ----------
        level : float
            Between 0 and 1.

        Examples
        --------
        >>> import varopt as vo
        >>> estimate = vo.certificates.Sampled(-float("inf"), 1.0, "", mean=3.0, standard_error=0.5, samples=8)
        >>> low, high = estimate.interval()
        >>> round(low, 2), round(high, 2)
        (1.82, 4.18)
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be between 0 and 1; got {level!r}.")
        reach = student(self.standard_error, self.samples - 1, level)
        return self.mean - reach, self.mean + reach

    def mirrored(self) -> Self:
        """The certificate of minus the objective."""
        return type(self)(-self.upper, -self.lower, self.assumption, -self.mean, self.standard_error, self.samples)

    def explain(self) -> str:
        """What was seen, and what is estimated of the distribution."""
        seen = "No proof: the best value seen is known, and nothing of what no point reaches."
        if not self.samples:
            return seen
        low, high = self.interval()
        return (
            f"{seen}\nThe average of the objective over the last distribution is {self.mean:.6g}; between {low:.6g} "
            f"and {high:.6g} with a probability of 95 %, by Student's t for {self.samples} samples. It tells how far "
            "that distribution is from settling, and after a restart nothing about the best value."
        )

    def __str__(self) -> str:
        return f"{super().__str__()}: {self.mean:.6g} +- {self.standard_error:.2g} ({self.samples} samples)"

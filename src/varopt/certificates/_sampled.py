"""The certificate of a black box: what was seen, and an estimate of the bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from varopt.certificates._certificate import Certificate

__all__ = ["Sampled"]


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

    def mirrored(self) -> Self:
        """The certificate of minus the objective."""
        return type(self)(-self.upper, -self.lower, self.assumption, -self.mean, self.standard_error, self.samples)

    def explain(self) -> str:
        """What was seen, and what is estimated of the distribution."""
        return (
            f"No proof: the best value seen is known, and nothing of what no point reaches.\n"
            f"The average over the last distribution is {self.mean:.6g}, with a standard error of "
            f"{self.standard_error:.2g} ({self.samples} samples)."
        )

    def __str__(self) -> str:
        return f"{super().__str__()}: {self.mean:.6g} +- {self.standard_error:.2g} ({self.samples} samples)"

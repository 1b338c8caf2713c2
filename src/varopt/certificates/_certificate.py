"""Brackets of an optimum. A certificate is a type: it says how its bounds came about and what they rest on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from varopt._display import bracket_drawing, bracket_words, card

if TYPE_CHECKING:
    from varopt.bounds import Bound

__all__ = [
    "Certificate",
    "ConvexEnvelope",
    "ConvexRelaxation",
    "DualGap",
    "EveryCell",
    "Exhaustive",
    "Infeasible",
    "NoCertificate",
    "NoState",
    "PointGap",
    "Relaxation",
    "SmoothingGap",
]


@dataclass(frozen=True)
class Certificate:
    """``lower <= optimum <= upper``, and the assumptions under which that holds."""

    lower: float
    upper: float
    assumption: str = ""

    rests_on: ClassVar[str] = ""

    @property
    def gap(self) -> float:
        """``upper - lower``; infinite where one side is unknown."""
        return self.upper - self.lower if math.isfinite(self.lower) and math.isfinite(self.upper) else math.inf

    def mirrored(self) -> Self:
        """The certificate of minus the objective."""
        return type(self)(0.0 - self.upper, 0.0 - self.lower, self.assumption)

    def explain(self) -> str:
        """How the bracket was proved, and what that assumes, in sentences."""
        assumed = f"It assumes that {self.assumption}." if self.assumption else "It assumes nothing."
        return f"Proof: {type(self).__name__}, by {self.rests_on}.\n{assumed}"

    def _repr_html_(self) -> str:
        rows = [("optimum", bracket_words(self.lower, self.upper)), ("by", self.rests_on)]
        rows += [("assumes", self.assumption or "nothing")]
        return card(type(self).__name__, rows, bracket_drawing(self.lower, self.upper))

    def __str__(self) -> str:
        text = f"{type(self).__name__}: {self.rests_on}"
        return f"{text}; assumes that {self.assumption}" if self.assumption else text


class DualGap(Certificate):
    """A point and a dual point: subgradients of the terms, inside the domains of their conjugates."""

    rests_on: ClassVar[str] = "weak duality, with subgradients of the terms as the dual point"


class PointGap(DualGap):
    """How far above the optimum a given point can be: its value is `upper`."""

    @property
    def excess(self) -> float:
        """``(upper - lower) / |lower|``: the share of the optimum by which the point is above it, at most."""
        return self.gap / abs(self.lower) if self.lower else (0.0 if self.gap == 0.0 else math.inf)

    def __str__(self) -> str:
        if not math.isfinite(self.gap):
            return f"The value of the point is {self.upper:.6g}; nothing is known of the optimum."
        share = f"{100.0 * self.excess:.2g} %" if self.excess < math.inf else f"{self.gap:.3g}"
        text = f"The point is at most {share} above the optimum, which lies in [{self.lower:.10g}, {self.upper:.10g}]."
        return f"{text} It assumes that {self.assumption}." if self.assumption else text


class SmoothingGap(Certificate):
    """What is known a priori: E exceeds f by its largest gap at most, so ``f* >= min E - max gap``.

    For a bound that was minimised by other means (`sigma_for` gives the sigma whose largest gap is a tolerance).

    Examples
    --------
    >>> import numpy as np, varopt as vo
    >>> w = vo.Variable(2, name="w")
    >>> f = vo.sum_squares(w - np.array([3.0, 0.1])) + vo.norm1(w)
    >>> E = vo.bound(f, vo.Gaussian([2.5, 0.0], vo.sigma_for(f, 0.01)))
    >>> c = vo.certificates.SmoothingGap.of(E)
    >>> bool(c.lower <= vo.minimize(f).fun <= c.upper), bool(c.gap <= 0.01)
    (True, True)
    """

    rests_on: ClassVar[str] = "the largest gap between the bound and the objective"

    @classmethod
    def of(cls, bound: Bound) -> Self:
        """The bracket at a theta that minimises the bound in its mean."""
        if not bound.convex:
            raise ValueError(f"bound must be convex for its minimum to prove anything; {bound.convex}.")
        steepest = float(np.abs(np.asarray(bound.gradient)).max(initial=0.0))
        value = bound.value
        return cls(
            value - bound.max_gap,
            value - max(bound.gap, 0.0),
            f"the mean minimises the bound (its largest partial derivative there is {steepest:.1g})",
        )


class NoCertificate(Certificate):
    """One side only: the value of the best point found."""

    rests_on: ClassVar[str] = "the best point found; nothing is known of the other side"

    def explain(self) -> str:
        """That there is no proof."""
        return "No proof: the best point found is all that is known."


class Infeasible(Certificate):
    """No point satisfies the constraints: the minimum over none is plus infinity, the maximum minus infinity."""

    rests_on: ClassVar[str] = "a combination of the constraints that contradicts itself"

    def explain(self) -> str:
        """How it is known."""
        proof = f"Proof: {type(self).__name__}, by {self.rests_on}; Result.proof holds its multipliers."
        return f"{proof}\nIt assumes nothing."


class NoState(Infeasible):
    """No state of bits and choices satisfies the constraints, whatever real numbers between zero and one would do."""

    rests_on: ClassVar[str] = "a look at all states, or at what the constraints leave of each other's bits"

    def explain(self) -> str:
        """How it is known."""
        return Certificate.explain(self)


class Relaxation(Certificate):
    """A point, and the optimum of an easier problem: a semidefinite programme with a dual point, or branches of it."""

    rests_on: ClassVar[str] = "weak duality of a relaxation, with the rounding of its eigenvalues accounted for"


class Exhaustive(Certificate):
    """All states were compared, one group of neighbours at a time."""

    rests_on: ClassVar[str] = "a comparison of all states, by dynamic programming"


class ConvexRelaxation(Relaxation):
    """The optimum of a convex problem below the objective: terms that are not convex at their least values."""

    rests_on: ClassVar[str] = "a convex relaxation, with terms that are not convex at their least values"


class ConvexEnvelope(Relaxation):
    """The optimum of a convex problem below the objective: convex envelopes of terms over all points as good."""

    rests_on: ClassVar[str] = "a convex relaxation, with envelopes of terms that are not convex"


class EveryCell(Exhaustive):
    """Every cell that the knots cut the space into was looked at, at one of its corners."""

    rests_on: ClassVar[str] = "an exhaustive search of the cells between the knots"

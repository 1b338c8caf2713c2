"""Curvature and its composition rules: the vocabulary of `Objective.curvature` and `explain`."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["AFFINE", "CONCAVE", "CONVEX", "UNKNOWN", "Curvature"]


class Curvature(StrEnum):
    """What is known of the shape of a function; ``AFFINE`` is both convex and concave. Equal to its name as a string.

    Examples
    --------
    >>> from varopt.terms import CONVEX, AFFINE, CONCAVE
    >>> print(CONVEX + AFFINE, -CONVEX, CONVEX + CONCAVE)
    CONVEX CONCAVE UNKNOWN
    >>> CONVEX == "CONVEX", CONVEX.description
    (True, 'convex')
    """

    AFFINE = "AFFINE"
    CONVEX = "CONVEX"
    CONCAVE = "CONCAVE"
    UNKNOWN = "UNKNOWN"

    @property
    def description(self) -> str:
        """The curvature in words."""
        return (
            "neither convex nor concave, as far as the rules can tell"
            if self is Curvature.UNKNOWN
            else self.value.lower()
        )

    @property
    def is_convex(self) -> bool:
        """Convex or affine."""
        return self in (Curvature.CONVEX, Curvature.AFFINE)

    @property
    def is_concave(self) -> bool:
        """Concave or affine."""
        return self in (Curvature.CONCAVE, Curvature.AFFINE)

    def __neg__(self) -> Curvature:
        swap = {Curvature.CONVEX: Curvature.CONCAVE, Curvature.CONCAVE: Curvature.CONVEX}
        return swap.get(self, self)

    def __add__(self, other: str) -> Curvature:
        other = Curvature(other)
        return from_facts(self.is_convex and other.is_convex, self.is_concave and other.is_concave)


def from_facts(convex: bool, concave: bool) -> Curvature:
    """The curvature of a function of which these two facts are known."""
    if convex and concave:
        return Curvature.AFFINE
    if convex:
        return Curvature.CONVEX
    return Curvature.CONCAVE if concave else Curvature.UNKNOWN


AFFINE, CONVEX, CONCAVE, UNKNOWN = Curvature.AFFINE, Curvature.CONVEX, Curvature.CONCAVE, Curvature.UNKNOWN

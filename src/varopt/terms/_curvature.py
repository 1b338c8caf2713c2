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

    @classmethod
    def from_facts(cls, convex: bool, concave: bool) -> Curvature:
        """The curvature of a function of which these two facts are known."""
        if convex and concave:
            return cls.AFFINE
        if convex:
            return cls.CONVEX
        return cls.CONCAVE if concave else cls.UNKNOWN

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
        return Curvature.from_facts(self.is_convex and other.is_convex, self.is_concave and other.is_concave)


AFFINE, CONVEX, CONCAVE, UNKNOWN = Curvature.AFFINE, Curvature.CONVEX, Curvature.CONCAVE, Curvature.UNKNOWN

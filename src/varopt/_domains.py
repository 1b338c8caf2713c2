"""Where a parameter may lie, declared once.

Validation, the error messages, the documentation tables and the property tests all read the same `Domain`: a test
draws valid, boundary, invalid and non-finite values from it (the idea is SciPy's ``_distribution_infrastructure``).
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["POSITIVE", "PROBABILITY", "REAL", "Domain", "Seed", "as_finite", "as_generator", "refuse_masked"]

Seed: TypeAlias = int | np.random.Generator | np.random.SeedSequence | None


def as_finite(name: str, value: Any) -> NDArray[np.floating[Any]]:
    """`value` as a floating array without copying, or a `ValueError` that names it.

    Integers and booleans become float64; float32 is kept.
    """
    refuse_masked(name, value)
    try:
        array = np.asarray(value)
    except ValueError as error:  # ragged nested lists
        raise ValueError(f"{name} must be a rectangular array of numbers: {error}") from None
    if array.dtype.kind in "biu":
        array = array.astype(np.float64)
    if array.dtype.kind != "f":
        raise ValueError(f"{name} must be real numbers; got dtype {array.dtype}.")
    finite = np.isfinite(array)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        at = f" at index {where if len(where) != 1 else where[0]}" if where else ""
        raise ValueError(f"{name} must be finite; got {array[where]}{at}.")
    return array


def refuse_masked(name: str, value: Any) -> None:
    """A `ValueError` for entries that are masked: what is behind a mask is not meant to be computed with."""
    masked = np.ma.is_masked(value) if type(value) is not np.ndarray and hasattr(value, "filled") else False
    if masked:
        raise ValueError(f"{name} must have no masked entries: leave their rows out, or fill them in.")


@dataclass(frozen=True)
class Domain:
    """An interval in which every entry of a parameter must lie.

    Parameters
    ----------
    low, high : float
        The ends; infinite ends are always excluded, since parameters are finite.
    low_open, high_open : bool
        Whether the end itself is refused.
    typical : pair of float
        The range property tests draw from, so that they stay in the well-scaled region.
    """

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False
    typical: tuple[float, float] = (-3.0, 3.0)

    def __str__(self) -> str:
        if self == REAL:
            return "any finite number"
        if self.high == math.inf:
            return f"{'>' if self.low_open else '>='} {self.low:g}"
        left, right = "(" if self.low_open else "[", ")" if self.high_open else "]"
        return f"in {left}{self.low:g}, {self.high:g}{right}"

    def contains(self, array: NDArray[np.floating[Any]]) -> bool:
        """Whether every entry lies in the interval."""
        above = array > self.low if self.low_open else array >= self.low
        below = array < self.high if self.high_open else array <= self.high
        return bool(np.all(above & below & np.isfinite(array)))

    def validate(self, name: str, value: Any) -> NDArray[np.floating[Any]]:
        """`value` as a finite floating array inside the interval, or a `ValueError` that names it."""
        array = as_finite(name, value)
        if not self.contains(array):
            outside = next(v for v in array.ravel() if not self.contains(np.asarray(v)))
            raise ValueError(f"{name} must be {self}; got {outside:g}.")
        return array


REAL = Domain()
POSITIVE = Domain(low=0.0, low_open=True, typical=(0.1, 3.0))
PROBABILITY = Domain(low=0.0, high=1.0, typical=(0.05, 0.95))


def as_generator(seed: Seed) -> np.random.Generator:
    """A generator from `seed`; a generator is returned as it is."""
    if isinstance(seed, np.random.Generator):
        return seed
    if seed is None or isinstance(seed, np.random.SeedSequence):
        return np.random.default_rng(seed)
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise ValueError(f"seed must be a non-negative integer, a numpy.random.Generator or None; got {seed!r}.")
    return np.random.default_rng(number)

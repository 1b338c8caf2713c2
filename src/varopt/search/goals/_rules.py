"""Constraints known in advance: functions of the point, asked before anything is evaluated."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.search._checks import as_value
from varopt.search._coding import Coding
from varopt.solvers.natural_gradient import AroundUpdate, Update

__all__ = ["Ruled", "Rules"]

Array = NDArray[np.float64]
BISECTIONS = 30  # on the way from a point that is not allowed to one that is
TRIES = 20  # times that what choices forbid is drawn again
POINTS_LOOKED_AT = 2000  # points all over the space, among which one must be allowed, or the rules are descended


class Rules:
    """Which rows are allowed, and what becomes of those that are not.

    Parameters
    ----------
    functions : callable, or sequence of them
        Of a point: true or false, or a number that is at most zero where the point is allowed.
    coding : Coding
        The map between latent vectors and rows.
    descent : callable
        From a latent point to an update that begins there, for spaces in which hardly anything is allowed.
    """

    def __init__(self, functions: Any, coding: Coding, descent: Callable[[Array], Update]) -> None:
        given = [functions] if callable(functions) else functions
        if not isinstance(given, Sequence) or not given or not all(callable(g) for g in given):
            raise ValueError(
                "subject_to of a black box must be a function of the point, or a list of such: true or at most zero "
                f"where the point is allowed; got {functions!r}."
            )
        self.functions: list[Callable[[Any], Any]] = list(given)
        self._coding, self._descent = coding, descent
        self._inside: Array | None = None  # a latent point that is allowed

    def violation(self, row: Array) -> float:
        """By how much a row breaks the rules, in all; zero where it is allowed."""
        point = self._coding.layout.point(row)
        return sum(_excess(number, function, point) for number, function in enumerate(self.functions))

    def allows(self, latent: Array) -> NDArray[np.bool_]:
        """Which latent points stand for rows that are allowed."""
        return np.asarray(self._broken(latent) == 0.0)

    def inside(self, rng: np.random.Generator) -> Array:
        """A latent point that is allowed."""
        if self._inside is None:
            self._inside = self._found(rng)
        return self._inside

    def towards(self, latent: Array, inside: Array) -> Array:
        """The farthest that is allowed on lines from points that are not to one that is; choices stay as they are."""
        layout = self._coding.layout
        numeric = np.concatenate((layout.real, layout.integer))
        out, moved = latent[:, numeric], latent.copy()
        near, far = np.zeros((len(latent), 1)), np.ones((len(latent), 1))
        for _ in range(BISECTIONS if numeric.size else 0):
            middle = 0.5 * (near + far)
            moved[:, numeric] = inside[numeric] + middle * (out - inside[numeric])
            fine = self.allows(moved)[:, None]
            near, far = np.where(fine, middle, near), np.where(fine, far, middle)
        moved[:, numeric] = inside[numeric] + near * (out - inside[numeric])
        return moved

    def _found(self, rng: np.random.Generator) -> Array:
        """An allowed point: among many all over the space, or at the end of a descent of what they break."""
        latent = self.anywhere(rng, POINTS_LOOKED_AT)
        breaks = self._broken(latent)
        update, told = self._descent(latent[int(np.argmin(breaks))]), POINTS_LOOKED_AT
        while breaks.min() > 0.0 and told < 10 * POINTS_LOOKED_AT:
            update.refresh(rng)
            latent = update.sample(rng, update.population)
            breaks = self._broken(latent)
            update.tell(latent, breaks)
            told += len(latent)
        if breaks.min() > 0.0:
            raise ValueError(
                f"subject_to allows none of {told} points that were tried, the last of which break it by "
                f"{breaks.min():.3g} and more. Widen it, or give x0 a point that it allows."
            )
        return np.asarray(latent[int(np.argmin(breaks))])

    def _broken(self, latent: Array) -> Array:
        return np.array([self.violation(row) for row in self._coding.rows(latent)])

    def anywhere(self, rng: np.random.Generator, count: int) -> Array:
        """Latent points all over the space."""
        layout = self._coding.layout
        unit = rng.random((count, layout.columns))
        return np.where(layout.options > 0, np.floor(unit * layout.options), unit)


def _excess(number: int, function: Callable[[Any], Any], point: Any) -> float:
    """By how much a point breaks a rule."""
    found = function(point)
    if isinstance(found, (bool, np.bool_)):
        return 0.0 if found else 1.0
    value, error = as_value(found)
    if error is not None:
        raise ValueError(f"subject_to[{number}] must give true, false or a number; at {point!r} {error}.")
    return max(0.0, value)


class Ruled(AroundUpdate):
    """An update whose samples are evaluated where they are allowed, and lose ranks by how far that is.

    A sample that is not allowed goes to the farthest point that is, on the line to the middle of those that were. As at
    bounds (`BoundedUpdate`), the update is told where the sample was, with a handicap: an optimum where a rule begins
    is reached, and the distribution is not drawn beyond. Choices that forbid a point are drawn again.

    Parameters
    ----------
    inner : Update
        The update.
    rules : Rules
        What is allowed.
    """

    def __init__(self, inner: Update, rules: Rules) -> None:
        self.inner, self._rules = inner, rules
        self._middle: Array | None = None
        self._drawn: dict[bytes, tuple[Array, float]] = {}  # what was drawn for what is evaluated, and its handicap

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        drawn = self.inner.sample(rng, count)
        allowed = self._rules.allows(drawn)
        if allowed.any():
            fresh = drawn[allowed].mean(axis=0)
            self._middle = fresh if self._middle is None else 0.8 * self._middle + 0.2 * fresh
        if allowed.all():
            return drawn
        inside, placed = self._anchor(rng), drawn.copy()
        bad = np.flatnonzero(~allowed)
        for _ in range(TRIES):
            placed[bad] = self._rules.towards(drawn[bad], inside)
            bad = bad[~self._rules.allows(placed[bad])]
            if not bad.size:
                break
            drawn[bad] = self.inner.sample(rng, bad.size)
        placed[bad] = drawn[bad] = self._rules.inside(rng)
        beyond = ((drawn - placed) ** 2).sum(axis=1) / max(self.inner.spread, 1e-300) ** 2
        handicaps = 0.5 * count * beyond / math.sqrt(drawn.shape[1])
        moved = zip(placed, drawn, handicaps, strict=True)
        self._drawn.update((place.tobytes(), (point, handicap)) for place, point, handicap in moved if handicap > 0.0)
        return placed

    def _anchor(self, rng: np.random.Generator) -> Array:
        """The middle of what was allowed, where that is allowed itself; of choices, any point that is."""
        if self._middle is None or not self._rules.allows(self._middle[None])[0]:
            self._middle = self._rules.inside(rng).copy()
        return self._middle

    def tell(self, points: Array, values: Array) -> None:
        known = [self._drawn.pop(point.tobytes(), (point, 0.0)) for point in points]
        handicaps = np.array([handicap for _, handicap in known])
        if handicaps.any():
            ranks = np.searchsorted(np.sort(values), values)
            values = np.where(np.isfinite(values), ranks + handicaps, np.inf)
        self.inner.tell(np.array([point for point, _ in known]), values)

"""One declaration for every piecewise polynomial: knots and coefficients.

A `PiecewisePolynomial` is data. Its value, derivative, curvature, subdifferential and conjugate are computed
here from the declaration, its Gaussian expectation and smoothing gap in `_gaussian`; nothing is written per function.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, Literal

import numpy as np

from varopt._array import Array, as_float, constant, namespace, some
from varopt.terms import _few_calls, _gaussian
from varopt.terms._curvature import Curvature
from varopt.terms._sums import weighted_sum
from varopt.terms._tails import MAX_ORDER
from varopt.terms._worst_gap import worst_gap
from varopt.terms.polynomials import (
    Coefficient,
    Polynomial,
    differentiate,
    evaluate,
    every,
    extremes,
    horner,
    is_zero,
    quadratic_conjugate,
    scalar_or_row,
    shift,
    spread,
    subtract,
    trim,
)

__all__ = ["PiecewisePolynomial"]


@dataclass(frozen=True, eq=False)
class PiecewisePolynomial:
    r"""A function of one real variable given by polynomials between knots.

    Use `piecewise` to declare one from coefficients in powers of ``z``; the named terms (`abs_`, `hinge`, ...) are such
    declarations.

    Parameters
    ----------
    knots : tuple of K floats or arrays
        Increasing. An array has one entry per row: then every row is a term of its own.
    pieces : tuple of K + 1 tuples of floats or arrays
        Coefficients by increasing degree in powers of ``z - c`` with the piece's own centre ``c``.
    centres : tuple of K + 1 floats or arrays, optional
        By default the piece's left knot, and the first knot for the first piece. Choose the point where the piece is
        small: written around it, a polynomial keeps its digits there.
    name : str
        How the term is called in messages.
    at_knot : {"right", "left"}
        Which piece gives the value on a knot; matters only where the term jumps.

    Notes
    -----
    With K knots and degree d every method costs O(K d) passes over its argument and allocates O(1) arrays of its size.
    """

    knots: tuple[Coefficient, ...]
    pieces: tuple[Polynomial, ...]
    centres: tuple[Coefficient, ...] = ()
    name: str = "piecewise"
    at_knot: Literal["right", "left"] = "right"
    parameters: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.at_knot not in ("right", "left"):
            raise ValueError(f"at_knot must be 'right' or 'left'; got {self.at_knot!r}.")
        knots = tuple(scalar_or_row("knots", t) for t in self.knots)
        pieces = tuple(trim(tuple(scalar_or_row("pieces", c) for c in p)) for p in self.pieces)
        if len(pieces) != len(knots) + 1:
            raise ValueError(f"pieces must be one more than knots; got {len(pieces)} pieces for {len(knots)} knots.")
        if any(len(p) == 0 for p in pieces):
            raise ValueError("pieces must each have at least one coefficient; write [0.0] for the zero polynomial.")
        if max(map(len, pieces)) - 1 > MAX_ORDER:
            raise ValueError(f"pieces must have degree at most {MAX_ORDER}; got {max(map(len, pieces)) - 1}.")
        for left, right in itertools.pairwise(knots):
            if not every(np.asarray(left) < np.asarray(right)):
                raise ValueError(f"knots must be increasing; got {left} before {right}.")
        centres = tuple(scalar_or_row("centres", c) for c in self.centres) or ((knots[0], *knots) if knots else (0.0,))
        if len(centres) != len(pieces):
            raise ValueError(f"centres must be as many as pieces; got {len(centres)} centres for {len(pieces)} pieces.")
        object.__setattr__(self, "knots", knots)
        object.__setattr__(self, "pieces", pieces)
        object.__setattr__(self, "centres", centres)
        lengths = {np.size(c) for c in self._leaves() if not isinstance(c, float)}
        if len(lengths) > 1:
            raise ValueError(
                f"knots and pieces that differ by row must have one length; got lengths {sorted(lengths)}."
            )
        with np.errstate(over="ignore"):
            for j in range(len(knots)):
                sizes = [evaluate(tuple(map(abs, p)), 2.0 * self._reach(j)) for p in pieces[j : j + 2]]
                if not every(np.isfinite(sizes[0] + sizes[1])):
                    raise ValueError(
                        "knots and pieces must be small enough for the pieces not to overflow on the knots."
                    )

    def __repr__(self) -> str:
        inside = ", ".join(f"{k}={v if np.ndim(v) == 0 else '...'}" for k, v in self.parameters.items())
        return f"{self.name}({inside})"

    def _leaves(self) -> list[Coefficient]:
        return [*self.knots, *self.centres, *(c for p in self.pieces for c in p)]

    def _rebuilt(self, knots: Any, centres: Any, pieces: Any, jumps: Any) -> PiecewisePolynomial:
        """A term of the same kind with other numbers; nothing is checked again."""
        new = object.__new__(PiecewisePolynomial)
        for attribute, value in (("knots", knots), ("centres", centres)):
            object.__setattr__(new, attribute, tuple(value))
        object.__setattr__(new, "pieces", tuple(map(tuple, pieces)))
        for attribute in ("name", "at_knot", "parameters"):
            object.__setattr__(new, attribute, getattr(self, attribute))
        # Facts about the whole declaration hold for every selection of its rows, and are not computed again.
        new.__dict__["jumps"] = tuple(map(tuple, jumps))
        new.__dict__["balanced"] = self.balanced
        return new

    def _map(self, function: Callable[[Coefficient], Coefficient]) -> PiecewisePolynomial:
        """The same term with `function` applied to every per-row array."""

        def each(values: Sequence[Coefficient]) -> list[Coefficient]:
            return [v if isinstance(v, float) else function(v) for v in values]

        return self._rebuilt(each(self.knots), each(self.centres), map(each, self.pieces), map(each, self.jumps))

    def in_units(self, unit: Array) -> PiecewisePolynomial:
        """The term of ``z / unit`` divided by the highest power of the unit, row by row: no power of it overflows."""

        def shrunk(polynomial: Polynomial) -> list[Coefficient]:
            return [
                c if is_zero(c) else reduce(operator.truediv, [unit] * (self.degree - m), c)
                for m, c in enumerate(polynomial)
            ]

        knots, centres = ([t if is_zero(t) else t / unit for t in points] for points in (self.knots, self.centres))
        return self._rebuilt(knots, centres, map(shrunk, self.pieces), map(shrunk, self.jumps))

    @property
    def rows(self) -> int | None:
        """Number of rows where parameters differ by row, else None."""
        return self.shape[0] if self.shape else None

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of what differs by row: ``(rows,)``, or ``()`` where nothing does."""
        return next((tuple(c.shape) for c in self._leaves() if not isinstance(c, float)), ())

    def take(self, index: Any) -> PiecewisePolynomial:
        """The term for the rows `index` (a slice or an index array) of the per-row parameters."""
        if self.rows is None:
            return self
        return self._map(lambda c: c[index])

    def on(self, xp: Any, like: Array) -> PiecewisePolynomial:
        """The term with its per-row arrays in the namespace, dtype and device of `like`."""
        if self.rows is None:
            return self

        def moved(c: Array) -> Array:
            if not isinstance(c, np.ndarray):
                return c  # already there
            if xp is namespace(c):
                return c.astype(like.dtype, copy=False)
            # A copy, since other backends would share the memory and complain that it cannot be written.
            return constant(xp, np.array(c), like)

        return self._map(moved)

    # -- What the declaration says ------------------------------------------------------------------------------------

    @cached_property
    def degree(self) -> int:
        """Highest degree of any piece."""
        return max(map(len, self.pieces)) - 1

    def _reach(self, j: int) -> Coefficient:
        """The largest number from which or by which a piece is moved to knot j."""
        numbers = [abs(x) for x in (self.knots[j], *(self.knots[j] - c for c in self.centres[j : j + 2]))]
        return max(numbers) if all(isinstance(x, float) for x in numbers) else reduce(np.maximum, numbers)

    @cached_property
    def jumps(self) -> tuple[Polynomial, ...]:
        """For each knot t the difference of the pieces right and left of it, in powers of ``z - t``.

        Entry 0 is the jump of the value, entry 1 that of the derivative.
        """
        jumps = []
        for j, knot in enumerate(self.knots):
            left, right = (
                shift(p, knot - c) for p, c in zip(self.pieces[j : j + 2], self.centres[j : j + 2], strict=True)
            )
            jumps.append(subtract(right, left, self._reach(j)))
        return tuple(jumps)

    @cached_property
    def balanced(self) -> tuple[tuple[bool, ...], ...]:
        """For each knot: whether value, first and second derivative change sign across it, as the first of ``|z|``.

        Near such a knot the expectation of that derivative passes through zero and needs a form that keeps its digits.
        """
        facts = []
        for j in range(len(self.knots)):
            left = self.pieces[j]
            row = []
            for k in range(3):
                at_left = evaluate(left, self.knots[j] - self.centres[j])
                jump = math.factorial(k) * self.jumps[j][k] if k < len(self.jumps[j]) else 0.0
                row.append(bool(np.any(np.sign(at_left) * np.sign(at_left + jump) < 0.0)))
                left = differentiate(left)
            facts.append(tuple(row))
        return tuple(facts)

    @cached_property
    def kink(self) -> _few_calls.Kink | None:
        """The knot and the slopes left and right of it, where the term is two lines that meet."""
        return _few_calls.kink_of(self)

    @cached_property
    def is_continuous(self) -> bool:
        """Whether no knot has a jump of the value."""
        return all(every(np.asarray(jump[0]) == 0.0) for jump in self.jumps)

    @cached_property
    def curvature(self) -> Curvature:
        """Convex, concave, affine or unknown, for all rows at once."""
        if not self.is_continuous:
            return Curvature.UNKNOWN
        kinks = [np.asarray(jump[1]) if len(jump) > 1 else np.zeros(()) for jump in self.jumps]
        curvatures = [self._range_of(i, 2) for i in range(len(self.pieces))]
        convex = all(every(k >= 0) for k in kinks) and all(every(low >= 0) for low, _ in curvatures)
        concave = all(every(k <= 0) for k in kinks) and all(every(high <= 0) for _, high in curvatures)
        return Curvature.from_facts(convex, concave)

    def why_not_convex(self) -> str:
        """The first fact that breaks convexity, as a clause; empty where the term is convex."""
        for knot, jump in zip(self.knots, self.jumps, strict=True):
            at = f"{knot:g}" if isinstance(knot, float) else "a knot"
            if not every(np.asarray(jump[0]) == 0.0):
                return f"it jumps at {at}"
            if len(jump) > 1 and not every(np.asarray(jump[1]) >= 0.0):
                return f"its slope falls at {at}"
        for i in range(len(self.pieces)):
            if not every(self._range_of(i, 2)[0] >= 0):
                return f"its piece {i} bends down"
        return ""

    def _range_of(self, piece: int, derivative: int) -> tuple[Array, Array]:
        """Range of a derivative of one piece on its own interval."""
        polynomial = self.pieces[piece]
        for _ in range(derivative):
            polynomial = differentiate(polynomial)
        return extremes(polynomial, *self._interval(piece))

    def _interval(self, piece: int) -> tuple[Coefficient, Coefficient]:
        """The ends of a piece, as seen from its centre."""
        centre = self.centres[piece]
        low = self.knots[piece - 1] - centre if piece > 0 else -math.inf
        return low, self.knots[piece] - centre if piece < len(self.knots) else math.inf

    @cached_property
    def subgradient_range(self) -> tuple[Array, Array]:
        """The closed interval of all subgradients, ``(smallest, largest)``; infinite for quadratic growth.

        The derivative of a smoothed term is an average of subgradients, so it lies in this interval: for a convex term,
        in the closure of the domain of the conjugate.
        """
        self._require_continuity("subgradient_range")
        ranges = [self._range_of(i, 1) for i in range(len(self.pieces))]
        return reduce(np.minimum, [low for low, _ in ranges]), reduce(np.maximum, [high for _, high in ranges])

    @cached_property
    def infimum(self) -> Array:
        """The greatest lower bound of the term's values."""
        return reduce(np.minimum, [self._range_of(i, 0)[0] for i in range(len(self.pieces))])

    def _require_continuity(self, what: str) -> None:
        if not self.is_continuous:
            raise ValueError(f"{what} needs a continuous term, and {self.name} jumps at a knot.")

    # -- At a point ---------------------------------------------------------------------------------------------------

    def _select(self, xp: Any, z: Array, derivative: int = 0, *, side: str | None = None) -> Array:
        """Value of a derivative of the piece each entry lies in."""
        values = [
            polynomial[0] if len(polynomial) == 1 else horner(polynomial, z if is_zero(centre) else z - centre)
            for polynomial, centre in zip(self._derived(derivative), self.centres, strict=True)
        ]
        if derivative == 0 and self._is_largest_piece:
            return reduce(xp.maximum, [spread(xp, v, z) for v in values])
        steps = all(isinstance(v, float) for v in values)
        result, knots = values[0], () if steps and len(set(values)) == 1 else self.knots
        for knot, value in zip(knots, values[1:], strict=False):
            right = z > knot if (side or self.at_knot) == "left" else z >= knot
            if steps:  # on data in no order far faster than `where`
                here = xp.astype(xp.asarray(right), z.dtype)  # NumPy 2.0 takes no scalar, which a row alone gives
                result = result * (1.0 - here) + value * here
            else:
                result = xp.where(right, *(spread(xp, v, z) for v in (value, result)))
        if self.knots and len(self.pieces[0]) <= derivative + 1 and some(xp, nan := xp.isnan(z)):
            result = xp.where(nan, z, result)  # NaN is right of no knot, and a constant would hide it
        result = spread(xp, result, z)
        return result if result.shape == z.shape else result + xp.zeros_like(z)

    def _derived(self, derivative: int) -> list[Polynomial]:
        """A derivative of every piece, without leading zeros."""
        if derivative == 0:
            return [trim(polynomial) for polynomial in self.pieces] if self.rows is not None else list(self.pieces)
        known = self.__dict__.setdefault("_derivatives", {})
        if derivative not in known:
            known[derivative] = [trim(differentiate(polynomial)) for polynomial in self._derived(derivative - 1)]
        return known[derivative]  # type: ignore[no-any-return]

    @cached_property
    def _lines(self) -> _few_calls.Lines:
        return _few_calls.lines_of(self) if self._is_largest_piece else []

    @cached_property
    def _square(self) -> float | None:
        """The number that squares are multiplied by, where there is nothing else; short vectors then take one line."""
        return _few_calls.square_of(self)

    @cached_property
    def _is_largest_piece(self) -> bool:
        """Whether the value is the largest that any piece has there: convex, of lines, and the same for all rows."""
        return bool(self.knots) and self.degree == 1 and self.rows is None and self.curvature.is_convex

    def value(self, z: Array) -> Array:
        """The term at `z`, elementwise."""
        if type(z) is np.ndarray and z.dtype == np.float64:
            if self._lines:
                return _few_calls.largest_line(self._lines, z)
            if self._square is not None:
                with np.errstate(over="ignore"):
                    return self._square * z * z
        xp, (z,) = as_float(z)
        with np.errstate(over="ignore", invalid="ignore"):  # a piece may overflow where it is not selected
            return self.on(xp, z)._select(xp, z)

    __call__ = value

    def derivative(self, z: Array, order: int = 1) -> Array:
        """The derivative of the given order at `z`, from the right on a knot; jumps have none and are not counted."""
        if order == 1 and type(z) is np.ndarray and z.dtype == np.float64 and z.ndim:
            if self._square is not None:
                with np.errstate(over="ignore"):
                    return 2.0 * self._square * z
            if self.kink is not None and (slopes := _few_calls.kink_slopes(self.kink, z)) is not None:
                return slopes
        xp, (z,) = as_float(z)
        with np.errstate(over="ignore", invalid="ignore"):
            return self.on(xp, z)._select(xp, z, order, side="right")

    def subdifferential(self, z: Array) -> tuple[Array, Array]:
        """The interval of subgradients at `z`, ``(smallest, largest)``; Clarke's, if not convex. A point off knots."""
        self._require_continuity("subdifferential")
        xp, (z,) = as_float(z)
        term = self.on(xp, z)
        with np.errstate(over="ignore", invalid="ignore"):
            left, right = (term._select(xp, z, 1, side=side) for side in ("left", "right"))
        return xp.minimum(left, right), xp.maximum(left, right)

    def conjugate(self, dual: Array) -> Array:
        r"""The convex conjugate :math:`\rho^*(v) = \sup_z vz - \rho(z)`; infinite outside `subgradient_range`.

        Only for convex terms with pieces of degree at most two.
        """
        if not self.curvature.is_convex or self.degree > 2:
            why = f"has degree {self.degree}" * self.curvature.is_convex or f"is not convex: {self.why_not_convex()}"
            raise ValueError(f"conjugate needs a convex term with pieces of degree at most 2; {self.name} {why}.")
        v = np.asarray(as_float(dual)[1][0], dtype=np.float64)
        low, high = self.subgradient_range
        # The supremum is reached on a knot or where a quadratic piece has derivative v.
        best = np.where((v >= low) & (v <= high), -math.inf, math.inf)
        for knot, polynomial, centre in zip(self.knots, self.pieces[1:], self.centres[1:], strict=True):
            best = np.maximum(best, v * knot - evaluate(polynomial, knot - centre))
        for i, (polynomial, centre) in enumerate(zip(self.pieces, self.centres, strict=True)):
            if len(polynomial) == 3:
                best = np.maximum(best, quadratic_conjugate(polynomial, centre, *self._interval(i), v))
            elif not self.knots:  # an affine term: the only subgradient in the domain is its own
                best = np.maximum(best, v * centre - polynomial[0])
        return best

    # -- Under a Gaussian: see _gaussian ------------------------------------------------------------------------------

    def slope_and_curvature(
        self, mean: Array, sigma: Array, weights: Array = 1.0, out: tuple[Array, Array] | None = None
    ) -> tuple[Array, Array]:
        """First and second derivative of the expectation in the mean, weighted, where it itself is of no use.

        They may be written to `out`, where that saves time.
        """
        number = isinstance(weights, float)
        kink, weight = self.kink, weights if number else 1.0
        short = None if kink is None else _few_calls.kink_derivatives(kink, mean, sigma, weight, out)
        if short is not None and number:
            return short
        first, second = _gaussian.expectations(self, mean, sigma, (1, 2)) if short is None else short
        return weights * first, weights * second

    def weighted_sum(self, sigma: Array, weights: Array) -> Callable[[Array], tuple[float, Array]]:
        """The weighted sum of the expectations at these sigmas, as a function of the means: its value and gradient.

        For many calls, each of which may write over the gradient that the last returned; warnings are the caller's.
        """
        return weighted_sum(self, sigma, weights)

    def derivatives(self, mean: Array, sigma: Array) -> tuple[Array, Array, Array]:
        r"""Expectation under :math:`z \sim N(mean, sigma^2)`, and its first and second derivative in the mean.

        One pass: the three share the normal density and its tails. Time per number and knot: two to four calls of
        ``scipy.special.ndtr``; memory: the three results.

        Examples
        --------
        >>> from varopt import terms
        >>> value, gradient, hessian = terms.abs_().derivatives(0.0, 1.0)   # <|z|> = sqrt(2 / pi)
        >>> print(f"{value:.6f} {gradient:.6f} {hessian:.6f}")
        0.797885 0.000000 0.797885
        """
        value, first, second = _gaussian.expectations(self, mean, sigma, (0, 1, 2))
        return value, first, second

    def derivatives_of_few(self, mean: Array, sigma: Array) -> tuple[Array, Array, Array]:
        """What `derivatives` returns; of short vectors in few calls, the last digits aside."""
        short = self._short(mean, sigma, True)
        return self.derivatives(mean, sigma) if short is None else short

    def expectation_of_few(self, mean: Array, sigma: Array) -> Array:
        """What `expectation` returns, likewise."""
        short = self._short(mean, sigma, False)
        return self.expectation(mean, sigma) if short is None else short[0]

    def _short(self, mean: Array, sigma: Array, derivatives: bool) -> tuple[Array, Array, Array] | None:
        if self.kink is not None:
            return _few_calls.kink_expectations(self, mean, sigma, derivatives)
        knots = self._at_knots
        return None if knots is None else _few_calls.expectations_at_knots(knots, mean, sigma, derivatives)

    @cached_property
    def _at_knots(self) -> _few_calls.KnotTable | None:
        return _few_calls.knots_of(self)

    def steps_around(self, distance: Array, sigma: float) -> tuple[Array, Array, Array]:
        """What smoothing adds to a kink at distances from it, and the derivatives; small values are rounded."""
        if self.kink is None:
            raise ValueError(f"{self.name} is not two lines that meet.")
        short = _few_calls.kink_steps(self.kink, distance, sigma)
        if short is not None:
            return short
        mean = distance + self.kink[0]
        value, first, second = self.derivatives(mean, sigma)
        return value - self.value(mean), first, second

    def expectation(self, mean: Array, sigma: Array) -> Array:
        """Expectation under a Gaussian."""
        return _gaussian.expectations(self, mean, sigma, (0,))[0]

    def sigma_derivative(self, mean: Array, sigma: Array) -> Array:
        """Derivative of the expectation in sigma: sigma times the second derivative in the mean (the heat equation).

        At sigma = 0 the limit from above, which on a kink is not zero.
        """
        return _gaussian.expectations(self, mean, sigma, ("sigma",))[0]

    def gap(self, mean: Array, sigma: Array) -> Array:
        """Expectation minus value at the mean, without cancellation: accurate however small it is."""
        return _gaussian.expectations(self, mean, sigma, ("gap",))[0]

    def worst_gap(self, sigma: Array) -> tuple[Array, Array]:
        """The largest `gap` over all means, and a mean where it is reached (infinite where it is only approached)."""
        return worst_gap(self, sigma)

    def gap_coefficients(self) -> tuple[Array, Array, Array]:
        r"""``(c, b, a)`` with :math:`|gap| \le c + b \cdot sigma + a \cdot sigma^2` at every mean.

        A jump of the value by h adds at most :math:`|h|/2` to the constant, a kink by j at most
        :math:`|j|/\sqrt{2\pi}` to the linear part, a second derivative of at most d adds d/2 to the quadratic part
        (infinite where it is unbounded). The range of the gap, largest minus smallest over all means, keeps the same
        bound for continuous terms.
        """
        jumps = sum((np.abs(np.asarray(jump[0])) for jump in self.jumps), np.zeros(()))
        kinks = sum((np.abs(np.asarray(jump[1])) for jump in self.jumps if len(jump) > 1), np.zeros(()))
        curvatures = [self._range_of(i, 2) for i in range(len(self.pieces))]
        top = reduce(np.maximum, [np.maximum(high, 0.0) for _, high in curvatures])
        bottom = reduce(np.minimum, [np.minimum(low, 0.0) for low, _ in curvatures])
        return jumps / 2.0, kinks / math.sqrt(2.0 * math.pi), (top - bottom) / 2.0

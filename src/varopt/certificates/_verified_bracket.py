"""The bracket that is reported: value and dual value of the objective's own blocks, with outward rounding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._verified import (
    SLACK,
    UNIT,
    Ball,
    Definiteness,
    definiteness,
    dot,
    down,
    exact_sum,
    is_double,
    total,
    up,
)
from varopt.certificates._direct import Caps, direct_lower, has_own_rows, is_own
from varopt.certificates._dual_value import Proof, lower_near, lower_of_squares, verified_lower
from varopt.certificates._lent_ridge import with_lent_ridge
from varopt.certificates._moments import SquareMoments, lower_by_moments, moments_at
from varopt.certificates.enclosures import (
    DualQuadratic,
    DualRows,
    Norms,
    NotEnclosed,
    applied,
    coordinates,
    enclosed_terms,
    enclosed_value,
    entries,
    transposed,
)
from varopt.composite import Groups, QuadraticForm, Rows, composite
from varopt.model import Objective
from varopt.model.blocks import AffineBlock, Block, TermBlock
from varopt.model.maps import Matrix
from varopt.terms import PiecewisePolynomial, abs_

__all__ = ["ROUNDING", "Verified", "Verifier", "verified"]

Vector = NDArray[np.float64]

ROUNDING = "rounding, which could not be enclosed, has changed the bounds by less than the gap"
NEAR = (
    "an optimum lies within {:g} times the coordinates of the point found (a millionth of the largest, where they are "
    "smaller); of all such points the bracket is proved"
)

_INWARD = 1e-11  # share of its ball by which a dual is moved inwards: room for what rounding leaves, at that price
_FAINT = 1e-250  # weights of norms below which rounding of their squares is no longer relative
_FEW_ENTRIES = 1 << 14  # of a map, up to which it is made a matrix
_CLOSE = 1e-12  # relative gap that is close enough for small problems, where the tolerance is wider
_RESTS = 1e-11  # share of the largest coordinate by which one that rests may be off its knot


class Verified(NamedTuple):
    """No point has a value below `lower`, and that of x is not above `upper`; `reason` says why one is infinite."""

    lower: float
    upper: float
    reason: str = ""


class Verifier:
    """What is proved of a convex objective at a point, in exact arithmetic, of the numbers that its blocks hold.

    Parameters
    ----------
    objective : Objective
        Convex, and within the composite class.
    x : array
        A point, whose value is the upper bound.
    radius, error : array and float, optional
        By how much the linear part and the constant may be off: what is proved holds for all that are within.
    squares : sequence of Rows
        Rows of squares that a method has multiplied out: where these are the objective's own, they are not read again.
    other : Verifier, optional
        Of the same data: what it knows of them is not computed again.
    """

    def __init__(
        self, objective: Objective, x: Vector, radius: Vector | None = None, error: float = 0.0,
        squares: Sequence[Rows] = (), other: Verifier | None = None,
    ) -> None:  # fmt: skip
        self.objective, self.x, self.squares = objective, x, squares
        self._radius, self._error = radius, error
        self._norms: Norms = {} if other is None else other._norms
        self._allowed = 0.0  # error of the value that does not matter

    @cached_property
    def _parts(self) -> _Parts:
        parts = _parts(self.objective, self.x)
        if self._radius is None:
            return parts
        line = Ball(parts.vector.middle, (parts.vector.radius + self._radius) * SLACK)
        return parts._replace(vector=line, error=(parts.error + self._error) * SLACK)

    @cached_property
    def _below(self) -> _Parts:
        """The same, or where rounding hides whether a form is convex what is nowhere above it, and is."""
        parts = self._parts
        if not self.objective.assumption:
            return parts
        lent = with_lent_ridge(parts.rows, parts.quadratics, self.x.size)
        scalar = parts.scalar + lent.constant
        error = parts.error + lent.error + 2.0 * UNIT * abs(scalar)
        return parts._replace(
            rows=lent.rows,
            quadratics=lent.forms,
            vector=parts.vector.plus(lent.line),
            scalar=scalar,
            error=error * SLACK,
        )

    @property
    def is_convex(self) -> bool:
        """Whether the sum is convex for certain, if each part or only the sum is."""
        if not self.objective.assumption:
            return True
        try:
            return all(definiteness(q.matrix) is Definiteness.POSITIVE for q in self._below.quadratics)
        except NotEnclosed:
            return False

    @property
    def _is_small(self) -> bool:
        return sum(r.linear.shape[0] for r in self._parts.rows) * self.x.size <= _FEW_ENTRIES

    @cached_property
    def value(self) -> tuple[float, float]:
        """The value at x, and what its rounding is below; infinite where that is not known."""
        with np.errstate(all="ignore"):
            try:
                return _value(self._parts, self.x, self._norms, self._allowed)
            except NotEnclosed:
                return math.nan, math.inf

    def subgradients(self, dual: Sequence[Vector | None] | None) -> list[Vector]:
        """For each row of all terms what is given, else the derivative at x, or where it rests what balances.

        Rows of one coordinate that rest on a kink take what the others leave of its equation, earlier blocks first.
        """
        with np.errstate(all="ignore"):
            return [r.dual for r in _with_dual(self._parts, self.x, dual, self._norms).rows]

    def direct_lower(self) -> float:
        """A lower bound without a linear system, where variables have rows of their own; else minus infinity."""
        with np.errstate(all="ignore"):
            try:
                return _directly(self._parts, self.x, None, self._norms)
            except NotEnclosed:
                return -math.inf

    def lower(self, dual: Sequence[Vector | None] | None, enough: float) -> float:
        """A lower bound of the optimum, without the value at x where one that is `enough` is at hand."""
        with np.errstate(all="ignore"), suppress(NotEnclosed):
            if (lower := _directly(self._parts, self.x, dual, self._norms)) >= enough:
                return lower
        return self.bracket(dual).lower

    def near(self, dual: Sequence[Vector | None] | None, enough: float) -> tuple[float, str]:
        """A lower bound of all points near x that is `enough`, and how near, in words; minus infinity without one."""
        with np.errstate(all="ignore"):
            try:
                parts = _with_dual(self._below, self.x, dual, self._norms)
                parts = _without_norms(parts, self.x, _norm_dual(parts.groups, dual), 0.0, self._norms)
            except NotEnclosed:
                return -math.inf, ""
            enough += parts.error * SLACK
            lower, reach = lower_near(
                parts.rows, parts.vector, parts.scalar, parts.quadratics, self.x, self._norms, enough
            )
            return float(down(lower - parts.error * SLACK)), NEAR.format(reach)

    def bracket(self, dual: Sequence[Vector | None] | None = None, gap: float = math.inf) -> Verified:
        """A bracket of the optimum.

        Parameters
        ----------
        dual : sequence of arrays, optional
            Subgradients of the rows with kinks, and then of norms with weights that are not zero, that about balance;
            by default derivatives at x. Nothing depends on them but how close the lower bound is.
        gap : float
            Corrections of the dual are tried until the gap is no wider; by default the first will do.
        """
        self._allowed = gap / 16.0 if math.isfinite(gap) else 0.0
        with np.errstate(all="ignore"):
            try:
                if (known := self._by_moments(gap)) is not None:
                    return known
                lower, why = _directly(self._parts, self.x, dual, self._norms), ""
                parts = None if lower > -math.inf else _with_dual(self._below, self.x, dual, self._norms)
                for r in parts.rows if parts is not None else ():
                    r.gradient(r.clipped(r.dual), self._norms)  # which finds the lengths of columns, for the value too
                value, error = self.value
                # Of small problems it costs little to look for a closer bound.
                close = min(gap, _CLOSE * abs(value)) if self._is_small and math.isfinite(gap) else gap
                if lower < value - close or parts is not None:
                    parts = _with_dual(self._below, self.x, dual, self._norms) if parts is None else parts
                    lower = max(lower, self._by_curvature(parts))
                    if lower == -math.inf or lower < value - close:
                        proof = _lower(parts, self.x, dual, self._norms, value - gap)
                        lower, why = max(lower, proof.lower), "" if lower > -math.inf else proof.reason
            except NotEnclosed as reason:
                return Verified(-math.inf, math.inf, str(reason))
        upper = float(up(value + error)) if math.isfinite(error) else math.inf
        return Verified(lower, upper, why or ("" if upper < math.inf else "numbers overflow."))

    def _by_moments(self, gap: float) -> Verified | None:
        """A bracket that is no wider than a gap without a look at the data, where squares are multiplied out."""
        if not self.squares or not math.isfinite(gap) or self._is_small or self._parts.quadratics or self._parts.groups:
            return None
        own: list[DualRows] = []
        found: SquareMoments | None = None
        for r, given in zip(self._parts.rows, self._parts.given, strict=True):
            if is_own(r):
                own.append(r)
            elif (part := moments_at(given, self.squares, self.x)) is None:
                return None
            else:
                found = part if found is None else found.plus(part)
        if found is None:
            return None
        line, scalar = self._parts.vector, self._parts.scalar
        rest, error = enclosed_value(own, line, scalar, self.x, (), self._norms, self._allowed)
        value = found.value + rest
        error = (found.error + error + self._parts.error + 2.0 * UNIT * abs(value)) * SLACK
        lower = lower_by_moments(found, own, line, scalar, self.x) - self._parts.error * SLACK
        lower, upper = float(down(lower)), float(up(value + error))
        return Verified(lower, upper) if upper - lower <= gap else None

    def _by_curvature(self, parts: _Parts) -> float:
        """A lower bound without a linear system, where squares are multiplied out and curve in every direction."""
        if not self.squares or parts.quadratics or parts.groups or self.objective.assumption:
            return -math.inf
        known = (moments_at(r, self.squares, self.x) for r in parts.given)
        found = [moments for moments in known if moments is not None]
        if not found:
            return -math.inf
        squares = reduce(SquareMoments.plus, found)
        lower = lower_of_squares(
            parts.rows, parts.vector, parts.scalar, self.x, self._norms, squares.least_curvature, squares.rounding
        )
        return float(down(lower - parts.error * SLACK))


def verified(objective: Objective, x: Vector, dual: Sequence[Vector | None] | None = None) -> Verified:
    """A bracket of the optimum of a convex objective: what a `Verifier` makes of one dual point."""
    return Verifier(objective, x).bracket(dual)


def _plain(r: Rows) -> Rows:
    """Rows with a map of few entries as a matrix, where none of them is rounded for that."""
    if isinstance(r.linear, Matrix) or r.count * r.linear.shape[1] > _FEW_ENTRIES or coordinates(r.linear) is not None:
        return r
    if r.linear.storage == "operator":
        return r
    matrix = entries(r.linear, {})
    return r if matrix.radius.any() else Rows(Matrix(matrix.middle), r.offset, r.term, r.weights)


def _value(parts: _Parts, x: Vector, norms: Norms, allowed: float) -> tuple[float, float]:
    value, spread = enclosed_value(parts.rows, parts.vector, parts.scalar, x, parts.quadratics, norms, allowed)
    for group in parts.groups:
        more, error = _enclosed_norms(group, x)
        value, spread = value + more, spread + error + 2.0 * UNIT * (abs(value) + more)
    return value, (spread + parts.error) * SLACK


class _Parts(NamedTuple):
    """The objective as the proof sees it; `error` is what rounding may have changed in `scalar`."""

    rows: list[DualRows]
    quadratics: list[DualQuadratic]
    groups: tuple[Groups, ...]
    vector: Ball
    scalar: float
    error: float
    given: tuple[Rows, ...]  # the rows as the objective has them

    def residual(self, norms: Norms) -> Vector:
        """The gradient, but for norms, of the subgradients as they are."""
        residual = self.vector.middle.copy()
        for q in self.quadratics:
            residual += q.linear.transpose_apply(q.weight * np.asarray(q.matrix @ q.point))
        for r in self.rows:
            residual += r.gradient(r.clipped(r.dual), norms).middle
        return residual


def _lower(parts: _Parts, x: Vector, dual: Sequence[Vector | None] | None, norms: Norms, enough: float) -> Proof:
    """The best that is proved with a dual of norms, that given or that of x, as it is and moved inwards for room."""
    best = Proof(-math.inf)
    ways = itertools.product((dual, None) if dual is not None else (None,), (0.0, _INWARD))
    for given, inward in ways if parts.groups else [(None, 0.0)]:
        below = _without_norms(parts, x, _norm_dual(parts.groups, given), inward, norms)
        proof = verified_lower(below.rows, below.vector, below.scalar, below.quadratics, x, norms, enough)
        lower = float(down(proof.lower - below.error * SLACK))
        best = Proof(lower, proof.reason) if lower >= best.lower else best
        if inward and -math.inf < enough <= best.lower:
            break
    return best


def _parts(objective: Objective, x: Vector) -> _Parts:
    """The objective with a dual of zeros, and the points of quadratic parts at x."""
    form = composite(objective, multiplied=False)
    vector, scalar, error = Ball.exact(np.zeros(objective.size)), [0.0], 0.0
    for block in objective.blocks:
        if not block.variables:
            value, spread = _constant(block)
        elif isinstance(block, AffineBlock):
            line = transposed(block.argument.stacked(objective.variables), Ball.exact([float(block.weights)]), {})
            vector = vector.plus(line)
            value = float(block.weights) * float(np.ravel(block.argument.offset)[0])
            spread = 2.0 * UNIT * abs(value)
        else:
            continue
        scalar.append(value)
        error += spread
    whole, rounding = total(np.array(scalar))
    quadratics = [_quadratic(q, x) for q in form.forms]
    rows = [_convex(_plain(r)) for r in form.rows]
    return _Parts(rows, quadratics, form.groups, vector, whole, error + rounding, form.rows)


def _directly(parts: _Parts, x: Vector, dual: Sequence[Vector | None] | None, norms: Norms) -> float:
    """What is proved without a correction, where every variable has a row of its own."""
    if parts.groups or parts.quadratics or (own := has_own_rows(parts.rows, x.size)) is None:
        return -math.inf
    given = _given(parts, dual)
    rows = []
    for r, u, mine in zip(parts.rows, given, own, strict=True):
        if not mine:
            u = r.term.derivative(r.linear.apply(x) + r.offset) if u is None else u
            r = replace(r, dual=u)
        rows.append(r)
    lower = direct_lower(rows, own, parts.vector, parts.scalar, norms, Caps.of(rows, own, x.size))
    return float(down(lower - parts.error * SLACK))


def _given(parts: _Parts, dual: Sequence[Vector | None] | None) -> list[Vector | None]:
    """The subgradients that are given, of the rows that count."""
    known = iter(dual if dual is not None and _fits(parts.given, dual) else ())
    result = []
    for given, r in zip(parts.given, parts.rows, strict=True):
        u = next(known, None) if _has_dual(given) else None
        if u is not None:
            if r.offset.size < given.count:
                u = np.broadcast_to(u, (given.count,))[np.flatnonzero(given.weights)]
            u = -np.asarray(u) if given.weights.min(initial=0.0) < 0.0 else np.asarray(u)
        result.append(u)
    return result


def _with_dual(parts: _Parts, x: Vector, dual: Sequence[Vector | None] | None, norms: Norms) -> _Parts:
    """With the subgradients that are given, and derivatives at x of rows that have none."""
    rows, unknown = [], []
    for b, (r, u) in enumerate(zip(parts.rows, _given(parts, dual), strict=True)):
        if u is None and r.term.knots:
            unknown.append(b)
        rows.append(replace(r, dual=r.term.derivative(r.linear.apply(x) + r.offset) if u is None else u))
    return _settled(parts._replace(rows=rows), x, unknown, norms)


def _settled(parts: _Parts, x: Vector, unknown: Sequence[int], norms: Norms) -> _Parts:
    """Rows of one coordinate that rest on a kink, and have no dual, take what the others leave of its equation."""
    rows, far = parts.rows, float(np.abs(x).max(initial=0.0))
    rest = {b: rows[b].single for b in unknown}
    residual = parts.residual(norms) if any(single is not None for single in rest.values()) else np.zeros(0)
    for b, single in rest.items():
        if single is None:
            continue
        r, (index, ball) = rows[b], single
        factor = ball.middle
        z = factor * x[index] + r.offset
        reach = _RESTS * (np.abs(factor) * far + np.abs(r.offset))
        low, high = r.term.subdifferential(z - reach)[0], r.term.subdifferential(z + reach)[1]
        scale = r.weights * factor
        needed = np.divide(-residual[index], scale, out=np.zeros(index.size), where=scale != 0.0)
        u = np.clip(r.dual + needed, low, high)
        residual += r.linear.transpose_apply(r.weights * (u - r.dual))
        rows[b] = replace(r, dual=u)
    return parts


# -- Norms of groups --------------------------------------------------------------------------------------------------


def _norm_dual(groups: Sequence[Groups], dual: Sequence[Vector | None] | None) -> Iterator[Vector | None]:
    """The dual of each norm where it is given; solvers leave out groups without a weight."""
    live = [group.spread(group.weights > 0.0) for group in groups]
    weighty = [np.count_nonzero(mask) for mask in live if mask.any()]
    given = list(dual or ())[len(dual or ()) - len(weighty) :]
    known = [v for v in given if v is not None and np.all(np.isfinite(v))]
    fits = [v.size for v in known] == weighty
    for mask in live:
        whole = np.zeros(mask.size) if fits else None
        if whole is not None and mask.any():
            whole[mask] = known.pop(0)
        yield whole


def _without_norms(parts: _Parts, x: Vector, dual: Iterator[Vector | None], inward: float, norms: Norms) -> _Parts:
    """A minorant of rows: ``w |z| >= v'z + sum_k delta_k |z_k|`` for every v and delta with ``|v| + |delta| <= w``.

    Groups that rest take what the others leave of their equations as v; what is left of their radius is room for what
    rounding leaves. All subgradients are made smaller by a share `inward`.
    """
    if not parts.groups:
        return parts
    residual = parts.residual(norms)
    rows = [replace(r, dual=r.dual * (1.0 - inward)) for r in parts.rows] if inward else list(parts.rows)
    vector, scalar, error = parts.vector, parts.scalar, parts.error
    for group, given in zip(parts.groups, dual, strict=True):
        if np.any(group.weights < 0.0) or np.any((group.weights > 0.0) & (group.weights < _FAINT)):
            raise NotEnclosed("a norm has a weight that is not positive for certain.")
        v = _ball_dual(group, x, residual) if given is None else given
        rounding = 4.0 * UNIT * (4 + group.sizes)
        v = group.feasible(v) * group.spread(1.0 - 2.0 * rounding - inward)
        room = np.maximum(group.weights * (1.0 - rounding) - group.norms(v) * (1.0 + rounding), 0.0)
        if not np.all(group.norms(v) * (1.0 + rounding) <= group.weights):
            raise NotEnclosed("a norm overflows.")
        room[room < 0.5 * inward * group.weights + 4.0 * rounding * group.weights] = 0.0
        delta = group.spread(room * (1.0 - rounding) / np.sqrt(group.sizes))
        rows.append(DualRows(group.linear, group.offset, abs_(), delta, np.zeros(delta.size)))
        vector = vector.plus(transposed(group.linear, Ball.exact(v), {}))
        value, lost = dot(v, group.offset)
        scalar, error = scalar + value, error + lost + 2.0 * UNIT * (abs(scalar) + abs(value))
    return parts._replace(rows=rows, vector=vector, scalar=scalar, error=error)


def _ball_dual(group: Groups, x: Vector, residual: Vector) -> Vector:
    """Gradients of the norms; of groups of coordinates that vanish, what the others leave."""
    z = group.positions(x)
    v, single = group.spread(group.weights) * group.directions(z), coordinates(group.linear)
    if single is None:
        return np.asarray(v)
    index, factor = single[0], single[1].middle
    needed = np.divide(-residual[index], factor, out=np.zeros(index.size), where=factor != 0.0)
    return np.where(group.spread(group.norms(z) > 0.0), v, needed)


def _enclosed_norms(group: Groups, x: Vector) -> tuple[float, float]:
    """The weighted norms at x, and a bound of the error."""
    z = applied(group.linear, Ball.exact(x), {}).plus(Ball.exact(group.offset)).rounded()
    norms, radius = group.norms(z.middle), group.norms(z.radius)
    spread = radius + (8.0 + group.sizes) * UNIT * (norms + radius)
    value, error = dot(group.weights, norms)
    return value, (error + float(group.weights @ spread)) * SLACK


def _has_dual(r: Rows) -> bool:
    """Whether a method keeps the row as one, and does not make it part of its quadratic."""
    return bool(r.term.knots) or r.term.degree > 2


def _fits(rows: Sequence[Rows], dual: Sequence[Vector | None] | None) -> bool:
    """Whether there is a subgradient for each row."""
    counts = [r.count for r in rows if _has_dual(r)]
    given = list(dual or ())[: len(counts)]
    if dual is None or len(given) != len(counts):
        return False
    return all(u is None or (np.size(u) == n and np.all(np.isfinite(u))) for u, n in zip(given, counts, strict=True))


def _convex(r: Rows) -> DualRows:
    """Rows with weights that are not negative, and a dual of zeros."""
    if r.term.degree > 2:
        raise NotEnclosed(f"{r.term.name} has pieces of degree {r.term.degree}.")
    if not np.all(r.weights):  # rows that are not there see no column
        live = np.flatnonzero(r.weights)
        r = Rows(r.linear.rows(live), r.offset[live], r.term.take(live), r.weights[live])
    zeros = np.broadcast_to(0.0, (r.count,))
    if r.term.curvature.is_convex and np.all(r.weights >= 0.0):
        return DualRows(r.linear, r.offset, r.term, r.weights, zeros)
    if r.term.curvature.is_concave and np.all(r.weights <= 0.0):
        return DualRows(r.linear, r.offset, _negated(r.term), -r.weights, zeros)
    raise NotEnclosed(f"{r.term.name} is not convex for certain.")


def _negated(term: PiecewisePolynomial) -> PiecewisePolynomial:
    return replace(term, pieces=tuple(tuple(-np.asarray(c) for c in piece) for piece in term.pieces))


def _quadratic(form: QuadraticForm, x: Vector) -> DualQuadratic:
    """``c z'Qz`` as ``c'/2 z'Sz`` with a symmetric S that is not rounded."""
    if form.matrix.storage == "operator":
        raise NotEnclosed(f"the entries of {form.matrix} are not known.")
    matrix, factor = form.matrix.explicit(), 2.0 * form.weight
    if matrix.dtype != np.float64:
        if not is_double(matrix):
            raise NotEnclosed(f"entries of dtype {matrix.dtype} are not those of double precision.")
        matrix = matrix.astype(np.float64)
    if not _is_symmetric(matrix):
        matrix, factor = _symmetric_part(matrix), form.weight
    if factor < 0.0:
        matrix, factor = -matrix, -factor
    return DualQuadratic(form.linear, form.offset, matrix, form.positions(x), factor)


def _is_symmetric(matrix: Any) -> bool:
    differing = matrix != matrix.T
    return bool((differing.nnz if sp.issparse(differing) else np.count_nonzero(differing)) == 0)


def _symmetric_part(matrix: Any) -> Any:
    """``Q + Q'``, where it is exact."""
    dense = np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)
    whole = exact_sum(dense, dense.T)
    if whole is None:
        raise NotEnclosed("the symmetric part of a quadratic form is rounded.")
    return sp.csr_array(whole) if sp.issparse(matrix) else whole


def _constant(block: Block) -> tuple[float, float]:
    """The value of a block without variables, and a bound of its rounding."""
    if isinstance(block, AffineBlock):
        value = float(block.value({}))
        return value, 2.0 * UNIT * abs(value)
    if isinstance(block, TermBlock):
        offset = np.atleast_1d(np.asarray(block.argument.offset, dtype=np.float64))
        weights = np.broadcast_to(np.asarray(block.weights, dtype=np.float64), offset.shape)
        return enclosed_terms(block.term, weights, Ball.exact(offset))
    raise NotEnclosed(f"{block.describe()} is not enclosed.")

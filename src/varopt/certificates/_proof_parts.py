"""The objective as a proof sees it: rows, quadratic parts and norms, each with the subgradients that it begins with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._array import repeated
from varopt._verified import (
    SLACK,
    UNIT,
    Ball,
    dot,
    down,
    exact_sum,
    is_double,
    total,
    up,
)
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
from varopt.composite import Composite, Groups, QuadraticForm, Rows, composite, unmultiplied
from varopt.model import Objective
from varopt.model.blocks import AffineBlock, Block, TermBlock
from varopt.model.maps import Matrix
from varopt.terms import PiecewisePolynomial

__all__ = [
    "CLOSE_GAP",
    "FORMED_SIZE",
    "ProofParts",
    "enclosed_at",
    "enclosed_norms",
    "given_duals",
    "norm_dual",
    "parts_of",
    "value_at",
    "with_dual",
    "without_norms",
]

Vector = NDArray[np.float64]

FORMED_SIZE = 1 << 14  # of a map, up to which it is made a matrix
CLOSE_GAP = 1e-12  # relative gap that is close enough for small problems, where the tolerance is wider
_FAINT_WEIGHT = 1e-250  # weights of norms below which rounding of their squares is no longer relative
_RESTS = 1e-11  # share of the largest coordinate by which one that rests may be off its knot


def _plain(r: Rows) -> Rows:
    """Rows with a map of few entries as a matrix, where none of them is rounded for that."""
    if isinstance(r.linear, Matrix) or r.count * r.linear.shape[1] > FORMED_SIZE or coordinates(r.linear) is not None:
        return r
    if r.linear.storage == "operator":
        return r
    matrix = entries(r.linear, {})
    return r if matrix.radius.any() else Rows(Matrix(matrix.middle), r.offset, r.term, r.weights)


class ProofParts(NamedTuple):
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


def enclosed_at(objective: Objective, x: Vector) -> tuple[float, float]:
    """Numbers around the exact value at x, of an objective that is convex or not; infinite where none are known."""
    with np.errstate(all="ignore"):
        try:
            value, error = value_at(parts_of(objective, x, any_shape=True), x, {}, 0.0)
        except NotEnclosed:
            return -math.inf, math.inf
        low, high = (float(down(value - error)), float(up(value + error))) if error > 0.0 else (value, value)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else (-math.inf, math.inf)


def value_at(parts: ProofParts, x: Vector, norms: Norms, allowed: float) -> tuple[float, float]:
    """The value, and what its rounding is below; of many rows an error that is `allowed` will do."""
    value, spread = enclosed_value(parts.rows, parts.vector, parts.scalar, x, parts.quadratics, norms, allowed)
    for group in parts.groups:
        more, error = enclosed_norms(group, x)
        value, spread = value + more, spread + error + 2.0 * UNIT * (abs(value) + abs(more))
    return value, (spread + parts.error) * SLACK


def parts_of(
    objective: Objective, x: Vector, problem: Composite | None = None, *, any_shape: bool = False
) -> ProofParts:
    """The objective with a dual of zeros, and the points of quadratic parts at x; convex, if not of `any_shape`.

    `problem` is its canonical form, where that is known.
    """
    form = composite(objective, multiplied=False) if problem is None else unmultiplied(objective, problem)
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
    rows = [_with_zeros(_plain(r), any_shape=any_shape) for r in form.rows]
    return ProofParts(rows, quadratics, form.groups, vector, whole, error + rounding, form.rows)


def given_duals(parts: ProofParts, dual: Sequence[Vector | None] | None) -> list[Vector | None]:
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


def with_dual(parts: ProofParts, x: Vector, dual: Sequence[Vector | None] | None, norms: Norms) -> ProofParts:
    """With the subgradients that are given, and derivatives at x of rows that have none."""
    rows, unknown = [], []
    for b, (r, u) in enumerate(zip(parts.rows, given_duals(parts, dual), strict=True)):
        if u is None and r.term.knots:
            unknown.append(b)
        rows.append(r.at(r.term.derivative(r.linear.apply(x) + r.offset) if u is None else u))
    return _settled(parts._replace(rows=rows), x, unknown, norms)


def _settled(parts: ProofParts, x: Vector, unknown: Sequence[int], norms: Norms) -> ProofParts:
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
        rows[b] = r.at(u)
    return parts


# -- Norms of groups --------------------------------------------------------------------------------------------------


def norm_dual(groups: Sequence[Groups], dual: Sequence[Vector | None] | None) -> Iterator[Vector | None]:
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


def without_norms(
    parts: ProofParts, x: Vector, dual: Iterator[Vector | None], inward: float, norms: Norms
) -> ProofParts:
    """A minorant of rows: ``w |z| >= v'z + sum_k delta_k |z_k|`` for every v and delta with ``|v| + |delta| <= w``.

    Groups that rest take what the others leave of their equations as v; what is left of their radius is room for what
    rounding leaves. All subgradients are made smaller by a share `inward`.
    """
    if not parts.groups:
        return parts
    residual = parts.residual(norms)
    rows = [r.at(r.dual * (1.0 - inward)) for r in parts.rows] if inward else list(parts.rows)
    for group, given in zip(parts.groups, dual, strict=True):
        if np.any(group.weights < 0.0) or np.any((group.weights > 0.0) & (group.weights < _FAINT_WEIGHT)):
            raise NotEnclosed("a norm has a weight that is not positive for certain.")
        v = _ball_dual(group, x, residual) if given is None else given
        rounding = 4.0 * UNIT * (4 + group.sizes)
        v = group.feasible(v) * group.spread(1.0 - 2.0 * rounding - inward)
        room = np.maximum(group.weights * (1.0 - rounding) - group.norms(v) * (1.0 + rounding), 0.0)
        if not np.all(group.norms(v) * (1.0 + rounding) <= group.weights):
            raise NotEnclosed("a norm overflows.")
        room[room < 0.5 * inward * group.weights + 4.0 * rounding * group.weights] = 0.0
        delta = group.spread(room * (1.0 - rounding) / np.sqrt(group.sizes))
        # Differences are rounded outwards by less than what `rounding` has left of the radius.
        slopes = PiecewisePolynomial((0.0,), ((0.0, v - delta), (0.0, v + delta)))
        rows.append(DualRows(group.linear, group.offset, slopes, np.ones(v.size), v))
    return parts._replace(rows=rows)


def _ball_dual(group: Groups, x: Vector, residual: Vector) -> Vector:
    """Gradients of the norms; of groups of coordinates that vanish, what the others leave."""
    z = group.positions(x)
    v, single = group.spread(group.weights) * group.directions(z), coordinates(group.linear)
    if single is None:
        return np.asarray(v)
    index, factor = single[0], single[1].middle
    needed = np.divide(-residual[index], factor, out=np.zeros(index.size), where=factor != 0.0)
    return np.where(group.spread(group.norms(z) > 0.0), v, needed)


def enclosed_norms(group: Groups, x: Vector) -> tuple[float, float]:
    """The weighted norms at x, and a bound of the error."""
    z = applied(group.linear, Ball.exact(x), {}).plus(Ball.exact(group.offset)).rounded()
    norms, radius = group.norms(z.middle), group.norms(z.radius)
    spread = radius + (8.0 + group.sizes) * UNIT * (norms + radius)
    value, error = dot(group.weights, norms)
    return value, (error + float(np.abs(group.weights) @ spread)) * SLACK


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


def _with_zeros(r: Rows, *, any_shape: bool) -> DualRows:
    """Rows with weights that are not negative, if not of `any_shape`, and a dual of zeros."""
    if r.term.degree > 2 and not any_shape:
        raise NotEnclosed(f"{r.term.name} has pieces of degree {r.term.degree}.")
    weights = r.distinct_weights
    if not np.all(weights):  # rows that are not there see no column
        live = np.flatnonzero(r.weights)
        r = Rows(r.linear.rows(live), r.offset[live], r.term.take(live), r.weights[live])
        weights = r.weights
    zeros = repeated(0.0, (r.count,))
    if r.term.curvature.is_convex and np.all(weights >= 0.0):
        return DualRows(r.linear, r.offset, r.term, r.weights, zeros)
    if r.term.curvature.is_concave and np.all(weights <= 0.0):
        return DualRows(r.linear, r.offset, _negated(r.term), -r.weights, zeros)
    if any_shape:
        return DualRows(r.linear, r.offset, r.term, r.weights, zeros)
    raise NotEnclosed(f"{r.term.name} is not convex for certain.")


def _negated(term: PiecewisePolynomial) -> PiecewisePolynomial:
    return replace(term, pieces=tuple(tuple(-np.asarray(c) for c in piece) for piece in term.pieces))


def _quadratic(form: QuadraticForm, x: Vector) -> DualQuadratic:
    """``c z'Qz`` as ``c'/2 z'Sz`` with a symmetric S that is not rounded."""
    if form.matrix.storage == "operator":
        raise NotEnclosed(f"the entries of {form.matrix} are not known.")
    if not is_double(form.matrix.given):
        raise NotEnclosed(f"entries of dtype {form.matrix.given.dtype} are not those of double precision.")
    matrix, factor = form.matrix.explicit().astype(np.float64, copy=False), 2.0 * form.weight
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

r"""Huber's regression with its scale, over rows that are not in memory: each step of Newton's method is a pass.

    F(x, s) = sum_i c_i (s + H(r_i / s) s) + alpha ||w||^2,    H(z) = z^2 up to eps, 2 eps |z| - eps^2 beyond

is convex in coefficients and scale together [Hub81, Owe07]. At a scale s and a multiple t of it, ``s F(x, s t) / 2`` is

    sum_i c_i (t s^2 / 2 + max_v v r_i - t v^2 / 2) + alpha s ||w||^2 / 2    over |v| <= eps s,

which at t = 1 is a sum of `huber` with the knot ``eps s``. So the ordinary sweep at the scale s has all that is needed:
its lines are minorants for every t if what their conjugates add up to is multiplied by t. A few rows keep room for
their dual, ``v +- delta``, at the price of ``t delta^2 / 2`` each: then they stand as ``delta |r_i - t v_i|``, and the
small problem in coefficients and t that lines and they make is proved like any other.

[Hub81] P. J. Huber, Robust Statistics, 1981.
[Owe07] A. B. Owen, A robust hybrid of lasso and ridge regression, 2007.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

import varopt.model as vo
from varopt._linalg import factorised
from varopt._verified import SLACK, TINY, UNIT, Ball, down
from varopt.certificates import Lines, Verifier, lines, positions
from varopt.composite import Rows, rows_of
from varopt.model import Affine, Objective, Variable
from varopt.model.blocks import AffineBlock, Block, TermBlock
from varopt.model.maps import Map, Matrix
from varopt.optimize.anywhere._ask import Ask
from varopt.optimize.anywhere._centre import ColumnCentres, centre_of
from varopt.optimize.anywhere._engine import RunOptions, rows_at_once
from varopt.optimize.anywhere._problem import Problem
from varopt.optimize.anywhere._relations import Relations, relations_of
from varopt.optimize.anywhere._sweep import Sweep, Swept
from varopt.places import DataPart, OnDevice, joined
from varopt.solvers import State
from varopt.solvers.huber import HuberProblem, JointNewton, Overflow
from varopt.terms import PiecewisePolynomial, abs_, huber

__all__ = ["ScaledHuber", "solve_scaled"]

Vector = NDArray[np.float64]

_MOST_EVALUATIONS = 40  # most evaluations
_SMALLEST_SHARE = 2.0**-12  # of the value without coefficients: better fits than that count as this good
# By which duals may move: a share of the scale, or times what balance should take.
_DUAL_ROOM, _MORE_DUAL_ROOM = 1e-7, 4.0
_AIMED_GAP = 1e-11  # relative gap that proofs aim at: one that a ridge closes alone may be wide
_INSIDE_KNOT = 1.0 - 1e-6  # share of the knot up to which they may
_ANCHORS, _MORE_ANCHORS = 20, 1000  # rows that keep room: so many for each variable, and so many
_CHARGED = 2.0**-46  # times the square of the knot, for each row: more than what rounding of the term's pieces is
_RESCALING = 10.0  # times which a step may make the scale larger, or smaller
_OFF_SCALE = 0.3  # share of the weights that the derivative in the scale may be
_STALLED_SCALE_STEPS = 2  # steps without a narrower bracket
_SHORTEST_SCALE_STEP = 1e-6  # share of a step
_VANISHED_SCALE = 1e-12  # share of the first scale below which the data are fitted exactly
_ROUGHLY = 1e-4  # gap of a sample that will do
_ARMIJO = 1e-4  # share of the decrease that the gradient promises which a step has to bring [NW06, eq. 3.4]
_SMALLEST_SQUARE = 1e-200  # of a knot, and its inverse the largest
_FITTED_EXACTLY = 1e-11  # share of the largest target within which a row counts as fitted exactly,
_NEARLY = 0.98  # and of what outliers may weigh, times epsilon^2, for a scale of zero: a sample may be mistaken
_LED_ASTRAY = 0.05  # typical residual of least squares, as a share of the largest, where outliers may hide exact fits
_SCALE_NEAR_ZERO = 1e-8  # share of the largest target that is a scale close to zero, but for rounding
_OF_TOLERANCE = 0.05  # share of the gap allowed that a scale may cost, where zero is the best
_GAP_WITHOUT_RIDGE = 1e-9  # gap beyond which a bound is tried without the ridge, which is not negative
_SCALE_BITS = 24  # of a scale, so that its square is exact


@dataclass(frozen=True)
class ScaledHuber(Problem):
    """The sum of ``huber(r, 1)`` over rows that are elsewhere, to be minimised with a ridge and a scale.

    A point holds the variables of the objective, and then the scale.
    """

    coefficients: Variable
    epsilon: float
    alpha: float
    centre: ColumnCentres | None = None  # points are in terms of what it leaves of the data

    def rows(self, part: DataPart, term: PiecewisePolynomial | None = None) -> Rows:
        """The rows of a part, less what is taken from their columns."""
        block = self.blocks[0].at(part)
        rows = rows_of(block if term is None else replace(block, term=term), self.variables)
        return rows if self.centre is None else self.centre.of(rows)[0]

    @property
    def ridge(self) -> Vector:
        """One for each coefficient, zero for an intercept."""
        marks = np.zeros(self.size)
        marks[self.objective.slices[self.coefficients]] = 1.0
        return marks

    def knot(self, scale: float) -> float:
        """Not above ``epsilon * scale``: no dual is then beyond what the loss allows."""
        return self.epsilon * scale * (1.0 - 4.0 * UNIT)


class _Seen(NamedTuple):
    """The objective times half the scale, as a function of coefficients and of a multiple of the scale, at a point."""

    x: Vector
    given: Vector  # the same point, in terms of the data as they are
    scale: float
    value: float  # of the objective itself
    upper: float
    gradient: Vector
    hessian: Vector
    lines: Lines
    weight: Ball
    kept: Rows
    positions: Ball  # of the rows kept
    related: Any


class _LosesDigits(Exception):
    """Numbers cannot be taken from all columns that they were to be taken from: from which they may be."""

    def __init__(self, left: ColumnCentres | None) -> None:
        super().__init__()
        self.left = left


def solve_scaled(problem: ScaledHuber, state: State, options: RunOptions) -> Generator[Ask, Any, None]:
    """Lower the bracket of `state`: Newton's method from where a sample has its optimum, a pass each."""
    part: DataPart | None = None
    wanted = rows_at_once(problem, options)
    if wanted < 0:
        part = yield Ask(rows=-1)
    sample: DataPart = part if part is not None else (yield Ask(rows=wanted))
    relations = relations_of(problem, sample) if problem.alpha == 0.0 else Relations.none(problem.size)
    state.unit = _SMALLEST_SHARE * 2.0 * problem.count / sample.count * _null(problem, sample) or 1.0
    if not relations.spared.size and not isinstance(problem.table, OnDevice):
        problem = replace(
            problem, centre=centre_of(rows_of(problem.blocks[0].at(sample), problem.variables), problem.ridge)
        )
    steps, again = _from_sample(problem, state, options, sample, part, relations), sample
    if problem.centre is None:
        del again  # so that it is not held while rows are read
    del sample
    while True:
        try:
            yield from steps
        except _LosesDigits as lost:  # by the first pass
            problem = replace(problem, centre=lost.left)
            steps = _from_sample(problem, state, options, again, part, relations)
        else:
            return


def _from_sample(
    problem: ScaledHuber, state: State, options: RunOptions, sample: DataPart, part: DataPart | None,
    relations: Relations,
) -> Generator[Ask, Any, None]:  # fmt: skip
    if (exact := _exact(problem, sample, options)) is not None:
        yield from _vanish(problem, state, options.tol, *exact, part, relations)
        if state.reached(options.tol):
            return
    x, scale = _pilot(problem, sample)
    del sample
    yield from _descend(problem, state, options.tol, x, scale, part, relations)


def _vanish(
    problem: ScaledHuber, state: State, tol: float, x: Vector, scale: float, part: DataPart | None, relations: Relations
) -> Generator[Ask, Any, None]:
    """The bracket where the best scale is zero: a bound from a scale close to that, a value where it costs little."""
    seen = yield from _evaluated(problem, x, scale, part, relations.vectors)
    relations = relations.where(np.broadcast_to(seen.related, relations.spared.shape))
    _see(problem, state, seen, relations)
    if not state.reached(tol) and not state.lower > 0.0:
        # Outliers weigh more than the few rows that keep room can balance: a step lets all that are fitted do that.
        balanced = x + _newton(_scale_apart(seen), relations)[:-1]
        _see(problem, state, (yield from _evaluated(problem, balanced, scale, part, None)), relations)
    tiny = _rounded(_OF_TOLERANCE * state.allowed(tol) / float(seen.weight.middle))
    _see(problem, state, (yield from _evaluated(problem, x, tiny, part, None)), relations)


def _descend(
    problem: ScaledHuber, state: State, tol: float, x: Vector, scale: float, part: DataPart | None, relations: Relations
) -> Generator[Ask, Any, None]:
    """Newton's method from a point, by passes or on the rows that were read."""
    first, step, length = scale, np.zeros(problem.size + 1), 1.0
    before: _Seen | None = None
    stalled = 0
    for attempt in range(_MOST_EVALUATIONS):
        state.steps += 1
        seen = yield from _evaluated(problem, x, scale, part, relations.vectors if attempt == 0 else None)
        if attempt == 0:
            relations = relations.where(np.broadcast_to(seen.related, relations.spared.shape))
        if before is not None and not seen.value <= before.value * (1.0 + 1e-14) + _promised(before, step, length):
            if length < _SHORTEST_SCALE_STEP:
                return
            length *= 0.3
        else:
            gap = state.gap
            _see(problem, state, seen, relations)
            least = 0.1 if state.lower > 0.0 else tol  # without a bound, it is the value alone that steps lower
            stalled = stalled + 1 if gap - state.gap < least * gap else 0  # at what rounding leaves
            if state.reached(tol) or scale < _VANISHED_SCALE * first or stalled > _STALLED_SCALE_STEPS:
                return
            if (factor := _off_scale(problem, seen)) != 1.0:  # first the scale alone: far from it, steps lead nowhere
                before, scale = None, _rounded(factor * scale)
                state.latest = np.append(seen.given, scale)
                continue
            before, step = seen, _newton(seen, relations)
            length = min(1.0, (1.0 - 1.0 / _RESCALING) / max(-step[-1], 1e-9), (_RESCALING - 1.0) / max(step[-1], 1e-9))
        x, scale = before.x + length * step[:-1], _rounded(before.scale * (1.0 + length * float(step[-1])))
        state.latest = np.append(x if problem.centre is None else problem.centre.back(x)[0], scale)


def _promised(before: _Seen, step: Vector, length: float) -> float:
    """The share that has to come true of what the gradient promises for a step."""
    return 2.0 / before.scale * _ARMIJO * length * float(before.gradient @ step)


def _off_scale(problem: ScaledHuber, seen: _Seen) -> float:
    """Times what the scale should be, where it is far off: one otherwise.

    With the residuals as they are, ``s^2 <- sum_i c_i v_i^2 / sum_i c_i`` lowers the objective [Hub81, section 7.8].
    """
    half = float(seen.weight.middle) * 0.5 * seen.scale * seen.scale
    share = 1.0 - float(seen.gradient[-1]) / half
    if abs(share - 1.0) <= _OFF_SCALE:
        return 1.0
    if share > 0.7 * problem.epsilon**2:  # nearly all rows are beyond the knot, and tell little
        return _RESCALING
    return max(math.sqrt(max(share, 0.0)), 1.0 / _RESCALING)


def _newton(seen: _Seen, relations: Relations) -> Vector:
    """Newton's step, in units in which the Hessian has a diagonal of ones; along relations there is none."""
    hessian, gradient = seen.hessian.copy(), seen.gradient.copy()
    hessian[relations.spared] = hessian[:, relations.spared] = 0.0
    gradient[relations.spared] = 0.0
    return -_solved(hessian, gradient, 1e-14)


def _solved(matrix: Vector, wanted: Vector, cutoff: float) -> Vector:
    """The solution of equations with a matrix that is not negative, in units in which its diagonal is ones."""
    unit = np.sqrt(np.diag(matrix))
    unit = np.divide(1.0, unit, out=np.zeros_like(unit), where=unit > 0.0)
    even, wanted = unit[:, None] * matrix * unit, unit * wanted
    used = unit > 0.0
    factor = factorised(even[np.ix_(used, used)])
    if factor is None:
        return np.asarray(unit * np.linalg.lstsq(even, wanted, rcond=cutoff)[0], dtype=np.float64)
    # Entries that a strong ridge keeps small are exact beside large ones, as by singular values they would not be.
    found = np.zeros(unit.size)
    found[used] = cho_solve(factor, wanted[used], check_finite=False)
    return unit * found


def _scale_apart(seen: _Seen) -> _Seen:
    """With derivatives in the coefficients alone."""
    gradient, hessian = seen.gradient.copy(), seen.hessian.copy()
    gradient[-1] = hessian[-1] = hessian[:, -1] = 0.0
    return seen._replace(gradient=gradient, hessian=hessian)


def _rounded(scale: float) -> float:
    """With few digits."""
    mantissa, exponent = math.frexp(scale)
    return math.ldexp(round(math.ldexp(mantissa, _SCALE_BITS)), exponent - _SCALE_BITS)


def _arrays(problem: ScaledHuber, sample: DataPart) -> tuple[Vector, Rows]:
    rows = problem.rows(sample)
    return -np.asarray(rows.linear.dense(), dtype=np.float64), rows


def _null(problem: ScaledHuber, sample: DataPart) -> float:
    """The sum of weights times the scale of the targets."""
    _, rows = _arrays(problem, sample)
    total = float(rows.weights.sum())
    if total == 0.0:
        return 0.0
    mean = 0.0 if problem.ridge.all() else float(rows.weights @ rows.offset) / total  # an intercept takes it
    few = HuberProblem(np.zeros((rows.count, 0)), rows.offset - mean, rows.weights, problem.epsilon, 0.0, False)
    return total * few.typical


def _exact(problem: ScaledHuber, sample: DataPart, options: RunOptions) -> tuple[Vector, float] | None:
    """A point that fits so many rows of a sample exactly that the best scale is zero, and a scale close to that.

    There each row costs ``2 epsilon |r|``, and the scale has nothing to gain where rows with ``r = 0`` are more than a
    share ``1 - 1 / epsilon^2``.
    """
    rows = problem.rows(sample)
    size = float(np.abs(rows.offset).max(initial=0.0))
    if size == 0.0 or not rows.weights.any():
        return None
    x = np.asarray(np.linalg.lstsq(rows.linear.dense(), -rows.offset, rcond=None)[0], dtype=np.float64)
    residuals = np.abs(rows.positions(x))
    if not _fits(problem, rows, x, size) and float(np.median(residuals)) <= _LED_ASTRAY * float(residuals.max()):
        few = min(sample.count, _MORE_ANCHORS + _ANCHORS * problem.size)  # outliers lead absolute values not astray
        some = problem.blocks[0].at(sample.take(np.linspace(0, sample.count - 1, few).astype(np.intp)))
        x = options.minimize(Objective([replace(some, term=abs_())]), tol=_ROUGHLY, proved=False).x
        x = x if problem.centre is None else problem.centre.there(x)
    return (x, _rounded(_SCALE_NEAR_ZERO * size)) if _fits(problem, rows, x, size) else None


def _fits(problem: ScaledHuber, rows: Rows, x: Vector, size: float) -> bool:
    """Whether so many rows are fitted exactly, by what they weigh."""
    outliers = np.abs(rows.positions(x)) > _FITTED_EXACTLY * size
    return float(rows.weights[outliers].sum()) * problem.epsilon**2 <= _NEARLY * float(rows.weights.sum())


def _pilot(problem: ScaledHuber, sample: DataPart) -> tuple[Vector, float]:
    """The optimum of a sample."""
    A, rows = _arrays(problem, sample)
    marks = problem.ridge > 0.0
    share = sample.count / problem.count
    intercept = not marks.all()
    few = HuberProblem(
        np.ascontiguousarray(A[:, marks]), rows.offset, rows.weights, problem.epsilon, share * problem.alpha, intercept
    )
    if few.total == 0.0:
        return np.zeros(problem.size), 1.0
    typical = few.typical or 1.0
    start = np.append(np.zeros(int(marks.sum()) + 1), few.best_scale(rows.offset) or typical)
    newton, found = JointNewton(few, start), False
    x = np.zeros(problem.size)
    with contextlib.suppress(Overflow):  # which the first pass tells
        found = newton.descend(1e-9 * typical, lambda: None)
    if found:
        x[marks], x[~marks] = newton.x[:-2], newton.x[-2] if intercept else 0.0
        return x, _rounded(float(newton.x[-1]))
    state = State(np.append(x, start[-1]))  # as where columns depend on each other: by small steps
    of_sample = replace(problem, alpha=share * problem.alpha)
    steps = _descend(of_sample, state, _ROUGHLY, x, _rounded(start[-1]), sample, Relations.none(problem.size))
    for _ in steps:
        pass
    x = state.x[:-1] if problem.centre is None else problem.centre.there(state.x[:-1])
    return x, _rounded(max(float(state.x[-1]), 1e-9 * typical))


def _evaluated(
    problem: ScaledHuber, x: Vector, scale: float, part: DataPart | None, relations: Vector | None
) -> Generator[Ask, Any, _Seen]:
    """By a pass, or of all rows that were read."""
    knot = problem.knot(scale)
    if not _SMALLEST_SQUARE <= knot * knot <= 1.0 / _SMALLEST_SQUARE:
        raise ValueError(f"the scale of the residuals, about {scale:.0e}, has no square: measure y in other units.")
    every = max(1, problem.count // (_ANCHORS * (problem.size + 1) + _MORE_ANCHORS))
    given, off = x, 0.0
    if problem.centre is not None:
        given, x, off = problem.centre.back(x)
    request = Sweep(
        x, every=every, curved=True, scaled=True, term=huber(knot), relations=relations, centre=problem.centre
    )
    swept: Swept
    if part is None:
        [swept] = yield Ask(work=[request])
    else:
        swept = request.of(problem.blocks[0], problem.variables, part)
    if not swept.weight.ball().middle > 0.0:
        raise ValueError("weights must not be zero for every row.")
    if problem.centre is not None and not np.all(swept.exact):
        raise _LosesDigits(problem.centre.only(swept.exact))
    kept = problem.rows(joined(swept.kept), huber(knot))
    placed = positions(kept, x, {})
    z = placed.middle
    all_lines = swept.lines + lines(kept, z, kept.weights, {}, placed.radius)
    curvature = kept.weights * kept.term.derivative(z, 2)
    gram = kept.linear.gram(curvature)
    gram = gram.toarray() if hasattr(gram, "toarray") else gram
    bend = swept.bend + np.append(kept.linear.transpose_apply(curvature * z), curvature @ z**2)
    ridge, weight = problem.alpha * scale * problem.ridge, swept.weight.ball()
    hessian = np.zeros((problem.size + 1,) * 2)
    hessian[:-1, :-1] = swept.hessian + gram + np.diag(ridge)
    hessian[-1, :-1] = hessian[:-1, -1] = -bend[:-1]
    hessian[-1, -1] = bend[-1]
    conjugates = float(all_lines.conjugates.ball().middle)
    half = 0.5 * scale * scale
    gradient = np.append(
        all_lines.gradient.ball().middle + ridge * x, float(weight.middle) * half + conjugates
    )  # fmt: skip
    losses = swept.value.ball()
    squares = 0.5 * problem.alpha * scale * float(problem.ridge @ x**2)
    charged = _CHARGED * knot * knot * float(weight.middle) + 2.0**-46 * (float(losses.middle) + squares)
    middle = float(weight.middle) * half + float(losses.middle) + squares
    radius = float(weight.radius) * half + float(losses.radius) + charged + 16.0 * UNIT * middle
    radius += off * knot * float(weight.middle + weight.radius) * (1.0 + 8.0 * UNIT)  # no dual is beyond the knot
    upper = 2.0 * (middle + radius) / scale * (1.0 + 8.0 * UNIT)
    return _Seen(
        x, given, scale, 2.0 * middle / scale, upper, gradient, hessian, all_lines, weight, kept, placed, swept.related
    )


def _see(problem: ScaledHuber, state: State, seen: _Seen, relations: Relations) -> None:
    """The bracket at a point."""
    if seen.upper < state.upper:
        state.x, state.upper, state.bound = np.append(seen.given, seen.scale), seen.upper, seen.value
    lower = max(0.0, *(_lower(problem, seen, relations, at_zero) for at_zero in (False, True)))
    if problem.alpha > 0.0 and not lower >= (1.0 - _GAP_WITHOUT_RIDGE) * seen.value:
        # A ridge that is faint in the units of the data takes up what rounding leaves at any price: better without it.
        lower = max(lower, _lower(replace(problem, alpha=0.0), seen, relations, False))
    if lower > state.lower:
        state.lower, state.assumption = lower, ""
    state.record()


def _lower(problem: ScaledHuber, seen: _Seen, relations: Relations, at_zero: bool) -> float:
    """What no point and no scale is below: of the lines of all rows, some of which keep room for their duals.

    Where all that is multiplied by t is not negative, whatever room is taken, t may be zero: a proof for that case.
    """
    knot, rows, z = problem.knot(seen.scale), seen.kept, seen.positions.middle
    most = 0.5 * (_INSIDE_KNOT * knot - np.abs(z))  # by which a dual may move
    inside = np.flatnonzero((most > 1e-3 * knot) & (rows.weights > 0.0))
    if not inside.size:
        return -math.inf
    A = np.array(rows.linear.dense(), dtype=np.float64)[inside]
    h, c, most = z[inside], rows.weights[inside], most[inside]
    A[:, relations.spared] = 0.0
    B = A if at_zero else np.column_stack([A, -h])
    gram = B.T @ ((c * most)[:, None] * B)
    ridge = problem.alpha * seen.scale * knot * problem.ridge  # which takes up what it may at the same price
    gram[np.diag_indices(ridge.size)] += ridge
    shares = -B @ _solved(gram, seen.gradient[: gram.shape[0]], 1e-13)  # of what they may
    taken_up = max(_DUAL_ROOM * seen.scale / knot, _MORE_DUAL_ROOM * float(np.abs(shares).max()))
    if not taken_up <= 1.0:
        return -math.inf
    room = taken_up * most
    t, half = Variable(name="t"), 0.5 * seen.scale * seen.scale
    gradient, there, conjugates = (s.ball() for s in (seen.lines.gradient, seen.lines.there, seen.lines.conjugates))
    gradient.middle[relations.spared] = gradient.radius[relations.spared] = 0.0
    taken = float(c @ (0.5 * room * room + 8.0 * UNIT * room * np.abs(h))) * (1.0 + 2.0**-30)
    taken += _CHARGED * knot * knot * float(seen.weight.middle)
    of_t = float(seen.weight.middle) * half + float(conjugates.middle) - taken
    about = float(seen.weight.radius) * half + float(conjugates.radius)
    about += 8.0 * UNIT * (float(seen.weight.middle) * half + abs(float(conjugates.middle)) + taken)
    if at_zero and not of_t - about * SLACK - float(c @ (room * np.abs(h))) * (1.0 + 2.0**-30) > 0.0:
        return -math.inf
    # Coefficients are counted from the point, where targets have cancelled, and in units, powers of two, in which the
    # scale and the columns are about one: nothing of it is rounded.
    unit, columns = 2.0 ** round(math.log2(seen.scale)), _powers(np.abs(A).max(axis=0))
    gradient = Ball(gradient.middle / unit / columns, gradient.radius / unit / columns)
    square = unit * unit
    places = problem.objective.slices
    line: dict[Variable, Map] = {v: Matrix(gradient.middle[None, place]) for v, place in places.items()}
    absolute: dict[Variable, Map] = {v: Matrix((A / columns)[:, place]) for v, place in places.items()}
    if not at_zero:
        line[t], absolute[t] = Matrix(np.array([[of_t / square]])), Matrix(-h[:, None] / unit)
    small = Objective([
        AffineBlock(Affine(line, float(there.middle) / square, ())),
        TermBlock(abs_(), Affine(absolute, h / unit, (inside.size,)), room / unit * c),
        *_penalty(problem, seen, unit, columns),
    ])  # fmt: skip
    point, radius = np.zeros(small.size), np.zeros(small.size)
    for v, place in places.items():
        radius[small.slices[v]] = gradient.radius[place]
    if not at_zero:
        point[small.slices[t]], radius[small.slices[t]] = 1.0, about * SLACK / square
    error = (float(there.radius) + float((c * room) @ seen.positions.radius[inside]) * (1.0 + 2.0**-30)) * SLACK
    proof = Verifier(small, point, radius, error / square + TINY)
    lower = proof.bracket([shares / taken_up], _AIMED_GAP * 0.5 * seen.scale * seen.value / square).lower * square
    return float(down(2.0 * lower / seen.scale * (1.0 - 8.0 * UNIT * np.sign(lower)))) if lower > -math.inf else lower


def _powers(sizes: Vector) -> Vector:
    """Powers of two near sizes; one for zero."""
    return np.where(sizes > 0.0, np.exp2(np.round(np.log2(np.where(sizes > 0.0, sizes, 1.0)))), 1.0)


def _penalty(problem: ScaledHuber, seen: _Seen, unit: float, columns: Vector) -> tuple[Block, ...]:
    """The ridge times half the scale, rounded downwards, of coefficients counted from the point in units of columns."""
    if problem.alpha == 0.0:
        return ()
    strength, place = 0.5 * problem.alpha * seen.scale * (1.0 - 4.0 * UNIT), problem.objective.slices
    mine = place[problem.coefficients]
    whole = (1.0 / columns[mine]) * problem.coefficients + seen.x[mine] / unit
    return Objective((strength * vo.sum_squares(whole)).blocks).blocks

r"""The optimum of a few variables beside norms: interior points in many digits, then a bound in rational numbers.

Norms have square roots, which no rational number is, and where weights span twenty orders sixteen digits do not tell
what the small ones ask for. In decimal numbers of many digits nothing of that matters, and few variables cost little.
Terms are lines and sums of ``phi(y) = max {u y - r u^2 / 2 : 0 <= u <= h}``, a norm is ``max {v'z : |v| <= w}``:

    min_x max_{u, v}  1/2 x'Kx + g'x + sum_k u_k y_k - r_k u_k^2 / 2 + sum_j v_j'z_j,    y = A x + b,  z = Z x + e.  (1)

On the central path, with s = (w^2 - |v|^2) / 2,

    y - r u = p - q,    q u = p (h - u) = mu,    z = l v,    l s = mu,                                               (2)

and a Newton step for these is

    dq = q0 - (q / u) du,    q0 = mu / u - q,    dp = p0 + p / (h - u) du,    p0 = mu / (h - u) - p,                 (3)
    du = D (A dx + rest - p0 + q0),    rest = y - r u - p + q,    D = 1 / (r + q / u + p / (h - u)),                 (4)
    dv = M^-1 (Z dx + z - l v - v c / s),    M = l (I + v v' / s),    c = mu - l s,                                  (5)
    dl = (c + l v'dv) / s,                                                                                           (6)

so that, once these are eliminated, it is one of x:

    (K + A'DA + Z'M^-1 Z) dx = -(Kx + g + A'u + Z'v) - A'D (rest - p0 + q0) - Z'M^-1 (z - l v - v c / s).            (7)

Multipliers are then strictly inside their intervals and balls, so that as many of them as there are variables can be
changed a little for ``Kx + g + A'u + Z'v = 0`` to hold exactly. The value of (1) is then a lower bound, without any
rounding. Steps are a predictor and a corrector [Mehrotra92], which adds the products of changes that (3) to (6) leave
out, and aims at

    mu (1 - a)^3,    a the share of the predictor's step that stays inside.                                          (8)
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal, DecimalException, localcontext
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._clock import tick
from varopt.solvers.finish._exact_problem import (
    ZERO,
    ExactProblem,
    Norm,
    Numbers,
    RationalMinimum,
    dot,
    independent,
    reduced,
)

__all__ = ["minimum_in_many_digits"]

Vector = NDArray[np.float64]
Decimals = NDArray[Any]  # of decimal numbers

_DECIMAL_DIGITS = 76  # four words of nineteen
_NUMBERS = Context(prec=_DECIMAL_DIGITS, rounding=ROUND_HALF_EVEN, Emin=-(10**9), Emax=10**9)
_DECIMAL_STEPS = 200  # at most
_AHEAD = Decimal(1000)  # times that products may have fallen by more than what is not in balance
_STALLED_STEPS = 6  # steps without progress after which it ends
_LONGER = Decimal("1.000001")  # times the length of z by the radius of its ball that l is at least
_SHORT_DECIMAL_STEP = Decimal("0.1")  # steps below which the next one leads back to the central path
_COUNTS_AS_ZERO, _NEARLY_ZERO = (
    Decimal("1e-24"),
    Decimal("1e-12"),
)  # products that count as zero, or nearly, as shares of the objective
# The same of parts at zero, where the optimum is zero.
_CLOSE_TO_ZERO_PART, _NEAR_ZERO_PART = Decimal("1e-28"), Decimal("1e-20")
_DECIMAL_BOUNDARY_SHARE = Decimal("0.99")  # of the way to the boundary that a step may take
_ON_THE_END = Fraction(1, 10**12)  # share of an interval within which u is taken for its end
_INFINITE = Decimal("Infinity")
_ONE, _NULL = Decimal(1), Decimal(0)


def minimum_in_many_digits(problem: ExactProblem) -> RationalMinimum | None:
    """The minimum of a problem; None where it is not proved."""
    try:
        with localcontext(_NUMBERS):
            path = _Path(problem, *_phis(problem))
            if (lower := path.follow()) is None and path.live:
                lower = path.face().follow()
            return None if lower is None else problem.bracket(lower, path.point())
    except (_Lost, DecimalException):
        return None


class _Lost(ArithmeticError):
    """The iterate has left the inside, or there is none."""


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _array(values: Any) -> Decimals:
    """Rational numbers as decimal ones."""
    given = np.array(values, dtype=object)
    return np.array([_decimal(v) for v in given.ravel()], dtype=object).reshape(given.shape)


class _Phi(NamedTuple):
    """``max {u y - r u^2 / 2 : 0 <= u <= h}`` of ``y = a'x + b``; h is None where it is infinite."""

    a: Numbers
    b: Fraction
    r: Fraction
    h: Fraction | None


def _phis(problem: ExactProblem) -> tuple[list[_Phi], Numbers, Fraction]:
    """All rows as such functions, and the line and the constant that are left."""
    line, constant, found = list(problem.line), problem.constant, []
    for row in problem.rows:
        first = row.kink(0)[0]
        at = row.knots[0]
        line = [g + first * a for g, a in zip(line, row.entries, strict=True)]
        constant += first * row.offset + row.pieces[0][0] - row.pieces[0][2] * at * at
        if row.pieces[0][2]:  # p0 + p1 z + p2 z^2 is its tangent at the knot and p2 (z - knot)^2
            found.append(_Phi([-a for a in row.entries], at - row.offset, 1 / (2 * row.pieces[0][2]), None))
        for k, knot in enumerate(row.knots):
            low, high = row.kink(k)
            if high > low:
                found.append(_Phi(row.entries, row.offset - knot, ZERO, high - low))
            if second := 2 * row.pieces[k + 1][2]:
                end = row.knots[k + 1] if k + 1 < len(row.knots) else None
                height = None if end is None else second * (end - knot)
                found.append(_Phi(row.entries, row.offset - knot, 1 / second, height))
    return [phi for phi in found if any(phi.a)], line, constant + sum(map(_at_rest, found), ZERO)


def _at_rest(phi: _Phi) -> Fraction:
    """The value of a function whose y does not depend on x, zero for the others."""
    if any(phi.a) or phi.b <= 0:
        return ZERO
    u = min([*([phi.b / phi.r] if phi.r else []), *([] if phi.h is None else [phi.h])])
    return u * phi.b - phi.r * u * u / 2


class _Cone:
    """A norm, its multiplier v in a ball, and the length l with ``z = l v``."""

    v: Decimals
    dv: Decimals
    dz: Decimals
    length: Decimal
    dl: Decimal

    def __init__(self, norm: Norm, live: list[int]) -> None:
        self.matrix = _array([[row[i] for i in live] for row in norm.matrix])
        self.offset, self.weight = _array(norm.offset), _decimal(norm.weight)

    def begin(self, x: Decimals, mu: Decimal) -> None:
        z = self.matrix @ x + self.offset
        size = (z @ z).sqrt()
        # At l s = mu with s = (w^2 - |v|^2) / 2 and l |v| = |z|: one positive root.
        root = (mu * mu + (self.weight * size) ** 2).sqrt()
        self.length = (mu + root) / self.weight**2
        self.v = z / self.length
        self.measure(x)

    def measure(self, x: Decimals) -> None:
        """What follows from where it is."""
        self.z = self.matrix @ x + self.offset
        self.square = self.v @ self.v
        self.s = (self.weight**2 - self.square) / 2
        if self.s <= 0 or self.length <= 0:
            raise _Lost

    def inverse(self, right: Decimals) -> Decimals:
        """``M^-1`` times vectors: ``(I - v v' / (s + |v|^2)) / l``."""
        share = (self.v @ right) / (self.s + self.square)
        outer = np.multiply.outer(self.v, share) if right.ndim > 1 else self.v * share
        return np.asarray((right - outer) / self.length)

    def aim(self, mu: Decimal, second: bool) -> None:
        """The right-hand side of a step towards products of mu, with the products of changes of the one before."""
        self.c = mu - self.length * self.s
        rest = self.z - self.length * self.v
        if second:
            self.c += self.length * (self.dv @ self.dv) / 2 + self.dl * (self.v @ self.dv)
            rest = rest - self.dl * self.dv
        self.right = rest - self.v * (self.c / self.s)  # (5)

    def change(self, dx: Decimals) -> None:
        self.dz = self.matrix @ dx
        self.dv = self.inverse(self.dz + self.right)  # (5)
        self.dl = (self.c + self.length * (self.v @ self.dv)) / self.s  # (6)

    def longest(self) -> Decimal:
        """How far it can go with ``|v| < w`` and l positive."""
        far = _first_root(_inner(self.dv, self.dv), _inner(self.v, self.dv), -2 * self.s)
        return min(far, -self.length / self.dl) if self.dl < 0 else far

    def move(self, t: Decimal, x: Decimals) -> None:
        self.v, self.length = self.v + t * self.dv, self.length + t * self.dl
        z = self.matrix @ x + self.offset
        # No equation but ``z = l v`` itself knows l: where it is too short for any v of the ball, it is put right.
        self.length = max(self.length, _LONGER * _inner(z, z).sqrt() / self.weight)
        self.measure(x)


def _inner(a: Decimals, b: Decimals) -> Decimal:
    product: Any = a @ b
    return Decimal(product) if a.size else _NULL


def _first_root(a: Decimal, half: Decimal, c: Decimal) -> Decimal:
    """The least positive t with ``a t^2 + 2 half t + c = 0``, c negative; infinite where there is none."""
    inner = half * half - a * c
    if inner < 0 or (a <= 0 and half <= 0):
        return _INFINITE
    root = inner.sqrt()
    return -c / (half + root) if half > 0 else (root - half) / a


class _Path:
    """The problem (1) in decimal numbers, and where the iterate is."""

    dx: Decimals
    du: Decimals
    dq: Decimals
    dp: Decimals

    def __init__(self, problem: ExactProblem, phis: list[_Phi], line: Numbers, constant: Fraction) -> None:
        self.problem, self.phis, self.exact_line, self.exact_constant = problem, phis, line, constant
        seen = [*problem.matrix, *(phi.a for phi in self.phis), *(row for norm in problem.norms for row in norm.matrix)]
        _, equations = independent(((row, ZERO) for row in seen), problem.size)
        self.live = sorted(pivot for pivot, *_ in equations)  # the others follow: what they change, these can
        self.K = _array([[problem.matrix[i][j] for j in self.live] for i in self.live]).reshape(
            len(self.live), len(self.live)
        )
        self.g = _array([self.exact_line[i] for i in self.live])
        self.A = _array([[phi.a[i] for i in self.live] for phi in self.phis]).reshape(len(self.phis), len(self.live))
        self.b, self.r = _array([phi.b for phi in self.phis]), _array([phi.r for phi in self.phis])
        self.h = np.array([_INFINITE if p.h is None else _decimal(p.h) for p in self.phis], dtype=object)
        self.bounded = np.array([p.h is not None for p in self.phis], dtype=bool)
        self.cones = [_Cone(norm, self.live) for norm in problem.norms]
        self.x = _array([])
        if self.live:
            self._begin()

    def _begin(self) -> None:
        """At zero, on the central path but for the balance, which is far from holding."""
        y = self.b
        self.x = np.array([_NULL] * len(self.live), dtype=object)  # near an optimum all sizes would be too small
        sizes = [c.weight * _inner(c.offset, c.offset).sqrt() for c in self.cones]
        sizes += [h * abs(v) if h < _INFINITE else v * v / r for h, v, r in zip(self.h, y, self.r, strict=True)]
        self.scale = max([*sizes, Decimal("1e-300")])
        if any(self.K.ravel()):  # how far the quadratic alone would go
            shift = Decimal("1e-12") * max(self.K.diagonal())
            factor = _factor(self.K + np.diag([shift] * len(self.live)))
            sizes.append(abs(_inner(self.g, _solved(factor, self.g))))
        self.mu = max([*sizes, self.scale])
        self.u, self.q, self.p = y.copy(), y.copy(), y.copy()
        for k, (v, h, r) in enumerate(zip(y, self.h, self.r, strict=True)):
            if h < _INFINITE:
                self.u[k] = h / 2
                excess, least = v - r * h / 2, 2 * self.mu / h
                self.q[k], self.p[k] = max(-excess, _NULL) + least, max(excess, _NULL) + least
            else:  # u^2 r = mu + u y, so that q u = mu
                self.u[k] = (v + (v * v + 4 * r * self.mu).sqrt()) / (2 * r)
                self.q[k], self.p[k] = self.mu / self.u[k], _NULL
        for cone in self.cones:
            cone.begin(self.x, self.mu)
        self.products = self._products()

    def _products(self) -> Decimal:
        room = (self.h - self.u)[self.bounded]
        parts = [_inner(self.q, self.u), _inner(self.p[self.bounded], room), *(2 * c.length * c.s for c in self.cones)]
        return sum(parts, _NULL)

    @property
    def value(self) -> Decimal:
        """The size of the objective."""
        parts = [_inner(self.u, self.b - self.r * self.u / 2), *(_inner(c.v, c.offset) for c in self.cones)]
        return abs(sum(parts, _decimal(self.exact_constant)) - _inner(self.x, self.K @ self.x) / 2)

    def follow(self) -> Fraction | None:
        """Step after step, until the products are next to nothing; what multipliers prove then, if anything."""
        if not self.live:  # a constant
            return None if self.cones or any(self.exact_line) else self.exact_constant
        self.began = self.products
        count = 2 * len(self.phis) + 2 * len(self.cones) or 1
        stalled, self.unbalanced = 0, _ONE
        for _ in range(_DECIMAL_STEPS):
            tick()
            before = self.products
            close = max(_COUNTS_AS_ZERO * self.value, _CLOSE_TO_ZERO_PART * self.scale)
            near = max(_NEARLY_ZERO * self.value, _NEAR_ZERO_PART * self.scale)
            if self.unbalanced <= _COUNTS_AS_ZERO and (
                before <= close or (before <= near and stalled > _STALLED_STEPS)
            ):
                break
            try:
                self._step(before / count)
            except (_Lost, DecimalException):
                if before > near:
                    raise
                break
            stalled = stalled + 1 if self.products > Decimal("0.9") * before else 0
        return self._balanced()

    def face(self) -> _Path:
        """The same beside what u at an end of its interval leaves of its function: a line below it, or nothing.

        Where an optimum is not the only one, nothing that is inside may balance. Here it does, and to the same value.
        """
        kept, line, constant = [], list(self.exact_line), self.exact_constant
        for value, q, phi in zip(map(Fraction, self.u), map(Fraction, self.q), self.phis, strict=True):
            if value <= _ON_THE_END * phi.h if phi.h is not None else phi.r * value <= _ON_THE_END * q:
                continue
            if phi.h is not None and value >= (1 - _ON_THE_END) * phi.h:
                line = [g + phi.h * a for g, a in zip(line, phi.a, strict=True)]
                constant += phi.h * (phi.b - phi.r * phi.h / 2)
            else:
                kept.append(phi)
        return _Path(self.problem, kept, line, constant)

    def point(self) -> Numbers:
        """Where the iterate is, with zeros for what the others stand for."""
        x = [ZERO] * self.problem.size
        for i, v in zip(self.live, self.x, strict=True):
            x[i] = Fraction(v)
        return x

    def _step(self, mu: Decimal) -> None:
        s = self.h - self.u
        self.D = _ONE / (self.r + self.q / self.u + self.p / s)  # (4)
        scaled = [(cone, cone.inverse(cone.matrix)) for cone in self.cones]
        matrix = self.K + self.A.T @ (self.D[:, None] * self.A) if self.u.size else self.K.copy()
        for cone, part in scaled:
            matrix = matrix + cone.matrix.T @ part
        factor = _factor(matrix)  # (7)
        balance = self.K @ self.x + self.g
        balance = balance + (self.A.T @ self.u if self.u.size else _NULL)
        for cone in self.cones:
            balance = balance + cone.matrix.T @ cone.v
        rest = self.A @ self.x + self.b - self.r * self.u - self.p + self.q  # (4)
        length = self._direction(factor, balance, rest, s, _NULL, second=False)
        aim = mu * (_ONE - min(length, _ONE)) ** 3  # (8)
        if self.unbalanced * self.began > _AHEAD * self.products:  # products must not vanish before all balances
            aim = mu
        length = self._direction(factor, balance, rest, s, aim, second=length > _SHORT_DECIMAL_STEP)
        if length < _SHORT_DECIMAL_STEP:
            length = self._direction(factor, balance, rest, s, mu, second=False)
        t = min(_ONE, _DECIMAL_BOUNDARY_SHARE * length)
        self.unbalanced *= _ONE - t
        self.x = self.x + t * self.dx
        self.u, self.q, self.p = self.u + t * self.du, self.q + t * self.dq, self.p + t * self.dp
        for cone in self.cones:
            cone.move(t, self.x)
        self.products = self._products()

    def _direction(
        self, factor: Decimals, balance: Decimals, rest: Decimals, s: Decimals, mu: Decimal, *, second: bool
    ) -> Decimal:
        """The step towards products of mu; how far it can be taken."""
        q, p = mu / self.u - self.q, mu / s - self.p  # (3): q0 and p0
        if second:
            q, p = q - self.du * self.dq / self.u, p + self.du * self.dp / s
        right = -balance
        if self.u.size:
            right = right - self.A.T @ (self.D * (rest - p + q))
        for cone in self.cones:
            cone.aim(mu, second)
            right = right - cone.matrix.T @ cone.inverse(cone.right)
        self.dx = _solved(factor, right)  # (7)
        self.du = self.D * (self.A @ self.dx + rest - p + q)  # (4)
        self.dq, self.dp = q - self.q / self.u * self.du, p + self.p / s * self.du  # (3)
        far = [-v / d for v, d in zip(self.u, self.du, strict=True) if d < 0]
        far += [-v / d for v, d in zip(self.q, self.dq, strict=True) if d < 0]
        far += [v / d for v, d in zip(s, self.du, strict=True) if d > 0 and v < _INFINITE]
        far += [-v / d for v, d in zip(self.p, self.dp, strict=True) if d < 0]
        for cone in self.cones:
            cone.change(self.dx)
            far.append(cone.longest())
        return min(far, default=_INFINITE)

    # -- What is proved -----------------------------------------------------------------------------------------------

    def _balanced(self) -> Fraction | None:
        """The value of (1) with as many multipliers changed as balance needs; None where some then leave their sets."""
        problem, x, u = self.problem, self.point(), [Fraction(a) for a in self.u]
        v = [[Fraction(a) for a in cone.v] for cone in self.cones]
        residual = [g + dot(row, x) for g, row in zip(self.exact_line, problem.matrix, strict=True)]
        # What may change: a place, its column, and how much room it has.
        places: list[tuple[Fraction, tuple[str, int, int], Numbers]] = []
        places += [(row[i] * 10**40, ("x", i, 0), row) for i, row in enumerate(problem.matrix) if any(row)]
        for k, (phi, value) in enumerate(zip(self.phis, u, strict=True)):
            residual = [a + value * b for a, b in zip(residual, phi.a, strict=True)]
            room = value if phi.h is None else min(value, phi.h - value)
            if room > 0:
                places.append((room * max(map(abs, phi.a)), ("u", k, 0), phi.a))
        for j, (norm, mine) in enumerate(zip(problem.norms, v, strict=True)):
            room = Fraction(self.cones[j].s) / norm.weight
            for i, (row, value) in enumerate(zip(norm.matrix, mine, strict=True)):
                residual = [a + value * b for a, b in zip(residual, row, strict=True)]
                if any(row):
                    places.append((room * max(map(abs, row)), ("v", j, i), row))
        places.sort(key=lambda place: -place[0])
        chosen, _ = independent(((column, ZERO) for *_, column in places), problem.size)
        move = _solution([places[k][2] for k in chosen], [-a for a in residual])
        if move is None:
            return None
        for k, d in zip(chosen, move, strict=True):
            kind, i, j = places[k][1]
            if kind == "x":
                x[i] += d
            elif kind == "u":
                u[i] += d
            else:
                v[i][j] += d
        for phi, value in zip(self.phis, u, strict=True):
            if value < 0 or (phi.h is not None and value > phi.h):
                return None
        if any(dot(mine, mine) > norm.weight**2 for norm, mine in zip(problem.norms, v, strict=True)):
            return None
        bound = self.exact_constant - dot(x, [dot(row, x) for row in problem.matrix]) / 2
        bound += sum((value * (phi.b - phi.r * value / 2) for phi, value in zip(self.phis, u, strict=True)), ZERO)
        return bound + sum((dot(mine, norm.offset) for norm, mine in zip(problem.norms, v, strict=True)), ZERO)


def _factor(matrix: Decimals) -> Decimals:
    """The Cholesky factor."""
    size = len(matrix)
    factor = np.full((size, size), _NULL, dtype=object)
    rest = matrix.copy()
    for j in range(size):
        if not rest[j, j] > 0:
            raise _Lost
        factor[j:, j] = rest[j:, j] / rest[j, j].sqrt()
        rest[j:, j:] = rest[j:, j:] - np.multiply.outer(factor[j:, j], factor[j:, j])
    return factor


def _solved(factor: Decimals, right: Decimals) -> Decimals:
    """The solution of a system by its factor."""
    x = right.copy()
    for j in range(len(x)):
        x[j] = (x[j] - (factor[j, :j] @ x[:j] if j else _NULL)) / factor[j, j]
    for j in reversed(range(len(x))):
        x[j] = (x[j] - (factor[j + 1 :, j] @ x[j + 1 :] if j + 1 < len(x) else _NULL)) / factor[j, j]
    return x


def _solution(columns: list[Numbers], right: Numbers) -> Numbers | None:
    """What independent columns are to be multiplied by to give the right-hand side; None where nothing does."""
    system = [[*(column[i] for column in columns), right[i]] for i in range(len(right))]
    order = reduced(system)
    if len(columns) in order:
        return None
    return [system[k][-1] for k in range(len(columns))]

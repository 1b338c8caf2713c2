r"""`conic`: small convex problems with norms of anything, as a quadratic programme over cones.

Terms are lines and linear-quadratic functions (`_linear_quadratic_terms`), each of which is

    phi(y) = min { v^2 / 2 r + h p :  y <= v + p,  v, p >= 0 },

and a norm is the least t with (t, z) in a second-order cone. What comes of it, ``min 1/2 x'Px + q'x`` with
``Gx + s = h`` and s in a product of cones, is solved by a primal-dual method with the scaling of Nesterov and Todd
[NT97], as [Vdb10] describes it: with ``W z = W^-1 s = lambda`` a step solves

    (P + G' W^-2 G) dx = -(Px + q + G'z) - G' W^-2 (Gx + s - h + W (lambda \ d)),                                   (1)
    W dz = W^-1 (G dx + Gx + s - h) + lambda \ d,    ds = W (lambda \ d - W dz),                                     (2)

first with ``d = -lambda o lambda``, then, a the length of the step that this allows, with Mehrotra's correction

    d = -lambda o lambda - (W^-1 ds) o (W dz) + sigma mu e,    sigma = (1 - a)^3,    mu = lambda'lambda / degree.   (3)

.. [NT97] Y. Nesterov, M. Todd. Self-scaled barriers and interior-point methods for convex programming. 1997.
.. [Vdb10] L. Vandenberghe. The CVXOPT linear and quadratic cone program solvers. 2010.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._clock import tick
from varopt._linalg import solve_definite
from varopt.composite import Composite
from varopt.solvers._method import Check, GaveUp, Method, State, convex
from varopt.solvers.finish import ActiveSet, group_gap
from varopt.solvers.interior_point._cones import Cones
from varopt.solvers.interior_point._linear_quadratic_terms import leftmost_derivative, linear_quadratic_terms

__all__ = ["Conic"]

Vector = NDArray[np.float64]

_LARGEST_PROGRAM = 400  # variables of the programme up to which `auto` takes it
_REFUSED_PROGRAM = 5_000  # and beyond which it is refused: matrices of gigabytes
_CONE_BOUNDARY_SHARE = 0.99  # of the way to the boundary that a step may take
_ZERO_CONIC_PRODUCTS = 1e-14  # share of the objective below which the products count as zero
_STALLED_STEPS = 6  # steps without progress after which the method gives up
_RESTING_SHARES = (1e-7, 1e-5)  # of the largest position within which a row rests on a kink, or a group vanishes


@dataclass(frozen=True)
class Conic(Method):
    """Interior points of second-order cones, then the exact optimum on the face that they lead to.

    Parameters
    ----------
    most : int
        Most steps.

    Notes
    -----
    A step costs a Cholesky factor of the order of the variables, and one or two more for every kink of a row and one
    for every norm: it is for small problems. Memory: matrices of that order.
    """

    most: int = 60

    name: ClassVar[str] = "conic"
    needs = (convex,)

    def lacks(self, problem: Composite) -> str:
        """What else the problem lacks."""
        if not problem.groups:
            return "it has no group norms."
        if any(r.term.degree > 2 for r in problem.rows):
            return "it has terms of a degree beyond 2."
        order = _order(problem)
        return f"its programme has up to {order} variables, and {_REFUSED_PROGRAM} at most are for dense matrices." * (
            order > _REFUSED_PROGRAM
        )

    def suits(self, problem: Composite) -> bool:
        """Whether there are few rows and norms."""
        return _order(problem) <= _LARGEST_PROGRAM

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # along a direction of unbounded descent
            programme = _Programme(problem)
            state.see(state.x, problem.value(state.x))
            for _ in programme.steps(self.most):
                state.steps += 1
                state.sigma = programme.share
                if programme.share <= 0.1 * tol:
                    programme.show(state)
                state.record()
                check(state)
                if state.reached(tol) and programme.share <= _ZERO_CONIC_PRODUCTS:
                    break
            programme.show(state)
            if not state.reached(tol) or state.exact:
                programme.finish(state, tol)
            if not state.reached(tol):
                raise GaveUp


def _order(problem: Composite) -> int:
    """Variables of the programme, at most."""
    kinks = sum(2 * r.count * len(r.term.knots) for r in problem.rows)
    return problem.size + kinks + sum(group.sizes.size for group in problem.groups)


class _Programme:
    """The programme of a problem, and a point with the slacks and multipliers of its constraints."""

    def __init__(self, problem: Composite) -> None:
        tick(float(_order(problem)) ** 3)
        weighty = (group.take(group.weights > 0.0) for group in problem.groups if group.weights.any())
        self.problem = Composite(
            problem.hessian, problem.gradient_at_zero, problem.constant, problem.rows,
            groups=tuple(group.explicit() for group in weighty),
        )  # fmt: skip
        self._write()
        self._begin()

    def _write(self) -> None:
        """P, q, G and h: the variables first, then those of the terms, then a size for each norm."""
        problem, p = self.problem, self.problem.size
        self.terms = [(b, term) for b, r in enumerate(problem.rows) for term in linear_quadratic_terms(r)]
        gradient = problem.gradient_at_zero.copy()
        for r in problem.rows:
            gradient += r.linear.transpose_apply(r.weights * leftmost_derivative(r))
        matrices = [r.linear.dense() for r in problem.rows]
        diagonal, cost = [np.zeros(0)], [gradient]
        rows: list[tuple[Any, list[int], Vector]] = []  # of the variables, the others of each, and the right side
        at = p
        for b, term in self.terms:
            index = slice(None) if term.index is None else term.index
            part, own = term.sign * matrices[b][index], []
            if term.inverse_curvature is not None:
                own.append(at)
                at += len(part)
                diagonal.append(1.0 / term.inverse_curvature)
                cost.append(np.zeros(len(part)))
            if term.high is not None:
                own.append(at)
                at += len(part)
                diagonal.append(np.zeros(len(part)))
                cost.append(term.high)
            rows.append((part, own, -term.distance(problem.rows[b].offset)))
        norms = [(group.linear.dense(), group) for group in problem.groups]
        count = sum(group.sizes.size for _, group in norms)
        size, others = at + count, at - p
        cost += [group.weights for _, group in norms]
        self.P = np.zeros((size, size))
        if problem.hessian is not None:
            hessian = problem.hessian
            self.P[:p, :p] = hessian.toarray() if sp.issparse(hessian) else hessian
        self.P[range(p, at), range(p, at)] = np.concatenate(diagonal)
        self.q = np.concatenate(cost)
        self.linear = sum(len(part) for part, _, _ in rows)
        positive = self.linear + others
        self.G = np.zeros((positive + sum(len(z) for z, _ in norms) + count, size))
        self.h = np.zeros(len(self.G))
        top = 0
        for part, own, right in rows:
            here = range(top, top + len(part))
            self.G[top : top + len(part), :p], self.h[top : top + len(part)] = part, right
            for first in own:
                self.G[here, range(first, first + len(part))] = -1.0
            top += len(part)
        self.G[range(top, positive), range(p, at)] = -1.0
        top, column, sizes = positive, at, []
        for z, group in norms:
            for start, width in zip(group.starts, group.sizes, strict=True):
                self.G[top, column] = -1.0
                self.G[top + 1 : top + 1 + width, :p] = -z[start : start + width]
                self.h[top + 1 : top + 1 + width] = group.offset[start : start + width]
                top, column = top + 1 + width, column + 1
                sizes.append(int(width) + 1)
        self.cones = Cones(positive, sizes)

    def _begin(self) -> None:
        """The least squares of the constraints, moved into the cones."""
        tick(self._work)
        self.x = solve_definite(self.P + self.G.T @ self.G, self.G.T @ self.h - self.q)
        slack = self.h - self.G @ self.x
        self.s, self.z = self.cones.inside(slack), self.cones.inside(-slack)

    @property
    def _work(self) -> float:
        """Operations of a step: a product of matrices, and two factors."""
        return float(len(self.q)) ** 2 * (len(self.G) + len(self.q))

    @property
    def share(self) -> float:
        """The products of slacks and multipliers, relative to the objective."""
        value = abs(0.5 * self.x @ self.P @ self.x + self.q @ self.x)
        size = float(np.abs(self.q) @ np.abs(self.x))
        return float(self.s @ self.z) / max(float(value), size, 1e-300)

    def steps(self, most: int) -> Iterator[None]:
        """Step after step, as long as they gain something."""
        stalled = 0
        for _ in range(most):
            before = self.share
            if not self._step():
                return
            yield
            stalled = 0 if self.share < 0.9 * before else stalled + 1
            if stalled >= _STALLED_STEPS or self.share <= 1e-3 * _ZERO_CONIC_PRODUCTS:
                return

    def _step(self) -> bool:
        """Predict, correct and move; False where numbers end."""
        tick(self._work)
        cones, G = self.cones, self.G
        scaling = cones.scaling(self.s, self.z)
        if scaling is None:
            return False
        lam = scaling.lam
        dual, primal = self.P @ self.x + self.q + G.T @ self.z, G @ self.x + self.s - self.h
        scaled = scaling.inverse(G)
        matrix = self.P + scaled.T @ scaled  # P + G' W^-2 G, (1)

        def direction(d: Vector) -> tuple[Vector, Vector, Vector]:
            aim = cones.divide(lam, d)
            right = scaling.inverse(primal) + aim
            dx = solve_definite(matrix, -dual - scaled.T @ right)  # (1)
            wz = scaled @ dx + right  # W dz, (2)
            return dx, wz, aim - wz  # W^-1 ds, (2)

        square = cones.times(lam, lam)
        _, wz, ws = direction(-square)  # towards products of zero
        length = min(1.0, cones.longest(lam, wz), cones.longest(lam, ws))
        mu = float(lam @ lam) / cones.degree
        sigma = (1.0 - length) ** 3  # (3): the longer the predictor's step, the less is aimed at
        # (3)
        dx, wz, ws = direction(-square - cones.times(ws, wz) + sigma * mu * cones.one)
        length = min(1.0, _CONE_BOUNDARY_SHARE * min(cones.longest(lam, wz), cones.longest(lam, ws)))
        x, s, z = self.x + length * dx, self.s + length * scaling.apply(ws), self.z + length * scaling.inverse(wz)
        if not (np.all(np.isfinite(x)) and np.all(np.isfinite(s)) and np.all(np.isfinite(z))):
            return False
        self.x, self.s, self.z = x, s, z
        return True

    # -- What is known ------------------------------------------------------------------------------------------------

    def show(self, state: State) -> None:
        """Show `state` the point, with the gap that the multipliers prove."""
        problem, x = self.problem, self.x[: self.problem.size]
        positions = problem.positions(x)
        subgradients = [np.zeros(r.count) for r in problem.rows]
        top = 0
        for b, term in self.terms:
            term.add_to(subgradients[b], self.z[top : top + term.u.size])
            top += term.u.size
        dual = []
        for r, z, u in zip(problem.rows, positions, subgradients, strict=True):
            weights = np.where(r.weights > 0, r.weights, 1.0)
            subgradient = np.where(r.weights > 0, leftmost_derivative(r) + u / weights, r.term.derivative(z))
            dual.append(np.clip(subgradient, *r.term.subgradient_range))
        vectors = iter([-self.z[part][1:] for part in self.cones.parts])
        norm_dual = [g.feasible(np.concatenate([next(vectors) for _ in g.sizes])) for g in problem.groups]
        gap, assumption = group_gap(problem, x, positions, dual, norm_dual)
        state.see(x.copy(), problem.value(x, positions), gap, assumption, [*dual, *norm_dual])

    def finish(self, state: State, tol: float) -> None:
        """Show `state` the optimum on the face near the point."""
        problem, x = self.problem, state.x
        for share in _RESTING_SHARES:
            knots, active = [], []
            for r, z in zip(problem.rows, problem.positions(x), strict=True):
                knot, closest = np.full(r.count, np.nan), np.full(r.count, share * max(1.0, float(np.abs(z).max())))
                for t, jump in r.kinks:
                    near = (np.abs(z - t) < closest) & (np.asarray(jump) > 0.0) & (r.weights > 0.0)
                    knot, closest = np.where(near, t, knot), np.where(near, np.abs(z - t), closest)
                knots.append(knot)
            for group in problem.groups:
                norms = group.norms(group.positions(x))
                active.append(norms > share * max(float(norms.max(initial=0.0)), float(np.abs(group.offset).max())))
            face = ActiveSet(problem, x, knots, active)
            found = face.solve(tol) if face.may_exist else None
            if found is not None:
                state.see(*found)
            if found is not None and found[2] <= tol * abs(found[1]):
                return

r"""`working-set`: many more variables than rows, each with a kink that most of them rest on.

The problem is solved for a few of its variables, the others at rest. The dual point of that solution pulls on the
others; those that it would pull off their kinks join, and the rest are proved to be at rest once it is scaled to be
feasible for all [Blitz, celer]. The small problems go to whatever method suits them, so that any loss and any quadratic
will do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from varopt.model._maps import Map, Scaled, Selection
from varopt.solvers._composite import Composite, Rows
from varopt.solvers._lift import is_like_huber, lifted
from varopt.solvers._method import Method
from varopt.solvers._scaled import prove
from varopt.solvers._state import Check, State

__all__ = ["WorkingSet"]

Vector = NDArray[np.float64]

_SMALL = 200  # variables up to which all are taken at once
_WIDE = 2  # variables for each row beyond which a few of them at a time pay,
_WIDE_SPARSE = 10  # and the same where sparse methods apply,
_WIDE_SQUARES = 0.5  # which for sparse squares ask for columns that are not made of each other
_LARGE = 5000  # variables beyond which their matrix should not be formed
_MARGIN = 1e-12  # share of a kink by which a variable at rest has to be pulled off it
_CLOSER, _TRIES = 0.02, 2  # by how much tolerances of small problems shrink where no variable joins, and how often


@dataclass(frozen=True)
class WorkingSet(Method):
    """A few variables at a time, the others at rest on their kinks.

    Parameters
    ----------
    first : int
        Variables to begin with, those that are pulled hardest; as many as there are already join in every round.

    Notes
    -----
    A round costs two products with the data and the solution of a small problem; rounds are few, since the set
    doubles. Memory is a copy of the columns in the set: no matrix has as many rows and columns as there are variables.
    """

    first: int = 250

    name: ClassVar[str] = "working-set"

    def refusal(self, problem: Composite) -> str:
        """What the problem lacks."""
        lacks = problem.not_quadratic or problem.not_convex
        return lacks or ("it has no kinks of single variables." if np.all(problem.kinks[0].free) else "")

    def suits(self, problem: Composite) -> bool:
        """Whether there are many more variables than rows, and most can rest."""
        kinks, others = problem.kinks
        rows = sum(r.count for r in (*others, *problem.squares) if r.single is None)
        few = _WIDE if not problem.is_sparse else _WIDE_SPARSE if others else _WIDE_SQUARES
        wide = problem.size > max(_SMALL, few * rows)
        wide = wide or (problem.size > _LARGE and not others)
        return wide and rows > 0 and 2 * int(np.count_nonzero(kinks.free)) <= problem.size

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        from varopt.solvers._choose import choose

        kinks, losses = problem.kinks
        x = state.x.copy()
        inside = kinks.free | (x != kinks.rest)
        slopes = _slopes(losses, x, State(x))
        joining, tries = np.flatnonzero(inside), 0
        while True:
            pull = prove(problem, x, slopes, state)
            state.sigma = 0.0
            state.record()
            check(state)
            excess = np.maximum(-pull - kinks.high, kinks.low + pull) / np.maximum(kinks.high - kinks.low, 1e-300)
            pulled = np.flatnonzero(~inside & (excess > _MARGIN))
            most = max(self.first, int(np.count_nonzero(inside)))
            joining = np.union1d(joining, pulled[np.argsort(-excess[pulled], kind="stable")[:most]])
            tries += not joining.size
            if state.reached(tol) or tries > _TRIES or not (joining.size or inside.any()):
                break
            inside[joining] = True
            index, joining = np.flatnonzero(inside), joining[:0]
            small = restricted(problem, index, np.where(inside, 0.0, kinks.rest))
            plain = lifted(small)
            part = State(np.concatenate([x[index], np.zeros(plain.size - index.size)]))
            # Blocks of variables hand on what they cannot do, if it is large to working sets: not back and forth.
            but = (self.name, "block-descent") if index.size > _LARGE else (self.name,)
            choose(plain, but=but).solve(plain, part, 0.5 * _CLOSER**tries * tol, lambda _: check(state))
            state.steps += max(part.steps, 1)
            x = np.where(inside, 0.0, kinks.rest)
            x[index] = part.x[: index.size]
            slopes = _slopes(losses, x, part)
        if not state.reached(tol) and problem.size <= _LARGE:  # a small problem was not solved well enough
            choose(problem, but=(self.name,)).solve(problem, state, tol, check)


def _slopes(losses: tuple[Rows, ...], x: Vector, part: State) -> list[Vector]:
    """Slopes of the losses: those of the solution of the small problem, which has the losses with kinks first."""
    known = iter(() if part.dual is None else part.dual)
    bent = [part.dual is None or is_like_huber(r.term) for r in losses]
    return [r.term.derivative(r.positions(x)) if b else next(known) for r, b in zip(losses, bent, strict=True)]


def restricted(problem: Composite, index: NDArray[np.intp], fixed: Vector) -> Composite:
    """The problem in some of its variables; `fixed` are the values of the others, and zero for these."""
    _, losses = problem.kinks
    constant = problem.scalar + float(problem.vector @ fixed)
    matrix, vector = problem.matrix, problem.vector[index]
    if matrix is not None:
        image = matrix @ fixed
        matrix, vector = matrix[index][:, index], vector + image[index]
        constant += 0.5 * float(fixed @ image)

    place = np.full(problem.size, -1)
    place[index] = np.arange(index.size)

    def part(rows: Rows) -> Rows:
        offset = rows.positions(fixed) if fixed.any() else rows.offset
        return Rows(rows.linear.columns(index), offset, rows.term, rows.weights)

    def live(rows: Rows) -> Rows | None:
        """Rows of one variable each, without those of variables that are fixed."""
        nonlocal constant
        if rows.single is None:
            return part(rows)
        to, factor = place[rows.single[0]], rows.single[1]
        constant += float(np.where(to < 0, rows.weights, 0.0) @ rows.term.value(rows.positions(fixed)))
        kept = np.flatnonzero(to >= 0)
        linear: Map = Selection(to[kept], index.size)
        if np.any(factor != 1.0):
            linear = Scaled(factor[kept], linear)
        return Rows(linear, rows.offset[kept], rows.term.take(kept), rows.weights[kept]) if kept.size else None

    penalties = [live(r) for r in problem.rows if all(r is not other for other in losses)]
    squares = [live(r) for r in problem.squares]
    return Composite(
        matrix, vector, constant, (*(part(r) for r in losses), *(r for r in penalties if r is not None)),
        squares=tuple(r for r in squares if r is not None),
    )  # fmt: skip

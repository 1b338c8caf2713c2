r"""`working-set`: many more variables than rows, each with a kink that most of them rest on, or groups with norms.

The problem is solved for a few of its variables, the others at rest. The dual point of that solution has a gradient in
the others; those that it would move off their kinks join, and the rest are proved to be at rest once it is scaled to be
feasible for all [Blitz, celer]. The small problems may have any loss and any quadratic. Variables whose norm is
penalised rest and join as a group.

.. [Blitz] T. Johnson, C. Guestrin. Blitz: a principled meta-algorithm for scaling sparse optimization. ICML, 2015.
.. [celer] M. Massias, A. Gramfort, J. Salmon. Celer: a fast solver for the lasso with dual extrapolation. ICML, 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from varopt.certificates import prove
from varopt.composite import Composite, Kinks, Rows, restricted, separable_kinks
from varopt.solvers._method import State, convex, kinks, separable_norms
from varopt.solvers.reductions._huber_splitting import HuberSplitting, Split
from varopt.solvers.reductions._reduction import Lifted, Reduction, Smaller

__all__ = ["WorkingSet"]

Vector = NDArray[np.float64]

# On Gaussian data of 100 to 400 rows, one thread: quantile regression with L1 takes a half to an eightieth of the time
# from 1.5 variables a row on; lassos, which have a dual method of their own, draw level at about four.
_ALL_AT_ONCE = 200  # variables up to which all are taken at once
_ALL_AT_ONCE_GROUPS = 60  # and the same where there are norms of groups, whatever the number of rows
_LEAST_TALL, _FEW_MOVE = 31, 0.3  # variables of tall data, from which on a few pay; and the share that may move there
_WIDE = 2  # variables for each row beyond which a few of them at a time pay,
_WIDE_SPARSE = 10  # and the same where sparse methods apply,
_WIDE_SPARSE_SQUARES = 0.5  # which for sparse squares ask for columns that are not made of each other
_FORMED = 5000  # variables beyond which their matrix should not be formed
_MOVED_OFF = 1e-12  # share of a kink by which a gradient has to exceed it for a variable to join
_CLOSER, _TRIES = 0.02, 2  # by how much tolerances of small problems shrink where no variable joins, and how often


@dataclass(kw_only=True, eq=False)
class Restricted(Smaller):
    """The problem in some of the variables, and what is known of the others once it is solved."""

    split: Split  # the same without terms like Huber's
    inside: NDArray[np.bool_]
    tries: int  # since when no variable has joined
    x: Vector
    gradient: Vector


@dataclass(frozen=True)
class WorkingSet(Reduction[Restricted]):
    """A few variables at a time, the others at rest on their kinks.

    Parameters
    ----------
    first : int
        Variables to begin with, those whose gradients exceed their kinks most; as many as there are already join in
        every round.
    first_of_groups : int
        The same where norms of groups are there, which join as wholes; then as many join as do not rest.

    Notes
    -----
    A round costs two products with the data and the solution of a small problem; rounds are few, since the set
    doubles. Memory is a copy of the columns in the set: no matrix has as many rows and columns as there are variables.
    """

    first: int = 250
    first_of_groups: int = 100

    name: ClassVar[str] = "working-set"
    fewest = _LEAST_TALL
    needs = (separable_norms, convex, kinks)

    def suits(self, problem: Composite) -> bool:
        """Whether there are many more variables than rows, and most can rest."""
        kinks, others = problem.structure(separable_kinks)
        if kinks.balls is not None:
            return problem.size > _ALL_AT_ONCE_GROUPS and 2 * int(np.count_nonzero(kinks.free)) <= problem.size
        rows = sum(r.count for r in (*others, *problem.squares) if r.single is None)
        few = _WIDE if not problem.is_sparse else _WIDE_SPARSE if others else _WIDE_SPARSE_SQUARES
        wide = problem.size > max(_ALL_AT_ONCE, few * rows)
        wide = wide or (problem.size > _FORMED and not others) or _most_rest(problem, kinks, others)
        return wide and rows > 0 and 2 * int(np.count_nonzero(kinks.free)) <= problem.size

    def apply(self, problem: Composite, state: State, before: Restricted | None) -> Restricted | None:
        """Let variables join that the gradient moves off their kinks; None where none does, time and again."""
        kinks, losses = problem.structure(separable_kinks)
        if before is None:
            x, tries = state.x.copy(), 0
            inside = kinks.free | (x != kinks.rest)
            proof, gradient = prove(problem, x, [r.term.derivative(r.positions(x)) for r in losses])
            state.see(*proof)
            joining = np.flatnonzero(inside)
        else:
            inside, tries, x, gradient = before.inside, before.tries, before.x, before.gradient
            joining = np.zeros(0, dtype=np.intp)
        excess = kinks.excess(gradient)
        moved = np.flatnonzero(~inside & (excess > _MOVED_OFF))
        if kinks.balls is None:
            most = max(self.first, int(np.count_nonzero(inside)))
        else:
            most = max(self.first_of_groups, int(np.count_nonzero(inside & (x != kinks.rest))))
        first = np.sort(moved[np.argsort(-excess[moved], kind="stable")[:most]])
        joining = _whole_groups(kinks, np.union1d(joining, first) if joining.size else first)
        tries += not joining.size
        if tries > _TRIES or not (joining.size or inside.any()):
            return None
        inside = inside.copy()
        inside[joining] = True
        index = np.flatnonzero(inside)
        penalties = (r for r in problem.rows if all(r is not other for other in losses))
        ordered = replace(problem, rows=(*losses, *penalties))
        small = restricted(ordered, index, np.where(inside, 0.0, kinks.rest), whole=len(losses)).problem
        split = HuberSplitting().apply(small, State(x[index]), None)
        return Restricted(
            problem=split.problem, start=split.start, share=0.5 * _CLOSER**tries,
            split=split, inside=inside, tries=tries, x=x, gradient=gradient,
        )  # fmt: skip

    def invert(self, problem: Composite, smaller: Restricted, answer: State) -> Lifted:
        """The others at rest, and subgradients of the losses, which come first in the smaller problem."""
        kinks, losses = problem.structure(separable_kinks)
        x = np.where(smaller.inside, 0.0, kinks.rest)
        x[smaller.inside], dual = HuberSplitting().invert(smaller.split.whole, smaller.split, answer)
        return Lifted(x, dual[: len(losses)])

    def prove(self, problem: Composite, smaller: Restricted, lifted: Lifted, state: State) -> None:
        """Scale the dual point until it is feasible for the variables at rest too."""
        proof, smaller.gradient = prove(problem, lifted.x, lifted.dual)
        smaller.x = lifted.x
        state.see(*proof)


def _most_rest(problem: Composite, kinks: Kinks, losses: Sequence[Rows]) -> bool:
    """Whether of the variables of tall dense losses few are moved off their kinks where all rest: these may be all."""
    if not losses or problem.is_sparse or kinks.balls is not None:
        return False
    if any(r.single is None for r in problem.squares) or any(r.hard for r in problem.rows):
        return False
    gradient = problem.quadratic_gradient(kinks.rest) + 0.0
    for r in losses:
        gradient += r.gradient(r.positions(kinks.rest)) if kinks.rest.any() else r.gradient_at_zero
    moved = kinks.free | (kinks.excess(gradient) > _MOVED_OFF)
    return int(np.count_nonzero(moved)) <= _FEW_MOVE * problem.size


def _whole_groups(kinks: Kinks, index: NDArray[np.intp]) -> NDArray[np.intp]:
    """Variables, and all that are of a group with one of them."""
    if kinks.balls is None:
        return index
    label = kinks.balls.label
    return np.union1d(index, np.flatnonzero((label >= 0) & np.isin(label, label[index])))

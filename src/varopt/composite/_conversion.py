"""From an objective to the composite form, and what problems with blocks in common share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt._array import repeated
from varopt._linalg import add
from varopt.composite._form import Composite, Rows
from varopt.composite._groups import Groups, groups_of
from varopt.composite._quadratic_form import QuadraticForm
from varopt.model import Objective
from varopt.model.blocks import AffineBlock, Block, NormBlock, QuadraticBlock, TermBlock
from varopt.model.maps import Map, products_are_kept
from varopt.terms import abs_

__all__ = ["NotComposite", "composite", "rows_of", "shared_rows", "sharing", "unmultiplied"]

Vector = NDArray[np.float64]


class NotComposite(ValueError):
    """The objective is outside the class that the solver handles; the message names the block."""


def composite(
    objective: Objective, *, multiplied: bool = True, blocks: Sequence[Block] | None = None, absolute: bool = True
) -> Composite:
    """An objective in its canonical form; raises `NotComposite` naming the block that does not fit.

    Without `multiplied`, quadratic forms stay as they are and squares are rows like any other term: nothing is computed
    of the data. `blocks` are those to take, by default all. Norms of single rows are rows of absolute values, unless
    `absolute` is false: then each block of terms is one of rows, and no other is.
    """
    size, variables = objective.size, objective.variables
    matrix: Any = None
    vector, scalar, rows, squares = np.zeros(size), 0.0, [], []
    groups: list[Groups] = []
    forms: list[QuadraticForm] = []
    not_convex, indefinite = "", False
    for block in objective.blocks if blocks is None else blocks:
        if block.stored:
            raise NotComposite(f"the rows of {block.describe()} are {block.stored[0].where}, not in memory.")
        if not block.curvature.is_convex:
            not_convex = not_convex or (
                f"{block.describe()} is not known to be convex: {block.curvature_and_reason[1]}."
            )
            indefinite = indefinite or not (isinstance(block, TermBlock) and block.term.knots)
        if not block.variables:
            scalar += float(block.value({}))
        elif isinstance(block, AffineBlock):
            vector += block.weights * block.argument.stacked(variables).transpose_apply(np.ones(1))
            scalar += block.weights * float(np.ravel(block.argument.offset)[0])
        elif isinstance(block, QuadraticBlock):
            form = QuadraticForm(*_affine(block, variables), block.matrix, float(block.weights))
            if not multiplied:
                forms.append(form)
                continue
            more, line, constant = form.multiplied
            matrix, vector, scalar = add(matrix, more), vector + line, scalar + constant
        elif isinstance(block, TermBlock):
            part = _rows(block, variables)
            if block.term.knots or block.term.degree > 2 or not multiplied:
                rows.append(part)
            elif block.term.degree == 2 and _all_convex(part):
                squares.append(part)
            else:
                start = Composite(matrix, vector, scalar, (part,))
                smooth = start.freeze([part.offset], [np.zeros(part.count, dtype=bool)])
                matrix, vector, scalar = smooth.matrix, smooth.vector, smooth.scalar
        elif isinstance(block, NormBlock):
            norms = groups_of(*_affine(block, variables), block.groups, block.weights)
            if absolute and np.all(norms.sizes == 1):
                rows.append(Rows(norms.linear, norms.offset, abs_(), norms.weights))
            else:
                groups.append(norms)
        else:
            raise NotComposite(f"{block.describe()} is no piecewise linear-quadratic term of an affine map.")
    vector = vector if vector.any() else repeated(0.0, (size,))  # zeros in no memory
    return Composite(
        matrix, vector, scalar, tuple(rows), not_convex, tuple(squares), indefinite, tuple(groups), tuple(forms)
    )


def _all_convex(part: Rows) -> bool:
    """Whether squares are not negative, row by row."""
    return bool((part.distinct_weights >= 0.0).all() and np.all(part.term.pieces[0][2] > 0.0))


def unmultiplied(objective: Objective, problem: Composite) -> Composite:
    """What `composite` makes of an objective without `multiplied`, of the rows that its canonical form has already."""
    rows, squares = iter(problem.rows), iter(problem.squares)
    if len(problem.rows) + len(problem.squares) == len(objective.blocks) and not problem.groups:
        kept = [next(rows if _stays_rows(block) else squares, None) for block in objective.blocks]
        known = [
            r for r, block in zip(kept, objective.blocks, strict=True)
            if r is not None and isinstance(block, TermBlock) and r.term is block.term
        ]  # fmt: skip
        if len(known) == len(kept):
            return Composite(None, repeated(0.0, (objective.size,)), 0.0, tuple(known))
    return composite(objective, multiplied=False)


def _stays_rows(block: Block) -> bool:
    """Whether the canonical form has it as rows, and not as squares."""
    return isinstance(block, TermBlock) and (bool(block.term.knots) or block.term.degree > 2)


def _affine(block: Any, variables: Any) -> tuple[Map, Vector]:
    """The map and the offset of a block's argument."""
    linear = block.argument.stacked(variables)
    return linear, repeated(block.argument.offset, (linear.shape[0],))


# Hidden state, since between who knows that problems have blocks in common (a path, a fit of several lines) and the
# conversion stands `minimize`, whose arguments are the user's.
_SHARED: ContextVar[dict[int, tuple[TermBlock, Any, Rows]] | None] = ContextVar("rows shared by problems", default=None)


@contextmanager
def shared_rows() -> Iterator[None]:
    """Within it, problems that have a block in common share its rows, and what is computed of them."""
    token = _SHARED.set({})
    try:
        yield
    finally:
        _SHARED.reset(token)


def sharing() -> bool:
    """Whether what is computed of rows will be of use to other problems."""
    return _SHARED.get() is not None or products_are_kept()


def _rows(block: TermBlock, variables: Any) -> Rows:
    shared = _SHARED.get()
    if shared is None:
        return rows_of(block, variables)
    known = shared.get(id(block))
    if known is None or known[1] != variables:
        known = shared[id(block)] = (block, variables, rows_of(block, variables))  # the block keeps its id taken
    return known[2]


def rows_of(block: TermBlock, variables: Any) -> Rows:
    """The rows of a block, of the concatenated variables."""
    linear, offset = _affine(block, variables)
    weights = repeated(block.weights, offset.shape)
    # Without a weight they count as convex whatever the term: as one that has all that convex terms have.
    term = block.term if block.term.curvature.is_convex or weights.any() else abs_()
    return Rows(linear, offset, term, weights)

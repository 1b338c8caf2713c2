r"""`block-descent`: a large lasso without its Gram matrix, block after block of variables.

The blocks' Gram matrices are a small share of the whole one, and every round over the blocks (`_blocks`) is two passes
over the data. Where columns are so correlated that the rounds would take longer than the whole Gram matrix, the run
ends: a method that forms it has less far to go from there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from varopt._linalg import is_diagonal
from varopt.certificates import prove
from varopt.composite import Composite, sharing
from varopt.solvers._method import Check, Method, State, convex, kinks, only_kinks, piecewise_quadratic
from varopt.solvers.lasso._blocks import BLOCK_VARIABLES, Blocks

__all__ = ["BlockDescent"]

# Lassos of 4,000 rows, one thread: the same time at 1,000 variables, a fifth to two thirds of it at 3,000.
_GRAM_TAKES_LONGER = 1000  # variables from which on a few passes over the data take less time than a Gram matrix
_ROUND = 40  # variables whose share of a Gram matrix takes as long as a round over the blocks
_TRIED_ROUNDS = 3  # rounds after which it can be told how many there will be
_PROOFS = 3  # that fail, each after what was found amiss is a tenth, before the method gives up
_NOTHING_AMISS = 1e-14  # share of a kink below which nothing can be found amiss


@dataclass(frozen=True)
class BlockDescent(Method):
    """Blocks of variables in turn, each at its exact optimum given the others.

    Parameters
    ----------
    block : int
        Variables in a block.

    Notes
    -----
    A round takes two passes over the data, which are not copied unless they have to be converted to double precision.
    Memory: two matrices of `block` numbers for each variable, and a dozen vectors of the size of the rows.
    """

    block: int = BLOCK_VARIABLES

    name: ClassVar[str] = "block-descent"
    fewest = _GRAM_TAKES_LONGER
    needs = (convex, piecewise_quadratic, only_kinks, kinks)

    def lacks(self, problem: Composite) -> str:
        """What else the problem lacks."""
        if not any(r.single is None for r in problem.squares):
            return "it has no squares of rows."
        return "" if is_diagonal(problem.matrix) else "its quadratic is given as a matrix."

    def suits(self, problem: Composite) -> bool:
        """Whether a Gram matrix is what takes time, and serves this problem only."""
        rows = [r for r in problem.squares if r.single is None]
        tall = sum(r.count for r in rows) >= problem.size
        return tall and not sharing() and all(r.linear.storage == "dense" for r in rows)

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        blocks = Blocks(problem, self.block, state.x)
        if not _descended(blocks, state, tol, check):
            state.see(blocks.x, problem.value(blocks.x))


def _descended(blocks: Blocks, state: State, tol: float, check: Check) -> bool:
    """Rounds over the blocks until the bracket is closed; False where they would take too long."""
    excesses: list[float] = []
    wanted, proofs, most = max(tol, _NOTHING_AMISS), 0, blocks.problem.size / _ROUND
    while True:
        excess = blocks.round()
        if excess is None:
            return False
        excesses.append(excess)
        state.steps += 1
        state.latest, state.sigma = blocks.x.copy(), 0.0
        state.record()
        check(state)
        # What a round found amiss it has mended, but for as much as it left of what the round before found.
        rate = excess / excesses[-2] if len(excesses) > 1 and excesses[-2] > 0.0 else 1.0
        if excess * min(rate, 1.0) <= wanted:
            state.see(*prove(blocks.problem, blocks.x.copy(), ())[0])
            state.record()
            if state.reached(tol):
                return True
            wanted, proofs = 0.1 * wanted, proofs + 1
            if proofs > _PROOFS:
                return False
        if len(excesses) >= _TRIED_ROUNDS:
            left = math.log(excess / wanted) / -math.log(rate) if 0.0 < rate < 1.0 else math.inf
            if len(excesses) + left > most:
                return False
        blocks.extrapolate()

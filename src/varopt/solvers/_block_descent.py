r"""`block-descent`: a large lasso without its Gram matrix, block after block of variables.

Pivoting on the Gram matrix of a block minimises over its variables exactly, the others as they are. The blocks' Gram
matrices are a small share of the whole one, and every round over the blocks is two passes over the data. Once the
variables stay on their sides of the kinks the rounds are a linear sequence, whose limit is extrapolated [BM21]. Where
columns are so correlated that the rounds would take longer than the whole Gram matrix, the method that forms it goes
on.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model._maps import HStack, Map, Matrix, Scaled
from varopt.solvers._columns import is_diagonal
from varopt.solvers._composite import Composite, sharing
from varopt.solvers._method import Method
from varopt.solvers._pivoting import is_singular, pivoted
from varopt.solvers._scaled import prove
from varopt.solvers._state import Check, State

__all__ = ["BlockDescent", "approached"]

Vector = NDArray[np.float64]

_LARGE = 1000  # variables from which on a few passes over the data take less time than a Gram matrix
_ROUND = 40  # variables whose share of a Gram matrix takes as long as a round over the blocks
_TRIED = 3  # rounds after which it can be told how many there will be
_WINDOW = 5  # moves of which the limit is extrapolated
_PROOFS = 3  # that fail, each after what was found amiss is a tenth, before the method gives up
_ROUNDING = 1e-14  # share of a kink below which nothing can be found amiss
_PATIENCE = 10  # of pivoting in a block


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

    block: int = 128

    name: ClassVar[str] = "block-descent"

    def refusal(self, problem: Composite) -> str:
        """What the problem lacks."""
        if reason := problem.not_convex or problem.not_quadratic:
            return reason
        kinks, others = problem.kinks
        if others:
            return "it has rows other than one kink for each variable."
        if np.all(kinks.free):
            return "it has no kinks."
        if not any(r.single is None for r in problem.squares):
            return "it has no squares of rows."
        return "" if is_diagonal(problem.matrix) else "its quadratic is given as a matrix."

    def suits(self, problem: Composite) -> bool:
        """Whether a Gram matrix is what takes time, and serves this problem only."""
        rows = [r for r in problem.squares if r.single is None]
        tall = sum(r.count for r in rows) >= problem.size >= _LARGE
        return tall and not sharing() and all(r.linear.storage == "dense" for r in rows)

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        from varopt.solvers._choose import choose

        blocks = _Blocks(problem, self.block, state.x)
        if not _descended(blocks, state, tol, check):
            state.see(blocks.x, problem.value(blocks.x))  # from there others have less far to go
            choose(problem, but=(self.name,)).solve(problem, state, tol, check)


def _descended(blocks: _Blocks, state: State, tol: float, check: Check) -> bool:
    """Rounds over the blocks until the bracket is closed; False where they would take too long."""
    excesses: list[float] = []
    wanted, proofs, most = max(tol, _ROUNDING), 0, blocks.problem.size / _ROUND
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
            prove(blocks.problem, blocks.x.copy(), (), state)
            state.record()
            if state.reached(tol):
                return True
            wanted, proofs = 0.1 * wanted, proofs + 1
            if proofs > _PROOFS:
                return False
        if len(excesses) >= _TRIED:
            left = math.log(excess / wanted) / -math.log(rate) if 0.0 < rate < 1.0 else math.inf
            if len(excesses) + left > most:
                return False
        blocks.extrapolate()


def approached(problem: Composite, x: Vector, rounds: int, state: State, check: Check) -> Vector:
    """A point closer to the optimum, by so many rounds over the blocks."""
    blocks = _Blocks(problem, BlockDescent.block, x)
    for _ in range(rounds):
        if blocks.round() is None:
            break
        state.latest = blocks.x.copy()
        check(state)
        blocks.extrapolate()
    return blocks.x


class _Blocks:
    """A point, its image and slopes in the rows of squares, and the blocks of variables."""

    def __init__(self, problem: Composite, size: int, x: Vector) -> None:
        self.problem, self.x = problem, x.copy()
        self.kinks, _ = problem.kinks
        self.side = np.where(self.kinks.free, 1.0, np.sign(x - self.kinks.rest))
        ridge = problem.ridge
        self.diagonal, self.vector = np.asarray(ridge.matrix.diagonal()), ridge.vector
        squares = [r for r in problem.squares if r.single is None]
        self.images = [np.asarray(r.linear.apply(x), dtype=np.float64) for r in squares]
        self.slopes = [r.weights * r.term.derivative(r.positions(x)) for r in squares]
        self.bends = [r.curvature for r in squares]
        parts = [slice(k, min(k + size, x.size)) for k in range(0, x.size, size)]
        self.blocks = [_Block(part, [_in_double(r.linear.columns(part)) for r in squares]) for part in parts]
        self.past: deque[tuple[Vector, Vector]] = deque(maxlen=_WINDOW + 1)

    def round(self) -> float | None:
        """Minimise over each block in turn; how much the pulls found exceeded what the kinks can balance.

        That is relative to the kinks, and to the largest pull there may be where there is none; None where a block did
        not settle.
        """
        worst, turned = 0.0, False
        energy = 0.0
        for slope, bend in zip(self.slopes, self.bends, strict=True):
            live = bend > 0.0
            energy += float(slope[live] @ (slope[live] / bend[live]))
        for block in self.blocks:
            part = block.part
            kinks, x, side = self.kinks.take(part), self.x[part], self.side[part]
            pull = self.vector[part] + self.diagonal[part] * x
            for linear, slope in zip(block.columns, self.slopes, strict=True):
                pull += linear.transpose_apply(slope)
            gram = block.gram(self.bends, self.diagonal)
            resting = np.maximum(np.maximum(-pull - kinks.high, kinks.low + pull), 0.0)
            moving = np.abs(pull + np.where(side > 0, kinks.high, kinks.low))
            unit = np.where(kinks.free, np.sqrt(gram.diagonal()) * np.sqrt(energy), 0.5 * (kinks.high - kinks.low))
            worst = max(worst, float(np.max(np.where(side == 0, resting, moving) / np.maximum(unit, 1e-300))))
            settled = pivoted(gram, pull - gram @ (x - kinks.rest), kinks, side, _PATIENCE, block.solve)
            if settled is None:
                return None
            following = np.where(kinks.free, 1.0, np.sign(settled.away))
            turned = turned or not np.array_equal(side, following)
            move = kinks.rest + settled.away - x
            side[:] = following
            x += move
            self._move([linear.apply(move) for linear in block.columns])
        if turned:
            self.past.clear()
        self.past.append((self.x.copy(), np.concatenate(self.images)))
        return worst

    def _move(self, moves: Iterable[Any]) -> None:
        for image, slope, bend, move in zip(self.images, self.slopes, self.bends, moves, strict=True):
            image += move
            slope += bend * move

    def extrapolate(self) -> None:
        """Go to where the last rounds tend to, if that is lower and no variable has to change sides for it.

        Of all averages of their points it is the one whose last moves, averaged alike, are the shortest [And65].
        """
        if len(self.past) <= _WINDOW:
            return
        points, images = (np.array(part) for part in zip(*self.past, strict=True))
        moves = np.sqrt(np.concatenate(self.bends)) * np.diff(images, axis=0)
        ridges = np.sqrt(self.diagonal) * np.diff(points, axis=0)
        weights = np.linalg.lstsq(moves @ moves.T + ridges @ ridges.T, np.ones(_WINDOW), rcond=1e-14)[0]
        if not weights.sum() > 0.0:
            return
        weights /= weights.sum()
        step, move = weights @ points[1:] - self.x, weights @ images[1:] - images[-1]
        push = np.where(self.side > 0, self.kinks.high, np.where(self.side < 0, self.kinks.low, 0.0))
        change = float((self.vector + push + self.diagonal * (self.x + 0.5 * step)) @ step)
        change += float((np.concatenate(self.slopes) + 0.5 * np.concatenate(self.bends) * move) @ move)
        x = self.x + step
        self.past.clear()
        if change < 0.0 and np.array_equal(np.where(self.kinks.free, 1.0, np.sign(x - self.kinks.rest)), self.side):
            self.x[:] = x
            self._move(np.split(move, np.cumsum([image.size for image in self.images])[:-1]))


class _Block:
    """The columns of some variables, their Gram matrix, and its latest factor."""

    def __init__(self, part: slice, columns: list[Map]) -> None:
        self.part, self.columns = part, columns
        self.known: Any = None
        self.moving: Any = None
        self.factor: Any = None

    def gram(self, bends: list[Vector], diagonal: Vector) -> Vector:
        """The sum of ``A' diag(bend) A`` and the diagonal."""
        if self.known is None:
            self.known = np.diag(diagonal[self.part])
            for linear, bend in zip(self.columns, bends, strict=True):
                gram = linear.gram(bend)
                self.known += gram.toarray() if sp.issparse(gram) else gram
        return np.asarray(self.known)

    def solve(self, gram: Vector, moving: NDArray[np.intp], rhs: Vector) -> Vector | None:
        """Solve with rows and columns of the Gram matrix, with the factor of the last time if they are the same."""
        if not moving.size:
            return rhs
        if self.moving is None or not np.array_equal(moving, self.moving):
            self.factor, info = scipy.linalg.lapack.dpotrf(gram[np.ix_(moving, moving)].T)
            self.moving = moving if info == 0 and not is_singular(self.factor, gram.diagonal()[moving]) else None
            if self.moving is None:
                return None
        return np.asarray(scipy.linalg.lapack.dpotrs(self.factor, rhs)[0])


def _in_double(linear: Map) -> Map:
    """Columns of another precision converted once, and not in every product."""
    if isinstance(linear, HStack) and len(linear.live()) == 1 and linear.live()[0][1].shape == linear.shape:
        return _in_double(linear.live()[0][1])
    matrix = linear.inner if isinstance(linear, Scaled) else linear
    if isinstance(matrix, Matrix) and matrix.array.dtype != np.float64:
        return Matrix(np.asarray(linear.dense(), dtype=np.float64))
    return linear

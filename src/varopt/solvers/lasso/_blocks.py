r"""Blocks of variables in turn, each at its exact optimum given the others, and where the rounds tend to.

Pivoting on the Gram matrix of a block minimises over its variables exactly. Once the variables stay on their sides of
the kinks the rounds are a linear sequence, whose limit is extrapolated [And65, BM21]: with the latest moves as columns
of U, the average of points whose moves, averaged alike, are the shortest has the weights

    c = (U'U)^-1 1 / (1'(U'U)^-1 1).                                                                                 (1)

.. [And65] D. G. Anderson. Iterative procedures for nonlinear integral equations. Journal of the ACM 12(4), 1965.
.. [BM21] Q. Bertrand, M. Massias. Anderson acceleration of coordinate descent. AISTATS, 2021.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._clock import tick
from varopt.composite import Composite, ridge_form, separable_kinks
from varopt.model.maps import HStack, Map, Matrix, Scaled
from varopt.solvers._method import Check, State
from varopt.solvers.lasso._sides import is_singular, pivoted

__all__ = ["BLOCK_VARIABLES", "Blocks", "approached"]

Vector = NDArray[np.float64]

BLOCK_VARIABLES = 128  # variables in a block
_WINDOW = 5  # moves of which the limit is extrapolated
_BLOCK_PATIENCE = 10  # of pivoting in a block


def approached(problem: Composite, x: Vector, rounds: int, state: State, check: Check) -> Vector:
    """A point closer to the optimum, by so many rounds over the blocks."""
    blocks = Blocks(problem, BLOCK_VARIABLES, x)
    for _ in range(rounds):
        if blocks.round() is None:
            break
        state.latest = blocks.x.copy()
        check(state)
        blocks.extrapolate()
    return blocks.x


class Blocks:
    """A point, its image and gradient in the rows of squares, and the blocks of variables."""

    def __init__(self, problem: Composite, size: int, x: Vector) -> None:
        self.problem, self.x = problem, x.copy()
        self.kinks, _ = problem.structure(separable_kinks)
        self.side = np.where(self.kinks.free, 1.0, np.sign(x - self.kinks.rest))
        ridge = problem.structure(ridge_form)
        self.diagonal, self.vector = np.asarray(ridge.matrix.diagonal()), ridge.vector
        squares = [r for r in problem.squares if r.single is None]
        self.images = [np.array(r.linear.apply(x), dtype=np.float64) for r in squares]
        self.gradients = [r.weights * r.term.derivative(r.positions(x)) for r in squares]
        self.curvatures = [r.curvature for r in squares]
        parts = [slice(k, min(k + size, x.size)) for k in range(0, x.size, size)]
        self.blocks = [_Block(part, [_in_double(r.linear.columns(part)) for r in squares]) for part in parts]
        self.past: deque[tuple[Vector, Vector]] = deque(maxlen=_WINDOW + 1)

    def round(self) -> float | None:
        """Minimise over each block in turn; how much the gradients found exceeded what the kinks can balance.

        That is relative to the kinks, and to the largest gradient there may be where there is none; None where
        a block did not settle.
        """
        worst, turned = 0.0, False
        energy = 0.0
        for gradient, curvature in zip(self.gradients, self.curvatures, strict=True):
            live = curvature > 0.0
            energy += float(gradient[live] @ (gradient[live] / curvature[live]))
        for block in self.blocks:
            tick()
            part = block.part
            kinks, x, side = self.kinks.take(part), self.x[part], self.side[part]
            gradient = self.vector[part] + self.diagonal[part] * x
            for linear, outer in zip(block.columns, self.gradients, strict=True):
                gradient += linear.transpose_apply(outer)
            gram = block.gram(self.curvatures, self.diagonal)
            resting = np.maximum(np.maximum(-gradient - kinks.high, kinks.low + gradient), 0.0)
            moving = np.abs(gradient + np.where(side > 0, kinks.high, kinks.low))
            unit = np.where(kinks.free, np.sqrt(gram.diagonal()) * np.sqrt(energy), 0.5 * (kinks.high - kinks.low))
            worst = max(worst, float(np.max(np.where(side == 0, resting, moving) / np.maximum(unit, 1e-300))))
            settled = pivoted(gram, gradient - gram @ (x - kinks.rest), kinks, side, _BLOCK_PATIENCE, block.solve)
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
        for image, gradient, curvature, move in zip(self.images, self.gradients, self.curvatures, moves, strict=True):
            image += move
            gradient += curvature * move

    def extrapolate(self) -> None:
        """Go to where the last rounds tend to, if that is lower and no variable has to change sides for it.

        It is the average (1) of their points.
        """
        if len(self.past) <= _WINDOW:
            return
        points, images = (np.array(part) for part in zip(*self.past, strict=True))
        moves = np.sqrt(np.concatenate(self.curvatures)) * np.diff(images, axis=0)
        ridges = np.sqrt(self.diagonal) * np.diff(points, axis=0)
        weights = np.linalg.lstsq(moves @ moves.T + ridges @ ridges.T, np.ones(_WINDOW), rcond=1e-14)[0]  # (1)
        if not weights.sum() > 0.0:
            return
        weights /= weights.sum()
        step, move = weights @ points[1:] - self.x, weights @ images[1:] - images[-1]
        subgradient = np.where(self.side > 0, self.kinks.high, np.where(self.side < 0, self.kinks.low, 0.0))
        change = float((self.vector + subgradient + self.diagonal * (self.x + 0.5 * step)) @ step)
        change += float((np.concatenate(self.gradients) + 0.5 * np.concatenate(self.curvatures) * move) @ move)
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

    def gram(self, curvatures: list[Vector], diagonal: Vector) -> Vector:
        """The sum of ``A' diag(curvature) A`` and the diagonal."""
        if self.known is None:
            self.known = np.diag(diagonal[self.part])
            for linear, curvature in zip(self.columns, curvatures, strict=True):
                gram = linear.gram(curvature)
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

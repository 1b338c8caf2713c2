r"""The equations of a step with the multipliers of rows of large weight as unknowns of their own.

``H + A'DA`` loses H, and with it the step, where weights in D exceed 1 / rounding: those of long segments in trend
filtering do. The same step from the augmented system [Wright97, ch. 11]

    [ H   A'      ] [dx]   [ -residual ]
    [ A  -1 / D   ] [du] = [  r / D    ]                                                                            (1)

takes no harm from a large D. With every multiplier placed among the variables of its row this is a band too,
indefinite, and about four times the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

if TYPE_CHECKING:
    from varopt.solvers.interior_point._normal_equations import Stencil

__all__ = ["Augmented"]

Vector = NDArray[np.float64]


class Augmented:
    """The band of the augmented equations.

    Parameters
    ----------
    stencils : mapping
        The blocks whose multipliers are unknowns.
    size, width : int
        Number of variables, and half-width of the matrix of all else.
    """

    def __init__(self, stencils: Mapping[int, Stencil], size: int, width: int) -> None:
        slots = 1 + len(stencils)
        self.x = slots * np.arange(size)
        self.u: dict[int, NDArray[np.intp]] = {}
        entries = []
        for slot, (b, stencil) in enumerate(stencils.items(), start=1):
            starts = [part.start for part in stencil.parts]
            rows = np.arange(stencil.parts[0].stop - stencil.parts[0].start)
            self.u[b] = slots * (rows + (min(starts) + max(starts)) // 2) + slot
            for start, c in zip(starts, stencil.coefficients, strict=True):
                entries += [(self.u[b], self.x[start + rows], c), (self.x[start + rows], self.u[b], c)]
        self.reach = max([slots * width] + [int(np.abs(i - j).max(initial=0)) for i, j, _ in entries])
        self.template = np.zeros((3 * self.reach + 1, slots * size), order="F")
        self.template[2 * self.reach] = 1.0  # places that no unknown takes
        for i, j, c in entries:
            self.template[2 * self.reach + i - j, j] = c

    def factorise(self, band: Vector, weights: Mapping[int, Vector]) -> None:
        """Factorise for the given lower band of all else, and the weights D of each block's rows."""
        matrix, centre = self.template.copy(order="F"), 2 * self.reach
        for k, diagonal in enumerate(band):
            step = self.x[k] if k else 0
            columns = self.x[: self.x.size - k]
            matrix[centre + step, columns] = diagonal[: columns.size]
            matrix[centre - step, columns + step] = diagonal[: columns.size]
        for b, d in weights.items():
            matrix[centre, self.u[b]] = -1.0 / d
        self.weights = weights
        self.factor, self.pivots, info = scipy.linalg.lapack.dgbtrf(matrix, self.reach, self.reach, overwrite_ab=1)
        if info:
            raise np.linalg.LinAlgError("the augmented matrix is singular")

    def solve(self, rhs: Vector, row_rhs: Mapping[int, Vector]) -> tuple[Vector, dict[int, Vector]]:
        """The step in x for the given r, and ``A dx`` by the second row of (1)."""
        full = np.zeros(self.template.shape[1])
        full[self.x] = rhs
        for b, d in self.weights.items():
            full[self.u[b]] = row_rhs[b] / d
        full, _ = scipy.linalg.lapack.dgbtrs(self.factor, self.reach, self.reach, full, self.pivots, overwrite_b=1)
        return full[self.x], {b: (full[self.u[b]] + row_rhs[b]) / d for b, d in self.weights.items()}

"""The few combinations of many variables through which alone an objective sees them, where there are such.

.. [HMT11] N. Halko, P. G. Martinsson, J. A. Tropp. Finding structure with randomness. SIAM Review 53(2), 2011.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from varopt.model.maps import Matrix

if TYPE_CHECKING:
    from varopt.composite import Composite

__all__ = ["spanned"]

Vector = NDArray[np.float64]

_FOR_EACH = 8  # variables for each combination, at least
_MISSED = 1e-12  # share of a random vector's image below which it counts as none


def spanned(problem: Composite) -> Vector | None:
    """Orthonormal columns of which all that the objective sees is made; None where they would be many.

    The transposed rows and the matrix, times random vectors, span their range if that takes no more than these [HMT11];
    whether they do is seen on other random vectors.
    """
    rng = np.random.default_rng(0)
    most = problem.size // _FOR_EACH
    parts = [r.linear for r in problem.rows] + ([] if problem.matrix is None else [Matrix(problem.matrix)])
    probes = rng.standard_normal((2, problem.size))
    sizes = [float(np.linalg.norm(part.apply(probes))) for part in parts]
    sketch = np.zeros((most + 1, problem.size))
    sketch[0] = problem.vector / max(float(np.linalg.norm(problem.vector)), 1e-300)
    for part, size in zip(parts, sizes, strict=True):
        # Y = A Omega, Omega ~ N(0, 1): a range finder of fixed rank  [HMT11, algorithm 4.1]
        sketch[1:] += part.transpose_apply(rng.standard_normal((most, part.shape[0]))) / max(size, 1e-300)
    basis, triangle, _ = scipy.linalg.qr(sketch.T, mode="economic", pivoting=True, check_finite=False)
    pivots = np.abs(np.diagonal(triangle))
    rank = int(np.count_nonzero(pivots > _MISSED * pivots[0]))
    if rank > most:
        return None
    basis = basis[:, :rank]
    probes = probes - (probes @ basis) @ basis.T
    missed = [float(np.linalg.norm(part.apply(probes))) for part in parts]
    return basis if all(m <= _MISSED * size for m, size in zip(missed, sizes, strict=True)) else None

"""Bounds at 0 and 1 under a Gaussian, which knows of none: samples beyond are on the bound, and lose ranks by turns.

Where the mean may go beyond, most samples are on the bound, and an optimum there is reached at once; but then nothing
is learned about how that coordinate depends on the others. Where samples beyond lose ranks, the mean stays inside, as
an optimum inside wants it, and one on the bound is only approached. So the two take turns, and a search goes on by the
one that suits. The handicap is in the spirit of the penalties of [Ha09b], without weights to be adapted; its size and
the length of the turns were tried on BBOB f1 to f14 in 2 to 10 dimensions: `docs/benchmarks/black-boxes.md` says what
others cost.

Ha09b: N. Hansen, A. S. P. Niederberger, L. Guzzella and P. Koumoutsakos, *A method for handling uncertainty in
evolutionary optimization*, IEEE Transactions on Evolutionary Computation 13(1), 2009.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from varopt.families import RootedGaussian
from varopt.solvers.natural_gradient._update import AroundUpdate, Array, FamilyUpdate, GaussianUpdate

__all__ = ["BoundedUpdate", "reflect"]

FARTHEST = 2.0  # deviations that the mean may be beyond a bound: nearly all samples are on it, a few return


def reflect(u: Array) -> Array:
    """Reflect at 0 and 1 until inside. Uniform in the limit of a wide distribution; exact for what is inside."""
    if u.size == 0 or (u.min() >= 0.0 and u.max() <= 1.0):
        return u
    return np.where((u < 0.0) | (u > 1.0), 1.0 - np.abs(np.remainder(u, 2.0) - 1.0), u)


class BoundedUpdate(AroundUpdate, FamilyUpdate):
    """An update of a Gaussian some of whose coordinates have bounds at 0 and 1.

    What it samples beyond a bound is evaluated on it.

    The farther beyond, in deviations, the more ranks a sample loses: half the population for sqrt(d) squared
    deviations. While the bounds are *open* that ends, for a coordinate, as soon as the mean itself is beyond; while
    they are *closed* it does not, and takes the mean back. Generations are open and closed in turns of 10 + 2 d, in
    which a corner is reached from the middle. Ranks and positions are all that counts, so that invariance under
    increasing transformations of f is kept.

    Parameters
    ----------
    inner : GaussianUpdate
        The update of the Gaussian.
    columns : integer array
        The coordinates that have bounds.
    ranked : bool
        Whether `inner` goes by ranks. Where it goes by values these are left alone, and only the mean is held.
    """

    inner: GaussianUpdate

    def __init__(self, inner: GaussianUpdate, columns: NDArray[np.intp], *, ranked: bool = True) -> None:
        self.inner, self._ranked = inner, ranked
        self._columns = slice(None) if columns.size == inner.mean.size else columns  # a view, where all are bounded
        self._turn = 10 + 2 * inner.mean.size
        self._generation = 0

    @property
    def open(self) -> bool:
        """Whether the mean may stay beyond the bounds."""
        return self._generation // self._turn % 2 == 0

    @property
    def family(self) -> RootedGaussian:
        return self.inner.family

    def tell(self, points: Array, values: Array) -> None:
        coordinates = points[:, self._columns]
        inside = coordinates.min() >= 0.0 and coordinates.max() <= 1.0
        if self._ranked and not inside:
            values = self._handicapped(coordinates - np.clip(coordinates, 0.0, 1.0), values)
        self.inner.tell(points, values)
        if not inside:
            self.inner.hold(self._columns, FARTHEST)
        self._generation += 1

    def _handicapped(self, beyond: Array, values: Array) -> Array:
        """Ranks instead of values, raised by what points are beyond."""
        mean = self.inner.mean[self._columns]
        beyond = beyond / self.inner.deviations[self._columns]
        if self.open:
            beyond = np.where((mean < 0.0) | (mean > 1.0), 0.0, beyond)
        ranks = np.searchsorted(np.sort(values), values)
        handicap = 0.5 * values.size * np.einsum("ij,ij->i", beyond, beyond) / math.sqrt(self.inner.mean.size)
        return np.where(np.isfinite(values), ranks + handicap, np.inf)

"""From the vectors that distributions sample to rows of a space, and back.

A Gaussian lives on all of R^d; coordinates of the space are its images. Reals and integers occupy the unit interval;
where there are only reals, those beyond it are on the bound (see `BoundedUpdate`); beside integers and choices all are
reflected, which was found to reach more targets. An integer is the cell of width 1/K that the coordinate falls into
(or, on a logarithmic scale, a cell as wide as its number is on that scale). The order of n things is the order of n
coordinates (Thurstone's model). A choice is its own index: distributions over choices sample indices.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from varopt.search._space import SpaceLayout
from varopt.solvers.natural_gradient import reflect

__all__ = ["Coding"]

Array = NDArray[np.float64]


class Coding:
    """The map between latent vectors and rows."""

    def __init__(self, layout: SpaceLayout) -> None:
        self.layout = layout
        low, high = layout.low.copy(), layout.high.copy()
        low[layout.integer] -= 0.5
        high[layout.integer] += 0.5
        self._log = layout.log.any()
        low[layout.log], high[layout.log] = np.log(low[layout.log]), np.log(high[layout.log])
        self._low, self._width = low, high - low
        self._plain = layout.real.size == layout.columns  # only reals: nothing to round or to sort

    def rows(self, latent: Array) -> Array:
        """What latent vectors stand for, of the same shape."""
        layout = self.layout
        if self._plain:
            rows = self._low + self._width * latent
            if self._log:
                rows = np.minimum(np.maximum(rows, self._low), self._low + self._width)  # nothing overflows
                rows[:, layout.log] = np.exp(rows[:, layout.log])
            return np.minimum(np.maximum(rows, layout.low), layout.high)  # np.clip takes twice as long for few numbers
        rows = latent.copy()
        numeric = np.concatenate((layout.real, layout.integer))
        if numeric.size:
            values = self._low[numeric] + self._width[numeric] * reflect(latent[:, numeric])
            logs = layout.log[numeric]
            values[:, logs] = np.exp(values[:, logs])
            integers = slice(layout.real.size, None)
            values[:, integers] = np.floor(values[:, integers] + 0.5)
            rows[:, numeric] = np.clip(values, layout.low[numeric], layout.high[numeric])
        for where in layout.permutations:
            rows[:, where] = np.argsort(latent[:, where], axis=1, kind="stable")
        return layout.settled(rows)

    def latent(self, rows: Array) -> Array:
        """Latent vectors that stand for these rows: the middle of a cell, equally spaced keys of an order."""
        layout = self.layout
        latent = np.array(rows, dtype=np.float64)
        latent[:, layout.log] = np.log(latent[:, layout.log])
        numeric = np.concatenate((layout.real, layout.integer))
        latent[:, numeric] = (latent[:, numeric] - self._low[numeric]) / self._width[numeric]
        for where in layout.permutations:
            n = where.stop - where.start
            latent[:, where] = (np.argsort(rows[:, where], axis=1) + 0.5) / n
        return latent

    def cells(self, columns: NDArray[np.intp], latent: Array) -> tuple[Array, Array]:
        """Both ends of the cells in which latent values of integer columns lie, of shape (..., columns)."""
        low, width, logs = self._low[columns], self._width[columns], self.layout.log[columns]
        first, last = self.layout.low[columns], self.layout.high[columns]
        value = low + width * reflect(latent)
        value[..., logs] = np.exp(value[..., logs])
        middle = np.clip(np.floor(value + 0.5), first, last)
        below, above = middle - 0.5, middle + 0.5
        below[..., logs], above[..., logs] = np.log(below[..., logs]), np.log(above[..., logs])
        return (below - low) / width, (above - low) / width

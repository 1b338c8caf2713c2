"""Independent updates of groups of columns, ranked together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from varopt.families import Product
from varopt.solvers.natural_gradient._update import Array, FamilyUpdate

__all__ = ["ProductUpdate"]


class ProductUpdate(FamilyUpdate):
    """p(x) = p_1(x_1) p_2(x_2) ...: each part is told its own columns and everybody's values.

    Parameters
    ----------
    parts : sequence of (columns, update)
        Which columns each part rules; together all of them. All parts expect the same population.
    """

    def __init__(self, parts: Sequence[tuple[NDArray[np.intp], FamilyUpdate]]) -> None:
        self.parts = tuple(parts)
        self.population = max(part.population for _, part in self.parts)
        self._columns = sum(columns.size for columns, _ in self.parts)

    @property
    def family(self) -> Product:
        """The product of the parts' families, in their order; choices are one-hot in it."""
        return Product({number: part.family for number, (_, part) in enumerate(self.parts)})

    def refresh(self, rng: np.random.Generator) -> None:
        for _, part in self.parts:
            part.refresh(rng)

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        points = np.empty((count, self._columns))
        for columns, part in self.parts:
            points[:, columns] = part.sample(rng, count)
        return points

    def tell(self, points: Array, values: Array) -> None:
        for columns, part in self.parts:
            part.tell(points[:, columns], values)

    @property
    def mean(self) -> Array:
        mean = np.empty(self._columns)
        for columns, part in self.parts:
            mean[columns] = part.mean
        return mean

    @property
    def spread(self) -> float:
        return max(part.spread for _, part in self.parts)

    def exhausted(self) -> str:
        reasons = [part.exhausted() for _, part in self.parts]
        return reasons[0] if all(reasons) else ""

"""Rows that are in memory, as a table: for what works on parts of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.places._stored import DataColumn, DataPart, Table

__all__ = ["held_columns"]


class HeldColumn(DataColumn):
    """An array of a table in memory."""

    def __init__(self, table: InMemory, array: NDArray[Any]) -> None:
        super().__init__(table, array.shape, array.dtype)
        self.array = array


class InMemory(Table):
    """Arrays of one length."""

    where = "in memory"

    def __init__(self, count: int) -> None:
        self.count = count

    def parts(self, columns: Sequence[DataColumn], rows: int) -> Iterator[Callable[[], DataPart]]:
        """Views of the arrays."""
        for start in range(0, self.count, rows):
            part = _part(columns, slice(start, min(start + rows, self.count)))
            yield lambda part=part: part  # type: ignore[misc]

    def sample(self, columns: Sequence[DataColumn], rows: int, rng: np.random.Generator) -> DataPart:
        """Rows at random."""
        return _part(columns, np.sort(rng.choice(self.count, min(rows, self.count), replace=False)))


def _part(columns: Sequence[DataColumn], index: Any) -> DataPart:
    return DataPart(index, {c.key: c.array[index] for c in columns if isinstance(c, HeldColumn)})


def held_columns(*arrays: NDArray[Any]) -> list[DataColumn]:
    """Arrays in memory of one length as the columns of a table."""
    table = InMemory(len(arrays[0]))
    return [HeldColumn(table, array) for array in arrays]

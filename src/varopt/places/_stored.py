"""Arrays that are not in memory: where they are, and how a part of their rows is brought here."""

from __future__ import annotations

import operator
import os
import secrets
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["DataColumn", "DataPart", "Derived", "Stored", "Table", "at", "columns_in", "joined"]

Index = slice | NDArray[np.intp]

_MOST_THREADS = 8  # that work on parts side by side: more wait for memory


@dataclass(eq=False)
class DataPart:
    """Some rows of a table, and what was read of them.

    Attributes
    ----------
    index : slice or array of int
        Which rows of the whole.
    arrays : dict
        What was read, by the keys of columns.
    """

    index: Index
    arrays: dict[str, NDArray[Any]]

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.index.stop - self.index.start if isinstance(self.index, slice) else int(self.index.size)

    def row(self, position: int) -> int:
        """The number in the whole of a row of the part."""
        return self.index.start + position if isinstance(self.index, slice) else int(self.index[position])

    def take(self, chosen: NDArray[np.intp]) -> DataPart:
        """Some of its rows, as a copy."""
        index = self.index.start + chosen if isinstance(self.index, slice) else self.index[chosen]
        return DataPart(index, {key: array[chosen] for key, array in self.arrays.items()})

    @property
    def bytes(self) -> int:
        """What its arrays take."""
        return sum(array.nbytes for array in self.arrays.values())


def joined(parts: Sequence[DataPart]) -> DataPart:
    """Several parts as one, in the order of their rows."""
    parts = sorted(parts, key=lambda part: part.row(0))
    index = np.concatenate([np.r_[p.index] if isinstance(p.index, slice) else p.index for p in parts])
    return DataPart(index, {key: np.concatenate([p.arrays[key] for p in parts]) for key in parts[0].arrays})


class Table(ABC):
    """Rows that are somewhere else, read together; its columns are what a model refers to."""

    count: int
    where: str  # in words, for messages: "on disk", "in chunks"
    counted: bool = False  # whether it took a pass over the data to count its rows
    sample_reads: int = 0  # passes that it takes to draw a sample

    @abstractmethod
    def parts(self, columns: Sequence[DataColumn], rows: int) -> Iterator[Callable[[], DataPart]]:
        """All rows, about so many at a time: functions that read a part, one after another and from any thread."""

    @abstractmethod
    def sample(self, columns: Sequence[DataColumn], rows: int, rng: np.random.Generator) -> DataPart:
        """So many rows from all over the table, in its order."""

    def locate(self, row: int) -> str:
        """Where a row is, for messages."""
        return f"row {row}"

    def reduce(
        self, columns: Sequence[DataColumn], task: Callable[[DataPart], Any], rows: int, tick: Callable[[int], None]
    ) -> Any:
        """The sum of what a task makes of every part, in their order; here, in threads.

        `tick` is told how many rows are done, part by part, and may raise to end the pass.
        """
        from concurrent.futures import ThreadPoolExecutor  # for data that are elsewhere only

        threads = min(os.cpu_count() or 1, _MOST_THREADS)
        pending: deque[Future[tuple[int, Any]]] = deque()
        total, done = None, 0
        pool = ThreadPoolExecutor(threads)
        try:
            for read in self.parts(columns, rows):
                pending.append(pool.submit(_read_and_do, read, task))
                while len(pending) > threads:
                    total, done = _added(total, done, pending.popleft())
                    tick(min(done, self.count))
            while pending:
                total, done = _added(total, done, pending.popleft())
                tick(min(done, self.count))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        return total


def _read_and_do(read: Callable[[], DataPart], task: Callable[[DataPart], Any]) -> tuple[int, Any]:
    part = read()
    return part.count, task(part)


def _added(total: Any, done: int, waiting: Future[tuple[int, Any]]) -> tuple[Any, int]:
    count, more = waiting.result()
    return more if total is None else total + more, done + count


class Stored(ABC):
    """An array whose rows are read when they are needed. It stands where a NumPy array may stand in a model."""

    __array_ufunc__ = None  # NumPy leaves mixed operators to us
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(np.prod(self.shape))

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def name(self) -> str:
        """How messages call it."""
        return "X" if self.ndim == 2 else "y"

    @property
    def where(self) -> str:
        """Where it is, in words."""
        return self.columns()[0].table.where

    @abstractmethod
    def read(self, part: DataPart) -> NDArray[Any]:
        """Its rows that belong to a part."""

    @abstractmethod
    def columns(self) -> list[DataColumn]:
        """What has to be read for it."""

    def __mul__(self, factor: Any) -> Any:
        if isinstance(factor, (int, float, np.number)):
            return Derived(partial(operator.mul, float(factor)), (self,))
        if isinstance(factor, (Stored, np.ndarray)) and self.ndim == np.ndim(factor) == 1:
            return Derived(operator.mul, (self, factor))
        return NotImplemented

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Any:
        if isinstance(other, (int, float, np.number)):
            return Derived(partial(operator.add, float(other)), (self,))
        if isinstance(other, (Stored, np.ndarray)) and self.ndim == np.ndim(other) == 1:
            return Derived(operator.add, (self, other))
        return NotImplemented

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self * -1.0

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, (list, tuple)) or not hasattr(other, "__neg__") else self + (-other)

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other

    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        raise ValueError(
            f"{self.name} is {self.where}, {' x '.join(map(str, self.shape))}: read it into memory "
            "yourself where it fits, or use what works on parts of its rows (vo.minimize of convex piecewise "
            "linear-quadratic terms, vo.certify, linear estimators)."
        )


class DataColumn(Stored):
    """A column of a table, or several side by side as a matrix."""

    def __init__(self, table: Table, shape: tuple[int, ...], dtype: Any, name: str = "") -> None:
        self.table, self.shape, self.dtype = table, shape, np.dtype(dtype)
        self.key, self._name = secrets.token_hex(16), name

    @property
    def name(self) -> str:
        return self._name or super().name

    def read(self, part: DataPart) -> NDArray[Any]:
        return part.arrays[self.key]

    def columns(self) -> list[DataColumn]:
        return [self]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "table": None}  # workers are handed what was read, not where it is

    def __repr__(self) -> str:
        return f"<{self.name}, {' x '.join(map(str, self.shape))}, {self.table.where}>"


@dataclass(eq=False)
class Derived(Stored):
    """A vector that is computed row by row from others when a part of them is read."""

    function: Callable[..., NDArray[Any]]
    sources: tuple[Any, ...]
    shape: tuple[int, ...] = field(init=False)
    dtype: np.dtype[Any] = field(init=False, default=np.dtype(np.float64))

    def __post_init__(self) -> None:
        lengths = {len(source) for source in self.sources}
        if len(lengths) > 1:
            raise ValueError(f"arrays must have one length; got {' and '.join(map(str, sorted(lengths)))} rows.")
        self.shape = (lengths.pop(),)

    @property
    def name(self) -> str:
        return str(next(source.name for source in self.sources if isinstance(source, Stored)))

    def read(self, part: DataPart) -> NDArray[Any]:
        return self.function(*(at(source, part) for source in self.sources))

    def columns(self) -> list[DataColumn]:
        return columns_in(self.sources)


def at(value: Any, part: DataPart) -> Any:
    """The rows of a part of what is stored, or of an array in memory; a number as it is."""
    if isinstance(value, Stored):
        return value.read(part)
    return value if np.ndim(value) == 0 else np.asarray(value)[part.index]


def columns_in(values: Sequence[Any]) -> list[DataColumn]:
    """The columns that have to be read for some values, each once."""
    found = {c.key: c for value in values if isinstance(value, Stored) for c in value.columns()}
    return list(found.values())

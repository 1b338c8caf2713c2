"""Rows that come in chunks, one after another: an iterable that can be started again, or Parquet files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.places._stored import DataColumn, DataPart, Table

__all__ = ["ChunkColumn", "InChunks", "OfIterable"]

_RESERVOIR = 1 << 23  # entries of the sample that is drawn while rows are counted


class InChunks(Table):
    """Chunks ``(X, y)`` or ``(X, y, weight)`` in an order that is always the same."""

    where = "read in chunks"
    X: DataColumn
    y: DataColumn | None = None
    weight: DataColumn | None = None

    @abstractmethod
    def chunks(self, rows: int) -> Iterator[tuple[NDArray[Any], ...]]:
        """The arrays, chunk by chunk, of about so many rows if the source lets one choose."""

    @property
    def _held(self) -> list[DataColumn]:
        return [c for c in (self.X, self.y, self.weight) if c is not None]

    def parts(self, columns: Sequence[DataColumn], rows: int) -> Iterator[Callable[[], DataPart]]:
        """The chunks; longer ones are cut."""
        start = 0
        for arrays in self.chunks(rows):
            for first in range(0, len(arrays[0]), rows):
                cut = [array[first : first + rows] for array in arrays]
                index = slice(start, start + len(cut[0]))
                part = DataPart(index, {c.key: array for c, array in zip(self._held, cut, strict=True)})
                start = index.stop
                if start > self.count:
                    self._other_length(start)
                yield lambda part=part: part  # type: ignore[misc]
        if start != self.count:
            self._other_length(start)

    def _other_length(self, found: int) -> None:
        few = "fewer" if found < self.count else "more"
        raise ValueError(
            f"the chunks have {few} rows than when they were first read ({self.count}): they must be the same each time"
            " they are started."
        )

    def sample(self, columns: Sequence[DataColumn], rows: int, rng: np.random.Generator) -> DataPart:
        """Rows at random from every chunk, in one pass."""
        index, found = [], {c.key: [] for c in columns}  # type: ignore[var-annotated]
        for read in self.parts(columns, 1 << 30):
            part = read()
            start, stop = part.index.start, part.index.stop  # type: ignore[union-attr]
            wanted = (rows * stop) // self.count - (rows * start) // self.count
            chosen = np.sort(rng.choice(stop - start, min(wanted, stop - start), replace=False))
            index.append(start + chosen)
            for c in columns:
                found[c.key].append(part.arrays[c.key][chosen])
        return DataPart(np.concatenate(index), {key: np.concatenate(pieces) for key, pieces in found.items()})


class ChunkColumn(DataColumn):
    """What every chunk holds at one place."""


class OfIterable(InChunks):
    """An iterable of chunks, or a function that makes one. It is read once to count the rows and draw a sample."""

    counted = True

    def __init__(self, source: Any, rng: np.random.Generator) -> None:
        self._source = source
        if not callable(source) and iter(source) is source:
            raise ValueError(
                "an iterable of chunks must start again each time it is iterated over, and a generator does not: "
                "give the function that makes it."
            )
        self._survey(rng)

    def _start(self) -> Iterable[Any]:
        started: Iterable[Any] = self._source() if callable(self._source) else self._source
        return started

    def chunks(self, rows: int) -> Iterator[tuple[NDArray[Any], ...]]:
        """As they come, checked."""
        for number, chunk in enumerate(self._start()):
            yield self._checked(number, chunk)

    def _checked(self, number: int, chunk: Any) -> tuple[NDArray[Any], ...]:
        if not isinstance(chunk, (tuple, list)) or len(chunk) not in (1, 2, 3):
            raise ValueError(f"chunk {number} must be (X, y) or (X, y, weight); got {type(chunk).__name__}.")
        X, *vectors = (np.asarray(array) for array in chunk)
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise ValueError(f"X of chunk {number} must be a matrix of real numbers; got {X.dtype} of shape {X.shape}.")
        shape, names = self.__dict__.get("_shape"), ("y", "weight")
        if shape is not None and (X.shape[1], len(vectors)) != shape:
            raise ValueError(
                f"chunk {number} must have {shape[0]} columns and {shape[1]} vectors, as the first; "
                f"got {X.shape[1]} and {len(vectors)}."
            )
        for name, vector in zip(names, vectors, strict=False):
            if vector.shape != X.shape[:1]:
                raise ValueError(
                    f"{name} of chunk {number} must have one entry for each of {len(X)} rows; got shape {vector.shape}."
                )
        return (X, *vectors)

    def _survey(self, rng: np.random.Generator) -> None:
        """Count, and keep the rows with the smallest of random keys: a sample without knowing how many there are."""
        count, keys, index = 0, np.zeros(0), np.zeros(0, dtype=np.intp)
        kept: list[NDArray[Any]] = []
        for number, chunk in enumerate(self._start()):
            arrays = self._checked(number, chunk)
            if number == 0:
                self._shape = (arrays[0].shape[1], len(arrays) - 1)
                first, most = arrays, max(1000, _RESERVOIR // (arrays[0].shape[1] + 2))
                kept = [np.zeros((0, *a.shape[1:]), dtype=a.dtype) for a in arrays]
            fresh = rng.random(len(arrays[0]))
            below = fresh < (keys.max() if keys.size >= most else 2.0)
            keys, index = np.append(keys, fresh[below]), np.append(index, count + np.flatnonzero(below))
            kept = [np.concatenate([k, a[below]]) for k, a in zip(kept, arrays, strict=True)]
            count += len(fresh)
            if keys.size > most:
                best = np.sort(np.argpartition(keys, most)[:most])
                keys, index, kept = keys[best], index[best], [k[best] for k in kept]
        if not count:
            raise ValueError("the iterable of chunks must not be empty.")
        self.count = count
        columns = [ChunkColumn(self, (count, *a.shape[1:]), a.dtype, n) for a, n in zip(first, "Xyw", strict=False)]
        self.X, self.y, self.weight = (*columns, None, None)[:3]  # type: ignore[assignment]
        self._kept = DataPart(index, {c.key: a for c, a in zip(columns, kept, strict=True)})

    def sample(self, columns: Sequence[DataColumn], rows: int, rng: np.random.Generator) -> DataPart:
        """Of the rows that were kept when they were counted."""
        size = self._kept.count
        chosen = slice(None) if size <= rows else np.sort(rng.choice(size, rows, replace=False))
        return DataPart(
            np.asarray(self._kept.index)[chosen], {key: array[chosen] for key, array in self._kept.arrays.items()}
        )

"""Columns of several tables that are read together, and the door: from what a user has to columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.places._chunks import OfIterable
from varopt.places._dask import DaskColumn, is_dask, of_dask, together
from varopt.places._device import OnDevice, is_device_array, lies_elsewhere, on_device
from varopt.places._files import RowsOfFile, npy, of_memmap, stretches
from varopt.places._parquet import OfDataset, dataset_of, is_dataset
from varopt.places._stored import DataColumn, DataPart, Stored, Table

__all__ = ["SMALL_MAPPED", "Files", "as_stored", "rows", "table_of"]

SMALL_MAPPED = 1 << 21  # entries of a memory-mapped matrix up to which it is read as any other array


class Files(Table):
    """Several files of rows, read side by side."""

    where = "on disk"

    def __init__(self, tables: Sequence[RowsOfFile]) -> None:
        self.tables, self.count = tuple(tables), tables[0].count

    def _slice(self, columns: Sequence[DataColumn], index: slice) -> DataPart:
        arrays: dict[str, NDArray[Any]] = {}
        for table in self.tables:
            arrays |= table.slice([c for c in columns if c.table is table], index)
        return DataPart(index, arrays)

    def parts(self, columns: Sequence[DataColumn], rows: int) -> Iterator[Callable[[], DataPart]]:
        """All rows, in order."""
        for start in range(0, self.count, rows):
            index = slice(start, min(start + rows, self.count))
            yield lambda index=index: self._slice(columns, index)  # type: ignore[misc]

    def sample(self, columns: Sequence[DataColumn], rows: int, rng: np.random.Generator) -> DataPart:
        """Short stretches, the same of all files."""
        starts, length = stretches(self.count, rows, rng)
        pieces = [self._slice(columns, slice(int(s), int(s) + length)).arrays for s in starts]
        index = (starts[:, None] + np.arange(length)).ravel()
        return DataPart(index, {c.key: np.concatenate([piece[c.key] for piece in pieces]) for c in columns})

    def locate(self, row: int) -> str:
        return self.tables[0].locate(row)


def table_of(columns: Sequence[DataColumn]) -> Table:
    """The one table that columns are read from together; a `ValueError` where there is none."""
    tables = list({id(c.table): c.table for c in columns}.values())
    if len(tables) > 1 and all(isinstance(table, OnDevice) for table in tables):
        return _one_device(tables)  # type: ignore[arg-type]
    if len(tables) > 1 and all(isinstance(c, DaskColumn) for c in columns):
        return together(columns)  # type: ignore[arg-type]
    counts = {table.count for table in tables}
    if len(counts) > 1:
        raise ValueError(f"data must have one number of rows; got {' and '.join(map(str, sorted(counts)))}.")
    if len(tables) == 1:
        return tables[0]
    files = [table for table in tables if isinstance(table, RowsOfFile)]
    if len(files) < len(tables):
        places = " and ".join(sorted({table.where for table in tables}))
        raise ValueError(f"X, y and weights must be read together, and these are {places}, in tables of their own.")
    return Files(files)


def _one_device(tables: list[OnDevice]) -> OnDevice:
    """Arrays that were handed over one by one are one table if they are on one device."""
    places, counts = {str(t.device) for t in tables}, {t.count for t in tables}
    if len(places) > 1 or len(counts) > 1:
        told = " and ".join(sorted(f"{t.count} rows on {t.device}" for t in tables))
        raise ValueError(f"data must be of one number of rows and on one device; got {told}.")
    return tables[0]


def as_stored(value: Any, name: str = "") -> Stored | None:
    """What is not in memory as an array of ours; None for all else, and for what is small."""
    if isinstance(value, Stored):
        return value
    if type(value) is np.memmap and value.size > SMALL_MAPPED and value.dtype.kind in "biuf":
        return of_memmap(value, name)
    if is_dask(value):
        return of_dask(value, name)
    if lies_elsewhere(value):
        return on_device(value)[0]
    return None


def rows(source: Any, *, X: Any = None, y: Any = None, weight: Any = None) -> Any:
    """Data that need not fit in memory: what it returns has columns ``X``, ``y`` and ``weight`` for a model or a fit.

    Parameters
    ----------
    source : path, pattern, list of paths, pyarrow dataset, or iterable of chunks
        Parquet files or folders of them; a ``.npy`` file, whose array is X; an array of PyTorch, CuPy or JAX, which
        stays on its device; an array or a data frame of Dask; or an iterable of chunks ``(X, y)`` or
        ``(X, y, weight)`` that starts again each time it is iterated over, or a function that makes one.
    X : list of str, optional
        The columns of Parquet files that are features; by default all but those of `y` and `weight`.
    y, weight : str, optional
        The columns of targets and weights; beside a ``.npy`` file or an array, those of theirs.

    Returns
    -------
    object
        With ``count``, ``X``, ``y`` and ``weight`` (None where there is none).

    Examples
    --------
    >>> import numpy as np, varopt as vo
    >>> def chunks():
    ...     for seed in range(3):
    ...         rng = np.random.default_rng(seed)
    ...         X = rng.standard_normal((500, 2))
    ...         yield X, X @ [1.0, -1.0] + rng.standard_normal(500)
    >>> data = vo.rows(chunks)
    >>> w = vo.Variable(2)
    >>> r = vo.minimize(vo.sum(vo.pinball(data.y - data.X @ w, 0.7)))
    >>> r.status.name, data.count
    ('OPTIMAL', 1500)
    """
    if is_dask(source):
        return _on_cluster(source, X, y, weight)
    if is_device_array(source):
        return _Arrays(*on_device(source, y, weight))  # type: ignore[arg-type]
    if isinstance(source, (str, Path)) and str(source).endswith(".npy"):
        return _arrays(source, y, weight)
    if isinstance(source, (str, Path)) or is_dataset(source):
        return OfDataset(dataset_of(source), X, y, weight)
    if isinstance(source, (list, tuple)) and source and all(isinstance(s, (str, Path)) for s in source):
        return OfDataset(dataset_of(source), X, y, weight)
    if not (callable(source) or hasattr(source, "__iter__")):
        raise ValueError(f"source must be a path, a dataset or an iterable of chunks; got {type(source).__name__}.")
    if X is not None or y is not None or weight is not None:
        raise ValueError("X, y and weight name columns of files; an iterable has them in its chunks.")
    return OfIterable(source, np.random.default_rng(0))


def _on_cluster(source: Any, X: Any, y: Any, weight: Any) -> _Arrays:
    """Columns of a data frame by name, or arrays beside each other."""
    if hasattr(source, "columns"):
        names = list(source.columns)
        wanted = [n for n in (y, weight) if isinstance(n, str)] + list(X or [])
        if absent := [n for n in wanted if n not in names]:
            raise ValueError(f"the data have no column {absent[0]!r}; they have {', '.join(map(repr, names))}.")
        features = list(X) if X is not None else [n for n in names if n not in (y, weight)]
        named = [isinstance(n, str) for n in (y, weight)]
        y, weight = (source[n] if isinstance(n, str) else n for n in (y, weight))
        source = source[features]
    else:
        named = [False, False]
    first = of_dask(source, "X")
    lengths = [first.table.lengths if of_frame else None for of_frame in named]  # columns of it need not be counted
    pairs = (("y", y), ("weight", weight))
    rest = [None if a is None else of_dask(a, n, own) for (n, a), own in zip(pairs, lengths, strict=True)]
    return _Arrays(first, *rest)


class _Arrays:
    """The columns of files that hold one array each, or of arrays on a device."""

    def __init__(self, X: DataColumn, y: DataColumn | None, weight: DataColumn | None) -> None:
        self.X, self.y, self.weight, self.count = X, y, weight, X.shape[0]
        table_of([c for c in (X, y, weight) if c is not None])


def _arrays(X: Any, y: Any, weight: Any) -> _Arrays:
    given = {"y": y, "weight": weight}
    columns = [None if path is None else npy(path, name) for name, path in given.items()]
    matrix = npy(X, "X")
    if matrix.ndim != 2:
        raise ValueError(f"{X} must hold a matrix; got shape {matrix.shape}.")
    return _Arrays(matrix, *columns)

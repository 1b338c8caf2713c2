"""Parquet files, folders of them, and whatever else `pyarrow.dataset` reads."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.places._chunks import ChunkColumn, InChunks

__all__ = ["OfDataset", "dataset_of", "is_dataset"]

_PAGES = 1 << 16  # rows that are decoded at once


def is_dataset(source: Any) -> bool:
    """Whether it is a dataset of pyarrow, without importing it."""
    return type(source).__module__.startswith("pyarrow") and hasattr(source, "to_batches")


def dataset_of(source: Any) -> Any:
    """A path, a pattern of paths, a list of them or a dataset, as a dataset."""
    if is_dataset(source):
        return source
    import pyarrow.dataset  # an extra, and slow to load

    paths = [source] if isinstance(source, (str, Path)) else list(source)
    files = [
        f
        for p in paths
        for f in (
            sorted(glob.glob(str(p)))  # noqa: PTH207  (patterns with folders in them)
            if glob.has_magic(str(p))
            else [str(p)]
        )
    ]
    missing = [str(p) for p in (files or paths) if not Path(p).exists()]
    if missing or not files:
        raise ValueError(f"there is no file {missing[0]}.")
    try:
        found = pyarrow.dataset.dataset(files[0] if len(files) == 1 else files, format="parquet")
    except pyarrow.ArrowInvalid as error:
        which = re.search(r"'([^']+)'", str(error))
        raise ValueError(
            f"{which[1] if which else files[0]} cannot be read as a Parquet file; of a folder every file has to be one."
        ) from error
    if not found.files:
        raise ValueError(f"there are no Parquet files in {files[0]}.")
    return found


class OfDataset(InChunks):
    """Numeric columns of a dataset: features, and those of targets and weights."""

    where = "in Parquet files"
    sample_reads = 1

    def __init__(self, dataset: Any, X: Sequence[str] | None, y: str | None, weight: str | None) -> None:
        self._dataset = dataset
        self._files = list(getattr(dataset, "files", []))
        self._stamps = self._state()
        names = dataset.schema.names
        if len(set(names)) < len(names):
            raise ValueError("columns of a dataset must have different names.")
        features = [n for n in names if n not in (y, weight)] if X is None else [X] if isinstance(X, str) else list(X)
        wanted = [*features, *(n for n in (y, weight) if n is not None)]
        if absent := [n for n in wanted if n not in names]:
            raise ValueError(f"the data have no column {absent[0]!r}; they have {', '.join(map(repr, names))}.")
        if not features:
            raise ValueError("X must name at least one column.")
        self.features = features
        self._names = wanted
        for name in wanted:
            self._check(name)
        self.count = self._counted()
        if not self.count:
            raise ValueError("the data have no rows.")
        self.X = ChunkColumn(self, (self.count, len(features)), np.float64, "X")
        self.y = None if y is None else ChunkColumn(self, (self.count,), np.float64, y)
        self.weight = None if weight is None else ChunkColumn(self, (self.count,), np.float64, weight)

    def _check(self, name: str) -> None:
        kind = self._dataset.schema.field(name).type
        if not _is_numeric(kind):
            raise ValueError(f"column {name!r} must be numeric; got {kind}. Name the columns to use with X=[...].")

    def _counted(self) -> int:
        """How many rows there are; every file has the columns, and they are numbers there too."""
        total, first = 0, None
        for fragment in self._dataset.get_fragments():
            path = getattr(fragment, "path", "the dataset")
            try:
                schema, count = fragment.physical_schema, fragment.count_rows()
            except (OSError, ValueError) as reason:  # errors of Arrow are of these kinds
                raise ValueError(f"{path} cannot be read as a Parquet file: {reason}") from None
            first = set(schema.names) if first is None else first  # what no file holds comes from its folder's name
            for name in self._names:
                if name not in schema.names and name in first:
                    raise ValueError(f"{path} has no column {name!r}, which the first file has.")
                if name in schema.names and not _is_numeric(schema.field(name).type):
                    kind = schema.field(name).type
                    raise ValueError(f"column {name!r} must be numeric in every file; {path} has {kind}.")
            total += int(count)
        return total

    def _state(self) -> list[Any]:
        """When files were written, where they are on this machine, and how long they are."""
        return [(p, (s := Path(p).stat()).st_size, s.st_mtime_ns) for p in self._files if Path(p).exists()]

    def _check_unchanged(self) -> None:
        now = self._state()
        if now != self._stamps:
            path = next((old[0] for old in self._stamps if old not in now), self._files[0])
            raise ValueError(f"{path} was changed while it was read: start again once it is complete.")

    def chunks(self, rows: int) -> Iterator[tuple[NDArray[Any], ...]]:
        """Batches, with their columns side by side."""
        width = len(self.features)
        # Little is read ahead: a batch is worked on as long as it takes to decode, and many would fill the memory.
        batches = self._dataset.to_batches(
            columns=self._names, batch_size=min(rows, _PAGES), batch_readahead=2, fragment_readahead=1
        )
        self._check_unchanged()
        while (batch := self._next(batches)) is not None:
            if not batch.num_rows:
                continue
            X = np.empty((batch.num_rows, width))
            for j in range(width):
                X[:, j] = _numbers(batch.column(j))
            yield (X, *(_numbers(batch.column(j)) for j in range(width, len(self._names))))
        self._check_unchanged()

    def _next(self, batches: Iterator[Any]) -> Any:
        try:
            return next(batches, None)
        except (OSError, ValueError) as reason:
            self._check_unchanged()
            raise ValueError(f"the Parquet files cannot be read: {reason}") from None

    def locate(self, row: int) -> str:
        """The file and the row in it."""
        for fragment in self._dataset.get_fragments():
            count = fragment.count_rows()
            if row < count:
                return f"row {row} of {fragment.path}"
            row -= count
        return f"row {row}"


def _is_numeric(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _numbers(column: Any) -> NDArray[np.float64]:
    """As float64; what is missing is NaN."""
    if column.null_count:
        import pyarrow as pa

        column = column.cast(pa.float64())
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)

"""Arrays and data frames of Dask: parts are worked on where they are, and only what is small comes back."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from varopt._threads import one_thread
from varopt.places._heap import memory_kept
from varopt.places._stored import DataColumn, DataPart, Table

__all__ = ["DaskColumn", "OnCluster", "is_dask", "of_dask", "together"]

_BRANCHES, _BROUGHT = 8, 64  # sums that are added up in one task, and that come here: rows near a knot travel once
_PARTITION_ROWS = 1 << 14  # rows of a partition that are worked on at once: what they need stays in the cache


def is_dask(value: Any) -> bool:
    """Whether it is a collection of Dask, without importing it."""
    return type(value).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(value, "to_delayed")


class DaskColumn(DataColumn):
    """An array of Dask, or columns of a frame, by their partitions."""

    table: OnCluster

    def __init__(self, table: OnCluster, source: Any, parts: list[Any], shape: tuple[int, ...], name: str) -> None:
        super().__init__(table, shape, np.float64, name)
        self.source, self.partitions = source, parts

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "source": None, "partitions": None}


class OnCluster(Table):
    """Partitions of known lengths, read by the workers that hold them."""

    where = "on a Dask cluster"
    sample_reads = 1

    def __init__(self, lengths: Sequence[int], counted: bool) -> None:
        self.lengths, self.count, self.counted = tuple(lengths), int(sum(lengths)), counted
        self._found: dict[tuple[str, ...], list[Any]] = {}

    @property
    def _starts(self) -> list[int]:
        return [0, *np.cumsum(self.lengths).tolist()]

    def parts(self, columns: Sequence[DataColumn], rows: int) -> Iterator[Callable[[], DataPart]]:
        """The partitions, brought here one by one."""
        dask = _dask()
        for i, start in enumerate(self._starts[:-1]):
            if self.lengths[i]:
                yield dask.delayed(_part)(start, _keys(columns), self._partitions(columns)[i]).compute

    def _partitions(self, columns: Sequence[DataColumn]) -> list[Any]:
        """What holds the arrays of each partition: asked for again and again, and found once."""
        known = tuple(c.partitions[0].key for c in columns if isinstance(c, DaskColumn))
        if known not in self._found:
            self._found[known] = _coarse([c.partitions for c in columns if isinstance(c, DaskColumn)])
        return self._found[known]

    def sample(self, columns: Sequence[DataColumn], rows: int, rng: np.random.Generator) -> DataPart:
        """Rows at random from every partition, in proportion."""
        dask = _dask()
        tasks, starts, partitions = [], self._starts, self._partitions(columns)
        for i, length in enumerate(self.lengths):
            wanted = rows * starts[i + 1] // self.count - rows * starts[i] // self.count
            seed = int(rng.integers(1 << 32))
            if length and wanted:
                tasks.append(dask.delayed(_drawn)(wanted, seed, starts[i], _keys(columns), partitions[i]))
        drawn = dask.compute(*tasks)
        return DataPart(
            np.concatenate([part.index for part in drawn]),
            {c.key: np.concatenate([part.arrays[c.key] for part in drawn]) for c in columns},
        )

    def reduce(
        self, columns: Sequence[DataColumn], task: Callable[[DataPart], Any], rows: int, tick: Callable[[int], None]
    ) -> Any:
        """One task for each partition; of many, a tree of sums."""
        dask = _dask()
        work = dask.delayed(task, traverse=False)  # it travels once, not with every partition
        sums = [
            dask.delayed(_done)(work, start, _keys(columns), self._partitions(columns)[i])
            for i, start in enumerate(self._starts[:-1])
            if self.lengths[i]
        ]
        while len(sums) > _BROUGHT:
            sums = [dask.delayed(_added)(sums[i : i + _BRANCHES]) for i in range(0, len(sums), _BRANCHES)]
        tick(0)
        total = _added(dask.compute(*sums))
        tick(self.count)
        return total


def _dask() -> Any:
    """Dask, an extra, when it is first needed."""
    import dask

    return dask


def _keys(columns: Sequence[DataColumn]) -> list[str]:
    return [c.key for c in columns]


# -- Coarse tasks ------------------------------------------------------------------------------------------------------


class _Reads:
    """The part of a graph that makes the arrays of a partition: worked through where a task needs them.

    Dask sends and follows every task of a graph, at a millisecond or more each; a pass has one for each partition.
    """

    def __init__(self, graph: dict[Any, Any], keys: list[Any]) -> None:
        self.graph, self.keys = graph, keys

    def read(self) -> list[Any]:
        """The arrays."""
        return list(_dask().get(self.graph, self.keys))


class _Step:
    """One task of a graph, worked on beside what it needs."""

    def __init__(self, key: Any, task: Any, needed: list[Any]) -> None:
        self.key, self.task, self.needed = key, task, needed


def _coarse(columns: Sequence[Sequence[Any]]) -> list[Any]:
    """The graph of each partition as one piece, if no other needs any of it; else, and of what is held, the arrays."""
    from dask.optimization import cull

    alike = [list(parts) for parts in zip(*columns, strict=True)]
    whole: dict[Any, Any] = {}
    for graph in {id(p.dask): p.dask for parts in alike for p in parts}.values():
        whole.update(graph)
    keys = [[p.key for p in parts] for parts in alike]
    if not _holds_futures(whole):
        reads = [_Reads(cull(whole, mine)[0], mine) for mine in keys]
        if len(set().union(*(r.graph for r in reads))) == sum(len(r.graph) for r in reads):
            return reads
    named = _renamed(cull(whole, [key for mine in keys for key in mine])[0])
    return [[named[key] for key in mine] for mine in keys]


def _renamed(graph: dict[Any, Any]) -> dict[Any, Any]:
    """What each task of a graph makes, under names that nobody else has; what a cluster holds keeps its own.

    The names of a collection are Dask's: to persist it, Dask makes its graph over, and where passes had used the same
    names for the graph as it was, a name would stand for two.
    """
    from dask.core import get_dependencies
    from dask.delayed import Delayed
    from dask.optimization import cull

    ours: dict[Any, Any] = {}
    held = set(cull(graph, [key for key, task in graph.items() if _holds_futures({key: task})])[0])
    token = uuid.uuid4().hex
    names = {key: key if key in held else f"rows-{token}-{i}" for i, key in enumerate(graph)}
    for key, task in graph.items():
        if key in held:
            ours[key] = task
        else:
            needed = list(get_dependencies(graph, key))
            ours[names[key]] = (_worked, _Step(key, task, needed), [names[k] for k in needed])
    return {key: Delayed(name, ours) for key, name in names.items()}


def _holds_futures(graph: dict[Any, Any]) -> bool:
    """Whether a cluster has some of it already."""
    try:
        from distributed import futures_of
    except ImportError:
        return False
    needed = [getattr(task, "args", ()) for task in graph.values()]
    return bool(futures_of([graph, needed]))


# -- What runs on the workers ------------------------------------------------------------------------------------------


def _worked(step: _Step, values: list[Any]) -> Any:
    given = {key: (partial(_itself, value),) for key, value in zip(step.needed, values, strict=True)}
    return _dask().get({**given, step.key: step.task}, step.key)


def _itself(value: Any) -> Any:
    return value


def _length(arrays: Sequence[Any] | _Reads) -> int:
    return len((arrays.read() if isinstance(arrays, _Reads) else arrays)[0])


def _part(start: int, keys: list[str], arrays: Sequence[Any] | _Reads) -> DataPart:
    read = [np.asarray(array) for array in (arrays.read() if isinstance(arrays, _Reads) else arrays)]
    return DataPart(slice(start, start + len(read[0])), dict(zip(keys, read, strict=True)))


def _drawn(rows: int, seed: int, start: int, keys: list[str], arrays: Sequence[Any] | _Reads) -> DataPart:
    part = _part(start, keys, arrays)
    edges = np.linspace(0, part.count, min(rows, part.count) + 1).astype(np.intp)
    chosen = edges[:-1] + (np.random.default_rng(seed).random(edges.size - 1) * np.diff(edges)).astype(np.intp)
    return part.take(chosen)


def _done(task: Callable[[DataPart], Any], start: int, keys: list[str], arrays: Sequence[Any] | _Reads) -> Any:
    part, total = _part(start, keys, arrays), None
    with one_thread(), memory_kept():
        for first in range(0, part.count, _PARTITION_ROWS):
            cut = slice(first, min(first + _PARTITION_ROWS, part.count))
            index = slice(start + cut.start, start + cut.stop)
            done = task(DataPart(index, {key: array[cut] for key, array in part.arrays.items()}))
            total = done if total is None else total + done
    return total


def _added(sums: Sequence[Any]) -> Any:
    total = sums[0]
    for one in sums[1:]:
        total = total + one
    return total


# -- From collections to columns ---------------------------------------------------------------------------------------


def of_dask(value: Any, name: str = "", lengths: Sequence[int] | None = None) -> DaskColumn:
    """A collection as a column of a table of its own."""
    dask = _dask()
    if getattr(value, "ndim", 0) not in (1, 2):
        raise ValueError(
            f"{name or 'the array'} must be a vector or a matrix; got {getattr(value, 'ndim', None)} axes."
        )
    if hasattr(value, "chunks"):
        value = value.rechunk({1: -1}) if value.ndim == 2 else value
        parts = _blocks(value)
        known = value.chunks[0]
        width = () if value.ndim == 1 else (int(value.shape[1]),)
        kind = value.dtype.kind
    else:
        parts, known = value.to_delayed(), [np.nan]
        width = () if value.ndim == 1 else (len(value.columns),)
        types = {name: value.dtype} if value.ndim == 1 else dict(value.dtypes)
        text = next((column for column, dtype in types.items() if dtype.kind not in "biuf"), None)
        if text is not None:
            raise ValueError(f"column {text!r} must be numeric; got {types[text]}. Name the columns to use.")
        kind = "f"
    if kind not in "biuf":
        raise ValueError(f"{name or 'the data'} must be real numbers; got {value.dtype}.")
    counted = lengths is None and bool(np.isnan(np.asarray(known, dtype=np.float64)).any())
    if counted:
        lengths = dask.compute(*(dask.delayed(_length)(part) for part in _coarse([parts])))
    table = OnCluster(lengths if lengths is not None else [int(n) for n in known], counted)
    return DaskColumn(table, value, parts, (table.count, *width), name)


def together(columns: Sequence[DaskColumn]) -> OnCluster:
    """Columns of several collections as those of one table: cut alike, by the widest of them."""
    widest = max(columns, key=lambda c: c.ndim)
    table = widest.table
    for column in columns:
        own = column.table
        if own.count != table.count:
            raise ValueError(f"data must have one number of rows; got {own.count} and {table.count}.")
        if own.lengths != table.lengths:
            column.source = _array(column).rechunk((table.lengths, *column.shape[1:]))
            column.partitions = _blocks(column.source)
        column.table = table
    return table


def _blocks(array: Any) -> list[Any]:
    """The chunks of an array, one after another.

    As their graph is: what X and y have in common, as where both are read from one file, is then done once for both.
    """
    return list(np.ravel(array.to_delayed(optimize_graph=False)))


def _array(column: DaskColumn) -> Any:
    """As an array of Dask whose chunks have lengths that are known."""
    if hasattr(column.source, "chunks") and not np.isnan(sum(column.source.chunks[0])):
        return column.source
    import dask.array as arrays

    pairs = zip(column.partitions, column.table.lengths, strict=True)
    numbers = _dask().delayed(np.asarray)
    blocks = [arrays.from_delayed(numbers(part), (n, *column.shape[1:]), np.float64) for part, n in pairs]
    return arrays.concatenate(blocks)

"""Arrays in files: `numpy.memmap` and ``.npy``, read in stretches of rows and never mapped."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.places._stored import DataColumn, DataPart, Table

__all__ = ["FileColumn", "RowsOfFile", "npy", "of_memmap"]

_STRETCH = 64  # rows of a sample that lie side by side: a page or a few of a file


class RowsOfFile(Table):
    """Rows of equal length in a file. Columns of one file share it, and are read together."""

    where = "on disk"

    def __init__(self, path: str, offset: int, stride: int, count: int) -> None:
        self.path, self.offset, self.stride, self.count = path, offset, stride, count
        self._file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        weakref.finalize(self, os.close, self._file)
        self._lock = threading.Lock()
        self._stamp = self._state()

    def _state(self) -> tuple[int, int]:
        state = Path(self.path).stat()
        return state.st_size, state.st_mtime_ns

    def _read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """The bytes of some rows."""
        buffer = np.empty((stop - start) * self.stride, dtype=np.uint8)
        view, position = memoryview(buffer.data), self.offset + start * self.stride
        end = min(len(view), self._stamp[0] - position)  # of the last row what follows its columns may not be there
        done = 0
        while done < end:
            got = self._read_into(view[done:end], position + done)
            if not got:
                raise ValueError(
                    f"{self.path} has ended at byte {position + done}, before row {start + done // self.stride} of "
                    f"{self.count}: it was cut short while it was read."
                )
            done += got
        return buffer

    def _read_into(self, view: memoryview, position: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file, [view], position)
        with self._lock:
            os.lseek(self._file, position, os.SEEK_SET)
            data = os.read(self._file, len(view))
        view[: len(data)] = data
        return len(data)

    def parts(self, columns: Sequence[DataColumn], rows: int) -> Iterator[Callable[[], DataPart]]:
        """All rows, in order."""
        for start in range(0, self.count, rows):
            index = slice(start, min(start + rows, self.count))
            yield lambda index=index: DataPart(index, self.slice(columns, index))  # type: ignore[misc]

    def slice(self, columns: Sequence[DataColumn], index: slice) -> dict[str, NDArray[Any]]:
        """What some rows of columns are."""
        if self._state() != self._stamp:
            raise ValueError(f"{self.path} was changed while it was read: start again once it is complete.")
        buffer = self._read(index.start, index.stop)
        return {c.key: c.seen(buffer, index.stop - index.start) for c in columns if isinstance(c, FileColumn)}

    def sample(self, columns: Sequence[DataColumn], rows: int, rng: np.random.Generator) -> DataPart:
        """Short stretches, one at random in each of as many equal parts of the file."""
        starts, length = stretches(self.count, rows, rng)
        index = (starts[:, None] + np.arange(length)).ravel()
        pieces = [self.slice(columns, slice(int(s), int(s) + length)) for s in starts]
        return DataPart(index, {c.key: np.concatenate([piece[c.key] for piece in pieces]) for c in columns})

    def locate(self, row: int) -> str:
        return f"row {row} of {self.path}"


def stretches(count: int, rows: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], int]:
    """The starts of short stretches of rows, about `rows` in all, and their length."""
    length = min(_STRETCH, count)
    pieces = max(1, min(rows // length, count // length))
    edges = np.linspace(0, count, pieces + 1).astype(np.intp)
    room = np.diff(edges) - length
    return edges[:-1] + (rng.random(pieces) * (np.maximum(room, 0) + 1)).astype(np.intp), length


class FileColumn(DataColumn):
    """Entries at a fixed place in every row of a file."""

    def __init__(self, table: RowsOfFile, place: int, array: NDArray[Any], name: str = "") -> None:
        super().__init__(table, array.shape, array.dtype, name)
        self.place, self.strides = place, array.strides[1:]

    def seen(self, buffer: NDArray[np.uint8], count: int) -> NDArray[Any]:
        """The column in the bytes of some rows."""
        stride = self.table.stride  # type: ignore[attr-defined]
        shape = (count, *self.shape[1:])
        return np.ndarray(shape, self.dtype, buffer, self.place, (stride, *self.strides))


_KNOWN: weakref.WeakValueDictionary[tuple[Any, ...], RowsOfFile] = weakref.WeakValueDictionary()


def of_memmap(array: NDArray[Any], name: str = "") -> FileColumn | None:
    """A memory-mapped array as a column of its file, or None where its rows are not one after another in it."""
    source, path = getattr(array, "_mmap", None), getattr(array, "filename", None)
    if source is None or path is None or getattr(array, "mode", "c") == "c" or array.ndim not in (1, 2):
        return None
    if array.strides[0] <= 0 or (array.ndim == 2 and not 0 < array.strides[1] * array.shape[1] <= array.strides[0]):
        return None
    offset = int(array.offset)  # type: ignore[attr-defined]  # of the whole that it is a view of
    mapped = offset - offset % mmap.ALLOCATIONGRANULARITY
    address = np.frombuffer(source, dtype=np.uint8).ctypes.data
    first, place = divmod(mapped + array.ctypes.data - address - offset, array.strides[0])
    start, stride, stamp = offset + first * array.strides[0], array.strides[0], Path(path).stat().st_mtime_ns
    key = (str(path), start, stride, array.shape[0], stamp)
    table = _KNOWN.get(key)
    if table is None:
        table = _KNOWN[key] = RowsOfFile(str(path), start, stride, array.shape[0])
    return FileColumn(table, place, array, name)


def npy(path: str | Path, name: str) -> Any:
    """An array in a ``.npy`` file, as a column of it."""
    try:
        array = np.load(path, mmap_mode="r")
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}.") from None
    except (ValueError, EOFError, OSError) as reason:
        raise ValueError(f"{path} must hold an array of real numbers, as numpy.save writes it: {reason}") from None
    if array.ndim not in (1, 2) or array.dtype.kind not in "biuf":
        raise ValueError(f"{path} must hold a vector or a matrix of real numbers; got {array.dtype} of {array.shape}.")
    column = of_memmap(array, name)
    if column is None:
        raise ValueError(f"{path} must hold its rows one after another (order 'C'); save np.ascontiguousarray of it.")
    return column

"""Memory of the C library that is kept from one part of the rows to the next.

Dask starts its workers with ``MALLOC_TRIM_THRESHOLD_``: what is freed goes back to the system at once, and the next
array of the same size is mapped anew, page by page. A pass frees and takes the same few arrays thousands of times, and
would spend two thirds of its time on that. While it works on a partition, memory stays; then all of it is given back.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

__all__ = ["memory_kept"]

_TRIM, _MAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of mallopt(3)
_KEPT_BYTES = 1 << 26  # bytes up to which memory stays
_LARGEST_ARRAY_BYTES = 1 << 25  # bytes of an array up to which it is taken from there: the largest that mallopt allows
_USUAL = 1 << 17  # from which on arrays are mapped on their own otherwise, and memory is given back
_MALLOPT_LIMIT = (1 << 31) - 1  # that mallopt takes: what is beyond would come to it as nothing


@cache
def _library() -> Any:
    """The C library, where it is one that was told to give memory back: elsewhere it finds its own way."""
    if not os.environ.get("MALLOC_TRIM_THRESHOLD_", "").isdecimal():
        return None
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):
        return None
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None


def _set(name: str) -> int:
    """The bytes that a variable of the environment says, as far as an int of C goes; what is usual without it."""
    said = os.environ.get(name, "")
    return min(int(said), _MALLOPT_LIMIT) if said.isdecimal() else _USUAL


class _Heap:
    """How many tasks are at work, in threads of this process."""

    def __init__(self) -> None:
        self.lock, self.within = threading.Lock(), 0

    def enter(self, library: Any) -> None:
        """Keep memory from now on."""
        with self.lock:
            self.within += 1
            if self.within == 1:
                library.mallopt(_MAP, _LARGEST_ARRAY_BYTES)
                library.mallopt(_TRIM, _KEPT_BYTES)

    def leave(self, library: Any) -> None:
        """Give it back, with the last task."""
        with self.lock:
            self.within -= 1
            if self.within == 0:
                library.mallopt(_MAP, _set("MALLOC_MMAP_THRESHOLD_"))
                library.mallopt(_TRIM, _set("MALLOC_TRIM_THRESHOLD_"))
                library.malloc_trim(0)


_HEAP = _Heap()


@contextmanager
def memory_kept() -> Iterator[None]:
    """Within it, memory that arrays leave is there for the next ones; afterwards it is the system's again."""
    if (library := _library()) is None:
        yield
        return
    _HEAP.enter(library)
    try:
        yield
    finally:
        _HEAP.leave(library)

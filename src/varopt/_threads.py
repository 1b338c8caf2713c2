"""Threads of BLAS for what is large, and none for the rest.

The wheels of NumPy and SciPy each bring an OpenBLAS with threads of its own. A thread that has done its part spins
for a while, waiting for more: in the way of those of the other library, of other processes, and of its own caller.
On two idle cores a solve that calls both libraries in turn takes two to four times as long as without threads; where
others keep the cores busy, every call waits for a thread that is not running, and a solve takes many times as long.
So a solve runs in one thread, but for products and factorisations so large that they gain from more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["FETCH", "all_threads", "one_thread"]

FETCH = 20  # multiplications in the time in which an entry of a large matrix comes from memory
_GAINS = 2e8  # multiplications that gain from threads: some five milliseconds of one

# Hidden state, since no argument reaches the products of maps, deep inside methods and proofs, from the solve that
# holds the threads.
_HELD: ContextVar[Mapping[str, int] | None] = ContextVar("threads of libraries that are held at one", default=None)


class Pool(NamedTuple):
    """Functions that read and set a number of threads."""

    read: Callable[[], int]
    write: Callable[[int], Any]


@cache
def pools() -> dict[str, Pool]:
    """The OpenBLAS of NumPy and that of SciPy, as far as each has its own."""
    import numpy as np
    import scipy.linalg  # which loads it

    found = {"numpy": _bundled(Path(np.__file__).parent), "scipy": _bundled(Path(scipy.__file__).parent)}
    return {name: pool for name, pool in found.items() if pool is not None}


def _bundled(package: Path) -> Pool | None:
    """The OpenBLAS that a package brings along."""
    for folder in (package.parent / f"{package.name}.libs", package / ".dylibs"):
        for path in folder.glob("*openblas*"):
            if (pool := _pool(path)) is not None:
                return pool
    return None


def _pool(path: Path) -> Pool | None:
    import ctypes

    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        return None
    for name in ("scipy_openblas_{}_num_threads", "openblas_{}_num_threads"):
        for end in ("", "64_"):
            read, write = (getattr(library, name.format(verb) + end, None) for verb in ("get", "set"))
            if read is not None and write is not None:
                return Pool(read, write)
    return None


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it linear algebra runs in the calling thread, but for what is within `all_threads`.

    The number of threads is the process's. Who finds it at one already leaves it to others to raise it again: so calls
    may nest, and of calls that overlap in time the first to begin is the first to end it for all, which costs the
    others some speed and nothing else. What others do to the number meanwhile, in other threads or by a fork, may leave
    it at one for them.
    """
    held = {name: count for name, pool in pools().items() if (count := pool.read()) > 1}
    if not held:
        yield
        return
    token = None
    try:
        token = _HELD.set(held)
        _set(dict.fromkeys(held, 1))
        yield
    finally:
        if token is not None:
            _HELD.reset(token)
        _set(held)


@contextmanager
def all_threads(library: str, multiplications: float) -> Iterator[None]:
    """Within it, and within `one_thread`, a library has its threads back for so much work, if that is much."""
    before = (_HELD.get() or {}).get(library, 1) if multiplications >= _GAINS else 1
    if before == 1:
        yield
        return
    try:
        _set({library: before})
        yield
    finally:
        _set({library: 1})


def _set(counts: Mapping[str, int]) -> None:
    for name, count in counts.items():
        pools()[name].write(count)

"""One pool of BLAS threads at a time.

NumPy and SciPy from PyPI each bring an OpenBLAS with threads of its own. A thread that has done its part spins for a
while, waiting for more, and is in the way of the threads of the other library: on two cores a solve that calls both in
turn takes two to four times as long. Where factorisations are small, SciPy's does without threads, and NumPy's, which
forms products with the data, keeps them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

__all__ = ["one_pool", "scipy_threads"]


@cache
def _openblas_of_scipy() -> Any:
    """The functions that read and set the number of threads of the OpenBLAS that is SciPy's alone, or None."""
    import ctypes
    from pathlib import Path

    import scipy.linalg  # which loads it

    home = Path(scipy.__file__).parent
    for path in (*(home.parent / "scipy.libs").glob("*openblas*"), *(home / ".dylibs").glob("*openblas*")):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for name in ("scipy_openblas_{}_num_threads", "openblas_{}_num_threads"):
            for end in ("", "64_"):
                read, write = (getattr(library, name.format(verb) + end, None) for verb in ("get", "set"))
                if read is not None and write is not None:
                    return read, write
    return None


class _Limit:
    """The number of threads is the process's: whoever comes first lowers it, and who is last raises it again."""

    def __init__(self) -> None:
        self.lock, self.users, self.before = threading.Lock(), 0, 1

    def __enter__(self) -> None:
        with self.lock:
            self.users += 1
            if self.users == 1 and (functions := _openblas_of_scipy()) is not None:
                read, write = functions
                self.before = read()
                write(1)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0 and (functions := _openblas_of_scipy()) is not None:
                functions[1](self.before)


_LIMIT = _Limit()


@contextmanager
def one_pool() -> Iterator[None]:
    """Within it, SciPy's linear algebra runs in the calling thread, where its OpenBLAS is not NumPy's too."""
    with _LIMIT:
        yield


def scipy_threads() -> int | None:
    """How many threads SciPy's own OpenBLAS has; None where it has none of its own."""
    functions = _openblas_of_scipy()
    return None if functions is None else int(functions[0]())

"""One pool of BLAS threads at a time.

NumPy and SciPy from PyPI each bring an OpenBLAS with threads of its own. A thread that has done its part spins for a
while, waiting for more, and is in the way of the threads of the other library: on two cores a solve that calls both in
turn takes two to four times as long. Where factorisations are small, SciPy's does without threads, and NumPy's, which
forms products with the data, keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

__all__ = ["one_pool"]


@cache
def openblas_of_scipy() -> Any:
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


@contextmanager
def one_pool() -> Iterator[None]:
    """Within it, SciPy's linear algebra runs in the calling thread, where its OpenBLAS is not NumPy's too.

    The number of threads is the process's. Who finds it at one already leaves it to others to raise it again: so calls
    may nest, and of calls that overlap in time the first to begin is the first to end it for all, which costs the
    others some speed and nothing else. Nothing is counted that an interrupt or a fork could leave wrong.
    """
    functions = openblas_of_scipy()
    before = 1 if functions is None else functions[0]()
    if before == 1:
        yield
        return
    try:
        functions[1](1)
        yield
    finally:
        functions[1](before)

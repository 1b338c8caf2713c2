"""Products of dense arrays that are computed once for several fits of the same data.

What is kept is hidden state, in a context variable: between who knows that data will come again (a cross-validation)
and who multiplies with them (a matrix, deep inside a method) stand scikit-learn's `fit` and `clone`, through which no
argument of ours passes. A context variable, unlike a global one, is not seen by other threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from varopt.model.maps._base import is_finite

__all__ = ["KeptProducts", "kept_products", "products_are_kept", "products_of"]

Vector = NDArray[np.floating[Any]]


class KeptProducts:
    """The latest products of an array, by what it was multiplied with."""

    _most: ClassVar[dict[str, int]] = {"gram": 1, "apply": 2, "transpose_apply": 4}

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array  # which keeps its id taken
        self.known: dict[str, list[tuple[Vector, Any]]] = {name: [] for name in self._most}

    @cached_property
    def finite(self) -> bool:
        return is_finite(self.array)

    def get(self, name: str, vector: Vector, compute: Callable[[Vector], Any]) -> Any:
        latest = self.known[name]
        for k, (other, product) in enumerate(latest):
            if other.dtype == vector.dtype and np.array_equal(other, vector):
                latest.insert(0, latest.pop(k))
                return product.copy()
        product = compute(vector)
        latest.insert(0, (vector.copy(), product))
        del latest[self._most[name] :]
        return product.copy()


_KEPT: ContextVar[dict[int, KeptProducts] | None] = ContextVar("products of arrays", default=None)
_KEPT_ARRAYS = 2  # whose products are kept at a time


@contextmanager
def kept_products() -> Iterator[None]:
    """Within it, products of dense arrays are computed once: their Gram matrices, and those with the latest vectors."""
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def products_are_kept() -> bool:
    """Whether a product will be of use again."""
    return _KEPT.get() is not None


def products_of(array: NDArray[Any]) -> KeptProducts | None:
    """What is known of the products of an array, where they are kept."""
    kept = _KEPT.get()
    if kept is None:
        return None
    if id(array) not in kept:
        while len(kept) >= _KEPT_ARRAYS:  # the oldest, which may be a part of the data of no use any more
            kept.pop(next(iter(kept)))
        kept[id(array)] = KeptProducts(array)
    return kept[id(array)]

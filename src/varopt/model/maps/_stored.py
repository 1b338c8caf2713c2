"""Matrices whose rows are not in memory, and maps made of them: a part of the rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.model.maps._base import Map
from varopt.model.maps._columnwise import Columnwise
from varopt.model.maps._combinations import Composition, HStack, Scaled, Sum
from varopt.model.maps._dense import Matrix
from varopt.places import DataPart, Stored, at

__all__ = ["StoredMatrix", "map_at", "place_in", "stored_in"]

Vector = NDArray[np.floating[Any]]


class StoredMatrix(Map):
    """A matrix by reference to where its rows are. Nothing is computed with it but by parts of them (`map_at`)."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.shape = (stored.shape[0], stored.shape[1])

    def _refuse(self) -> Any:
        return np.asarray(self.stored)  # which says why not

    def apply(self, points: Vector) -> Vector:
        return self._refuse()  # type: ignore[no-any-return]

    def transpose_apply(self, values: Vector) -> Vector:
        return self._refuse()  # type: ignore[no-any-return]

    def rows(self, index: Any) -> Map:
        return self._refuse()  # type: ignore[no-any-return]

    def columns(self, index: Any) -> Map:
        return self._refuse()  # type: ignore[no-any-return]

    def explicit(self) -> Any:
        return self._refuse()

    def __str__(self) -> str:
        return f"A[{self.shape[0]} x {self.shape[1]}]"


@singledispatch
def map_at(linear: Map, part: DataPart) -> Map:
    """The rows of a map that belong to a part of the data."""
    return linear.rows(part.index)


@map_at.register
def _(linear: StoredMatrix, part: DataPart) -> Map:
    return Matrix(as_double(linear.stored, part))


@map_at.register
def _(linear: Scaled, part: DataPart) -> Map:
    return Scaled(at(linear.scale, part), map_at(linear.inner, part))


@map_at.register
def _(linear: Composition, part: DataPart) -> Map:
    return Composition(map_at(linear.outer, part), linear.inner)


@map_at.register
def _(linear: Sum, part: DataPart) -> Map:
    return Sum([map_at(inner, part) for inner in linear.parts])


@map_at.register
def _(linear: HStack, part: DataPart) -> Map:
    parts = [(None if inner is None else map_at(inner, part), columns) for inner, columns in linear.parts]
    return HStack(part.count, parts)


def as_double(stored: Stored, part: DataPart) -> Vector:
    """Rows of a stored matrix side by side, in double precision: of a part, never of the whole."""
    read = stored.read(part)
    if read.dtype.kind in "iu" and read.dtype.itemsize > 4 and read.size and np.abs(read).max() > 2**53:
        raise ValueError(f"{stored.name} has whole numbers beyond 2^53, which double precision cannot hold.")
    return np.ascontiguousarray(read, dtype=np.float64)


def stored_in(linear: Map | None) -> list[Stored]:
    """What a map refers to that is not in memory."""
    found = (leaf.stored if isinstance(leaf, StoredMatrix) else leaf for leaf in _leaves(linear))
    return [leaf for leaf in found if isinstance(leaf, Stored)]


def place_in(linear: Map | None) -> Callable[[Any], Any] | None:
    """What takes an array to where a matrix in it came from, if that was an array of a library for devices."""
    return next((leaf.place for leaf in _leaves(linear) if isinstance(leaf, Matrix) and leaf.place is not None), None)


def _leaves(linear: Any) -> Iterator[Any]:
    """The matrices and vectors that a map is made of."""
    if isinstance(linear, Scaled):
        yield linear.scale
        yield from _leaves(linear.inner)
    elif isinstance(linear, Composition):
        yield from _leaves(linear.outer)
        yield from _leaves(linear.inner)
    elif isinstance(linear, Columnwise):
        yield from _leaves(linear.inner)
    elif isinstance(linear, Sum):
        for inner in linear.parts:
            yield from _leaves(inner)
    elif isinstance(linear, HStack):
        for pair in linear.parts:
            yield from _leaves(pair[0])
    else:
        yield linear

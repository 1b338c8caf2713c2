"""Matrices whose rows are not in memory, and maps made of them: a part of the rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.model.maps._base import Map
from varopt.model.maps._combinations import Composition, HStack, Scaled, Sum
from varopt.model.maps._dense import Matrix
from varopt.places import DataPart, Stored, at

__all__ = ["StoredMatrix", "map_at"]

Vector = NDArray[np.floating[Any]]


class StoredMatrix(Map):
    """A matrix by reference to where its rows are. Nothing is computed with it but by parts of them (`map_at`)."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.shape = (stored.shape[0], stored.shape[1])

    def leaves(self) -> Iterator[Any]:
        """Where the rows are."""
        yield self.stored

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


@map_at.register(StoredMatrix)
def _(linear: StoredMatrix, part: DataPart) -> Map:
    return Matrix(as_double(linear.stored, part))


@map_at.register(Scaled)
def _(linear: Scaled, part: DataPart) -> Map:
    return Scaled(at(linear.scale, part), map_at(linear.inner, part))


@map_at.register(Composition)
def _(linear: Composition, part: DataPart) -> Map:
    return Composition(map_at(linear.outer, part), linear.inner)


@map_at.register(Sum)
def _(linear: Sum, part: DataPart) -> Map:
    return Sum([map_at(inner, part) for inner in linear.parts])


@map_at.register(HStack)
def _(linear: HStack, part: DataPart) -> Map:
    parts = [(None if inner is None else map_at(inner, part), columns) for inner, columns in linear.parts]
    return HStack(part.count, parts)


def as_double(stored: Stored, part: DataPart) -> Vector:
    """Rows of a stored matrix side by side, in double precision: of a part, never of the whole."""
    read = stored.read(part)
    if read.dtype.kind in "iu" and read.dtype.itemsize > 4 and read.size and np.abs(read).max() > 2**53:
        raise ValueError(f"{stored.name} has whole numbers beyond 2^53, which double precision cannot hold.")
    return np.ascontiguousarray(read, dtype=np.float64)

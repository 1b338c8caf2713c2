r"""What a pass over the data computes of each part of the rows; parts add up.

A `Sweep` at a point x yields the value there, the lines that minorise rows far from a knot (their Hessian too where
pieces are curved), and the rows nearby. A `Moments` is a bound's value, gradient and Hessian at x and a sigma. Both are
functions of a part alone: they run in threads, on the workers of a cluster, or, in their own words, on a device.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.bounds import CompositeBound, RowNoise
from varopt.certificates import EnclosedSum, Lines, annihilates, lines, positions, values
from varopt.composite import Composite, Rows, rows_of
from varopt.model import Variable
from varopt.model.blocks import TermBlock
from varopt.optimize.anywhere._centre import ColumnCentres
from varopt.places import DataColumn, DataPart, joined
from varopt.terms import PiecewisePolynomial

__all__ = ["BadRow", "Moments", "Moved", "Sweep", "Swept", "check_finite", "find_bad", "inspect"]

Vector = NDArray[np.float64]


class BadRow(ValueError):
    """A row that cannot be used: which of the whole, and what is wrong with it."""

    def __init__(self, name: str, row: int, what: str, column: str = "", key: str = "") -> None:
        super().__init__(name, row, what, column, key)
        self.name, self.row, self.what, self.column, self.key = name, row, what, column, key

    def sentence(self, place: str) -> str:
        """In words, with the place of the row."""
        return f"{self.name} {self.what} in {place}{self.column}."


@dataclass
class Swept:
    """The sums of a sweep over some rows of a block."""

    value: EnclosedSum
    lines: Lines
    hessian: Any = 0.0
    kept: list[DataPart] = field(default_factory=list)
    weight: EnclosedSum = field(default_factory=EnclosedSum.zeros)  # of all rows, where a scale is asked for
    bend: Any = 0.0  # then, with the second derivatives D of rows that are not kept, ``A'Dz`` and ``z'Dz``
    related: Any = True  # which relations of columns hold in all rows, where some are asked for
    exact: Any = True  # from which columns numbers are taken without rounding, where some are

    def __add__(self, other: Swept) -> Swept:
        return Swept(
            self.value + other.value, self.lines + other.lines, self.hessian + other.hessian, self.kept + other.kept,
            self.weight + other.weight, self.bend + other.bend, self.related & other.related, self.exact & other.exact,
        )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        """What travels between processes: rows in one piece, not in hundreds."""
        return {**self.__dict__, "kept": [joined(self.kept)] if self.kept else []}


@dataclass(frozen=True)
class Sweep:
    """What to compute of the rows of a block at x.

    Attributes
    ----------
    x : array
    factor : array of shape (size, k), optional
        Rows whose distance from a knot is below ``|factor' a|`` are kept, a the row of the matrix.
    reach : float
        Rows farther than that from every knot are not, whatever their length.
    least : float
        Rows nearer than that to a knot are.
    every : int
        Every so many rows one is kept, wherever it lies; 0 for none.
    curved : bool
        Whether the Hessian of the rows that are not kept is wanted.
    scaled : bool
        Whether derivatives in a scale that all rows have in common are.
    term : PiecewisePolynomial, optional
        In the place of that of the block.
    relations : array, optional
        Vectors of whole numbers, of which those are wanted along which no row changes.
    centre : ColumnCentres, optional
        What is taken from the columns; x is a point in terms of what is left.
    """

    x: Vector
    factor: Vector | None = None
    reach: float = 0.0
    least: float = 0.0
    every: int = 0
    curved: bool = False
    scaled: bool = False
    term: PiecewisePolynomial | None = None
    relations: Vector | None = None
    centre: ColumnCentres | None = None

    def of(self, block: TermBlock, variables: tuple[Variable, ...], part: DataPart) -> Swept:
        """The sums over a part."""
        rows, norms = checked(self.applied(block), variables, part), {}  # type: ignore[var-annotated]
        exact: Any = True
        if self.centre is not None:
            rows, exact = self.centre.of(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            z = positions(rows, self.x, norms)
            total = values(rows, z)
        if not np.isfinite(float(total.value)):
            find_bad(block, part)
            raise ValueError("values of the objective overflow: measure the data in smaller units.")
        near = self._near(rows, z.middle, part)
        weights = np.array(rows.weights, dtype=np.float64)
        weights[near] = 0.0
        swept = Swept(total, lines(rows, z.middle, weights, norms, z.radius if self.scaled else None), exact=exact)
        if self.curved and rows.term.degree > 1:
            bent = weights * rows.term.derivative(z.middle, 2)
            swept.hessian = rows.linear.gram(bent)
            swept.hessian = swept.hessian.toarray() if hasattr(swept.hessian, "toarray") else swept.hessian
            if self.scaled:
                swept.weight = EnclosedSum.over(np.asarray(rows.weights, dtype=np.float64))
                swept.bend = np.append(rows.linear.transpose_apply(bent * z.middle), bent @ z.middle**2)
        if near.size:
            swept.kept.append(part.take(near))
        if self.relations is not None:
            swept.related = np.array([annihilates(rows.linear, relation) for relation in self.relations], dtype=bool)
        return swept

    def applied(self, block: TermBlock) -> TermBlock:
        """The block, with the term that is asked for."""
        return block if self.term is None else replace(block, term=self.term)

    def _near(self, rows: Rows, z: Vector, part: DataPart) -> NDArray[np.intp]:
        """The rows to keep."""
        near = np.zeros(0, dtype=np.intp)
        if self.factor is not None and rows.term.knots:
            distance = rows.knot_distance(z)
            near = np.flatnonzero(distance < self.reach)
            if near.size:
                lengths = np.linalg.norm(_dense(rows, near) @ self.factor, axis=1)
                near = near[distance[near] < np.maximum(lengths, self.least)]
        if self.every:
            first = -part.row(0) % self.every if isinstance(part.index, slice) else 0
            near = np.union1d(near, np.arange(first, rows.count, self.every))
        return near


@dataclass
class Moved:
    """The sums of a bound over some rows of a block."""

    value: float
    gradient: Vector
    hessian: Any
    added: float
    near: int

    def __add__(self, other: Moved) -> Moved:
        return Moved(
            self.value + other.value, self.gradient + other.gradient, self.hessian + other.hessian,
            self.added + other.added, self.near + other.near,
        )  # fmt: skip

    def times(self, factor: int) -> Moved:
        """Times a number."""
        added, near = factor * self.added, factor * self.near
        return Moved(factor * self.value, factor * self.gradient, factor * self.hessian, added, near)


@dataclass(frozen=True)
class Moments:
    """The bound of the rows of a block at x, each smoothed by `deviation`."""

    x: Vector
    deviation: float
    every: int = 1  # of so many rows one is looked at, and stands for them

    def of(self, block: TermBlock, variables: tuple[Variable, ...], part: DataPart) -> Moved:
        """The sums over a part."""
        rows, size = checked(block, variables, part), self.x.size
        bound = CompositeBound(Composite(None, np.zeros(size), 0.0, (rows,)), self.x, RowNoise(self.deviation, [1.0]))
        matrix = bound.newton_matrix()
        matrix = np.zeros((size, size)) if matrix is None else matrix
        matrix = matrix.toarray() if hasattr(matrix, "toarray") else matrix
        return Moved(bound.value, bound.mean_gradient, matrix, sum(bound.added), bound.near(4.0))


def _dense(rows: Rows, index: NDArray[np.intp]) -> Vector:
    return np.asarray(rows.linear.rows(index).dense(), dtype=np.float64)


def checked(block: TermBlock, variables: tuple[Variable, ...], part: DataPart) -> Rows:
    """The rows of a part, in memory; their weights are not negative."""
    rows = rows_of(block.at(part), variables)
    _check_weights(rows, part)
    return rows


def inspect(block: TermBlock, variables: tuple[Variable, ...], part: DataPart) -> None:
    """Raise for the first entry that is not finite, or a weight that is negative."""
    find_bad(block, part)
    checked(block, variables, part)


def _check_weights(rows: Rows, part: DataPart) -> None:
    if np.min(rows.weights, initial=0.0) < 0.0:
        bad = int(np.flatnonzero(rows.weights < 0.0)[0])
        raise BadRow("weights", part.row(bad), f"must not be negative; got {rows.weights[bad]:g}")


def find_bad(block: TermBlock, part: DataPart) -> None:
    """Raise for the first entry that is not finite."""
    for stored in block.stored:
        for column in stored.columns():
            check_finite(column, part)


def check_finite(column: DataColumn, part: DataPart) -> None:
    """Raise for the first entry of a column that is not finite."""
    array = column.read(part)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        place = np.argwhere(~np.isfinite(array))[0]
        where = f", column {int(place[1])}" if place.size > 1 else ""
        what = f"must be finite; got {array[tuple(place)]}"
        raise BadRow(column.name, part.row(int(place[0])), what, where, column.key)

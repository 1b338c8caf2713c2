"""Maps made of other maps: scaled, composed, added, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model.maps._base import Map, add_cross, common_storage
from varopt.model.maps._text import signed_sum, times, wrapped

__all__ = ["Composition", "HStack", "Scaled", "Sum"]

Vector = NDArray[np.floating[Any]]


class Scaled(Map):
    """Rows of another map times a number, or times one number each."""

    def __init__(self, scale: float | NDArray[Any], inner: Map) -> None:
        self.scale, self.inner, self.shape = scale, inner, inner.shape
        self.storage = inner.storage

    @property
    def _squared(self) -> Any:
        return np.square(self.scale, dtype=np.float64)  # by reference means: perhaps of small integers

    def apply(self, points: Vector) -> Vector:
        return self.scale * self.inner.apply(points)

    def transpose_apply(self, values: Vector) -> Vector:
        return self.inner.transpose_apply(self.scale * values)

    def rows(self, index: Any) -> Map:
        return Scaled(self.scale if np.ndim(self.scale) == 0 else np.asarray(self.scale)[index], self.inner.rows(index))

    def columns(self, index: NDArray[np.intp] | slice) -> Map:
        return Scaled(self.scale, self.inner.columns(index))

    def explicit(self) -> Any:
        inner = self.inner.explicit()
        if np.ndim(self.scale) == 0:
            return self.scale * inner
        if not sp.issparse(inner):
            return np.asarray(self.scale)[:, None] * inner
        rows = sp.csr_array(inner)
        scaled = rows.data * np.repeat(self.scale, np.diff(rows.indptr))
        return sp.csr_array((scaled, rows.indices, rows.indptr), shape=rows.shape)

    def dense(self) -> Vector:
        return np.asarray(np.asarray(self.scale)[..., None] * self.inner.dense())

    def absolute_row_sums(self) -> Vector:
        return np.asarray(np.abs(self.scale) * self.inner.absolute_row_sums())

    def check(self, name: str) -> None:
        self.inner.check(name)

    @cached_property
    def _row_squares(self) -> Vector:
        return np.asarray(self._squared * self.inner._row_squares)

    def _squares_times(self, vector: Vector) -> Vector:
        return np.asarray(self._squared * self.inner._squares_times(vector))

    def gram(self, weights: Vector) -> Any:
        return self.inner.gram(self._squared * weights)

    def gram_diagonal(self, weights: Vector) -> Vector:
        if np.ndim(self.scale) == 0:
            return np.asarray(self._squared * self.inner.gram_diagonal(weights))
        return self.inner.gram_diagonal(self._squared * weights)

    def leaves(self) -> Iterator[Any]:
        yield self.scale
        yield from self.inner.leaves()

    def __str__(self) -> str:
        return f"{'t' if np.ndim(self.scale) else f'{float(self.scale):g}'} * {self.inner}"

    def of(self, name: str) -> str:
        inner = self.inner.of(name)
        if np.ndim(self.scale):
            return f"t * {wrapped(inner)}"
        return times(float(self.scale), inner)


class Composition(Map):
    """One map after another: differences of predictions, for example."""

    def __init__(self, outer: Map, inner: Map) -> None:
        self.outer, self.inner = outer, inner
        self.shape = (outer.shape[0], inner.shape[1])
        self.storage = common_storage([outer, inner])

    def apply(self, points: Vector) -> Vector:
        return self.outer.apply(self.inner.apply(points))

    def transpose_apply(self, values: Vector) -> Vector:
        return self.inner.transpose_apply(self.outer.transpose_apply(values))

    def rows(self, index: Any) -> Map:
        return Composition(self.outer.rows(index), self.inner)

    def columns(self, index: NDArray[np.intp] | slice) -> Map:
        return Composition(self.outer, self.inner.columns(index))

    def explicit(self) -> Any:
        if self.storage == "operator":
            return super().explicit()
        outer, inner = self.outer.explicit(), self.inner
        if not sp.issparse(outer):
            return self.inner.transpose_apply(outer)
        # A few rows of a sparse matrix, a difference say, need a few rows of the inner map only.
        used = np.unique(outer.tocsr().indices)
        if used.size < outer.shape[1]:
            outer, inner = outer.tocsc()[:, used], inner.rows(used)
        return outer @ inner.explicit()

    def absolute_row_sums(self) -> Vector:
        return np.asarray(abs(self.outer.explicit()) @ self.inner.absolute_row_sums())

    def gram_diagonal(self, weights: Vector) -> Vector:
        if self.inner.shape == (1, 1):  # an intercept, once for each row
            return self.inner.gram_diagonal(self.outer.gram_diagonal(weights))
        return super().gram_diagonal(weights)

    def check(self, name: str) -> None:
        self.outer.check(name)
        self.inner.check(name)

    def leaves(self) -> Iterator[Any]:
        yield from self.outer.leaves()
        yield from self.inner.leaves()

    def __str__(self) -> str:
        return f"{self.outer} @ {wrapped(str(self.inner))}"

    def of(self, name: str) -> str:
        return self.outer.of(self.inner.of(name))


class Sum(Map):
    """The sum of maps of one shape, where a variable occurs more than once."""

    def __init__(self, parts: Sequence[Map]) -> None:
        self.parts, self.shape = tuple(parts), parts[0].shape
        self.storage = common_storage(parts)

    def apply(self, points: Vector) -> Vector:
        return np.asarray(sum(p.apply(points) for p in self.parts))

    def transpose_apply(self, values: Vector) -> Vector:
        return np.asarray(sum(p.transpose_apply(values) for p in self.parts))

    def rows(self, index: Any) -> Map:
        return Sum([p.rows(index) for p in self.parts])

    def columns(self, index: NDArray[np.intp] | slice) -> Map:
        return Sum([p.columns(index) for p in self.parts])

    def explicit(self) -> Any:
        if self.storage == "sparse":
            first, *others = (p.explicit() for p in self.parts)
            return sum(others, first)
        return sum(p.dense() for p in self.parts)

    def absolute_row_sums(self) -> Vector:
        return np.asarray(sum(p.absolute_row_sums() for p in self.parts))

    def check(self, name: str) -> None:
        for part in self.parts:
            part.check(name)

    def leaves(self) -> Iterator[Any]:
        for part in self.parts:
            yield from part.leaves()

    def __str__(self) -> str:
        return f"({signed_sum(map(str, self.parts))})"

    def of(self, name: str) -> str:
        return signed_sum(p.of(name) for p in self.parts)


class HStack(Map):
    """Maps side by side: one variable after another; None stands for a zero block."""

    def __init__(self, rows: int, parts: Sequence[tuple[Map | None, int]]) -> None:
        self.parts = tuple(parts)
        ends = accumulate((columns for _, columns in parts), initial=0)
        self.slices = [slice(a, b) for a, b in pairwise(ends)]
        self.shape = (rows, sum(columns for _, columns in parts))
        kinds = [(m.storage, columns) for m, columns in parts if m is not None]
        if any(kind == "operator" for kind, _ in kinds):
            self.storage = "operator"
        # A few dense columns, of an intercept say, beside many sparse or empty ones do not make them dense.
        elif 4 * sum(columns for kind, columns in kinds if kind == "dense") <= self.shape[1]:
            self.storage = "sparse"

    def live(self) -> list[tuple[slice, Map]]:
        """The blocks that are not zero, and the columns that each of them takes."""
        return [(s, m) for s, (m, _) in zip(self.slices, self.parts, strict=True) if m is not None]

    def apply(self, points: Vector) -> Vector:
        total: Any = np.zeros((*points.shape[:-1], self.shape[0]))
        return sum((inner.apply(points[..., part]) for part, inner in self.live()), total)

    def transpose_apply(self, values: Vector) -> Vector:
        out = np.zeros((*values.shape[:-1], self.shape[1]))
        for part, inner in self.live():
            out[..., part] = inner.transpose_apply(values)
        return out

    def rows(self, index: Any) -> Map:
        parts = [(m if m is None else m.rows(index), columns) for m, columns in self.parts]
        count = len(range(self.shape[0])[index]) if isinstance(index, slice) else len(index)
        return HStack(count, parts)

    def columns(self, index: NDArray[np.intp] | slice) -> Map:
        parts: list[tuple[Map | None, int]] = []
        for part, (inner, _) in zip(self.slices, self.parts, strict=True):
            inside: NDArray[np.intp] | slice
            if isinstance(index, slice):
                first, last = max(index.start, part.start), min(index.stop, part.stop)
                inside, count = slice(first - part.start, last - part.start), max(last - first, 0)
            else:
                inside = index[(index >= part.start) & (index < part.stop)] - part.start
                count = inside.size
            parts.append((None if inner is None or not count else inner.columns(inside), count))
        return HStack(self.shape[0], parts)

    def explicit(self) -> Any:
        if self.storage == "sparse":
            return sp.hstack(
                [sp.csr_array((self.shape[0], c)) if m is None else sp.csr_array(m.explicit()) for m, c in self.parts],
                format="csr",
            )
        out = np.zeros(self.shape)
        for part, inner in self.live():
            out[:, part] = inner.dense()
        return out

    def absolute_row_sums(self) -> Vector:
        return np.asarray(sum((m.absolute_row_sums() for _, m in self.live()), np.zeros(self.shape[0])))

    def check(self, name: str) -> None:
        for _, inner in self.live():
            inner.check(name)

    @cached_property
    def _row_squares(self) -> Vector:
        return np.asarray(sum((m._row_squares for _, m in self.live()), np.zeros(self.shape[0])))

    def _squares_times(self, vector: Vector) -> Vector:
        return np.asarray(sum((m._squares_times(vector[s]) for s, m in self.live()), np.zeros(self.shape[0])))

    def gram(self, weights: Vector) -> Any:
        live = self.live()
        if self.storage != "sparse":
            total = np.zeros((self.shape[1], self.shape[1]))
            for k, (s, m) in enumerate(live):
                block = m.gram(weights)
                total[s, s] = block.toarray() if sp.issparse(block) else block
                for r, n in live[:k]:
                    add_cross(total[s, r], m, n, weights)
                    total[r, s] = total[s, r].T
            return total
        blocks = [[sp.csr_array((s.stop - s.start, r.stop - r.start)) for r in self.slices] for s in self.slices]
        position = {s.start: i for i, s in enumerate(self.slices)}
        for k, (s, m) in enumerate(live):
            i = position[s.start]
            blocks[i][i] = sp.csr_array(m.gram(weights))
            for r, n in live[:k]:
                if m.storage == n.storage == "sparse":
                    cross = m.explicit().T @ (sp.diags_array(np.asarray(weights)) @ n.explicit())
                else:
                    cross = np.zeros((m.shape[1], n.shape[1]))
                    add_cross(cross, m, n, weights)
                j = position[r.start]
                blocks[i][j] = sp.csr_array(cross)
                blocks[j][i] = blocks[i][j].T
        return sp.block_array(blocks, format="csr")

    def gram_diagonal(self, weights: Vector) -> Vector:
        out = np.zeros(self.shape[1])
        for part, inner in self.live():
            out[part] = inner.gram_diagonal(weights)
        return out

    def leaves(self) -> Iterator[Any]:
        for _, part in self.live():
            yield from part.leaves()

    def __str__(self) -> str:
        return f"[{' | '.join('0' if m is None else str(m) for m, _ in self.parts)}]"

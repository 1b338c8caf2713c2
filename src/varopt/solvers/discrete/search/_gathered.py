"""Fields of sparse graphs in bytes: the neighbours of many sites are gathered at once, eight replicas to a word.

Where couplings are small multiples of one number, so that a byte holds a field, it is a count of neighbours: rows
of the state are fetched by one call, eight replicas at a time as the bytes of a word, and words are added without a
carry from one byte into the next. A general sparse product takes two to three times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["GatheredRows"]

_WORD = 8  # replicas in one
_EVERY_BYTE = 0x0101010101010101
_BIAS = 128  # what is added to a field while it is a byte without a sign
_PADDED = 0.25  # of the entries of a row, at most, so that rows of about as many go together
_FEWEST_BLOCK_ENTRIES = (
    4000  # entries of a block on average, below which calls cost more than they save: measured on graphs of the G-set
)
_REPEATED = 1.2  # gathered entries, at most, for one of the matrix: couplings of twice the size are gathered twice
_BLOCK_BYTES = 1 << 19  # gathered together, about: they stay in the cache


class GatheredRows:
    """Some rows of a matrix, made to be multiplied with states of bytes; see `of` for which can be.

    Parameters
    ----------
    shape : tuple
        Of the matrix.
    blocks : list
        For each stretch of rows: where it begins and ends, the rows of the state to gather, of shape (entries, rows),
        and what is added to their count.
    factor : int
        The size of a coupling.
    """

    def __init__(self, shape: tuple[int, int], blocks: list[tuple[int, int, Any, Any]], factor: int) -> None:
        self.shape, self._blocks, self._factor = shape, blocks, np.uint64(factor)
        self._near = np.empty(0, dtype=np.uint64)  # kept, as to ask for memory takes as long as to fill it

    @staticmethod
    def suits(dtype: Any, replicas: int) -> bool:
        """Whether states of these replicas are rows of whole words."""
        return dtype == np.int8 and replicas % _WORD == 0

    @classmethod
    def of(cls, matrix: Any, size: int, replicas: int) -> GatheredRows | None:
        """Rows of a sparse matrix of bytes, ordered by falling sums of sizes; None where this is not for them.

        A state has `size` rows of bits, as many of their opposites where there are negative couplings, and a row of
        ones, which meets the last column: a field is what that holds, plus the couplings of the bits that are set.
        """
        pairs, linear = matrix[:, :-1], matrix[:, [-1]].toarray().ravel().astype(np.intp)
        if not pairs.nnz:
            return None
        weights = pairs.data.astype(np.intp)
        factor = int(np.gcd.reduce(weights))
        times = np.abs(weights) // factor
        # -c x = c (1 - x) - c: a negative coupling is a positive one with the opposite.
        at = np.repeat(pairs.indices + size * (weights < 0), times)
        ends = np.r_[0, np.cumsum(times)][pairs.indptr]
        counts, offset = np.diff(ends), linear + np.asarray(pairs.minimum(0).sum(axis=1)).ravel() + _BIAS
        blocks, first = [], 0
        while first < counts.size:
            width = int(counts[first])
            alike = int(np.searchsorted(-counts, -(1.0 - _PADDED) * width, side="right"))
            last = min(alike, first + max(1, _BLOCK_BYTES // max(1, width * replicas)))
            own = np.full((width, last - first), matrix.shape[1] - 1)  # rows are filled up with the ones
            row = np.repeat(np.arange(last - first), counts[first:last])
            own[np.arange(row.size) - (ends[first:last] - ends[first])[row], row] = at[ends[first] : ends[last]]
            added = offset[first:last] - factor * (width - counts[first:last])
            if added.min() < 0 or factor * width > 2 * _BIAS - 1:
                return None  # a byte would carry into the next
            blocks.append((first, last, own, (added.astype(np.uint64) * np.uint64(_EVERY_BYTE))[:, None]))
            first = last
        pays = _FEWEST_BLOCK_ENTRIES * len(blocks) <= at.size <= _REPEATED * pairs.nnz
        return cls(matrix.shape, blocks, factor) if pays else None

    def __matmul__(self, state: NDArray[np.int8]) -> NDArray[np.int8]:
        """The product with a state, whose rows are whole words."""
        words = state.view(np.uint64)
        columns = words.shape[1]
        fields = np.empty((self.shape[0], columns), dtype=np.uint64)
        most = columns * max(at.size for _, _, at, _ in self._blocks)
        if self._near.size < most:
            self._near = np.empty(most, dtype=np.uint64)
        for first, last, at, added in self._blocks:
            own, near = fields[first:last], self._near[: columns * at.size].reshape(*at.shape, columns)
            words.take(at, axis=0, mode="clip", out=near)
            np.add.reduce(near, axis=0, out=own)
            if self._factor != 1:
                own *= self._factor
            own += added
        fields ^= np.uint64(_BIAS * _EVERY_BYTE)  # a byte less its bias, as one with a sign
        return fields.view(np.int8)

"""Candidates on their way: drawn together, handed out in stretches, told again, and recorded when someone looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt.search.journal import Courses, Record

__all__ = ["Batch", "Stretch", "Told"]

Array = NDArray[np.float64]


@dataclass(eq=False)
class Batch:
    """Candidates that were drawn together: a generation, or what one asynchronous `ask` got."""

    first: int  # the number of its first candidate
    latent: Array
    rows: Array
    fresh: int  # how many are samples of the distribution; the rest are re-evaluations
    epoch: int  # the run of the restarts that drew it
    width: int = 1  # numbers that an evaluation gives
    limits: Mapping[int, float] = field(default_factory=dict)  # at which steps which values are too high to go on
    values: Array = field(init=False)
    missing: int = field(init=False)
    stopped: set[int] = field(default_factory=set)  # which were stopped early

    def __post_init__(self) -> None:
        self.values = np.full(len(self.rows) if self.width == 1 else (len(self.rows), self.width), np.nan)
        self.missing = len(self.rows)


class Stretch(NamedTuple):
    """Successive candidates of a batch, from `start` to before `stop`."""

    batch: Batch
    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many there are."""
        return self.stop - self.start

    @property
    def rows(self) -> Array:
        """Their rows, as a view."""
        return self.batch.rows[self.start : self.stop]


class Told(NamedTuple):
    """Evaluations told together, none of which failed: what their records are made of when someone looks."""

    first: int  # the number of the first evaluation
    candidate: int  # and that of its candidate
    rows: Array
    values: list[float]
    time: float
    courses: Courses

    def records(self) -> list[Record]:
        """One record for each."""
        evaluations = zip(self.rows, self.values, zip(*self.courses, strict=True), strict=True)
        return [
            Record(self.first + k, self.candidate + k, row, value, None, self.time, *course)
            for k, (row, value, course) in enumerate(evaluations)
        ]

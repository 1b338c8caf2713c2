"""The best few points of a run, all different."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

__all__ = ["Collector", "SolutionPool"]

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SolutionPool:
    """Different points, best first: their values, and in how many coordinates each two differ."""

    x: Vector  # (k, size)
    fun: Vector  # (k,)
    distance: NDArray[np.intp]  # (k, k)

    def __len__(self) -> int:
        return len(self.x)

    @classmethod
    def of(cls, x: Vector, fun: Vector, symmetric: bool = False) -> SolutionPool:
        """Points and values, put in order; of cuts, whose complements are the same, the nearer of both is meant."""
        order = np.argsort(fun, kind="stable")
        x, bits = x[order], x[order] > 0.5
        apart = (bits[:, None] != bits[None]).sum(axis=2) if len(bits) else np.zeros((0, 0), dtype=np.intp)
        if symmetric and len(bits):
            x = np.where((apart[0] > x.shape[1] / 2)[:, None], 1.0 - x, x)
            apart = np.minimum(apart, x.shape[1] - apart)
        return cls(x, fun[order], apart)

    def mirrored(self) -> SolutionPool:
        """The same points, where minus the values was minimised."""
        return replace(self, fun=0.0 - self.fun)


class Collector:
    """Keeps the best different points that pass by; of cuts, a point and its complement are the same."""

    def __init__(self, most: int, symmetric: bool) -> None:
        self._most, self._symmetric = most, symmetric
        self._points: dict[bytes, tuple[float, Vector]] = {}

    def add(self, x: Vector, value: Vector) -> None:
        """Points, the columns of x, and their energies."""
        worst = max((v for v, _ in self._points.values()), default=np.inf)
        for k in np.argsort(value, kind="stable")[: self._most].tolist():
            if len(self._points) >= self._most and value[k] >= worst:
                return
            point = x[:, k]
            key = np.packbits(point != point[0] if self._symmetric else point > 0.5).tobytes()
            self._points.setdefault(key, (float(value[k]), point.copy()))
            if len(self._points) > self._most:
                del self._points[max(self._points, key=lambda name: self._points[name][0])]
                worst = max(v for v, _ in self._points.values())

    @property
    def points(self) -> list[Vector]:
        """What was kept, best first."""
        return [x for _, x in sorted(self._points.values(), key=lambda pair: pair[0])]

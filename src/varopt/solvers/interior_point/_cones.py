r"""Products of half-lines and second-order cones, with the scaling of Nesterov and Todd.

In the Jordan algebra of a cone ``{(t, y) : |y| <= t}``, with ``J = diag(1, -1, ..., -1)``,

    (a o b) = (a'b, a0 b1 + b0 a1),    a in the cone iff a0 >= 0 and a'Ja >= 0,                                     (1)

and the scaling that takes z and s to one point, ``W z = W^-1 s``, is

    W = beta (2 v v' - J),    beta^4 = s'Js / z'Jz,    v = (w + e) / sqrt(2 (w0 + 1)),                             (2)
    w = (s' + J z') / 2 gamma,    gamma^2 = (1 + s''z') / 2     with s', z' of s'Js = z'Jz = 1,                    (3)

as in [NT97] and [Vdb10]. Its inverse is ``(2 J v v' J - J) / beta``, as v'Jv = 1.                                  (4)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cones", "Scaling"]

Vector = NDArray[np.float64]


class Cones:
    """So many half-lines, then second-order cones of the given sizes."""

    def __init__(self, positive: int, sizes: Sequence[int]) -> None:
        self.positive = positive
        ends = positive + np.cumsum([0, *sizes])
        self.parts = [slice(int(a), int(b)) for a, b in pairwise(ends)]
        self.degree = positive + len(sizes)
        self.one = np.zeros(int(ends[-1]))
        self.one[:positive] = 1.0
        self.one[[part.start for part in self.parts]] = 1.0

    def times(self, a: Vector, b: Vector) -> Vector:
        """The Jordan product."""
        out = a * b
        for part in self.parts:
            u, v = a[part], b[part]
            out[part] = u[0] * v + v[0] * u  # (1)
            out[part.start] = u @ v
        return out

    def divide(self, a: Vector, b: Vector) -> Vector:
        """The c with ``a o c = b``, a inside the cones."""
        out = b.copy()
        out[: self.positive] /= a[: self.positive]
        for part in self.parts:
            u, v = a[part], b[part]
            inner, size = float(u[1:] @ v[1:]), _size(u)
            out[part.start] = (u[0] * v[0] - inner) / size
            out[part.start + 1 : part.stop] = (v[1:] * size / u[0] + (inner / u[0] - v[0]) * u[1:]) / size
        return out

    def inside(self, a: Vector) -> Vector:
        """The point moved along the unit until it is well inside."""
        least = float(a[: self.positive].min(initial=np.inf))
        least = min([least, *(float(a[part.start] - np.linalg.norm(a[part][1:])) for part in self.parts)])
        wanted = max(1.0, 1e-3 * float(np.abs(a).max(initial=0.0)))
        return a if least >= wanted else a + (wanted - least) * self.one

    def longest(self, a: Vector, step: Vector) -> float:
        """The largest t with ``a + t step`` in the cones."""
        falls = step[: self.positive] / a[: self.positive]
        most = 1.0 / max(-float(falls.min(initial=0.0)), 1e-300)
        for part in self.parts:
            most = min(most, _longest(a[part], step[part]))
        return most

    def scaling(self, s: Vector, z: Vector) -> Scaling | None:
        """That of two points inside the cones; None where rounding has them outside."""
        positive, bad = self.positive, not np.all((s[: self.positive] > 0.0) & (z[: self.positive] > 0.0))
        reflections = []
        for part in self.parts:
            a, b = _size(s[part]), _size(z[part])
            if bad or not (a > 0.0 and b > 0.0 and s[part.start] > 0.0 and z[part.start] > 0.0):
                return None
            one, other = s[part] / np.sqrt(a), z[part] / np.sqrt(b)
            gamma = np.sqrt(0.5 * (1.0 + float(one @ other)))  # (3)
            w = one - other
            w[0] = one[0] + other[0]
            v = w / (2.0 * gamma)
            v[0] += 1.0
            v /= np.sqrt(2.0 * v[0])
            reflections.append(((a / b) ** 0.25, v))  # (2)
        if bad:
            return None
        diagonal = np.sqrt(s[:positive] / z[:positive])
        made = Scaling(self, diagonal, reflections, s)
        made.lam = made.apply(z)
        return made


@dataclass
class Scaling:
    """W, and the point that it takes both to."""

    cones: Cones
    diagonal: Vector
    reflections: list[tuple[float, Vector]]
    lam: Vector

    def apply(self, a: Vector) -> Vector:
        """``W a``."""
        out = a.copy()
        out[: self.cones.positive] *= self.diagonal
        for part, (beta, v) in zip(self.cones.parts, self.reflections, strict=True):
            out[part] = beta * (2.0 * (v @ a[part]) * v + a[part])  # (2)
            out[part.start] -= 2.0 * beta * a[part.start]
        return out

    def inverse(self, a: Vector) -> Vector:
        """``W^-1 a``, of a vector or of the columns of a matrix."""
        out = a.copy()
        out[: self.cones.positive] /= self.diagonal if a.ndim == 1 else self.diagonal[:, None]
        for part, (beta, v) in zip(self.cones.parts, self.reflections, strict=True):
            mirrored = -v
            mirrored[0] = v[0]
            along = mirrored @ a[part]
            turned = 2.0 * along * mirrored if a.ndim == 1 else 2.0 * np.outer(mirrored, along)
            out[part] = (turned + a[part]) / beta  # (4)
            out[part.start] -= 2.0 * a[part.start] / beta
        return out


def _size(a: Vector) -> float:
    """``a'Ja``, without the cancellation of its squares."""
    norm = float(np.sqrt(a[1:] @ a[1:]))
    return (float(a[0]) - norm) * (float(a[0]) + norm)


def _longest(a: Vector, step: Vector) -> float:
    """The largest t with ``a + t step`` in a second-order cone: the least positive root of its quadratic."""
    square, half, rest = _size(step), float(a[0] * step[0] - a[1:] @ step[1:]), _size(a)
    inner = half * half - square * rest
    if inner < 0.0 or (half >= 0.0 and square >= 0.0):
        return np.inf
    root = np.sqrt(inner)
    return float(rest / (root - half)) if root > half else np.inf

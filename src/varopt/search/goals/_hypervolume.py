"""What a set of points dominates: its volume up to a reference point, and what one more point would add.

W12: L. While, L. Bradstreet and L. Barone, *A fast way of calculating exact hypervolumes*, IEEE Transactions on
Evolutionary Computation 16(1), 2012; its exclusive volumes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["hypervolume", "improvement", "nondominated"]

Array = NDArray[np.float64]


def nondominated(points: Array) -> NDArray[np.bool_]:
    """Which points no other point is at least as good as in everything and better in something; the first of equals."""
    keep = np.ones(len(points), dtype=bool)
    for i, point in enumerate(points):
        if keep[i]:
            worse = (points >= point).all(axis=1)
            worse[: i + 1] &= (points[: i + 1] > point).any(axis=1)
            keep &= ~worse
    return keep


def hypervolume(points: Any, reference: Any) -> float:
    """The volume that is dominated by points (smaller is better) and lies below a reference point.

    Parameters
    ----------
    points : array of shape (n, m)
        Their objectives.
    reference : array of shape (m,)
        The corner; points beyond it in some objective count for nothing.

    Examples
    --------
    >>> from varopt.search import hypervolume
    >>> hypervolume([[1, 3], [2, 1]], [4, 4])
    7.0
    """
    points, reference = np.asarray(points, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if points.ndim != 2 or reference.shape != points.shape[1:]:
        raise ValueError(f"points must have shape (n, m) and reference (m,); got {points.shape} and {reference.shape}.")
    inside = points[(points < reference).all(axis=1)]
    return _volume(inside[nondominated(inside)], reference)


def _volume(points: Array, reference: Array) -> float:
    """Of points that do not dominate one another."""
    if not len(points):
        return 0.0
    points = points[np.argsort(points[:, -1], kind="stable")]
    if points.shape[1] == 1:
        return float(reference[0] - points[0, 0])
    if points.shape[1] == 2:  # the first objective falls as the second grows
        widths = reference[0] - points[:, 0]
        heights = np.diff(points[:, 1], append=reference[1])
        return float(widths @ heights)
    # Each point adds what it dominates and the better ones in the last objective do not.
    return sum(_exclusive(points[i], points[:i], reference) for i in range(len(points)))


def _exclusive(point: Array, others: Array, reference: Array) -> float:
    """What a point dominates and others do not [W12]: its box, less what they dominate of it."""
    box = float(np.prod(reference - point))
    if not len(others):
        return box
    limited = np.maximum(others, point)
    return box - _volume(limited[nondominated(limited)], reference)


def improvement(point: Array, others: Array, reference: Array) -> float:
    """What a point adds to the volume of others; if nothing, minus how far all its objectives are from adding.

    The second case makes a landscape of what is dominated, as the uncrowded improvement of [T19] does by a distance.
    """
    beyond = float(np.maximum(point - reference, 0.0).max())
    depth = float((point - others).min(axis=1).max()) if len(others) else -np.inf
    if beyond > 0.0 or depth >= 0.0:
        return -max(beyond, depth)
    return _exclusive(point, others[(others < reference).all(axis=1)], reference)

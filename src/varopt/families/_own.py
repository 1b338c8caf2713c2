"""A family of one's own: whatever samples itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from varopt._domains import Seed, as_generator
from varopt.families._family import Family, FloatArray

__all__ = ["OwnFamily", "as_family", "name_of"]

_DIFFERENCE_STEP = 1e-5  # of the difference that stands for a derivative in a parameter


class OwnFamily:
    """An object that samples itself, as sampled bounds use it; made by `as_family`.

    Parameters
    ----------
    inner : object
        With ``sample(n, rng)``, which returns an array of shape (n, size). For gradients also ``parameters``, a mapping
        from names to numbers or arrays, and one of ``score(x)``, which maps every name to an array of shape
        (n, ...), or ``log_density(x)`` together with ``replace(**parameters)``, of which the score is a central
        difference. Optional: ``mean``, for the gap; ``expectation_affine``, where Theorem 1 may rely on it.
    """

    def __init__(self, inner: Any) -> None:
        if not callable(getattr(inner, "sample", None)) or isinstance(inner, type):
            got = inner.__name__ if isinstance(inner, type) else type(inner).__name__
            raise ValueError(
                "family must be a varopt family such as vo.Gaussian(mean, sigma), or an object of one's own with "
                f"sample(n, rng) and, for gradients, parameters and score or log_density; got {got}."
            )
        self.inner = inner
        self.size = int(self._drawn(2, np.random.default_rng(0)).shape[1])

    @property
    def name(self) -> str:
        """How messages call it."""
        return type(self.inner).__name__

    @property
    def parameters(self) -> dict[str, FloatArray]:
        """The parameters by name; empty where the object does not tell them."""
        told = getattr(self.inner, "parameters", {})
        told = told() if callable(told) else told
        if not isinstance(told, Mapping):
            raise ValueError(f"parameters of {self.name} must be a mapping from names to arrays; got {told!r}.")
        return {str(name): np.asarray(value, dtype=np.float64) for name, value in told.items()}

    @property
    def has_score(self) -> bool:
        """Whether gradients can be had."""
        if not self.parameters:
            return False
        differenced = all(callable(getattr(self.inner, name, None)) for name in ("log_density", "replace"))
        return callable(getattr(self.inner, "score", None)) or differenced

    @property
    def expectation_affine(self) -> bool:
        """As the object says."""
        return bool(getattr(self.inner, "expectation_affine", False))

    @property
    def mean(self) -> FloatArray:
        """As the object says."""
        told = getattr(self.inner, "mean", None)
        told = told() if callable(told) else told
        if told is None:
            raise ValueError(f"{self.name} does not tell its mean, which the gap is measured from.")
        return np.broadcast_to(np.asarray(told, dtype=np.float64), (self.size,))

    mode = mean

    def replace(self, parameters: Mapping[str, Any]) -> OwnFamily:
        """The object with some parameters replaced."""
        if not callable(getattr(self.inner, "replace", None)):
            raise ValueError(f"{self.name} needs replace(**parameters), which returns a changed copy, to be moved.")
        return OwnFamily(self.inner.replace(**parameters))

    def sample(self, n: int, seed: Seed = None, *, antithetic: bool = False) -> FloatArray:
        """Draw n points."""
        if antithetic:
            raise ValueError(f"antithetic needs a family that knows its mirrored pairs; {self.name} does not.")
        return self._drawn(n, as_generator(seed))

    def _drawn(self, n: int, rng: np.random.Generator) -> FloatArray:
        points = np.asarray(self.inner.sample(n, rng), dtype=np.float64)
        if points.ndim != 2 or points.shape[0] != n or not np.isfinite(points).all():
            raise ValueError(
                f"sample(n, rng) of {self.name} must return finite numbers of shape (n, size); got shape "
                f"{points.shape} for n = {n}."
            )
        return points

    def score(self, x: ArrayLike) -> dict[str, FloatArray]:
        """Gradient of the log-density in each parameter, of shape (n, ...)."""
        points, parameters = np.asarray(x, dtype=np.float64), self.parameters
        if not callable(getattr(self.inner, "score", None)):
            return {name: self._differences(points, name, value) for name, value in parameters.items()}
        told = {name: np.asarray(value, dtype=np.float64) for name, value in self.inner.score(points).items()}
        for name, value in parameters.items():
            if name not in told or told[name].shape != (len(points), *value.shape):
                shape = told[name].shape if name in told else "nothing"
                raise ValueError(
                    f"score of {self.name} must return shape {(len(points), *value.shape)} for {name!r}; got {shape}."
                )
        return {name: told[name] for name in parameters}

    def _differences(self, points: FloatArray, name: str, value: FloatArray) -> FloatArray:
        """The score in one parameter, entry by entry, by central differences of the log-density."""
        score = np.empty((len(points), *value.shape))
        for index in np.ndindex(value.shape):
            step = _DIFFERENCE_STEP * max(1.0, abs(float(value[index])))
            ends = []
            for sign in (1.0, -1.0):
                moved = value.copy()
                moved[index] += sign * step
                ends.append(np.asarray(self.inner.replace(**{name: moved}).log_density(points), dtype=np.float64))
            score[(slice(None), *index)] = (ends[0] - ends[1]) / (2.0 * step)
        return score


def as_family(family: Any) -> Any:
    """A family as it is; an object of one's own wrapped; else a `ValueError` that says what is accepted."""
    return family if isinstance(family, (Family, OwnFamily)) else OwnFamily(family)


def name_of(family: Any) -> str:
    """How messages call a family."""
    return family.name if isinstance(family, OwnFamily) else type(family).__name__

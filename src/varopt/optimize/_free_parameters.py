"""The parameters of a family in coordinates that know no ends.

A positive number is written by its logarithm, a probability by its logit, those of a choice by a softmax, the diagonal
of a Cholesky factor by its logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.bounds import Bound
from varopt.families import OneHotCategorical

__all__ = ["FreeParameters"]

Vector = NDArray[np.float64]

_MOVING_PROBABILITY = 1e-12  # distance from 0 and 1 of a probability that still moves


@dataclass(frozen=True)
class Coordinate:
    """One parameter of a family, in numbers that may be anything."""

    key: Any  # of a Product; None otherwise
    name: Any
    kind: str  # "real", "positive", "cholesky", "probability" or "choice"
    shape: tuple[int, ...]
    unit: float = 1.0  # of a step of Adam

    @property
    def size(self) -> int:
        """How many numbers."""
        return self.shape[0] * (self.shape[0] + 1) // 2 if self.kind == "cholesky" else math.prod(self.shape)

    def free(self, value: Vector) -> Vector:
        """The numbers of a value."""
        value = np.asarray(value, dtype=np.float64)
        if self.kind == "positive":
            return np.log(np.ravel(value))
        if self.kind == "probability":
            p = np.clip(np.ravel(value), _MOVING_PROBABILITY, 1.0 - _MOVING_PROBABILITY)
            return np.asarray(np.log(p) - np.log1p(-p))
        if self.kind == "choice":
            return np.ravel(np.log(np.maximum(value, _MOVING_PROBABILITY)))
        if self.kind == "cholesky":
            return np.asarray((value + np.diag(np.log(np.diag(value)) - np.diag(value)))[np.tril_indices(len(value))])
        return np.ravel(value)

    def value(self, free: Vector) -> Vector:
        """The value of numbers."""
        if self.kind == "positive":
            return np.exp(np.clip(free, -700.0, 700.0)).reshape(self.shape)
        if self.kind == "probability":
            return np.asarray(1.0 / (1.0 + np.exp(-np.clip(free, -700.0, 700.0)))).reshape(self.shape)
        if self.kind == "choice":
            logits = free.reshape(self.shape)
            weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
            return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
        if self.kind == "cholesky":
            factor = np.zeros(self.shape)
            factor[np.tril_indices(self.shape[0])] = free
            diagonal = np.diag_indices(self.shape[0])
            factor[diagonal] = np.exp(np.clip(factor[diagonal], -700.0, 700.0))
            return factor
        return free.reshape(self.shape)

    def pullback(self, value: Vector, gradient: Vector) -> Vector:
        """The gradient in the numbers, from that in the value."""
        gradient = np.asarray(gradient, dtype=np.float64)
        if self.kind == "positive":
            return np.ravel(gradient * value)
        if self.kind == "probability":
            return np.ravel(gradient * value * (1.0 - value))
        if self.kind == "choice":
            return np.ravel(value * (gradient - (value * gradient).sum(axis=-1, keepdims=True)))
        if self.kind == "cholesky":
            scaled = gradient.copy()
            diagonal = np.diag_indices(len(value))
            scaled[diagonal] *= value[diagonal]
            return np.asarray(scaled[np.tril_indices(len(value))])
        return np.ravel(gradient)


@dataclass(frozen=True)
class FreeParameters:
    """The parameters that move, laid end to end."""

    parts: tuple[Coordinate, ...]

    @classmethod
    def of(cls, bound: Bound, parameters: Any) -> FreeParameters:
        """The chosen parameters of a bound's family."""
        available = {}
        for c in bound._target.components:
            unit = 1.0 if c.is_discrete or c.is_own else float(np.sqrt(np.mean(c.family.variance)))
            for name, value in c.family.parameters.items():
                kind = _kind(c, name, np.asarray(value))
                part = Coordinate(c.key, name, kind, np.shape(value), unit if kind == "real" else 1.0)
                available[name if c.key is None else (c.key, name)] = part
        if not available:
            raise ValueError(f"the family {bound.family!r} tells no parameters to minimise over.")
        chosen = (
            list(available) if parameters is None else [parameters] if isinstance(parameters, str) else [*parameters]
        )
        wanted = {name for name in chosen if isinstance(name, Hashable)}  # not a list: variables compare as they like
        unknown = [name for name in chosen if not isinstance(name, Hashable) or name not in available]
        if unknown or not chosen:
            known = ", ".join(map(repr, available))
            raise ValueError(f"parameters must name some of {known}; got {unknown[0]!r}." if unknown
                             else f"parameters must name at least one of {known}.")  # fmt: skip
        return cls(tuple(available[name] for name in available if name in wanted))

    @property
    def units(self) -> Vector:
        """The length of a step of Adam in every number."""
        return np.concatenate([np.full(part.size, part.unit) for part in self.parts])

    def free(self, family: Any) -> Vector:
        """The numbers of a family."""
        return np.concatenate([part.free(self._parameter(family, part)) for part in self.parts])

    def family(self, start: Any, free: Vector) -> Any:
        """The family of numbers; what does not move is that of `start`."""
        changed: dict[Any, Any] = {}
        for part, own in zip(self.parts, self._split(free), strict=True):
            holder = changed if part.key is None else changed.setdefault(part.key, {})
            holder[part.name] = part.value(own)
        return start.replace(changed)

    def gradient(self, bound: Bound, family: Any) -> Vector:
        """The gradient of a bound in the numbers."""
        gradient: Mapping[Any, Any] = bound.gradient
        return np.concatenate([
            part.pullback(
                self._parameter(family, part), (gradient if part.key is None else gradient[part.key])[part.name]
            )
            for part in self.parts
        ])  # fmt: skip

    @staticmethod
    def _parameter(family: Any, part: Coordinate) -> Vector:
        told = family.parameters if part.key is None else family.parameters[part.key]
        return np.asarray(told[part.name], dtype=np.float64)

    def _split(self, free: Vector) -> list[Vector]:
        return np.split(free, np.cumsum([part.size for part in self.parts])[:-1])


def _kind(c: Any, name: Any, value: Vector) -> str:
    """What a parameter may be."""
    if c.is_own:
        domain = getattr(c.family.inner, "domains", {}).get(name)
        return "positive" if domain is not None and getattr(domain, "low", -math.inf) == 0.0 else "real"
    if c.is_discrete:
        return "choice" if isinstance(c.family, OneHotCategorical) else "probability"
    if name == "mean":
        return "real"
    return "positive" if value.ndim < 2 else "cholesky" if c.is_triangular else "real"

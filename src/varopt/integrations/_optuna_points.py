"""Points of an Optuna study: as our search has them, and moved to where no other trial is."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from varopt.search import Box, Choice, Dimension, Integer

__all__ = ["count", "dimension", "elsewhere", "external", "internal"]

SCALES = (-8.0, -2.0)  # powers of ten of a range, for steps away from a point that has been evaluated
REDRAWS = 30  # steps from a point
MOST_INTEGERS = 2**52  # what our integers are fewer than; more are reals that are rounded


def _grid(distribution: BaseDistribution) -> float | None:
    """The step of a grid that begins at ``low``; ``None`` for all numbers, and for all whole numbers."""
    if isinstance(distribution, FloatDistribution):
        return distribution.step
    return distribution.step if isinstance(distribution, IntDistribution) and distribution.step != 1 else None


def _wide(distribution: BaseDistribution) -> bool:
    """Whether it has more whole numbers, or steps, than our integers can be."""
    if isinstance(distribution, CategoricalDistribution) or _real(distribution):
        return False
    return bool(_steps_of(distribution) >= MOST_INTEGERS)


def _steps_of(distribution: Any) -> int:
    """How many steps lead from the lowest to the highest."""
    width, step = distribution.high - distribution.low, _grid(distribution)
    return int(width if step is None else round(width / step))


def dimension(distribution: BaseDistribution) -> Dimension:
    """What our space has for it."""
    if isinstance(distribution, CategoricalDistribution):
        return Choice(range(len(distribution.choices)))
    if not isinstance(distribution, (FloatDistribution, IntDistribution)):
        raise ValueError(f"VariationalSampler knows floats, ints and categories; got {distribution!r}.")
    step, wide = _grid(distribution), _wide(distribution)
    if step is not None:
        return (Box if wide else Integer)(0, _steps_of(distribution))
    if isinstance(distribution, IntDistribution) and not wide:
        return Integer(distribution.low, distribution.high, log=distribution.log)
    return Box(distribution.low, distribution.high, log=distribution.log)


def external(distribution: Any, value: Any) -> Any:
    """A value of our space as Optuna has it."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[value]
    step = _grid(distribution)
    if _wide(distribution):
        value = round(value)
    found = value if step is None else distribution.low + step * value
    return min(max(found, distribution.low), distribution.high)  # what is rounded may be beyond


def internal(space: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any] | None:
    """The point of a trial, or ``None`` if it lacks a parameter or lies outside."""
    point: dict[str, Any] = {}
    for name, distribution in space.items():
        if name not in params:
            return None
        value = params[name]
        try:
            number = distribution.to_internal_repr(value)
        except ValueError:  # a category that is none of these
            return None
        if not distribution._contains(number):
            return None
        step = _grid(distribution)
        if isinstance(distribution, CategoricalDistribution):
            value = int(number)
        elif step is not None:
            value = round((value - distribution.low) / step)
        point[name] = float(value) if _wide(distribution) else value
    return point


def count(space: Mapping[str, Any]) -> float:
    """How many points there are."""
    if any(map(_endless, space.values())):
        return math.inf
    return math.prod(_whole(one)[1] for one in space.values())


def _real(distribution: Any) -> bool:
    return isinstance(distribution, FloatDistribution) and distribution.step is None


def _endless(distribution: Any) -> bool:
    """Whether our space has reals for it."""
    return _real(distribution) or _wide(distribution)


def _stepped(distribution: Any, value: float, length: float) -> Any:
    """A value and a step in shares of the range, turned round where it leads out."""
    low, high, log = distribution.low, distribution.high, distribution.log
    for share in (length, -length):
        new = value * (high / low) ** share if log else value + share * (high - low)
        if low <= new <= high:
            return external(distribution, (new - low) / step if (step := _grid(distribution)) else float(new))
    return value


def elsewhere(
    space: Mapping[str, Any], values: Mapping[str, Any], taken: Collection[Any], rng: np.random.Generator
) -> dict[str, Any]:
    """A point that is not among `taken` (of values as our space has them), near `values`; these where there is none."""
    near = _steps(space, values, rng) if math.isinf(count(space)) else _neighbours(space, values, taken, rng)
    for point in near:
        found = internal(space, point)
        if found is not None and tuple(found.values()) not in taken:
            return point
    return dict(values)


def _steps(space: Mapping[str, Any], values: Mapping[str, Any], rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Steps in all reals, of all lengths: an optimum to the last digit may be only the nearest one."""
    for _ in range(REDRAWS):
        length = 10.0 ** rng.uniform(*SCALES)
        yield {
            name: _stepped(space[name], value, length * rng.normal()) if _endless(space[name]) else value
            for name, value in values.items()
        }


def _neighbours(
    space: Mapping[str, Any], values: Mapping[str, Any], taken: Collection[Any], rng: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """Points that differ in one parameter and more, then all over the space, and all of it where most are taken."""
    names, whole = list(space), {name: _whole(distribution) for name, distribution in space.items()}

    def drawn(some: Collection[str]) -> dict[str, Any]:
        places = {name: int(rng.integers(whole[name][1])) for name in some}
        return {name: external(space[name], whole[name][0] + place) for name, place in places.items()}

    for number in range(REDRAWS):
        changed = rng.permutation(len(names))[: 1 + number * len(names) // REDRAWS]
        yield {**values, **drawn([names[i] for i in changed])}
    total = count(space)
    if total > 2 * len(taken):  # every second point is free, at least
        for _ in range(REDRAWS):
            yield drawn(names)
        return
    for i in rng.permutation(int(total)):
        places = np.unravel_index(i, [size for _, size in whole.values()])
        yield {name: external(space[name], whole[name][0] + int(k)) for name, k in zip(names, places, strict=True)}


def _whole(distribution: Any) -> tuple[int, int]:
    """The first of all values, as our space has them, and how many there are."""
    if isinstance(distribution, CategoricalDistribution):
        return 0, len(distribution.choices)
    return 0 if _grid(distribution) else distribution.low, _steps_of(distribution) + 1

"""Parts of a space that exist only where other parts have some values: trees of choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.search._dimensions import Boolean, Choice, Dimension, Integer

__all__ = ["Allowed", "active_columns", "as_conditions", "told"]

Array = NDArray[np.float64]
Allowed = dict[str, dict[str, tuple[Any, ...]]]
"""Of every part under a condition, the values of other parts with which it exists."""


def as_conditions(parts: Mapping[str, Dimension], when: Any) -> Allowed:
    """`when`, checked and in an order in which parts come after those they depend on."""
    if when is None:
        return {}
    if not isinstance(when, Mapping):
        raise ValueError(
            f"when must map names of parts to their conditions, as {{'C': {{'kind': 'svm'}}}}; got {when!r}."
        )
    found = {name: _condition(parts, name, condition) for name, condition in when.items()}
    try:
        order = list(TopologicalSorter({name: set(condition) for name, condition in found.items()}).static_order())
    except CycleError as error:
        circle = " > ".join(map(repr, error.args[1]))
        raise ValueError(f"when must not go in a circle; got {circle}.") from None
    return {name: found[name] for name in order if name in found}


def _condition(parts: Mapping[str, Dimension], name: Any, condition: Any) -> dict[str, tuple[Any, ...]]:
    for known in (name, *(condition if isinstance(condition, Mapping) else ())):
        if known not in parts:
            raise ValueError(f"when must name parts of the space, {', '.join(map(repr, parts))}; got {known!r}.")
    if not isinstance(condition, Mapping) or not condition:
        raise ValueError(f"when[{name!r}] must map parts to the values they must have; got {condition!r}.")
    return {parent: _values(name, parent, parts[parent], value) for parent, value in condition.items()}


def _values(name: str, parent: str, part: Dimension, value: Any) -> tuple[Any, ...]:
    """The values of the parent with which the part exists: one, or a list of them."""
    if not isinstance(part, (Boolean, Choice, Integer)) or not part.scalar:
        raise ValueError(f"when[{name!r}] must depend on a single choice, boolean or integer; {parent!r} is {part!r}.")
    values = tuple(value) if isinstance(value, (list, tuple, set, frozenset, range)) else (value,)
    if not values:
        raise ValueError(f"when[{name!r}][{parent!r}] must have at least one value.")
    for one in values:
        try:
            part.encode(one)
        except ValueError as error:
            raise ValueError(f"when[{name!r}][{parent!r}]: {error}") from None
    return values


def active_columns(
    conditions: Allowed, parts: Mapping[str, Dimension], slices: Mapping[str, slice], rows: Array
) -> NDArray[np.bool_]:
    """Which columns of rows belong to parts that exist."""
    active = np.ones(rows.shape, dtype=bool)
    for name, condition in conditions.items():  # parents first, so that a whole branch goes with its root
        exists: Any = True
        for parent, values in condition.items():
            column = slices[parent].start
            numbers = [float(parts[parent].encode(value)[0]) for value in values]
            exists = exists & active[:, column] & np.isin(rows[:, column], numbers)
        active[:, slices[name]] = np.asarray(exists)[:, None]
    return active


def told(conditions: Mapping[str, Sequence[Any]]) -> str:
    """A condition in words."""
    return " and ".join(f"{parent} is {' or '.join(map(repr, values))}" for parent, values in conditions.items())

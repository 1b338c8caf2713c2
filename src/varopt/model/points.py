"""Points: one flat vector in the order of the variables, or a mapping from variables to arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from varopt._domains import as_finite

if TYPE_CHECKING:
    from varopt.model._variable import Variable

__all__ = ["flattened", "ordered", "slices", "split", "unflatten"]


def ordered(variables: Iterable[Variable]) -> tuple[Variable, ...]:
    """Variables in order of creation, each once: the order of a flat point."""
    return tuple(sorted(set(variables), key=lambda v: v.order))


def slices(variables: Sequence[Variable]) -> dict[Variable, slice]:
    """Where each variable lies in the flat vector."""
    ends = accumulate((v.size for v in variables), initial=0)
    return {v: slice(a, b) for v, (a, b) in zip(variables, pairwise(ends), strict=True)}


def unflatten(variables: Sequence[Variable], flat: NDArray[Any]) -> dict[Variable, NDArray[Any]]:
    """Views of flat points, (..., size), by variable."""
    return {v: flat[..., part] for v, part in slices(variables).items()}


def flattened(variables: Sequence[Variable], points: Mapping[Variable, NDArray[Any]]) -> NDArray[Any]:
    """The inverse of `unflatten`."""
    return np.concatenate([points[v] for v in variables], axis=-1) if variables else np.empty(0)


def split(variables: Sequence[Variable], point: tuple[Any, ...]) -> dict[Variable, NDArray[Any]]:
    """What a user passed as a point, checked and by variable.

    A mapping may hold further variables, so that one point serves every part of a sum.
    """
    size = sum(v.size for v in variables)
    names = ", ".join(map(str, variables))
    accepted = f"a flat array of length {size}, a mapping from variables to arrays, or one array for each of {names}"
    if len(point) == 1 and isinstance(point[0], Mapping):
        missing = [str(v) for v in variables if v not in point[0]]
        if missing:
            raise ValueError(
                f"the point must give a value to every variable; {', '.join(missing)} missing (its keys are variables)."
            )
        values = [point[0][v] for v in variables]
    elif len(point) == 1 and len(variables) != 1:
        flat = as_finite("the point", point[0])
        if flat.shape != (size,):
            raise ValueError(f"the point must be {accepted}; got shape {flat.shape}.")
        return unflatten(variables, flat)
    elif len(point) == len(variables):
        values = list(point)
    else:
        raise ValueError(f"the point must be {accepted}; got {len(point)} arguments.")
    result = {}
    for variable, value in zip(variables, values, strict=True):
        array = as_finite(f"the value of {variable}", value)
        if array.shape not in {variable.dimensions, (variable.size,)}:
            raise ValueError(f"the value of {variable} must have shape {variable.dimensions}; got {array.shape}.")
        result[variable] = array.reshape(variable.size)
    return result

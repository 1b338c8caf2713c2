"""Points: one flat vector in the order of the variables, or a mapping from variables to arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from varopt._domains import as_finite

if TYPE_CHECKING:
    from varopt.model._affine import Variable

__all__ = ["slices", "split", "unflatten"]


def slices(variables: Sequence[Variable]) -> dict[Variable, slice]:
    """Where each variable lies in the flat vector."""
    ends = np.cumsum([0, *(v.size for v in variables)])
    return {v: slice(int(a), int(b)) for v, a, b in zip(variables, ends[:-1], ends[1:], strict=True)}


def unflatten(variables: Sequence[Variable], flat: NDArray[Any]) -> dict[Variable, NDArray[Any]]:
    """Views of flat points, (..., size), by variable."""
    return {v: flat[..., part] for v, part in slices(variables).items()}


def split(variables: Sequence[Variable], point: tuple[Any, ...]) -> dict[Variable, NDArray[Any]]:
    """What a user passed as a point, checked and by variable."""
    size = sum(v.size for v in variables)
    if len(point) == 1 and isinstance(point[0], Mapping):
        given = dict(point[0])
        missing = [str(v) for v in variables if v not in given]
        if missing:
            raise ValueError(f"the point must give a value to every variable; {', '.join(missing)} missing.")
        values = [given[v] for v in variables]
    elif len(point) == 1 and len(variables) != 1:
        flat = as_finite("the point", point[0])
        if flat.shape != (size,):
            raise ValueError(
                f"the point must be a flat array of length {size}, a mapping from variables to arrays, or one array for each of "
                f"{', '.join(map(str, variables))}; got shape {flat.shape}."
            )
        return unflatten(variables, flat)
    elif len(point) == len(variables):
        values = list(point)
    else:
        raise ValueError(f"the point must be one array or one for each of {len(variables)} variables; got {len(point)}.")
    result = {}
    for variable, value in zip(variables, values, strict=True):
        array = as_finite(f"the value of {variable}", value)
        if array.shape not in {variable.dimensions, (variable.size,)}:
            raise ValueError(f"the value of {variable} must have shape {variable.dimensions}; got {array.shape}.")
        result[variable] = array.reshape(variable.size)
    return result

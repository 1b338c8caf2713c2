"""What a user hands over: numbers, vectors and matrices, checked and held by reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt import places
from varopt._domains import as_finite, refuse_masked
from varopt.model.maps._base import Map
from varopt.model.maps._dense import Matrix
from varopt.model.maps._operator import Operator
from varopt.model.maps._sparse import Sparse
from varopt.model.maps._stored import StoredMatrix
from varopt.places import Place, Stored, is_device_array, to_host

__all__ = ["as_map", "as_real", "as_vector"]

_CHECKED_AT_ONCE = 1 << 20  # entries of a matrix up to which it is looked through when handed over, else at first use


def as_real(name: str, value: Any) -> NDArray[Any]:
    """`value` as an array of real numbers, of whatever dtype it has and without a copy, or a `ValueError` naming it.

    What is not in memory stays where it is.
    """
    array: Any = value if type(value) is np.ndarray else _as_array(name, value)
    if isinstance(array, np.ndarray) and array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be real numbers; got dtype {array.dtype}.")
    return array  # type: ignore[no-any-return]


def _as_array(name: str, value: Any) -> Any:
    """What is no array of NumPy as one, unless it is not in memory."""
    if isinstance(value, (int, float)):
        return as_finite(name, value)
    if (stored := places.as_stored(value)) is not None:
        return stored
    if sp.issparse(value) or hasattr(value, "matvec"):
        raise ValueError(f"{name} must be a number or a dense array; got {type(value).__name__}. Did you mean @?")
    if hasattr(value, "X") and hasattr(value, "weight"):
        raise ValueError(f"{name} must be an array; got a table, as vo.rows makes one: take its X, y or weight.")
    value = to_host(value) if is_device_array(value) else value
    refuse_masked(name, value)
    if hasattr(value, "columns") and _is_nullable(value):
        value = value.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else as_finite(name, value)


def _is_nullable(frame: Any) -> bool:
    """Whether a frame of pandas has columns of its own numbers, which NumPy knows as objects only."""
    kinds = [getattr(dtype, "kind", "O") for dtype in getattr(frame, "dtypes", ()) if hasattr(dtype, "na_value")]
    return bool(kinds) and all(getattr(dtype, "kind", "O") in "biuf" for dtype in frame.dtypes)


def as_vector(name: str, value: Any) -> NDArray[Any]:
    """A finite number or a non-empty finite vector, without a copy."""
    array = as_real(name, value)
    if array.ndim == 1 and isinstance(array, Stored):
        return array
    if array.ndim > 1:
        raise ValueError(f"{name} must be a number or a vector; got shape {array.shape}.")
    if array.size == 0:
        # Dask answers for its own series, by what an empty one of pandas would do: nobody asks the model.
        dask = " A series of Dask comes second, as in X @ w - y, or as y.values." if hasattr(value, "iloc") else ""
        raise ValueError(f"{name} must not be empty.{dask}")
    if array.dtype.kind == "f":
        as_finite(name, array)
    return array


def as_map(name: str, value: Any) -> Map:
    """A user's matrix as a map, without copying the data; a `ValueError` that names it otherwise.

    Matrices of up to a million entries are checked for NaN and infinity at once; see `Map.check` for larger ones.
    """
    kind: type[Map] = Operator if hasattr(value, "matvec") else Sparse if sp.issparse(value) else Matrix
    place = None
    if kind is Matrix:
        if type(value) is not np.ndarray and is_device_array(value):
            place = Place(value)
        value = as_real(name, value)
        kind = StoredMatrix if isinstance(value, Stored) else kind
    elif np.dtype(getattr(value, "dtype", None) or np.float64).kind not in "biuf":
        raise ValueError(f"{name} must be real numbers; got dtype {value.dtype}.")
    if len(value.shape) != 2:
        raise ValueError(f"{name} must be a matrix; got an array of shape {value.shape}.")
    if 0 in value.shape:
        raise ValueError(f"{name} must not be empty; got shape {value.shape}.")
    mapped: Map = kind(value)  # type: ignore[call-arg]
    if isinstance(mapped, Matrix) and place is not None:
        mapped.place = place
    if kind not in (Operator, StoredMatrix) and mapped.shape[0] * mapped.shape[1] <= _CHECKED_AT_ONCE:
        mapped.check(name)
    return mapped

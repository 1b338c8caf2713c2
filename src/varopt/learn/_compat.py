"""What differs between the versions of scikit-learn that are supported, and its names that are not public.

Every import of a private name of scikit-learn belongs here, so that a new version of it is one file's work.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from array_api_compat import is_torch_array
from sklearn import get_config, svm
from sklearn import utils as _utils
from sklearn.linear_model._base import LinearClassifierMixin, LinearModel, SparseCoefMixin
from sklearn.svm._base import BaseLibSVM
from sklearn.utils import _array_api
from sklearn.utils._array_api import get_namespace_and_device
from sklearn.utils._metadata_requests import _raise_for_params, _routing_enabled
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, validate_data

from varopt._domains import refuse_masked

__all__ = [
    "PROBABILITY", "BaseLibSVM", "HasMethods", "Interval", "LinearClassifierMixin", "LinearModel", "SparseCoefMixin",
    "StrOptions", "_check_sample_weight", "_raise_for_params", "_routing_enabled", "compute_class_weight",
    "followers", "get_namespace_and_device", "move_to", "to_numpy", "validate_data",
]  # fmt: skip


def _move_to(array: Any, *, xp: Any, device: Any) -> Any:
    """An array in another namespace and on another device, through NumPy."""
    if getattr(xp, "__name__", "").rpartition(".")[2] == "numpy":
        return _array_api._convert_to_numpy(array, _array_api.get_namespace(array)[0])
    return xp.asarray(np.asarray(array), device=device)


move_to = getattr(_array_api, "move_to", _move_to)  # scikit-learn 1.8 has it

PROBABILITY = inspect.signature(svm.SVC).parameters["probability"].default  # deprecated from 1.9 on


def compute_class_weight(class_weight: Any, *, classes: Any, y: Any, sample_weight: Any) -> Any:
    """Weights of classes, "balanced" by the weights of their rows; scikit-learn 1.7 and older count rows instead."""
    if "sample_weight" in inspect.signature(_utils.compute_class_weight).parameters:
        return _utils.compute_class_weight(class_weight, classes=classes, y=y, sample_weight=sample_weight)
    if not (isinstance(class_weight, str) and class_weight == "balanced"):
        return _utils.compute_class_weight(class_weight, classes=classes, y=y)
    totals = np.bincount(np.searchsorted(classes, y), weights=sample_weight, minlength=len(classes))
    return totals.sum() / (len(classes) * totals)


# -- Arrays of other libraries under `array_api_dispatch`: in as NumPy, out where they came from ----------------------
# The solver works in NumPy, so data on another device are copied once; coefficients go back to the device, and
# predictions are computed there.


def to_numpy(*arrays: Any) -> tuple[Any, ...]:
    """Features, targets and weights, those of any namespace as NumPy's where dispatch is on, else as they came.

    What is masked is refused: scikit-learn computes with what is behind a mask.
    """
    for name, value in zip(("X", "y", "sample_weight"), arrays, strict=False):
        refuse_masked(name, value)
    if not get_config()["array_api_dispatch"]:
        return arrays
    return tuple(move_to(a, xp=np, device="cpu") if _is_array(a) else a for a in arrays)


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array_namespace__") or is_torch_array(value)  # tensors do not name their namespace


def followers(X: Any, values: dict[str, Any]) -> dict[str, Any]:
    """The arrays among `values` in the namespace and on the device of X; numbers as they are."""
    if not get_config()["array_api_dispatch"]:
        return values
    namespace, _, device = get_namespace_and_device(X)
    return {
        name: move_to(value, xp=namespace, device=device) if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }

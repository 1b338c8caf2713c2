"""Arrays of other libraries under scikit-learn's `array_api_dispatch`: in as NumPy, out where they came from.

The solver works in NumPy, so data on another device are copied once; coefficients go back to the device, and
predictions are computed there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import is_torch_array
from sklearn import get_config
from sklearn.utils._array_api import get_namespace_and_device, move_to

__all__ = ["followers", "to_numpy"]


def to_numpy(*arrays: Any) -> tuple[Any, ...]:
    """Arrays of any namespace as NumPy's where dispatch is on; anything else as it came."""
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

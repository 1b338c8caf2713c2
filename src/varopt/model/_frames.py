"""Let ``DataFrame @ expression`` reach us.

pandas turns the operand of its ``@`` into an array and fails on it. Once pandas is loaded, `install` makes it return
``NotImplemented`` for expressions and parameters, so that Python tries ``__rmatmul__``; all other operands see its own
method, unchanged.
"""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any

__all__ = ["install"]


def install() -> None:
    """Wrap ``@`` of frames and series once, if pandas is there."""
    pandas = sys.modules.get("pandas")
    for name in ("DataFrame", "Series"):
        kind = getattr(pandas, name, None)  # absent also while pandas is being imported
        if kind is not None and not hasattr(kind.__matmul__, "_varopt"):
            kind.__matmul__ = _deferring(kind.__matmul__)


def _deferring(original: Any) -> Any:
    @wraps(original)
    def matmul(self: Any, other: Any) -> Any:
        return NotImplemented if hasattr(other, "_own_operators") else original(self, other)

    matmul._varopt = True  # type: ignore[attr-defined]
    return matmul

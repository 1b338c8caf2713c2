"""Let ``LinearOperator @ expression`` reach us.

NumPy and scipy.sparse leave ``X @ w`` to our expressions. SciPy's `LinearOperator` does not ask: it turns its operand
into an array and fails. `install` makes its ``@`` return ``NotImplemented`` for our expressions, so that Python tries
``__rmatmul__`` as it does for every other matrix; all other operands see SciPy's own method, unchanged.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from scipy.sparse.linalg import LinearOperator

from varopt.model._expression import Expression

__all__ = ["install"]


def install() -> None:
    """Wrap ``LinearOperator.__matmul__`` once."""
    original = LinearOperator.__matmul__
    if getattr(original, "_varopt", False):
        return

    @wraps(original)
    def matmul(self: Any, other: Any) -> Any:
        return NotImplemented if isinstance(other, Expression) else original(self, other)

    matmul._varopt = True  # type: ignore[attr-defined]
    LinearOperator.__matmul__ = matmul

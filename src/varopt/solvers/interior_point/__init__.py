"""Interior points: for sparse and banded problems, and for norms of anything."""

from typing import TYPE_CHECKING

from varopt._lazy import on_first_use

if TYPE_CHECKING:
    from varopt.solvers.interior_point._conic import Conic
    from varopt.solvers.interior_point._interior_point import InteriorPoint

# Each is for other problems, and few variables ask for neither.
__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "Conic": "varopt.solvers.interior_point._conic",
        "InteriorPoint": "varopt.solvers.interior_point._interior_point",
    },
)

__all__ = ["Conic", "InteriorPoint"]

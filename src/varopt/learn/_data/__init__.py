"""What estimators are given: rows in memory, equal ones counted once, or rows that are elsewhere."""

from varopt.learn._data._rows import DataMemory, WeightedRows, distinct_rows
from varopt.learn._data._stored import (
    Classes,
    StoredProblem,
    StoredRows,
    by_class,
    classes_of,
    signs,
    solve_huber_centred,
    solve_huber_stored,
    solve_together,
    stored_rows,
)

__all__ = [
    "Classes",
    "DataMemory",
    "StoredProblem",
    "StoredRows",
    "WeightedRows",
    "by_class",
    "classes_of",
    "distinct_rows",
    "signs",
    "solve_huber_centred",
    "solve_huber_stored",
    "solve_together",
    "stored_rows",
]

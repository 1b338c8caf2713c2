"""What clauses, their weights and the number of their variables have to be."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.discrete._labels import MOST_VARIABLES

__all__ = ["checked_clauses", "checked_weights", "variable_count"]

Vector = NDArray[np.float64]


def checked_clauses(clauses: Iterable[Sequence[int]]) -> list[list[int]]:
    """Clauses as lists of literals, each once."""
    if not isinstance(clauses, Iterable):
        raise ValueError(f"clauses must be sequences of whole numbers; got {clauses!r}.")
    return [_clause(number, clause) for number, clause in enumerate(clauses, start=1)]


def _clause(number: int, clause: Sequence[int]) -> list[int]:
    try:
        literals = [operator.index(literal) for literal in clause]
    except TypeError:
        raise ValueError(f"clause {number} must be a sequence of whole numbers; got {clause!r}.") from None
    if not literals:
        raise ValueError(f"clause {number} is empty: nothing satisfies it.")
    if 0 in literals:
        raise ValueError(f"clause {number} has the literal 0; variables count from 1, and are negative if negated.")
    return list(dict.fromkeys(literals))


def checked_weights(weights: Any, count: int) -> Vector:
    """A weight for each clause, infinite for hard ones; one by default."""
    if weights is None:
        return np.ones(count)
    try:
        values = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("weights must be numbers, one for each clause.") from None
    if values.shape != (count,):
        raise ValueError(f"weights must have one entry for each of {count} clauses; got shape {values.shape}.")
    if not np.all(values >= 0.0):
        raise ValueError("weights must be >= 0, and infinite for hard clauses; got a negative one, or NaN.")
    return values


def variable_count(clauses: list[list[int]], variables: Any) -> int:
    """How many variables there are: as stated, or the largest that occurs."""
    largest = max((abs(literal) for clause in clauses for literal in clause), default=0)
    variables = largest if variables is None else variables
    if not isinstance(variables, (int, np.integer)) or isinstance(variables, bool) or variables < largest:
        raise ValueError(f"variables must be a whole number >= {largest}, the largest that occurs; got {variables!r}.")
    if variables > MOST_VARIABLES:
        raise ValueError(f"clauses must have up to {MOST_VARIABLES} variables; got {variables}.")
    return int(variables)

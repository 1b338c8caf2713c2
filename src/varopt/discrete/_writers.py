"""Writers of problem files, each the reverse of the reader of its name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from varopt._domains import as_finite
from varopt.discrete._clauses import checked_clauses, checked_weights, variable_count

__all__ = ["as_text", "write_cnf", "write_gset", "write_lines", "write_qubo"]


def write_gset(path: str | PathLike[str], graph: Any) -> None:
    """Write a graph, a symmetric or triangular matrix of weights, in the format of the G-set."""
    matrix = _square("graph", graph)
    full = sp.csr_array(matrix)
    both = abs(full - full.T).max() == 0.0 if full.nnz else True
    keep = matrix.row < matrix.col if both else matrix.row != matrix.col
    rows, columns, weights = matrix.row[keep] + 1, matrix.col[keep] + 1, matrix.data[keep]
    lines = [f"{i} {j} {as_text(w)}" for i, j, w in zip(rows.tolist(), columns.tolist(), weights.tolist(), strict=True)]
    write_lines(path, [f"{matrix.shape[0]} {len(lines)}", *lines])


def write_qubo(path: str | PathLike[str], Q: Any) -> None:
    """Write a matrix of which every entry counts, in the format of qbsolv: an off-diagonal pair as one entry."""
    matrix = sp.csr_array(_square("Q", Q))
    upper = sp.coo_array(sp.triu(matrix) + sp.tril(matrix, -1).T)
    entries = [*zip(upper.row.tolist(), upper.col.tolist(), upper.data.tolist(), strict=True)]
    diagonal = [e for e in entries if e[0] == e[1]]
    pairs = [e for e in entries if e[0] != e[1]]
    header = f"p qubo 0 {matrix.shape[0]} {len(diagonal)} {len(pairs)}"
    write_lines(path, [header, *(f"{i} {j} {as_text(w)}" for i, j, w in diagonal + pairs)])


def write_cnf(
    path: str | PathLike[str], clauses: Iterable[Sequence[int]], weights: Any = None, variables: int | None = None
) -> None:
    """Write clauses in DIMACS format: CNF, or WCNF where there are weights, hard clauses those of infinite weight."""
    listed = checked_clauses(clauses)
    count = variable_count(listed, variables)
    bodies = [" ".join(map(str, [*clause, 0])) for clause in listed]
    if weights is None:
        write_lines(path, [f"p cnf {count} {len(listed)}", *bodies])
        return
    given = checked_weights(weights, len(listed)).tolist()
    # More than all soft ones together, in exact arithmetic: in double precision it may be one of them.
    top = math.ceil(sum(map(Fraction, filter(math.isfinite, given)))) + 1
    texts = [as_text(w) if math.isfinite(w) else str(top) for w in given]
    write_lines(path, [f"p wcnf {count} {len(listed)} {top}", *map(" ".join, zip(texts, bodies, strict=True))])


def _square(name: str, value: Any) -> Any:
    """A square matrix of finite numbers, as a list of entries."""
    given = value if sp.issparse(value) else np.asarray(as_finite(name, value))
    if given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise ValueError(f"{name} must be a square matrix; got shape {given.shape}.")
    matrix = sp.coo_array(given)
    as_finite(f"the entries of {name}", matrix.data)
    return matrix


def as_text(number: float) -> str:
    """A number, whole ones without a point."""
    return str(int(number)) if number == int(number) else repr(float(number))


def write_lines(path: str | PathLike[str], lines: list[str]) -> None:
    """A text file."""
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")

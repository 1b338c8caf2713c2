"""Readers of problem files: G-set and rudy graphs, qbsolv QUBOs, DIMACS formulas. Errors name the file and the line."""

from __future__ import annotations

import math
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["Formula", "read_cnf", "read_gset", "read_qubo"]


class Formula(NamedTuple):
    """Clauses, each a list of literals (a variable's number from 1, negative if negated), and their weights.

    ``max_sat(*formula)`` takes it. Weights are None where all are one; a hard clause has infinite weight.
    """

    clauses: list[list[int]]
    weights: NDArray[np.float64] | None


class _Lines:
    """The lines of a file, with numbers for complaints."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise ValueError(f"path must name a file; {str(self.path)!r} is none.")
        self.number = 0

    def __iter__(self) -> Iterator[list[str]]:
        with self.path.open(encoding="utf-8", errors="replace") as stream:
            for line in stream:
                self.number += 1
                if words := line.split():
                    yield words

    def wrong(self, what: str) -> ValueError:
        """What is wrong with the present line."""
        return ValueError(f"{self.path.name}, line {self.number}: {what}.")

    def integer(self, word: str, what: str) -> int:
        """A whole number."""
        try:
            return int(word)
        except ValueError:
            raise self.wrong(f"{what} must be a whole number; got {word!r}") from None

    def weight(self, word: str) -> float:
        """A finite number."""
        try:
            number = float(word)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self.wrong(f"a weight must be a finite number; got {word!r}")
        return number


def read_gset(path: str | PathLike[str]) -> Any:
    """A graph in the format of the G-set and of rudy, for `max_cut`.

    Parameters
    ----------
    path : path
        A text file: ``nodes edges``, then ``i j weight`` for each edge, nodes counted from 1; a weight left out is 1.

    Returns
    -------
    scipy.sparse.csr_array
        The symmetric matrix of weights.
    """
    lines = _Lines(path)
    size = count = -1
    rows, columns, weights = [], [], []
    for words in lines:
        if words[0][0] in "#c%":
            continue
        if size < 0:
            if len(words) < 2:
                raise lines.wrong("the first line must give the numbers of nodes and edges")
            size, count = (lines.integer(word, "a number of nodes or edges") for word in words[:2])
            continue
        if len(words) not in (2, 3):
            raise lines.wrong(f"an edge must be 'i j weight'; got {' '.join(words)!r}")
        i, j = (lines.integer(word, "a node") for word in words[:2])
        if not (1 <= i <= size and 1 <= j <= size):
            raise lines.wrong(f"a node must be from 1 to {size}; got {i if not 1 <= i <= size else j}")
        rows.append(i - 1)
        columns.append(j - 1)
        weights.append(lines.weight(words[2]) if len(words) == 3 else 1.0)
    if size < 0:
        raise lines.wrong("the file is empty; it must begin with the numbers of nodes and edges")
    if len(rows) != count:
        raise lines.wrong(f"the first line announces {count} edges, and the file has {len(rows)}")
    half = sp.csr_array((weights, (rows, columns)), shape=(size, size))
    return sp.csr_array(half + half.T)


def read_qubo(path: str | PathLike[str]) -> Any:
    """A matrix in the format of qbsolv, for `qubo`.

    Parameters
    ----------
    path : path
        A text file: comments ``c ...``, ``p qubo topology nodes diagonals couplers``, then ``i j value`` with nodes
        counted from 0; an off-diagonal entry counts once.

    Returns
    -------
    scipy.sparse.csr_array
        A matrix Q such that ``x'Qx`` is the file's objective.
    """
    lines = _Lines(path)
    size, expected = -1, 0
    rows, columns, values = [], [], []
    for words in lines:
        if words[0] == "c":
            continue
        if words[0] == "p":
            if len(words) != 6 or words[1] != "qubo":
                raise lines.wrong("the problem line must be 'p qubo topology nodes diagonals couplers'")
            size = lines.integer(words[3], "the number of nodes")
            expected = sum(lines.integer(word, "a number of entries") for word in words[4:])
            continue
        if size < 0:
            raise lines.wrong("the line 'p qubo ...' must come before the entries")
        if len(words) != 3:
            raise lines.wrong(f"an entry must be 'i j value'; got {' '.join(words)!r}")
        i, j = (lines.integer(word, "a node") for word in words[:2])
        if not (0 <= i < size and 0 <= j < size):
            raise lines.wrong(f"a node must be from 0 to {size - 1}; got {j if 0 <= i < size else i}")
        rows.append(i)
        columns.append(j)
        values.append(lines.weight(words[2]))
    if size < 0:
        raise lines.wrong("the file has no line 'p qubo ...'")
    if len(rows) != expected:
        raise lines.wrong(f"the problem line announces {expected} entries, and the file has {len(rows)}")
    return sp.csr_array((values, (rows, columns)), shape=(size, size))


def read_cnf(path: str | PathLike[str]) -> Formula:
    """A formula in DIMACS format, for `max_sat`: CNF, WCNF, or WCNF of 2022 (hard clauses marked ``h``).

    Parameters
    ----------
    path : path
        A text file: comments ``c ...``, ``p cnf variables clauses`` or ``p wcnf variables clauses top``, then clauses
        that end with 0, which may span lines. What follows a line ``%`` is ignored, as in SATLIB.

    Returns
    -------
    Formula
        Clauses and weights; those of weight `top` are hard, with infinite weight.
    """
    lines = _Lines(path)
    clauses: list[list[int]] = []
    weights: list[float] = []
    literals: list[int] = []
    kind, variables, expected, top = "", 0, -1, math.inf
    weight: float | None = None
    for words in lines:
        if words[0] == "c":
            continue
        if words[0] == "%":
            break
        if words[0] == "p":
            if len(words) < 4 or words[1] not in ("cnf", "wcnf"):
                raise lines.wrong(
                    "the problem line must be 'p cnf variables clauses' or 'p wcnf variables clauses top'"
                )
            kind = words[1]
            variables, expected = (lines.integer(word, "a number of variables or clauses") for word in words[2:4])
            top = lines.weight(words[4]) if len(words) > 4 else math.inf
            continue
        if not kind:
            kind = "2022"  # without a problem line every clause begins with its weight, or h
        for word in words:
            if kind != "cnf" and weight is None:
                weight = math.inf if word == "h" else lines.weight(word)
                weight = math.inf if weight >= top else weight
                if weight < 0:
                    raise lines.wrong(f"a weight must not be negative; got {word}")
                continue
            literal = lines.integer(word, "a literal")
            if literal == 0:
                if not literals:
                    raise lines.wrong(f"clause {len(clauses) + 1} is empty: nothing satisfies it")
                clauses.append(literals)
                weights.append(1.0 if weight is None else weight)
                literals, weight = [], None
            elif kind != "2022" and abs(literal) > variables:
                raise lines.wrong(f"a literal must be from 1 to {variables} in size; got {literal}")
            else:
                literals.append(literal)
    if literals:
        raise lines.wrong(f"clause {len(clauses) + 1} does not end with 0")
    if not clauses:
        raise lines.wrong("the file has no clauses")
    if expected >= 0 and len(clauses) != expected:
        raise lines.wrong(f"the problem line announces {expected} clauses, and the file has {len(clauses)}")
    return Formula(clauses, None if kind == "cnf" else np.array(weights))

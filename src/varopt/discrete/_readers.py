"""Readers of problem files: graphs, qbsolv QUBOs, DIMACS formulas. Errors name the file and the line.

Files may be compressed by gzip, bzip2 or xz, which is seen by their first bytes.
"""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import math
import reprlib
import zlib
from collections.abc import Iterator
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.discrete._labels import MOST_VARIABLES

__all__ = ["Formula", "TextLines", "first_words", "read_cnf", "read_dimacs", "read_edges", "read_gset", "read_qubo"]

_WHOLE_NUMBERS = 2**53  # up to which double precision has them all

_COMPRESSED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}


def _opened(path: Path) -> TextIO:
    """A text file, decompressed where it is compressed."""
    with path.open("rb") as stream:
        start = stream.read(6)
    unpack = next((reader for magic, reader in _COMPRESSED.items() if start.startswith(magic)), open)
    stream_: TextIO = unpack(path, "rt", encoding="utf-8-sig", errors="replace")
    return stream_


class Formula(NamedTuple):
    """Clauses, each a list of literals (a variable's number from 1, negative if negated), their weights, and variables.

    ``max_sat(*formula)`` takes it. Weights are None where all are one; a hard clause has infinite weight. Variables are
    as many as the file announces, or None where it does not.
    """

    clauses: list[list[int]]
    weights: NDArray[np.float64] | None
    variables: int | None = None


class TextLines:
    """The lines of a file, with numbers for complaints."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise ValueError(f"path must name a file; {str(self.path)!r} is none.")
        self.number = 0

    def __iter__(self) -> Iterator[list[str]]:
        try:
            with _opened(self.path) as stream:
                for line in stream:
                    self.number += 1
                    if words := line.split():
                        yield words
        except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
            if getattr(error, "errno", None) is not None:  # of the machine, not of what is in the file
                raise
            raise self.wrong(f"the compressed file is damaged: {error}") from None

    def wrong(self, what: str) -> ValueError:
        """What is wrong with the present line."""
        place = f"{self.path.name}, line {self.number}" if self.number else self.path.name
        return ValueError(f"{place}: {what}.")

    def first_of_its_kind(self, what: str, is_first: bool) -> None:
        """Refuse a second line of what a file has once: it is not clear which of them counts."""
        if not is_first:
            raise self.wrong(f"this is a second {what}, and a file has one")

    def integer(self, word: str, what: str) -> int:
        """A whole number."""
        try:
            return int(word)
        except ValueError:
            raise self.wrong(f"{what} must be a whole number; got {reprlib.repr(word)}") from None

    def count(self, word: str, what: str) -> int:
        """A number of nodes or variables, of a size that can be worked with."""
        number = self.integer(word, f"a number of {what}")
        if not 0 <= number <= MOST_VARIABLES:
            raise self.wrong(f"the file announces {number} {what}, and may have up to {MOST_VARIABLES}")
        return number

    def weight(self, word: str) -> float:
        """A finite number."""
        try:
            number = float(word)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self.wrong(f"a weight must be a finite number; got {reprlib.repr(word)}")
        return number


def first_words(path: str | PathLike[str], most: int = 1000) -> Iterator[list[str]]:
    """The words of the first lines that are no comments, of a file that may be compressed."""
    for words in itertools.islice(TextLines(path), most):
        if words[0] != "c" and words[0][0] not in "#%*":
            yield words


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
    lines = TextLines(path)
    size = count = -1
    rows, columns, weights = [], [], []
    for words in lines:
        if words[0][0] in "#c%":
            continue
        if size < 0:
            if len(words) < 2:
                raise lines.wrong("the first line must give the numbers of nodes and edges")
            size, count = lines.count(words[0], "nodes"), lines.integer(words[1], "a number of nodes or edges")
            continue
        if len(words) not in (2, 3):
            raise lines.wrong(f"an edge must be 'i j weight'; got {reprlib.repr(' '.join(words))}")
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


def read_dimacs(path: str | PathLike[str]) -> Any:
    """A graph in DIMACS format (``.col``, ``.clq``), for `max_cut`.

    Parameters
    ----------
    path : path
        A text file: comments ``c ...``, ``p edge nodes edges`` (or ``p col``), then ``e i j`` or ``e i j weight``,
        nodes counted from 1. An edge that is given in both directions, as some files do, is one edge.

    Returns
    -------
    scipy.sparse.csr_array
        The symmetric matrix of weights.
    """
    lines = TextLines(path)
    size = -1
    edges: dict[tuple[int, int], float] = {}
    for words in lines:
        if words[0] in ("c", "n", "d", "v", "x"):  # comments, and what generators add
            continue
        if words[0] == "p":
            lines.first_of_its_kind("problem line", size < 0)
            if len(words) != 4:
                raise lines.wrong("the problem line must be 'p edge nodes edges'")
            size = lines.count(words[2], "nodes")
            continue
        if size < 0:
            raise lines.wrong("the line 'p edge ...' must come before the edges")
        if words[0] not in ("e", "a") or len(words) not in (3, 4):
            raise lines.wrong(f"an edge must be 'e i j'; got {reprlib.repr(' '.join(words))}")
        i, j = sorted(_node(lines, word, 1, size) for word in words[1:3])
        weight = lines.weight(words[3]) if len(words) == 4 else 1.0
        if edges.setdefault((i, j), weight) != weight:
            raise lines.wrong(f"the edge from {i + 1} to {j + 1} has the weight {edges[i, j]:g} in a line above")
    if size < 0:
        raise lines.wrong("the file has no line 'p edge ...'")
    return _graph(edges, size)


def read_edges(path: str | PathLike[str], first: int = 0) -> Any:
    """A graph as a list of edges without a header, for `max_cut`.

    Parameters
    ----------
    path : path
        A text file: comments ``# ...``, then ``i j`` or ``i j weight``, separated by blanks or commas. Weights of an
        edge that is given several times are added up.
    first : int
        What nodes are counted from: 0 or 1.

    Returns
    -------
    scipy.sparse.csr_array
        The symmetric matrix of weights, up to the largest node.
    """
    lines = TextLines(path)
    edges: dict[tuple[int, int], float] = {}
    for words in lines:
        if words[0][0] in "#%":
            continue
        words = " ".join(words).replace(",", " ").split()
        if len(words) not in (2, 3):
            raise lines.wrong(f"an edge must be 'i j' or 'i j weight'; got {reprlib.repr(' '.join(words))}")
        i, j = sorted(_node(lines, word, first, MOST_VARIABLES) for word in words[:2])
        edges[i, j] = edges.get((i, j), 0.0) + (lines.weight(words[2]) if len(words) == 3 else 1.0)
    if not edges:
        raise lines.wrong("the file has no edges")
    return _graph(edges, 1 + max(j for _, j in edges))


def _node(lines: TextLines, word: str, first: int, last: int) -> int:
    node = lines.integer(word, "a node")
    if not first <= node <= last:
        raise lines.wrong(f"a node must be from {first} to {last}; got {node}")
    return node - first


def _graph(edges: dict[tuple[int, int], float], size: int) -> Any:
    pairs = np.array([*edges], dtype=np.intp).reshape(-1, 2)
    half = sp.csr_array((np.array([*edges.values()]), (pairs[:, 0], pairs[:, 1])), shape=(size, size))
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
    lines = TextLines(path)
    size, expected = -1, 0
    rows, columns, values = [], [], []
    for words in lines:
        if words[0] == "c":
            continue
        if words[0] == "p":
            lines.first_of_its_kind("problem line", size < 0)
            if len(words) != 6 or words[1] != "qubo":
                raise lines.wrong("the problem line must be 'p qubo topology nodes diagonals couplers'")
            size = lines.count(words[3], "nodes")
            expected = sum(lines.integer(word, "a number of entries") for word in words[4:])
            continue
        if size < 0:
            raise lines.wrong("the line 'p qubo ...' must come before the entries")
        if len(words) != 3:
            raise lines.wrong(f"an entry must be 'i j value'; got {reprlib.repr(' '.join(words))}")
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
    lines = TextLines(path)
    clauses: list[list[int]] = []
    weights: list[float] = []
    literals: list[int] = []
    kind, variables, expected, top = "", 0, -1, "inf"
    weight: float | None = None
    for words in lines:
        if words[0] == "c":
            continue
        if words[0] == "%":
            break
        if words[0] == "p":
            lines.first_of_its_kind("problem line", not kind)
            if len(words) < 4 or words[1] not in ("cnf", "wcnf"):
                raise lines.wrong(
                    "the problem line must be 'p cnf variables clauses' or 'p wcnf variables clauses top'"
                )
            kind = words[1]
            variables = lines.count(words[2], "variables")
            expected = lines.integer(words[3], "a number of variables or clauses")
            if len(words) > 4:
                top = words[4]
                lines.weight(top)
            continue
        if not kind:
            kind = "2022"  # without a problem line every clause begins with its weight, or h
        for word in words:
            if kind != "cnf" and weight is None:
                weight = math.inf if word == "h" else lines.weight(word)
                weight = math.inf if _reaches(word, weight, top) else weight
                if weight < 0:
                    raise lines.wrong(f"a weight must not be negative; got {word}")
                continue
            literal = lines.integer(word, "a literal")
            if abs(literal) > MOST_VARIABLES:
                raise lines.wrong(f"a literal must be up to {MOST_VARIABLES} in size; got {literal}")
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
    return Formula(clauses, None if kind == "cnf" else np.array(weights), None if kind == "2022" else variables)


def _reaches(word: str, weight: float, top: str) -> bool:
    """Whether a weight is at least the top one: as they are written, where double precision does not tell them apart.

    Weights are 64-bit numbers in some files, and the top one is larger than all soft ones by one.
    """
    if weight != float(top) or weight < _WHOLE_NUMBERS:
        return weight >= float(top)
    return math.isinf(weight) or Fraction(word) >= Fraction(top)

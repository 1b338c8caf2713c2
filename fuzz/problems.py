"""Random problems as short programs, and their values in exact rational arithmetic.

A problem is the text of a program that builds it: what fails can be printed, and run, as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from varopt import terms

CONVEX = {
    "abs": [],
    "pos": [],
    "hinge": [],
    "squared_hinge": [],
    "square": [],
    "pinball": [(0.05, 0.95)],
    "epsilon_insensitive": [(0.01, 2.0)],
    "huber": [(0.01, 3.0)],
}
NOT_CONVEX = {
    "step": [],
    "zero_one": [],
    "ramp": [],
    "capped_abs": [(0.1, 2.0)],
    "mcp": [(0.2, 2.0), (1.5, 4.0)],
    "scad": [(0.2, 2.0), (2.5, 4.5)],
    "clip": [(-2.0, -0.1), (0.1, 2.0)],
    "dead_zone": [(0.1, 2.0)],
}


@dataclass(frozen=True)
class Block:
    """One part of a sum: a term of ``t * (A w + b) + d``, with weights."""

    term: str
    weight: Any  # a number, or one per row
    map: str = "dense"  # dense, sparse, identity or diff
    matrix: Any = None  # rows, where the map is dense or sparse; the matrix of quad_form; the linear part
    intercept: bool = False
    scale: Any = None  # a number, or one per row
    offset: Any = 0.0  # a number, or one per row
    parameters: tuple[float, ...] = ()


@dataclass(frozen=True)
class Problem:
    """Blocks of one vector of variables, and perhaps a scalar beside it."""

    size: int
    blocks: tuple[Block, ...]

    @property
    def intercept(self) -> bool:
        return any(block.intercept for block in self.blocks)

    @property
    def dimension(self) -> int:
        return self.size + self.intercept

    def program(self) -> str:
        """The lines that build it."""
        lines = ["import numpy as np, scipy.sparse as sp, varopt as vo", "", f"w = vo.Variable({self.size})"]
        if self.intercept:
            lines.append("b = vo.Variable()")
        parts = [_written(block, self.size) for block in self.blocks]
        lines.append(
            "f = " + (" + ".join(parts) if len("".join(parts)) < 100 else "(\n    " + "\n    + ".join(parts) + "\n)")
        )
        return "\n".join(lines) + "\n"

    def build(self) -> Any:
        """The objective."""
        names: dict[str, Any] = {}
        exec(self.program(), names)  # our own text
        return names["f"]

    def value(self, x: Any) -> tuple[Fraction, Fraction]:
        """The exact value at a point, and the sum of the sizes of all parts."""
        point = [v if isinstance(v, Fraction) else Fraction(float(v)) for v in x]
        values = [_exact(block, point[: self.size], point[self.size :], self.size) for block in self.blocks]
        return sum((v for part in values for v in part), Fraction(0)), sum(
            (abs(v) for part in values for v in part), Fraction(0)
        )

    def about(self, points: Any) -> tuple[Any, Any]:
        """Values at many points in floating point, and the sums of the sizes of all that is added up."""
        values, sizes = np.zeros(len(points)), np.zeros(len(points))
        for block in self.blocks:
            dense = dense_matrix(self, block)
            if block.term == "quad_form":
                w, weight = points[:, : self.size], float(block.weight)
                parts = weight * np.einsum("ki,ij,kj->kij", w, dense[:, : self.size], w).reshape(len(points), -1)
                values, sizes = values + parts.sum(axis=1), sizes + np.abs(parts).sum(axis=1)
                continue
            z = points @ dense.T + block.offset
            reach = np.abs(points) @ np.abs(dense.T) + np.abs(block.offset)
            weights = np.broadcast_to(np.asarray(block.weight, dtype=float), z.shape[1:])
            if block.term == "norm2":
                width = int(block.parameters[0]) if block.parameters else z.shape[1]
                starts = range(0, z.shape[1], width)
                values = values + weights[0] * np.sqrt(np.add.reduceat(z * z, starts, axis=1)).sum(axis=1)
                sizes = sizes + weights[0] * reach.sum(axis=1)
                continue
            term = FLOATING[block.term](*(float(v) for v in block.parameters)) if block.term != "linear" else None
            rho = z if term is None else term.value(z)
            slope = 1.0 if term is None else 1.0 + np.abs(term.derivative(z))
            values = values + rho @ weights
            sizes = sizes + (np.abs(rho) + slope * reach) @ np.abs(weights)
        return values, sizes


def dense_matrix(problem: Problem, block: Block) -> Any:
    """The matrix of all variables of a block, in floating point."""
    size = problem.size
    if block.term == "quad_form":
        dense = np.asarray(block.parameters, dtype=float).reshape(size, size)
    elif block.map == "identity":
        dense = np.eye(size)
    elif block.map == "diff":
        dense = np.diff(np.eye(size), axis=0)
    else:
        dense = np.asarray(block.matrix, dtype=float)
    if problem.intercept:
        dense = np.c_[dense, np.full(len(dense), float(block.intercept))]
    if block.scale is not None:
        dense = np.broadcast_to(block.scale, len(dense))[:, None] * dense
    return dense


# -- As text ----------------------------------------------------------------------------------------------------------


def _number(value: Any) -> str:
    return repr(float(value)) if np.ndim(value) == 0 else f"np.array({np.asarray(value, dtype=float).tolist()})"


def _written(block: Block, size: int) -> str:
    z = _linear(block)
    if block.term == "linear":
        return f"{_number(block.weight)} * ({_number(block.matrix[0])} @ w)"
    if block.term == "quad_form":
        matrix = f"np.array({np.asarray(block.parameters, dtype=float).reshape(size, size).tolist()})"
        return f"{_number(block.weight)} * vo.quad_form(w, {matrix})"
    if block.term == "norm2":
        groups = f", groups={int(block.parameters[0])}" if block.parameters else ""
        return f"{_number(block.weight)} * vo.norm2({z}{groups})"
    inner = ", ".join([z, *(repr(float(v)) for v in block.parameters)])
    if np.ndim(block.weight):
        return f"vo.sum({_number(block.weight)} * vo.{block.term}({inner}))"
    return f"{_number(block.weight)} * vo.sum(vo.{block.term}({inner}))"


def _linear(block: Block) -> str:
    text = {
        "identity": "w",
        "diff": "vo.diff(w)",
        "dense": f"{_number(block.matrix)} @ w" if block.matrix is not None else "",
        "sparse": f"sp.csr_array({_number(block.matrix)}) @ w" if block.matrix is not None else "",
    }[block.map]
    if block.intercept:
        text = f"{text} + b"
    if block.scale is not None:
        text = f"{_number(block.scale)} * ({text})"
    return text if np.ndim(block.offset) == 0 and block.offset == 0.0 else f"{text} + {_number(block.offset)}"


# -- Exactly ----------------------------------------------------------------------------------------------------------


def _exact(block: Block, w: list[Fraction], rest: list[Fraction], size: int) -> list[Fraction]:
    """The parts of a block at a point; of a linear one, each product."""
    if block.term == "quad_form":
        matrix = np.asarray(block.parameters, dtype=float).reshape(size, size)
        weight = Fraction(float(block.weight))
        return [weight * Fraction(float(matrix[i, j])) * w[i] * w[j] for i in range(size) for j in range(size)]
    z = _exact_rows(block, w, rest)
    weights = [Fraction(float(c)) for c in np.broadcast_to(block.weight, len(z))]
    if block.term == "linear":
        return [c * v for c, v in zip(weights, z, strict=True)]
    if block.term == "norm2":
        width = int(block.parameters[0]) if block.parameters else len(z)
        return [weights[0] * _root(sum(v * v for v in z[i : i + width])) for i in range(0, len(z), width)]
    parameters = [Fraction(float(v)) for v in block.parameters]
    return [c * EXACT[block.term](v, *parameters) for c, v in zip(weights, z, strict=True)]


def _exact_rows(block: Block, w: list[Fraction], rest: list[Fraction]) -> list[Fraction]:
    if block.map == "identity":
        z = list(w)
    elif block.map == "diff":
        z = [b - a for a, b in pairwise(w)]
    else:
        z = [sum((Fraction(float(a)) * v for a, v in zip(row, w, strict=True)), Fraction(0)) for row in block.matrix]
    if block.intercept:
        z = [v + rest[0] for v in z]
    if block.scale is not None:
        z = [Fraction(float(t)) * v for t, v in zip(np.broadcast_to(block.scale, len(z)), z, strict=True)]
    return [v + Fraction(float(d)) for v, d in zip(z, np.broadcast_to(block.offset, len(z)), strict=True)]


def _root(value: Fraction) -> Fraction:
    """A square root, of squares exactly and else to 60 digits, from above."""
    root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    if root * root == value:
        return root
    shift = max(0, 420 - value.numerator.bit_length() + value.denominator.bit_length())
    shift += shift % 2
    return Fraction(math.isqrt((value.numerator << shift) // value.denominator) + 1, 1 << (shift // 2))


def _positive(z: Fraction) -> Fraction:
    return max(z, Fraction(0))


def _scad(z: Fraction, lam: Fraction, a: Fraction) -> Fraction:
    z = abs(z)
    if z <= lam:
        return lam * z
    if z <= a * lam:
        return (2 * a * lam * z - z * z - lam * lam) / (2 * (a - 1))
    return lam * lam * (a + 1) / 2


EXACT = {
    "abs": abs,
    "pos": _positive,
    "hinge": lambda z: _positive(1 - z),
    "squared_hinge": lambda z: _positive(1 - z) ** 2,
    "square": lambda z: z * z,
    "pinball": lambda z, level: level * z if z >= 0 else Fraction(float(level) - 1.0) * z,  # as the term has it
    "epsilon_insensitive": lambda z, eps: _positive(abs(z) - eps),
    "huber": lambda z, delta: z * z / 2 if abs(z) <= delta else delta * (abs(z) - delta / 2),
    "step": lambda z: Fraction(z >= 0),
    "zero_one": lambda z: Fraction(z <= 0),
    "ramp": lambda z: min(Fraction(1), _positive(1 - z)),
    "capped_abs": lambda z, cap: min(abs(z), cap),
    "mcp": lambda z, lam, gamma: lam * abs(z) - z * z / (2 * gamma) if abs(z) <= gamma * lam else gamma * lam * lam / 2,
    "scad": _scad,
    "clip": lambda z, low, high: min(max(z, low), high),
    "dead_zone": lambda z, width: z - min(max(z, -width), width),
}


#: The library's own terms, for values that only have to be about right.
FLOATING: dict[str, Any] = {**{name: getattr(terms, name) for name in EXACT if name != "abs"}, "abs": terms.abs_}


# -- At random --------------------------------------------------------------------------------------------------------


def random_problem(rng: np.random.Generator, *, extreme: bool, convex: bool = True) -> Problem:
    """One to six blocks of every kind of term, map, weight, offset and scale."""
    size = int(rng.integers(1, 6))
    blocks = [_random_block(rng, size, extreme, convex) for _ in range(int(rng.integers(1, 7)))]
    if rng.random() < 0.3:
        g = _rounded(rng, rng.standard_normal((1, size))) * _scale(rng, extreme) * 0.1
        blocks.append(Block("linear", 1.0, matrix=g[0].tolist()))
    return Problem(size, tuple(replace(b, matrix=[b.matrix]) if b.term == "linear" else b for b in blocks))


def _scale(rng: np.random.Generator, extreme: bool) -> float:
    if not extreme:
        return float(np.round(10.0 ** rng.uniform(-1.0, 1.0), 2))
    return float(10.0 ** int(rng.integers(-12, 13)))


def _rounded(rng: np.random.Generator, values: Any) -> Any:
    """Numbers as data have them: of one decimal, with ties, or of all digits."""
    style = rng.integers(3)
    return np.round(values) if style == 0 else np.round(values, 1) if style == 1 else values


def _random_block(rng: np.random.Generator, size: int, extreme: bool, convex: bool) -> Block:
    kinds = [*CONVEX, "quad_form", "norm2", "abs", "pinball", *(() if convex else NOT_CONVEX)]
    term = str(rng.choice(kinds))
    weight: Any = _scale(rng, extreme) if rng.random() < 0.5 else 1.0
    if term == "quad_form":
        return Block(term, weight, parameters=tuple(_random_quadratic(rng, size).ravel().tolist()))
    where = str(rng.choice(["dense", "dense", "dense", "sparse", "identity", *(["diff"] if size > 1 else [])]))
    rows = {"identity": size, "diff": size - 1}.get(where, int(rng.integers(1, 13)))
    matrix = None
    if where in ("dense", "sparse"):
        matrix = _rounded(rng, rng.standard_normal((rows, size)))
        if extreme and rng.random() < 0.3:
            matrix = matrix * 10.0 ** rng.integers(-4, 5, size)
        if rows > 2 and rng.random() < 0.2:
            matrix[0] = 0.0  # an empty row
        if rows > 2 and rng.random() < 0.2:
            matrix[1] = matrix[2]
        if size > 1 and rng.random() < 0.15:
            matrix[:, 0] = matrix[:, 1]  # a feature given twice
    offset = _rounded(rng, rng.standard_normal(rows)) * (10.0 ** rng.integers(-3, 7) if extreme else 1.0)
    if rng.random() < 0.2:
        offset = np.zeros(rows)
    if term == "norm2":
        widths = [width for width in range(1, rows + 1) if rows % width == 0]
        groups = (float(rng.choice(widths)),) if rng.random() < 0.5 else ()
        return Block(term, abs(weight), where, matrix, offset=offset if offset.any() else 0.0, parameters=groups)
    if rng.random() < 0.2:
        weight = np.abs(_rounded(rng, rng.standard_normal(rows))) * weight
    scale: Any = None
    if rng.random() < 0.2:
        scale = rng.choice([-1.0, 1.0], rows) if rng.random() < 0.6 else _scale(rng, extreme)
    table = CONVEX | NOT_CONVEX
    parameters = tuple(float(np.round(rng.uniform(*ends), 2)) for ends in table[term])
    intercept = bool(rng.random() < 0.25)
    return Block(term, weight, where, matrix, intercept, scale, offset if offset.any() else 0.0, parameters)


def is_convex(problem: Problem, *, summed: bool = False) -> bool:
    """Whether no quadratic form, or not their sum, is negative anywhere, exactly: products that were rounded may be."""
    forms = []
    for block in problem.blocks:
        if block.term == "quad_form":
            matrix, c = np.asarray(block.parameters).reshape(problem.size, problem.size), Fraction(float(block.weight))
            forms.append([[c * (Fraction(a) + Fraction(b)) for a, b in zip(*rows, strict=True)]
                          for rows in zip(matrix.tolist(), matrix.T.tolist(), strict=True)])  # fmt: skip
    if summed and forms:
        forms = [
            [[sum(entries, Fraction(0)) for entries in zip(*rows, strict=True)] for rows in zip(*forms, strict=True)]
        ]
    return all(map(_is_semidefinite, forms))


def _is_semidefinite(rows: list[list[Fraction]]) -> bool:
    """Symmetric elimination, the largest pivot first."""
    left = set(range(len(rows)))
    while left:
        pivot = max(left, key=lambda i: rows[i][i])
        if rows[pivot][pivot] <= 0:
            return all(not rows[i][j] for i in left for j in left)
        left.remove(pivot)
        for i in left:
            share = rows[i][pivot] / rows[pivot][pivot]
            for j in left:
                rows[i][j] -= share * rows[pivot][j]
    return True


def _random_quadratic(rng: np.random.Generator, size: int) -> Any:
    """Definite, singular, or barely definite."""
    factor = _rounded(rng, rng.standard_normal((int(rng.integers(1, size + 2)), size)))
    matrix = factor.T @ factor
    if rng.random() < 0.3:
        matrix = matrix + 10.0 ** rng.integers(-14, 0) * np.eye(size)
    return matrix

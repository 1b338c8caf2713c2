"""Bits and choices: known combinatorial problems in a few lines each, beside CP-SAT."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import varopt as vo
from benchmarks._cp_sat import solved
from benchmarks._measure import Timing
from benchmarks._registry import Config, Row, benchmark

_SECONDS = 10.0  # in which the optimum is to be found,
_SHORT = 1.0  # and those in which what CP-SAT proves is to be bracketed within
_BRACKET = 0.05
_WHOLE = 10**6  # what real coefficients are multiplied with before they are rounded, for CP-SAT

# nug12 of QAPLIB: flows between facilities, one row after another, and a grid of 3 x 4 places.
_FLOWS = (
    "0 5 2 4 1 0 0 6 2 1 1 1  5 0 3 0 2 2 2 0 4 5 0 0  2 3 0 0 0 0 0 5 5 2 2 2  4 0 0 0 5 2 2 10 0 0 5 5 "
    "1 2 0 5 0 10 0 0 0 5 1 1  0 2 0 2 10 0 5 1 1 5 4 0  0 2 0 2 0 5 0 10 5 2 3 3  6 0 5 10 0 1 10 0 0 0 5 0 "
    "2 4 5 0 0 1 5 0 0 0 10 10  1 5 2 0 5 5 2 0 0 0 5 0  1 0 2 5 1 4 3 5 10 5 0 2  1 0 2 5 1 0 3 0 10 0 2 0"
)


@dataclass(frozen=True)
class Choice:
    """A problem as a user writes it, and the same for CP-SAT: its variables and its objective, times `whole`."""

    name: str
    ours: Callable[[], Any]
    model: Callable[[Any, Any], Any]  # of the module and a model: what it minimises
    whole: int = 1
    sign: int = 1  # -1 where ours is maximised


def _cp_sat(choice: Choice, seconds: float) -> tuple[str, float, float, float]:
    """Status, value, bound and processor time of CP-SAT with one worker, the model on the clock."""
    cp: Any = importlib.import_module("ortools.sat.python.cp_model")
    start = time.process_time()
    model = cp.CpModel()
    model.minimize(choice.model(cp, model))
    solver = cp.CpSolver()
    status, _ = solved(solver, model, seconds)
    scale = choice.sign / choice.whole
    return status, scale * solver.objective_value, scale * solver.best_objective_bound, time.process_time() - start


def _row(choice: Choice, config: Config) -> Row:
    start = time.process_time()
    r = choice.ours()
    seconds = time.process_time() - start
    status, note = "ok", f"{r.status.name}"
    if r.violation > 0.0 or not np.isfinite(r.fun):
        status = f"not feasible: {r.status.name}"
    width = (r.upper - r.lower) / max(abs(r.fun), 1e-12)
    baseline = None
    if importlib.util.find_spec("ortools") is None:
        note += "; not installed: ortools"
    else:
        ended, value, bound, spent = _cp_sat(choice, config.pick(_SECONDS, _SHORT))
        baseline = Timing(spent, (spent,))
        note += f"; CP-SAT {ended} at {value:.6g}, bound {bound:.6g}, in {spent:.2g} s"
        if choice.sign * (r.fun - value) > 1e-4 * max(1.0, abs(value)):
            status = f"CP-SAT has a better value, {value:.6g}"
        elif ended == "OPTIMAL" and spent <= _SHORT and width > _BRACKET:
            status = f"a bracket of {100 * width:.0f} %, and CP-SAT proves it in a second"
    return Row(
        choice.name, "varopt", f"seconds / {_SECONDS:g}", seconds / _SECONDS, 1.0, Timing(seconds, (seconds,)),
        baseline, r.fun, r.lower, r.upper - r.lower, status, note=note,
    )  # fmt: skip


@benchmark
def choices(config: Config) -> Iterator[Row]:
    """The optimum within ten seconds; where CP-SAT proves it in one, a bracket within five per cent."""
    for build in (
        _tour, _assignment_of_facilities, _knapsack, _assignment, _portfolio, _colouring, _communities,
        _low_autocorrelation, _partition,
    ):  # fmt: skip
        yield _row(build(np.random.default_rng(0), config), config)


def _square(model: Any, bits: list[list[Any]]) -> None:
    """Exactly one of each row, and of each column."""
    for group in (*bits, *zip(*bits, strict=True)):
        model.add_exactly_one(group)


def _bits(model: Any, rows: int, columns: int) -> list[list[Any]]:
    return [[model.new_bool_var("") for _ in range(columns)] for _ in range(rows)]


def _both(model: Any, a: Any, b: Any) -> Any:
    product = model.new_bool_var("")
    model.add_multiplication_equality(product, [a, b])
    return product


def _quadratic(model: Any, bits: list[Any], matrix: Any) -> Any:
    """``x'Qx`` of bits, for whole numbers."""
    whole = matrix + matrix.T
    pairs = [(i, j) for i, j in zip(*np.nonzero(np.triu(whole, 1)), strict=True)]
    squares = sum(int(matrix[i, i]) * bit for i, bit in enumerate(bits))
    return squares + sum(int(whole[i, j]) * _both(model, bits[i], bits[j]) for i, j in pairs)


def _tour(rng: np.random.Generator, config: Config) -> Choice:
    n = config.pick(10, 6)
    places = rng.random((n, 2))
    D = np.linalg.norm(places[:, None] - places[None], axis=2)

    def ours() -> Any:
        at, following = vo.Categorical(n, n), np.roll(np.eye(n), 1, axis=1)
        return vo.minimize(vo.sum((following @ at @ D) * at), subject_to=[vo.sum(at, axis=0) == 1])

    def model(cp: Any, m: Any) -> Any:
        arcs = [(i, j, m.new_bool_var("")) for i in range(n) for j in range(n) if i != j]
        m.add_circuit(arcs)
        return sum(round(_WHOLE * D[i, j]) * arc for i, j, arc in arcs)

    return Choice(f"tour of {n} cities", ours, model, _WHOLE)


def _assignment_of_facilities(rng: np.random.Generator, config: Config) -> Choice:
    n = config.pick(12, 5)
    F = np.array(_FLOWS.split(), dtype=int).reshape(12, 12)[:n, :n]
    grid = np.array([(i, j) for i in range(3) for j in range(4)])[:n]
    D = np.abs(grid[:, None] - grid[None]).sum(axis=2)

    def ours() -> Any:
        x = vo.Categorical(n, n)
        return vo.minimize(0.5 * vo.sum((F @ x @ D) * x), subject_to=[vo.sum(x, axis=0) == 1])

    def model(cp: Any, m: Any) -> Any:
        bits = _bits(m, n, n)
        _square(m, bits)
        return _quadratic(m, [bit for row in bits for bit in row], np.kron(np.triu(F), D))

    return Choice("quadratic assignment nug12", ours, model)


def _knapsack(rng: np.random.Generator, config: Config) -> Choice:
    value, weight = rng.integers(10, 60, 25), rng.integers(5, 40, 25)
    most = int(weight.sum()) // 2

    def ours() -> Any:
        x = vo.Binary(25)
        return vo.maximize(value @ x, subject_to=[weight @ x <= most])

    def model(cp: Any, m: Any) -> Any:
        (bits,) = _bits(m, 1, 25)
        m.add(sum(int(w) * bit for w, bit in zip(weight, bits, strict=True)) <= most)
        return -sum(int(v) * bit for v, bit in zip(value, bits, strict=True))

    return Choice("knapsack of 25 items", ours, model, sign=-1)


def _assignment(rng: np.random.Generator, config: Config) -> Choice:
    cost = rng.integers(1, 100, (12, 12))

    def ours() -> Any:
        x = vo.Binary((12, 12))
        return vo.minimize(vo.sum(cost * x), subject_to=[vo.sum(x, axis=0) == 1, vo.sum(x, axis=1) == 1])

    def model(cp: Any, m: Any) -> Any:
        bits = _bits(m, 12, 12)
        _square(m, bits)
        return sum(int(cost[i, j]) * bits[i][j] for i in range(12) for j in range(12))

    return Choice("assignment 12 x 12", ours, model)


def _portfolio(rng: np.random.Generator, config: Config) -> Choice:
    n, few = config.pick((30, 10), (12, 4))
    returns = 0.001 + 0.02 * rng.standard_normal((250, n))
    S, mean = np.cov(returns.T), returns.mean(axis=0)

    def ours() -> Any:
        x = vo.Binary(n)  # which assets are held, in equal parts
        return vo.minimize(100.0 * vo.quad_form(x, S) - 10.0 * (mean @ x), subject_to=[vo.sum(x) == few])

    def model(cp: Any, m: Any) -> Any:
        (bits,) = _bits(m, 1, n)
        m.add(sum(bits) == few)
        whole = np.round(_WHOLE * (100.0 * S - np.diag(10.0 * mean))).astype(int)
        return _quadratic(m, bits, whole)

    return Choice(f"{few} of {n} assets, risk and return", ours, model, _WHOLE)


def _colouring(rng: np.random.Generator, config: Config) -> Choice:
    n, colours = config.pick((30, 6), (8, 4))
    edges = np.argwhere(np.triu(rng.random((n, n)) < 0.2, 1))

    def ours() -> Any:
        x, used = vo.Categorical(n, colours), vo.Binary(colours)
        return vo.minimize(vo.sum(used), subject_to=[x[i] + x[j] <= used for i, j in edges])

    def model(cp: Any, m: Any) -> Any:
        bits, (used,) = _bits(m, n, colours), _bits(m, 1, colours)
        for row in bits:
            m.add_exactly_one(row)
        for i, j in edges:
            for a, b, c in zip(bits[i], bits[j], used, strict=True):
                m.add(a + b <= c)
        return sum(used)

    return Choice(f"fewest colours of a graph, {n} nodes", ours, model)


def _communities(rng: np.random.Generator, config: Config) -> Choice:
    n, most = config.pick((34, 4), (10, 3))
    same = np.arange(n) % most == (np.arange(n) % most)[:, None]
    A = np.triu(rng.random((n, n)) < np.where(same, 0.5, 0.08), 1).astype(float)
    A = A + A.T
    degree = A.sum(axis=0)
    B = A - np.outer(degree, degree) / degree.sum()

    def ours() -> Any:
        x = vo.Categorical(n, most)
        return vo.maximize(vo.sum((B @ x) * x) / degree.sum())

    def model(cp: Any, m: Any) -> Any:
        bits = _bits(m, n, most)
        for row in bits:
            m.add_exactly_one(row)
        whole = np.round(_WHOLE * B / degree.sum()).astype(int)
        columns = zip(*bits, strict=True)
        return -sum(_quadratic(m, list(column), whole) for column in columns)

    return Choice(f"modularity of {n} nodes", ours, model, _WHOLE, sign=-1)


def _low_autocorrelation(rng: np.random.Generator, config: Config) -> Choice:
    n = config.pick(32, 10)

    def ours() -> Any:
        s = 1.0 - 2.0 * vo.Binary(n)
        return vo.minimize(sum(vo.sum(s[: n - k] * s[k:]) ** 2 for k in range(1, n)))

    def model(cp: Any, m: Any) -> Any:
        (bits,) = _bits(m, 1, n)
        squares = []
        for k in range(1, n):
            differs = _bits(m, 1, n - k)[0]
            for a, b, c in zip(bits, bits[k:], differs, strict=False):
                m.add_bool_xor(a, b, c.negated())
            total = m.new_int_var(k - n, n - k, "")
            m.add(total == n - k - 2 * sum(differs))
            squares.append(m.new_int_var(0, (n - k) ** 2, ""))
            m.add_multiplication_equality(squares[-1], [total, total])
        return sum(squares)

    return Choice(f"sequence of low autocorrelation, {n} bits", ours, model)


def _partition(rng: np.random.Generator, config: Config) -> Choice:
    numbers = rng.integers(1, config.pick(10**6, 50), config.pick(40, 12))

    def ours() -> Any:
        return vo.minimize((numbers @ (1.0 - 2.0 * vo.Binary(len(numbers)))) ** 2)

    def model(cp: Any, m: Any) -> Any:
        (bits,) = _bits(m, 1, len(numbers))
        apart = m.new_int_var(0, int(numbers.sum()), "")  # its square is itself where it is zero or one, as here
        total = sum(int(a) * (1 - 2 * bit) for a, bit in zip(numbers, bits, strict=True))
        m.add(apart >= total)
        m.add(apart >= -total)
        return apart

    return Choice(f"{len(numbers)} numbers in two parts", ours, model)

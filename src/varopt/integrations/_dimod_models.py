"""Constrained and discrete quadratic models of dimod, in bits: every variable is affine in bits of its own."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import dimod
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model import Binary, Constraint
from varopt.optimize import Result, minimize

__all__ = ["BitModel", "bits_of_cqm", "bits_of_dqm"]

Vector = NDArray[np.float64]

_MOST_BITS = 30  # of one integer: beyond, a model is better off with a mixed-integer solver


class BitModel(NamedTuple):
    """A model in bits, and how its own variables are read from them: ``offset + matrix @ bits``."""

    objective: Any
    constraints: list[Constraint]
    matrix: Any
    offset: Vector

    def solved(self, **options: Any) -> Result:
        """A point that satisfies the constraints, with its bracket."""
        return minimize(self.objective, subject_to=self.constraints, **options)

    def sample(self, bits: Vector) -> NDArray[np.int64]:
        """The values of the model's own variables."""
        return np.asarray(np.round(self.offset + self.matrix @ bits), dtype=np.int64)


def bits_of_cqm(cqm: Any) -> BitModel:
    """A constrained quadratic model of bits, spins and bounded integers, with linear constraints."""
    _check_model(cqm, dimod.ConstrainedQuadraticModel)
    labels = list(cqm.variables)
    place = {label: k for k, label in enumerate(labels)}
    offset, columns = np.zeros(len(labels)), []
    for k, label in enumerate(labels):
        low, steps = _steps(cqm, label)
        offset[k] = low
        columns += [(k, step) for step in steps]
    matrix = sp.csr_array(
        ([step for _, step in columns], ([k for k, _ in columns], range(len(columns)))),
        (len(labels), max(len(columns), 1)),  # a bit that nothing sees where no variable has more than one value
    )
    x = Binary(matrix.shape[1], name="x")
    limits = []
    for name, constraint in cqm.constraints.items():
        row, constant = _linear(constraint, place, name)
        side = (row @ matrix) @ x if np.any(row @ matrix) else 0.0 * x[0]
        bound = float(constraint.rhs) - constant - float(row @ offset)
        limits.append({"<=": side <= bound, ">=": side >= bound, "==": side == bound}[constraint.sense.value])
    return BitModel(_quadratic(cqm.objective, place, x, matrix, offset), limits, matrix, offset)


def bits_of_dqm(dqm: Any) -> BitModel:
    """A discrete quadratic model: a bit for each case, and exactly one case of each variable."""
    _check_model(dqm, dimod.DiscreteQuadraticModel)
    labels = list(dqm.variables)
    if not labels:
        return BitModel(0.0 * Binary(1, name="x")[0] + _offset(dqm), [], sp.csr_array((0, 1)), np.zeros(0))
    counts = [dqm.num_cases(label) for label in labels]
    starts = np.concatenate([[0], np.cumsum(counts)])
    x = Binary(int(starts[-1]), name="x")
    linear = np.concatenate([np.asarray(dqm.get_linear(label), dtype=np.float64) for label in labels])
    square = sp.lil_array((x.size, x.size))
    place = {label: k for k, label in enumerate(labels)}
    for k, label in enumerate(labels):
        for other in dqm.adj[label]:
            if place[other] > k:
                pairs = np.asarray(dqm.get_quadratic(label, other, array=True), dtype=np.float64)
                square[starts[k] : starts[k + 1], starts[place[other]] : starts[place[other] + 1]] = pairs
    cases = sp.csr_array(
        (np.concatenate([np.arange(c) for c in counts]).astype(np.float64), np.arange(x.size), starts),
        (len(labels), x.size),
    )
    one = sp.csr_array((np.ones(x.size), np.arange(x.size), starts), (len(labels), x.size))
    objective = linear @ x + x @ (square.tocsr() @ x) + _offset(dqm)
    return BitModel(objective, [one @ x == 1], cases, np.zeros(len(labels)))


def _offset(dqm: Any) -> float:
    return float(getattr(dqm, "offset", 0.0))


def _check_model(model: Any, kind: type) -> None:
    if not isinstance(model, kind):
        raise ValueError(f"the model must be a dimod.{kind.__name__}; got {type(model).__name__}.")


def _steps(cqm: Any, label: Hashable) -> tuple[float, Iterable[float]]:
    """The least value of a variable, and what each of its bits adds to it."""
    kind = cqm.vartype(label)
    if kind is dimod.BINARY:
        return 0.0, [1.0]
    if kind is dimod.SPIN:
        return -1.0, [2.0]
    if kind is not dimod.INTEGER:
        raise ValueError(
            f"the variable {label!r} is {kind.name}: bits, spins and integers are taken; see SciPy's milp."
        )
    low, high = math.ceil(cqm.lower_bound(label)), math.floor(cqm.upper_bound(label))
    if low > high:
        raise ValueError(f"the variable {label!r} has no whole number within its bounds.")
    width, steps = high - low, list[int]()
    if width.bit_length() > _MOST_BITS:
        raise ValueError(f"the variable {label!r} takes {width + 1} values: give it bounds, of at most 2^{_MOST_BITS}.")
    while width > 0:
        steps.append(min(2 ** len(steps), width))
        width -= steps[-1]
    return float(low), [float(step) for step in steps]


def _linear(constraint: Any, place: dict[Hashable, int], name: Hashable) -> tuple[Vector, float]:
    """The row of a constraint, and its constant."""
    side = constraint.lhs
    if getattr(side, "is_soft", lambda: False)():
        raise ValueError(f"the constraint {name!r} is soft: put its penalty into the objective.")
    if any(bias for *_, bias in side.iter_quadratic()):
        raise ValueError(f"the constraint {name!r} is quadratic, and only linear ones are taken.")
    row = np.zeros(len(place))
    for label, bias in side.iter_linear():
        row[place[label]] = float(bias)
    return row, float(side.offset)


def _quadratic(model: Any, place: dict[Hashable, int], x: Binary, matrix: Any, offset: Vector) -> Any:
    """The objective in bits: ``z = offset + matrix x`` in ``linear'z + z'Qz + constant``."""
    linear, square = np.zeros(len(place)), sp.lil_array((len(place), len(place)))
    for label, bias in model.iter_linear():
        linear[place[label]] = float(bias)
    for u, v, bias in model.iter_quadratic():
        square[place[u], place[v]] += float(bias)
    both = square.tocsr()
    gradient = matrix.T @ (linear + both @ offset + both.T @ offset)
    constant = float(model.offset) + float(linear @ offset) + float(offset @ (both @ offset))
    inner = matrix.T @ both @ matrix
    energy = gradient @ x + constant
    return energy + x @ (inner @ x) if inner.nnz else energy

"""A reduction is a smaller problem and the way back: what is lifted has the value and the proof it had."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import varopt as vo
from tests.solvers.explicit import explicit_optimum
from varopt.composite import Composite, Rows, composite
from varopt.model.maps import Matrix
from varopt.optimize import Status
from varopt.solvers import METHODS, Auto, Reduction, State
from varopt.solvers.reductions import Lifted, Smaller


def wide(rng, loss, penalty, n=20, p=300):
    X, y, w = rng.standard_normal((n, p)), rng.standard_normal(n), vo.Variable(p)
    losses = {
        "squares": vo.sum_squares,
        "pinball": lambda r: vo.sum(vo.pinball(r, 0.3)),
        "huber": lambda r: vo.sum(vo.huber(r)),
    }
    return losses[loss](y - X @ w) + penalty(w)


def kernelised(rng, n=400, rank=6):
    factor = rng.standard_normal((n, rank))
    K, beta = factor @ factor.T, vo.Variable(n)
    return vo.quad_form(beta, K) + vo.sum(vo.hinge(K @ beta))


def nearly_dependent(rng, n=60):
    X = rng.uniform(0.9, 1.1, (n, 1)) ** np.arange(4)
    return vo.sum(vo.pinball(rng.standard_normal(n) - X @ vo.Variable(4), 0.3)) + vo.sum_squares(X @ vo.Variable(4))


CASES = {
    "working-set: squares": ("working-set", lambda rng: wide(rng, "squares", vo.norm1)),
    "working-set: pinball": ("working-set", lambda rng: wide(rng, "pinball", vo.norm1)),
    "working-set: huber": ("working-set", lambda rng: wide(rng, "huber", vo.norm1)),
    "range: pinball": ("range", lambda rng: wide(rng, "pinball", vo.sum_squares)),
    "range: huber": ("range", lambda rng: wide(rng, "huber", vo.sum_squares)),
    "range: squares": ("range", lambda rng: wide(rng, "squares", vo.sum_squares)),
    "low-rank: hinge": ("low-rank", kernelised),
    "orthogonal: pinball": ("orthogonal", nearly_dependent),
}


@pytest.fixture(params=CASES)
def case(request, rng):
    name, build = CASES[request.param]
    return METHODS[name], composite(build(rng).checked)


def test_the_smaller_problem_is_the_same_problem(case, rng):
    """The value of a point is that of what it is lifted to; terms that were split are at most as high there."""
    reduction, problem = case
    smaller = reduction.apply(problem, State(np.zeros(problem.size)), None)
    split = (
        any(len(r.term.pieces) == 3 and r.term.degree == 2 for r in problem.rows) and reduction.name == "working-set"
    )
    for _ in range(5):
        point = rng.standard_normal(smaller.problem.size)
        lifted = reduction.invert(problem, smaller, State(point))
        value, below = problem.value(lifted.x), smaller.problem.value(point)
        assert lifted.x.shape == (problem.size,)
        assert value <= below * (1.0 + 1e-9) if split else value == pytest.approx(below, rel=1e-9)


def test_the_answer_is_lifted_with_its_proof(case):
    reduction, problem = case
    state = State(np.zeros(problem.size))
    reduction.solve(problem, state, 1e-9, lambda _: None, Auto(but=(reduction.name,)).solve)
    assert state.reached(1e-9)
    other = State(np.zeros(problem.size))
    Auto(but=(reduction.name,)).solve(problem, other, 1e-9, lambda _: None)
    assert state.lower <= other.upper + 1e-9 * max(1.0, abs(other.upper))
    assert other.lower <= state.upper + 1e-9 * max(1.0, abs(state.upper))


def test_a_reduction_solves_nothing_itself(case):
    """Without a solver there is no proof, and it says what the solver ran."""
    reduction, problem = case
    state = State(np.zeros(problem.size))

    def solver(smaller, answer, tol, check):
        answer.runs(["nobody"])

    reduction.solve(problem, state, 1e-9, lambda _: None, solver)
    assert not state.reached(1e-9)
    assert np.isfinite(state.upper)
    assert state.ran == ["nobody"]


@dataclass(frozen=True)
class Mirror(Reduction[Smaller]):
    """Rows that come in pairs, which change places with the halves of x: both halves alike are optimal."""

    name: ClassVar[str] = "mirror"

    def refusal(self, problem):
        return "" if problem.size % 2 == 0 else "it has an odd number of variables."

    def apply(self, problem, state, before):
        twice = np.vstack([np.eye(problem.size // 2)] * 2)
        rows = [Rows(Matrix(r.linear.dense() @ twice), r.offset, r.term, r.weights) for r in problem.rows]
        small = Composite(None, problem.vector @ twice, problem.scalar, tuple(rows))
        return Smaller(problem=small, start=state.x[: problem.size // 2]) if before is None else None

    def invert(self, problem, smaller, answer):
        alike = 0.5 * (answer.dual[0] + answer.dual[1])  # the rows of a pair are one row there
        return Lifted(np.tile(answer.x, 2), [alike, alike])


def test_a_new_reduction_is_a_class_of_three_functions(rng):
    X, y, w = rng.standard_normal((3000, 3)), rng.standard_normal(3000), vo.Variable(6)
    f = vo.norm1(y - np.hstack([X, np.zeros_like(X)]) @ w) + vo.norm1(y - np.hstack([np.zeros_like(X), X]) @ w)
    r = vo.minimize(f, method=Mirror())
    assert (r.method, r.status) == ("mirror > newton", Status.OPTIMAL)
    np.testing.assert_array_equal(r.x[:3], r.x[3:])
    assert r.fun == pytest.approx(vo.minimize(f).fun, rel=1e-9)
    with pytest.raises(ValueError, match="'mirror' does not take this objective: it has an odd number"):
        vo.minimize(vo.norm1(y - X @ vo.Variable(3)), method=Mirror())


# -- A few columns of tall data ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["pinball", "hinge"])
def test_penalties_that_let_most_columns_rest_take_a_few_at_a_time(rng, loss, intercept):
    X = rng.standard_normal((300, 40))
    y = X[:, :3] @ np.array([2.0, -1.0, 1.0]) + rng.standard_normal(300)
    w, b = vo.Variable(40), vo.Variable()
    z = X @ w + b if intercept else X @ w
    losses = vo.sum(vo.pinball(y - z, 0.3)) if loss == "pinball" else vo.sum(vo.hinge(np.sign(y) * z))
    f = losses + 40.0 * vo.norm1(w) + 0.1 * vo.sum_squares(w)
    r = vo.minimize(f)
    assert r.method.startswith("working-set")
    assert r.status is Status.OPTIMAL
    assert 0 < np.count_nonzero(r[w]) < 20
    assert r.fun == pytest.approx(explicit_optimum(f), rel=1e-8)
    weak = vo.minimize(losses + 0.01 * vo.norm1(w) + 0.1 * vo.sum_squares(w))
    assert not weak.method.startswith("working-set")

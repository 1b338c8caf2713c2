"""Lower bounds that assume nothing: below every exact value, and close to the optimum where there is one."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

import varopt as vo
from varopt import terms
from varopt._verified import Ball  # what intervals are written in
from varopt.certificates import DualQuadratic, DualRows, enclosed_value, verified_lower
from varopt.certificates.enclosures import applied, transposed
from varopt.composite import composite
from varopt.model.maps import HStack, Matrix, Operator, Scaled, Selection, Sparse


def exact(value):
    return Fraction(float(value))


def exact_value(rows, vector, x, scalar=0.0):
    """The objective in rational arithmetic."""
    x = [exact(v) for v in x]
    value = exact(scalar) + sum(exact(g) * v for g, v in zip(vector, x, strict=True))
    for r in rows:
        dense = r.linear.dense()
        for a, d, c in zip(dense, r.offset, r.weights, strict=True):
            z = exact(d) + sum(exact(e) * v for e, v in zip(a, x, strict=True))
            value += exact(c) * exact_term(r.term, z)
    return value


def exact_term(term, z):
    piece = sum(z >= exact(t) for t in term.knots)
    return sum(exact(c) * (z - exact(term.centres[piece])) ** m for m, c in enumerate(term.pieces[piece]))


def dual_rows(objective, result):
    """The dual rows of a result, as its method left them."""
    problem = composite(objective)
    positions = problem.positions(result.x)
    dual = result.state.dual or [r.term.derivative(z) for r, z in zip(problem.rows, positions, strict=True)]
    rows = [DualRows(r.linear, r.offset, r.term, r.weights, u) for r, u in zip(problem.rows, dual, strict=True)]
    for r in problem.squares:
        u = r.term.derivative(r.positions(result.x))
        rows.append(DualRows(r.linear, r.offset, r.term, r.weights, u))
    return rows, np.array(problem.vector), problem.scalar, result.x


def proof_of(objective):
    result = vo.minimize(objective, method="newton")
    rows, vector, scalar, x = dual_rows(objective, result)
    return result, verified_lower(rows, vector, scalar, x=x), (rows, vector, scalar)


def data(rng, n=60, p=4):
    X = rng.standard_normal((n, p))
    return X, X @ rng.standard_normal(p) + rng.standard_t(2, n)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["quantile", "svm", "svr", "huber", "squares", "lad offset", "labels"])
def test_the_bound_is_sharp_and_below_every_value(seed, kind):
    rng = np.random.default_rng(seed)
    X, y = data(rng)
    w, b = vo.Variable(4), vo.Variable()
    t = np.where(y > 0, 1.0, -1.0)
    f = {
        "quantile": vo.sum(vo.pinball(y - X @ w - b, 0.7)),
        "svm": 0.5 * vo.sum_squares(w) + 3.0 * vo.sum(vo.hinge(t * (X @ w + b))),
        "svr": 0.5 * vo.sum_squares(w) + vo.sum(vo.epsilon_insensitive(y - X @ w - b, 0.3)),
        "huber": vo.sum(vo.huber(y - X @ w - b)),
        "squares": vo.sum_squares(y - X @ w - b) + 2.0 * vo.norm1(X @ w),
        "lad offset": vo.norm1(y + 1e7 - X @ w - b),
        "labels": vo.sum(vo.hinge(0.7 * t * (X @ w + b))) + 0.3 * vo.norm1(w),
    }[kind]
    result, proof, (rows, vector, scalar) = proof_of(f)
    assert proof.reason == ""
    assert result.fun - proof.lower <= 1e-9 * abs(result.fun)
    points = [result.x, *(result.x + s * rng.standard_normal(5) for s in 10.0 ** np.arange(-16.0, 3.0, 2.0))]
    least = min(exact_value(rows, vector, x, scalar) for x in points)
    assert proof.lower <= least


@pytest.mark.parametrize("seed", range(40))
def test_wrong_dual_never_prove_too_much(seed):
    """Whatever dual are given: the bound is below the exact value of any point, the optimum included."""
    rng = np.random.default_rng(seed)
    X, y = np.round(rng.standard_normal((12, 2)), 1), np.round(rng.standard_normal(12), 1)
    weights = 10.0 ** rng.integers(-6, 7, 12)
    w = vo.Variable(2)
    best = vo.minimize(vo.sum(weights * vo.abs(y - X @ w))).x
    dual = np.clip(rng.standard_normal(12), -1.0, 1.0)
    rows = DualRows(Matrix(-X), y, terms.abs_(), weights, dual)
    proof = verified_lower([rows], np.zeros(2), x=best)
    for x in (best, np.zeros(2), rng.standard_normal(2)):
        assert proof.lower <= exact_value([rows], np.zeros(2), x)


def steep(dual_of_b, knot):
    """``1e12 |w + b| + 1e-4 b + 2e-4 (-b - 1e6)_+``, of which points near zero look optimal."""
    return [
        DualRows(Matrix(np.ones((1, 2))), np.zeros(1), terms.abs_(), np.array([1e12]), np.array([dual_of_b])),
        DualRows(Matrix(np.array([[0.0, -1.0]])), np.array([-1e6]), terms.pos(), np.array([2e-4]), np.array([knot])),
    ]


@pytest.mark.parametrize("dual", [(0.0, 0.0), (-1e-16, 0.0), (0.0, 0.5), (0.3, 1.0)])
def test_a_steep_term_does_not_hide_a_far_optimum(dual):
    proof = verified_lower(steep(*dual), np.array([0.0, 1e-4]), x=np.zeros(2))
    assert proof.lower <= -100.0
    assert proof.lower <= exact_value(steep(*dual), np.array([0.0, 1e-4]), [1e6, -1e6])
    assert proof.lower >= -100.0 - 1e-3 or dual[1] == 1.0


def test_an_unbounded_problem_has_no_proof():
    rows = DualRows(Matrix(np.ones((1, 2))), np.zeros(1), terms.abs_(), np.array([1000.0]), np.array([-1e-13]))
    proof = verified_lower([rows], np.array([0.0, 1e-10]))
    assert proof.lower == -np.inf
    assert proof.reason


def test_a_degenerate_dual_is_proved_by_an_interior_point(rng):
    """More rows rest than there are variables, and the dual of those that were chosen lie on their ends."""
    X, y = np.round(rng.standard_normal((200, 3))), np.round(rng.standard_normal(200))
    w = vo.Variable(3)
    f = vo.sum(vo.pinball(y - X @ w, 0.5))
    result, proof, (rows, vector, scalar) = proof_of(f)
    assert result.fun - proof.lower <= 1e-9 * abs(result.fun)
    assert proof.lower <= exact_value(rows, vector, result.x, scalar)


def test_dependent_columns_are_dropped_where_that_is_certain(rng):
    codes = np.eye(4)[rng.integers(0, 4, 200)]
    y = rng.standard_normal(200)
    w, b = vo.Variable(4), vo.Variable()
    for matrix in (codes, np.c_[codes[:, :3], codes[:, 0]], np.c_[codes[:, :3], 2.0 * codes[:, 0] - codes[:, 1]]):
        result, proof, (rows, vector, scalar) = proof_of(vo.sum(vo.pinball(y - matrix @ w - b, 0.3)))
        assert result.fun - proof.lower <= 1e-9 * abs(result.fun)
        assert proof.lower <= exact_value(rows, vector, result.x, scalar)


def test_nearly_dependent_columns_are_not_dropped(rng):
    """``b`` differs from the sum of the codes by one unit in one row: f may fall along the difference."""
    codes = np.eye(3)[rng.integers(0, 3, 30)]
    codes[0] *= 1.0 + 2.0**-52
    matrix = np.c_[codes, np.ones(30)]
    rows = DualRows(Matrix(matrix), rng.standard_normal(30), terms.abs_(), np.ones(30), np.zeros(30))
    relation = np.array([1.0, 1.0, 1.0, -1.0])
    vector = 1e3 * relation  # along the relation f falls until the row that differs stops it, far away
    proof = verified_lower([rows], vector)
    x = -1e6 * relation
    assert proof.lower <= exact_value([rows], vector, x)


@pytest.mark.parametrize("storage", ["dense", "float32", "fortran", "sparse", "stacked", "scaled"])
def test_all_kinds_of_maps(rng, storage):
    X, y = data(rng, 50, 3)
    X = X.astype(np.float32).astype(np.float64)
    t = rng.choice([-1.0, 1.0, 0.1], 50)
    linear, matrix = {
        "dense": (Matrix(X), X),
        "float32": (Matrix(X.astype(np.float32)), X),
        "fortran": (Matrix(np.asfortranarray(X)), X),
        "sparse": (Sparse(sp.csr_array(X)), X),
        "stacked": (HStack(50, [(Matrix(X[:, :2]), 2), (Selection.repeat(50), 1)]), np.c_[X[:, :2], np.ones(50)]),
        "scaled": (Scaled(t, Matrix(X)), t[:, None] * X),
    }[storage]
    w = vo.Variable(3)
    result = vo.minimize(vo.sum(vo.abs(matrix @ w - y)))
    rows = DualRows(linear, -y, terms.abs_(), np.ones(50), result.state.dual[0])
    proof = verified_lower([rows], np.zeros(3), x=result.x)
    assert result.fun - proof.lower <= 1e-9 * result.fun
    plain = DualRows(Matrix(matrix), -y, terms.abs_(), np.ones(50), result.state.dual[0])
    assert proof.lower <= exact_value([plain], np.zeros(3), result.x) + exact(1e-13 * result.fun)


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize(("rows", "groups"), [(30_000, 20), (200_000, 5)])
def test_medians_of_groups_of_an_even_number_are_proved(storage, rows, groups):
    """No row rests: what rounding leaves of sums over thousands of rows has to go into what little room is mixed in."""
    rng = np.random.default_rng(0)
    y, labels = rng.standard_normal(rows), np.arange(rows) % groups
    codes = sp.csr_array((np.ones(rows), (np.arange(rows), labels)), shape=(rows, groups))
    r = vo.minimize(vo.norm1(y - (codes if storage == "sparse" else codes.toarray()) @ vo.Variable(groups)))
    medians = np.array([np.median(y[labels == k]) for k in range(groups)])
    assert r.status is vo.Status.OPTIMAL
    assert r.lower <= np.abs(y - medians[labels]).sum() <= r.lower + 1e-9 * r.fun


def test_few_sparse_columns_are_added_up_in_extended_precision(rng):
    data = rng.standard_normal((4000, 3)) * (rng.random((4000, 3)) < 0.3) * np.array([1.0, 1e-9, 1e150])
    v = rng.standard_normal(4000)
    v[-1], data[-1] = 0.0, 1.0
    data[0] = 0.0
    spread = np.where(rng.random(4000) < 0.1, 1e-20, 0.0)
    product = transposed(Sparse(sp.csr_array(data)), Ball(v, spread), {})
    for column, middle, radius in zip(data.T, product.middle, product.radius, strict=True):
        truth = sum(exact(a) * exact(b) for a, b in zip(column, v, strict=True))
        slack = sum(exact(abs(a)) * exact(s) for a, s in zip(column, spread, strict=True))
        assert abs(truth - exact(middle)) + slack <= exact(radius)
        assert radius <= 1e-14 * np.abs(column * v).sum() + 2.0 * float(slack)


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array])
def test_sparse_products_are_enclosed_with_entries_that_are_kept_twice(rng, form):
    rows, columns = 40, 30
    count = 3 * rows * columns // 10
    where = rng.integers(0, rows, count), rng.integers(0, columns, count)
    data = rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)
    whole = form(sp.coo_array((data, where), shape=(rows, columns)))
    twice = form((np.repeat(whole.data, 2), np.repeat(whole.indices, 2), 2 * whole.indptr), shape=whole.shape)
    kept, dense = twice.data.copy(), 2.0 * whole.toarray()
    for product, matrix, size in ((transposed, dense.T, rows), (applied, dense, columns)):
        for spread in (np.zeros(size), rng.uniform(0.0, 1e-12, size)):
            v = rng.standard_normal(size)
            middle, radius = product(Sparse(twice), Ball(v, spread), {})
            for entries, m, r in zip(matrix, middle, radius, strict=True):
                truth = sum(exact(a) * exact(b) for a, b in zip(entries, v, strict=True))
                slack = sum(exact(abs(a)) * exact(s) for a, s in zip(entries, spread, strict=True))
                assert abs(truth - exact(m)) + slack <= exact(r)
                assert r <= 1e-13 * np.abs(entries * v).sum() + 2.0 * float(slack)
    np.testing.assert_array_equal(twice.data, kept)  # of the user


def test_operators_prove_nothing():
    from scipy.sparse.linalg import aslinearoperator

    rows = DualRows(Operator(aslinearoperator(np.ones((3, 1)))), np.zeros(3), terms.abs_(), np.ones(3), np.zeros(3))
    assert verified_lower([rows], np.zeros(1)).lower == -np.inf


def test_quadratic_parts(rng):
    X = rng.standard_normal((20, 3))
    Q, g, y = X.T @ X, rng.standard_normal(3), rng.standard_normal(3)
    x = np.linalg.solve(Q, -g)
    # 1/2 x'Qx + g'x + |x - y|, with the dual that balance at their optimum
    w = vo.Variable(3)
    result = vo.minimize(0.5 * vo.quad_form(w, Q) + g @ w + vo.norm1(w - y))
    x = result.x
    dual = -(Q @ x + g)
    rows = DualRows(Selection(None, 3), -y, terms.abs_(), np.ones(3), dual)
    quadratic = DualQuadratic(Selection(None, 3), np.zeros(3), Q, x)
    proof = verified_lower([rows], g, quadratics=[quadratic], x=x)
    assert 0.0 <= result.fun - proof.lower <= 1e-9 * max(1.0, abs(result.fun))
    indefinite = DualQuadratic(Selection(None, 3), np.zeros(3), Q - 100.0 * np.eye(3), x)
    assert verified_lower([rows], g, quadratics=[indefinite], x=x).lower == -np.inf


@pytest.mark.parametrize("scale", [1e-150, 1e-12, 1e12, 1e150])
def test_units_of_the_objective_do_not_matter(rng, scale):
    X, y = data(rng)
    w = vo.Variable(4)
    result = vo.minimize(vo.sum(vo.pinball(y - X @ w, 0.7)))
    rows = DualRows(Matrix(-X), y, terms.pinball(0.7), np.full(60, scale), result.state.dual[0])
    proof = verified_lower([rows], np.zeros(4), x=result.x)
    assert scale * result.fun - proof.lower <= 1e-9 * scale * result.fun


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", ["abs", "pinball", "huber", "squared_hinge", "square", "epsilon_insensitive"])
def test_values_lie_within_their_bounds(seed, kind):
    """Also of steep terms near their knots, where all digits of the value are those of rounding."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((15, 3))
    x = rng.standard_normal(3) * 10.0 ** rng.integers(-6, 7)
    offset = -(X @ x) if seed % 2 else rng.standard_normal(15)
    term = {"abs": terms.abs_, "pinball": lambda: terms.pinball(0.3)}.get(kind, getattr(terms, kind, None))()
    weights = 10.0 ** rng.integers(-8, 13, 15)
    rows = [DualRows(Matrix(X), offset, term, weights, np.zeros(15))]
    vector = rng.standard_normal(3)
    value, error = enclosed_value(rows, vector, 0.25, x)
    exactly = exact_value(rows, vector, x, 0.25)
    assert abs(exact(value) - exactly) <= exact(error)
    long = 100.0 * float(np.finfo(np.longdouble).eps)  # which on some systems is double precision
    assert error <= 1e-13 * float(exactly) + long * weights.max() * (np.abs(X) @ np.abs(x) + np.abs(offset)).max()


@pytest.mark.parametrize("rows", [40, 3000])
def test_values_of_all_kinds_of_maps(rng, rows):
    X, t = rng.standard_normal((rows, 50)), rng.choice([-1.0, 1.0], rows)
    x, d = rng.standard_normal(51), rng.standard_normal(rows)
    linear = Scaled(t, HStack(rows, [(Matrix(X), 50), (Selection.repeat(rows), 1)]))
    block = DualRows(linear, d, terms.hinge(), np.ones(rows), np.zeros(rows))
    value, error = enclosed_value([block], np.zeros(51), 0.0, x)
    whole = np.c_[X, np.ones(rows)].astype(np.longdouble)
    plain = np.maximum(1.0 - (t * (whole @ x) + d), 0.0).sum()
    assert abs(float(plain - value)) <= error <= 1e-11 * value
    sparse = DualRows(Sparse(sp.csr_array(np.c_[X, np.ones(rows)])), d, terms.abs_(), np.ones(rows), np.zeros(rows))
    value, error = enclosed_value([sparse], np.zeros(51), 0.0, x)
    assert abs(float(np.abs(whole @ x + d).sum() - value)) <= error <= 1e-11 * value


def test_values_of_quadratic_parts(rng):
    Q, x, d = rng.standard_normal((4, 4)), rng.standard_normal(4), rng.standard_normal(4)
    Q = Q + Q.T
    part = DualQuadratic(Selection(None, 4), d, Q, x)
    value, error = enclosed_value([], np.zeros(4), 0.0, x, [part])
    z = [exact(a) + exact(b) for a, b in zip(x, d, strict=True)]
    exactly = sum(exact(Q[i, j]) * z[i] * z[j] for i in range(4) for j in range(4)) / 2
    assert abs(exact(value) - exactly) <= exact(error)
    assert error <= 1e-13


def test_a_column_that_few_rows_see(rng):
    """Rows are drawn of many; those that see a seldom feature must be among them."""
    X = rng.standard_normal((30_000, 4))
    X[:, 1] = 0.0
    X[rng.choice(30_000, 3, replace=False), 1] = 1.0
    y = X @ [1.0, 2.0, 3.0, 4.0] + rng.standard_normal(30_000)
    w, b = vo.Variable(4), vo.Variable()
    for f in (vo.sum(vo.square(X @ w + b - y)) * (1.0 / 30_000), vo.sum(vo.huber(X @ w + b - y))):
        assert vo.minimize(f).status is vo.Status.OPTIMAL


@pytest.mark.parametrize("apart", [1e-3, 1e-5])
def test_rows_with_next_to_no_room_tell_nearly_equal_columns_apart(rng, apart):
    """One row fewer rests than columns are independent, two of which hardly differ, and a third is constant."""
    for _ in range(5):
        features = rng.integers(-3, 4, (60, 2)).astype(float)
        nearly = features[:, :1] + apart * rng.standard_normal((60, 1))
        X = np.hstack([features, nearly, np.full((60, 1), 0.3), np.ones((60, 1))])
        dual = np.r_[0.5, 0.25, 0.25, np.tile([-1.0, 1.0], 28), -1.0]
        x = rng.standard_normal(5)
        residual = np.where(np.abs(dual) < 1.0, 0.0, dual * rng.uniform(0.5, 2.0, 60))
        y, vector = X @ x - residual, -(X.T @ dual) * [1.0, 1.0, 1.0, 0.0, 0.0]
        rows = [DualRows(Matrix(X), -y, terms.abs_(), np.ones(60), dual)]
        value = exact_value(rows, vector, x)
        lower = verified_lower(rows, vector, 0.0, x=x).lower
        assert exact(lower) <= value
        assert float(value) - lower < 1e-8 * abs(float(value))

"""Matrices of variables, and NumPy's functions of expressions: what they are at points is what NumPy says."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import nnls
from scipy.sparse.linalg import aslinearoperator
from sklearn.linear_model import MultiTaskLasso

import varopt as vo
from varopt.model.maps import Columnwise, as_map

RNG = np.random.default_rng(5)
X, Y, A = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 2)), RNG.standard_normal((2, 5))
ROW = np.array([1.0, 2.0])

MATRICES = {
    "product": lambda W, b: X @ W,
    "sparse": lambda W, b: sp.csr_array(X) @ W,
    "operator": lambda W, b: aslinearoperator(X) @ W,
    "after": lambda W, b: W @ A,
    "both": lambda W, b: X @ W @ A,
    "transpose": lambda W, b: W.T,
    "transpose of a product": lambda W, b: (X @ W).T @ X,
    "row": lambda W, b: W[0],
    "last row": lambda W, b: W[-1],
    "column": lambda W, b: W[:, 1],
    "entry": lambda W, b: W[2, 1],
    "rows": lambda W, b: W[1:3],
    "rows and columns": lambda W, b: (X @ W)[1:, ::-1],
    "chosen rows": lambda W, b: W[[3, 0]] @ A,
    "mask": lambda W, b: W[np.arange(8).reshape(4, 2) > 3],
    "residual": lambda W, b: Y - X @ W,
    "intercepts": lambda W, b: Y - X @ W - b,
    "intercepts first": lambda W, b: b + X @ W,
    "scaled": lambda W, b: 2.0 * W / 4.0,
    "elementwise": lambda W, b: np.arange(8.0).reshape(4, 2) * W,
    "scaled columns": lambda W, b: ROW * W,
    "scaled rows": lambda W, b: np.arange(4.0)[:, None] * W,
    "vector before": lambda W, b: np.arange(4.0) @ W,
    "vector after": lambda W, b: W @ ROW,
    "sum of two": lambda W, b: W + 3.0 * W,
    "numpy": lambda W, b: np.matmul(X, W) - np.ones((3, 2)),
    "numpy transpose": lambda W, b: np.transpose(W),
}


@pytest.mark.parametrize("name", MATRICES)
def test_matrices(name):
    W, b = vo.Variable((4, 2), name="W"), vo.Variable(2, name="b")
    at = {W: RNG.standard_normal((4, 2)), b: RNG.standard_normal(2)}
    if name == "operator":
        expected = X @ at[W]
    else:
        rule = MATRICES[name]
        expected = rule(at[W], at[b]) if name != "sparse" else X @ at[W]
    made = MATRICES[name](W, b)
    assert made.dimensions == np.shape(expected)
    assert made({v: at[v] for v in made.variables}) == pytest.approx(np.ravel(expected), rel=1e-13)


UFUNCS = {
    "abs": np.abs,
    "fabs": np.fabs,
    "square": np.square,
    "negative": np.negative,
    "positive": np.positive,
    "maximum": lambda z: np.maximum(z, 0.5),
    "maximum first": lambda z: np.maximum([1.0, 2.0, -3.0], z),
    "minimum": lambda z: np.minimum(z, 2.0),
    "add": lambda z: np.add(z, 1.0),
    "subtract": lambda z: np.ones(3) - z,
    "multiply": lambda z: np.multiply([1.0, 2.0, 3.0], z),
    "scalar": lambda z: np.float64(3.0) * z,
    "divide": lambda z: np.divide(z, 2.0),
    "power": lambda z: np.power(z, 2),
    "matmul": lambda z: np.matmul(np.ones((2, 3)), z),
    "dot": lambda z: np.dot(np.ones(3), z),
    "sum": np.sum,
    "diff": np.diff,
    "second": lambda z: np.diff(z, n=2),
    "concatenate": lambda z: np.concatenate([z, np.ones(2)]),
    "concatenate along the first axis": lambda z: np.concatenate([z, np.ones(2)], axis=0),
    "nested": lambda z: np.maximum(np.abs(z) - 1.0, 0.0),
    "nested arrays": lambda z: np.maximum([1.5, 1.5, 1.5], np.abs(z)),
}


@pytest.mark.parametrize("name", UFUNCS)
def test_functions_of_numpy(name):
    w, at = vo.Variable(3, name="w"), np.array([1.25, -2.0, 3.5])
    assert UFUNCS[name](w)(at) == pytest.approx(UFUNCS[name](at), rel=1e-14)


TERMS = {
    "weights": lambda W: np.abs(X[:, :2]) * np.abs(W),
    "weights after": lambda W: np.square(W) * ROW,
    "weights of columns": lambda W: ROW * np.abs(W),
    "weights of rows": lambda W: np.arange(3.0)[:, None] * np.abs(W),
    "divisors": lambda W: np.abs(W) / Y**2,
    "divisors inside": lambda W: np.abs(W / Y),
    "plus": lambda W: Y + np.abs(W),
    "minus": lambda W: np.abs(W) - Y,
    "from": lambda W: Y - np.abs(W),
    "maximum": lambda W: np.maximum(np.abs(W), Y),
    "maximum of rows": lambda W: np.maximum(ROW, np.abs(W)),
}


@pytest.mark.parametrize("name", TERMS)
def test_terms_of_matrices_take_arrays_of_their_shape(name):
    W, at = vo.Variable((3, 2), name="W"), RNG.standard_normal((3, 2))
    assert vo.sum(TERMS[name](W))(at.ravel()) == pytest.approx(np.sum(TERMS[name](at)), rel=1e-13)


def test_comparisons_are_constraints_on_either_side():
    W = vo.Variable((4, 2), name="W")
    for made in (np.zeros((4, 2)) <= W, W >= ROW, np.ones((4, 1)) >= W, W.T @ X.T >= 0, vo.sum(W, axis=1) == 1):
        assert isinstance(made, vo.Constraint if hasattr(vo, "Constraint") else type(W >= 0))
    assert (W >= ROW).violation(np.tile(ROW, 4)) == 0.0
    assert (W >= ROW).violation(np.zeros(8)) == 2.0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda W, w: np.exp(w), "numpy.exp does not take expressions"),
        (lambda W, w: np.concatenate([W, W], axis=1), r"side by side in vo.concatenate\(\[V.T, W.T\]\).T"),
        (lambda W, w: np.add.reduce(w), "numpy.add does not take expressions"),
        (lambda W, w: np.median(w), "numpy.median does not take expressions"),
        (lambda W, w: np.abs(w, out=np.zeros(3)), "numpy.absolute does not take expressions"),
        (lambda W, w: np.ones(4) + W, r"fits the shape \(4, 2\) of W; got shape \(4,\)"),
        (lambda W, w: w + W, r"must be a matrix of shape \(4, 2\), one row of it, or a number"),
        (lambda W, w: W + W.T, r"must be a matrix of shape \(4, 2\).* got shape \(2, 4\)"),
        (lambda W, w: W == W.T, r"must be a matrix of shape \(4, 2\).* got shape \(2, 4\)"),
        (lambda W, w: W - vo.Variable((2, 1)), r"one row of it, or a number; got shape \(2, 1\)"),
        (lambda W, w: abs(W) + abs(W.T), r"must have one shape; got \(4, 2\) and \(2, 4\)"),
        (lambda W, w: vo.sum(vo.Binary((4, 2)) * vo.Binary((2, 4))), r"one shape; got \(4, 2\) and \(2, 4\)"),
        (lambda W, w: X.T[:, :2].T * abs(W), r"fits the shape \(4, 2\) of abs\(W\); got shape \(2, 4\)"),
        (lambda W, w: vo.max(vo.norm1(w), 1), r"max needs affine expressions of variables, and numbers; got sum\(abs"),
        (lambda W, w: W @ W, r"is vo.sum\(A \* B\)"),
        (lambda W, w: W @ X, "the matrix after @ must have 8 rows to match W"),
        (lambda W, w: W[7], "is outside"),
        (lambda W, w: vo.sum(w, axis=0), "axis=0 needs a matrix of variables"),
        (lambda W, w: vo.sum(W, axis=2), "axis must be 0 or 1"),
        (lambda W, w: vo.norm2(w, axis=1), "axis must be 0 or 1, of a matrix"),
    ],
)
def test_what_is_wrong_is_said(wrong, says):
    with pytest.raises((TypeError, ValueError), match=says):
        wrong(vo.Variable((4, 2), name="W"), vo.Variable(3, name="w"))


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_the_map_of_all_columns(kind):
    """The Kronecker product with an identity, which it stands for."""
    whole, linear = np.kron(X, np.eye(3)), Columnwise(as_map("X", kind(X)), 3)
    weights, index = RNG.uniform(0.5, 2.0, 9), np.array([1, 4, 8])

    def dense(matrix):
        return matrix.toarray() if sp.issparse(matrix) else matrix

    assert dense(linear.explicit()) == pytest.approx(whole)
    points, values = RNG.standard_normal((2, 12)), RNG.standard_normal((2, 9))
    assert linear.apply(points) == pytest.approx(points @ whole.T)
    assert linear.transpose_apply(values) == pytest.approx(values @ whole)
    assert linear.rows(index).dense() == pytest.approx(whole[index])
    assert linear.rows(slice(2, 7)).dense() == pytest.approx(whole[2:7])
    assert linear.columns(np.array([0, 5, 11])).dense() == pytest.approx(whole[:, [0, 5, 11]])
    assert dense(linear.gram(weights)) == pytest.approx(whole.T @ (weights[:, None] * whole))
    assert linear.gram_diagonal(weights) == pytest.approx(weights @ whole**2)
    assert linear.row_variance(np.arange(12.0)) == pytest.approx(whole**2 @ np.arange(12.0) ** 2)


def test_several_outputs_in_one_objective(rng):
    n, p, k = 60, 8, 3
    X = rng.standard_normal((n, p))
    Y = X @ np.vstack([rng.standard_normal((3, k)), np.zeros((p - 3, k))]) + 0.1 * rng.standard_normal((n, k))
    W = vo.Variable((p, k), name="W")
    r = vo.minimize(0.5 / n * vo.sum_squares(Y - X @ W) + 0.1 * vo.norm2(W, axis=1))
    other = MultiTaskLasso(alpha=0.1, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(X, Y)
    assert r.status.name == "OPTIMAL"
    assert r[W] == pytest.approx(other.coef_.T, abs=1e-9)
    r = vo.minimize(vo.sum_squares(Y - X @ W), subject_to=[W >= 0])
    assert r[W] == pytest.approx(np.array([nnls(X, y)[0] for y in Y.T]).T, abs=1e-12)
    b = vo.Variable(k, name="b")
    r = vo.minimize(vo.sum(np.abs(Y - X @ W - b)) + vo.norm1(W), subject_to=[vo.sum(W, axis=1) == 0])
    assert r.status.name == "OPTIMAL"
    assert np.abs(r[W].sum(axis=1)).max() <= 1e-12
    separate = vo.minimize(vo.sum(vo.abs(Y - X @ W - b)) + vo.norm1(W))
    each = [vo.minimize(vo.sum(vo.abs(y - X @ W[:, 0] - b[0])) + vo.norm1(W[:, 0])).fun for y in Y.T]
    assert separate.fun == pytest.approx(sum(each), rel=1e-9)


@pytest.mark.parametrize("kind", ["binary", "categorical"])
def test_a_quadratic_assignment(kind, rng):
    F, D = (np.triu(rng.integers(0, 9, (5, 5)), 1) for _ in range(2))
    F, D = F + F.T, D + D.T
    x = vo.Binary((5, 5)) if kind == "binary" else vo.Categorical(5, 5)
    once = [vo.sum(x, axis=0) == 1, vo.sum(x, axis=1) == 1]
    r = vo.minimize(vo.sum((F @ x @ D) * x), subject_to=once if kind == "binary" else once[:1])
    best = min(np.sum(F * D[np.ix_(p, p)]) for p in itertools.permutations(range(5)))
    assert r.status.name == "PROVED"
    assert r.fun == best


# -- As users of CVXPY and NumPy write them ---------------------------------------------------------------------------


def test_differences_of_a_matrix_have_an_axis(rng):
    W, value = vo.Variable((4, 3)), rng.standard_normal((4, 3))
    for order in (1, 2):
        for axis in (0, 1):
            expression = vo.diff(W, order, axis=axis)
            expected = np.diff(value, order, axis=axis)
            assert expression.dimensions == expected.shape
            np.testing.assert_allclose(expression(value.ravel()), expected.ravel(), atol=1e-15)
    assert np.diff(W).dimensions == (4, 2)
    assert np.diff(W, axis=0).dimensions == (3, 3)
    with pytest.raises(ValueError, match="axis must be 0, for differences down its columns, or 1"):
        vo.diff(W)  # NumPy's axis is the last, CVXPY's the first
    with pytest.raises(ValueError, match="axis must be left out of a vector"):
        vo.diff(W[0], axis=1)


def test_matrices_are_joined_one_below_the_other(rng):
    W, value = vo.Variable((4, 3)), rng.standard_normal((4, 3))
    joined = vo.concatenate([W, 2.0 * W[:1]])
    assert joined.dimensions == (5, 3)
    np.testing.assert_array_equal(joined(value.ravel()), np.concatenate([value, 2.0 * value[:1]]).ravel())
    assert vo.concatenate([W[0], W[1]]).dimensions == (6,)
    assert vo.concatenate([W, np.ones(2)]).dimensions == (14,)
    w = vo.Variable(2)
    assert np.hstack([w, 2.0 * w])([1.0, 2.0]).tolist() == [1.0, 2.0, 2.0, 4.0]
    assert np.max(w)([1.0, 2.0]) == 2.0
    assert np.min(w)([1.0, 2.0]) == 1.0
    with pytest.raises(TypeError, match="takes vectors of variables"):
        np.hstack([W, W])


def test_multipliers_have_the_shape_of_what_is_compared(rng):
    W, target = vo.Variable((4, 3)), rng.standard_normal((4, 3))
    below, above = W <= 0.5, W.T >= -0.25
    r = vo.minimize(vo.sum_squares(W - target), subject_to=[below, above])
    np.testing.assert_allclose(r.multipliers[below], 2.0 * np.maximum(target - 0.5, 0.0), atol=1e-9)
    np.testing.assert_allclose(r.multipliers[above], 2.0 * np.maximum(-0.25 - target, 0.0).T, atol=1e-9)
    none = vo.sum(W) <= -4.0
    proof = vo.minimize(vo.norm1(W), subject_to=[above, none]).proof
    assert proof.multipliers[above].shape == (3, 4)


@pytest.mark.parametrize(
    ("option", "advice"),
    [("nonneg", "w >= 0"), ("boolean", "vo.Binary"), ("PSD", "for CVXPY"), ("nothing", "'nothing'")],
)
def test_options_of_variables_that_are_others_here(option, advice):
    with pytest.raises(TypeError, match=advice):
        vo.Variable(3, **{option: True})


ELSEWHERE = {
    "the value of a variable": (lambda r, w, c: w.value, AttributeError, r"result, as in r = .* and r\[w\]"),
    "the optimum": (lambda r, w, c: r.value, AttributeError, "found is r.fun"),
    "a multiplier": (lambda r, w, c: c.dual_value, AttributeError, r"r.multipliers\[c\]"),
    "a variable by its name": (lambda r, w, c: r["w"], KeyError, r"itself, as in r\[w\], and r.x is the whole point"),
    "nothing known": (lambda r, w, c: r.colour, AttributeError, "has no attribute 'colour'$"),
    "a norm of NumPy": (lambda r, w, c: np.linalg.norm(w), TypeError, "vo.norm1, vo.norm2 and vo.norm_inf"),
    "a smooth function of NumPy": (lambda r, w, c: np.exp(w), TypeError, "for smooth functions use CVXPY"),
    "a function without advice": (lambda r, w, c: np.fft.fft(w), TypeError, "or use varopt's functions"),
    "the smallest": (lambda r, w, c: vo.min(w), AttributeError, r"-vo.max\(-x\)"),
    "products of entries": (lambda r, w, c: vo.multiply(w, w), AttributeError, r"by \*, as in"),
}


@pytest.mark.parametrize(("asked", "kind", "advice"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_what_others_call_otherwise_is_told(asked, kind, advice):
    w = vo.Variable(3, name="w")
    c = w >= 0
    r = vo.minimize(vo.sum_squares(w - 1.0), subject_to=[c])
    with pytest.raises(kind, match=advice):
        asked(r, w, c)


def test_matrices_stand_side_by_side_as_their_transposes_stand_one_below_the_other():
    V, W = vo.Variable((2, 3)), vo.Variable((2, 1))
    left, right = np.arange(6.0).reshape(2, 3), np.array([[7.0], [8.0]])
    joined = vo.concatenate([V.T, W.T]).T
    np.testing.assert_array_equal(joined({V: left, W: right}), np.hstack([left, right]).ravel())

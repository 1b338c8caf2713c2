"""Affine expressions: every way to write one, against NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import varopt.model as vo

N, P = 6, 4
DATA = np.random.default_rng(1)
X = np.where(DATA.random((N, P)) < 0.7, DATA.normal(size=(N, P)), 0.0)
Y, T = DATA.normal(size=N), np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
W, B = DATA.normal(size=P), 0.3
SQUARE, Z = DATA.normal(size=(N, N)), DATA.normal(size=N)
POINTS = DATA.normal(size=(3, P))


class Design(LinearOperator):
    """A user's own subclass."""

    def __init__(self) -> None:
        super().__init__(np.dtype(float), X.shape)

    def _matvec(self, x):
        return X @ x.ravel()

    def _rmatvec(self, y):
        return X.T @ y.ravel()


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


DESIGNS = {
    "dense": X,
    "list": X.tolist(),
    "tuple": tuple(map(tuple, X)),
    "Fortran order": np.asfortranarray(X),
    "every other row": np.repeat(X, 2, axis=0)[::2],
    "every third column": np.repeat(X, 3, axis=1)[:, ::3],
    "reversed": X[::-1, ::-1].copy()[::-1, ::-1],
    "read only": read_only(X),
    **{f"{name} array": getattr(sp, f"{name}_array")(X) for name in ("csr", "csc", "coo", "dia", "lil", "dok", "bsr")},
    **{
        f"{name} matrix": getattr(sp, f"{name}_matrix")(X) for name in ("csr", "csc", "coo", "dia", "lil", "dok", "bsr")
    },
    "csr read only": sp.csr_array((read_only(sp.csr_array(X).data), sp.csr_array(X).indices, sp.csr_array(X).indptr)),
    "aslinearoperator": aslinearoperator(X),
    "operator of sparse": aslinearoperator(sp.csr_array(X)),
    "operator of functions": LinearOperator(X.shape, matvec=lambda x: X @ x, rmatvec=lambda y: X.T @ y, dtype=float),
    "product of operators": aslinearoperator(X) @ aslinearoperator(np.eye(P)),
    "transposed operator": aslinearoperator(X.T.copy()).T,
    "user's operator": Design(),
}


@pytest.fixture
def w():
    return vo.Variable(P, name="w")


@pytest.fixture
def b():
    return vo.Variable(name="b")


def close(actual, expected, rtol=1e-13):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=1e-13)


@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)
class TestDesigns:
    def test_product(self, design, w):
        expression = design @ w
        assert expression.shape == (N,)
        close(expression(W), X @ W)

    def test_residual(self, design, w):
        close((Y - design @ w)(W), Y - X @ W)
        close((design @ w - Y)(W), X @ W - Y)

    def test_margin_with_an_intercept(self, design, w, b):
        close((T * (design @ w + b))(W, B), T * (X @ W + B))

    def test_rows_of_a_product(self, design, w):
        close((design @ w)[1:4](W), (X @ W)[1:4])

    def test_from_the_other_side(self, design, w):
        u = vo.Variable(N, name="u")
        close((u @ design)(Y), Y @ X)

    def test_normal_equations(self, design, w):
        transposed = np.asarray(design).T if isinstance(design, (list, tuple)) else design.T
        close((transposed @ (design @ w))(W), X.T @ (X @ W), rtol=1e-12)

    def test_many_points_at_once(self, design, w):
        f = vo.sum_squares(Y - design @ w)
        close(f.at(POINTS), ((Y - POINTS @ X.T) ** 2).sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.longdouble, np.int8, np.uint8, np.int64, bool, ">f8"])
def test_designs_of_other_dtypes_are_kept_and_computed_in_float64(dtype, w):
    design = np.abs(np.round(3 * X)).astype(dtype)
    expression = design @ w
    assert expression.maps[w].array is design
    close(expression(W), design.astype(float) @ W)
    assert expression(W).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint8, np.int64, bool])
def test_constants_of_other_dtypes(dtype, w, b):
    y = np.arange(N).astype(dtype)
    exact = y.astype(float)
    close((y - X @ w)(W), exact - X @ W, rtol=1e-6)
    close((X @ w - y)(W), X @ W - exact, rtol=1e-6)
    close((y * (X @ w + b))(W, B), exact * (X @ W + B), rtol=1e-6)
    close((y @ (X @ w))(W), exact @ (X @ W))
    close((y * (1 + X @ w))(W), exact * (1 + X @ W), rtol=1e-6)


class TestOperators:
    @pytest.mark.parametrize(
        ("write", "expected"),
        [
            (lambda w: +w, W),
            (lambda w: -w, -W),
            (lambda w: w + w, 2 * W),
            (lambda w: w - w, 0 * W),
            (lambda w: w - 0.5 * w + W, 0.5 * W + W),
            (lambda w: 2 * w * 3, 6 * W),
            (lambda w: w / 4, W / 4),
            (lambda w: w / np.array([1, 2, 4, 8]), W / [1, 2, 4, 8]),
            (lambda w: np.float64(2.0) * w, 2 * W),
            (lambda w: w * np.float32(2.0), 2 * W),
            (lambda w: np.int64(2) * w - np.float64(1.0), 2 * W - 1),
            (lambda w: np.array(2.0) * w, 2 * W),
            (lambda w: 1 - w, 1 - W),
            (lambda w: [1, 2, 3, 4] - w, [1, 2, 3, 4] - W),
            (lambda w: [1, 2, 3, 4] + w, np.arange(1, 5) + W),  # noqa: RUF005
            (lambda w: (1, 2, 3, 4) * w, [1, 2, 3, 4] * W),
            (lambda w: w - [1.5, 2, 3, 4], W - [1.5, 2, 3, 4]),
            (lambda w: w * [1, 2, 3, 4], [1, 2, 3, 4] * W),
            (lambda w: W * w + W, W * W + W),
            (lambda w: (w + 1) * W + 1, (W + 1) * W + 1),
            (lambda w: (w + W) * W + W - 3, (W + W) * W + W - 3),
            (lambda w: -(3 - (w + W)), W + W - 3),
            (lambda w: 0.0 * w + 1, np.ones(P)),
            (lambda w: X @ (w + 1) - Y, X @ (W + 1) - Y),
            (lambda w: X @ (W * w + W), X @ (W * W + W)),
            (lambda w: w @ X.T, X @ W),
            (lambda w: w @ X.T.tolist(), X @ W),
            (lambda w: X.tolist() @ w, X @ W),
            (lambda w: X.T @ (X @ w), X.T @ X @ W),
            (lambda w: X @ w + 2 * (X @ w) - X @ (3 * w), 0 * Y),
            (lambda w: sum([w, w, X.T @ (X @ w)]), 2 * W + X.T @ X @ W),
            (lambda w: vo.diff(X @ w) * T[1:], np.diff(X @ W) * T[1:]),
        ],
    )
    def test_vectors(self, write, expected, w):
        expression = write(w)
        assert expression.shape == np.shape(expected)
        close(expression(W), expected)

    @pytest.mark.parametrize(
        ("write", "expected"),
        [
            (lambda w: W @ w, W @ W),
            (lambda w: w @ W, W @ W),
            (lambda w: [1, 2, 3, 4] @ w, [1, 2, 3, 4] @ W),
            (lambda w: w @ [1, 2, 3, 4], [1, 2, 3, 4] @ W),
            (lambda w: Y @ (X @ w) + 1, Y @ X @ W + 1),
            (lambda w: w[1] - 2 * w[-1], W[1] - 2 * W[-1]),
            (lambda w: (W @ (w + W)) / 2, W @ (W + W) / 2),
        ],
    )
    def test_scalars(self, write, expected, w):
        expression = write(w)
        assert expression.shape == ()
        assert isinstance(expression(W), float)
        assert expression(W) == pytest.approx(expected, rel=1e-13)

    def test_scalar_variables_are_repeated(self, w, b):
        point = {w: W, b: B}
        close((w + b)(point), W + B)
        close((b + w)(point), W + B)
        close((b - w)(point), B - W)
        close((b + W)(point), B + W)
        close((W * b)(point), W * B)
        close((b * W + 1)(point), B * W + 1)
        close((X @ w + (2 * b - 1))(point), X @ W + 2 * B - 1)
        close((Y - W @ w)(point), Y - W @ W)
        close((X @ w + W @ w)(point), X @ W + W @ W)

    def test_several_variables_in_any_order(self, w, b):
        v = vo.Variable(P, name="v")
        for expression in (v + X.T @ (X @ w) - b * W, -(b * W) + X.T @ (X @ w) + v):
            assert expression.variables == (w, b, v)
            close(expression({v: 2 * W, b: B, w: W}), 2 * W + X.T @ X @ W - B * W)

    def test_values_do_not_alias_the_point(self, w):
        point = W.copy()
        w(point)[:] = 0.0
        np.testing.assert_array_equal(point, W)


INDICES = {
    "basic": slice(1, 3),
    "open": slice(2, None),
    "negative": slice(-3, -1),
    "step": slice(None, None, 2),
    "backwards": slice(None, None, -1),
    "backwards by two": slice(5, 0, -2),
    "everything": slice(None),
    "ellipsis": ...,
    "list": [3, 0, 0],
    "array": np.array([-1, 2]),
    "small integers": np.array([1, 2], dtype=np.uint8),
    "mask": np.array([True, False, True, True, False, False]),
    "list of booleans": [True, False, True, True, False, True],
    "integer": 2,
    "negative integer": -1,
    "NumPy integer": np.int64(3),
    "zero-dimensional": np.array(3),
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_indexing(index):
    u, w = vo.Variable(N, name="u"), vo.Variable(P, name="w")
    for expression, value in [
        (u, Y),
        (3 * u - T, 3 * Y - T),
        (X @ w, X @ W),
        (T * (X @ w + 1), T * (X @ W + 1)),
        (sp.csc_array(X) @ w + u, X @ W + Y),
        (aslinearoperator(X) @ w - 2, X @ W - 2),
        (u + X @ w + u, 2 * Y + X @ W),
    ]:
        chosen = expression[index]
        assert chosen.shape == value[index].shape
        close(chosen({u: Y, w: W}), value[index])


@given(st.slices(N))
def test_slices_are_those_of_numpy(index):
    u = vo.Variable(N)
    if Y[index].size:
        close(u[index](Y), Y[index])
        close((X @ np.eye(P) @ vo.Variable(P))[index](W), (X @ W)[index])
    else:
        with pytest.raises(ValueError, match="selects nothing"):
            u[index]


def test_a_slice_of_dense_data_is_a_view(w):
    assert np.shares_memory((X @ w)[2:].maps[w].array, X)


@pytest.mark.parametrize("order", range(1, N))
def test_differences_of_any_order(order):
    u, w = vo.Variable(N), vo.Variable(P)
    close(vo.diff(u, order)(Y), np.diff(Y, order))
    close(vo.diff(2 * (X @ w) - Y, order)(W), np.diff(2 * X @ W - Y, order), rtol=1e-12)
    close(vo.diff(vo.diff(u, order - 1) if order > 1 else u)(Y), np.diff(Y, order))


def test_differences_are_sparse():
    u = vo.Variable(100_000)
    assert vo.diff(u, 2).maps[u].array.nnz == 3 * (100_000 - 2)


class TestCategorical:
    @pytest.mark.parametrize(
        "index",
        [0, -1, (1, 2), (slice(None), 1), slice(1, 3), (..., -1), (slice(None), [0, 2]), [0, 2], np.eye(4, 3) > 0],
    )
    def test_indexing_is_that_of_its_table(self, index):
        table = np.arange(12.0).reshape(4, 3)
        x = vo.Categorical(4, 3)
        expected = table[index]
        expression = x[index]
        assert expression.shape == (() if np.ndim(expected) == 0 else (expected.size,))
        close(expression(table), expected.ravel() if np.ndim(expected) else expected)

    def test_points_may_be_flat(self):
        x = vo.Categorical(2, 3)
        table = np.eye(3)[[2, 0]]
        assert x[0, 2](table) == x[0, 2](table.ravel()) == 1.0


@given(st.data())
def test_random_expressions_match_numpy(data):
    """Operators in any order and depth."""
    v, b = vo.Variable(N, name="v"), vo.Variable(name="b")
    steps = {
        "scale": (lambda e: 0.5 * e, lambda z: 0.5 * z),
        "rows": (lambda e: T * e, lambda z: T * z),
        "shift": (lambda e: e - Y, lambda z: z - Y),
        "minus": (lambda e: 1 - e, lambda z: 1 - z),
        "again": (lambda e: e + v, lambda z: z + Y),
        "twice": (lambda e: e + 2 * e, lambda z: 3 * z),
        "intercept": (lambda e: e + b, lambda z: z + B),
        "matrix": (lambda e: SQUARE @ e, lambda z: SQUARE @ z),
        "sparse": (lambda e: sp.csr_array(np.eye(N, k=1)) @ e, lambda z: np.eye(N, k=1) @ z),
        "operator": (lambda e: aslinearoperator(SQUARE) @ e, lambda z: SQUARE @ z),
        "reverse": (lambda e: e[::-1], lambda z: z[::-1]),
        "choose": (lambda e: e[[0, 0, 3, 5, 1, 2]], lambda z: z[[0, 0, 3, 5, 1, 2]]),
        "differences": (lambda e: np.eye(N, N - 1) @ vo.diff(e), lambda z: np.eye(N, N - 1) @ np.diff(z)),
    }
    expression, value = v, Y
    for name in data.draw(st.lists(st.sampled_from(sorted(steps)), max_size=8)):
        write, compute = steps[name]
        expression, value = write(expression), compute(value)
    point = {v: Y, b: B}
    np.testing.assert_allclose(expression(point), value, rtol=1e-9, atol=1e-9 * (1 + np.abs(value).max()))
    stacked = expression.stacked((v, b))
    flat = stacked.apply(np.append(Y, B)) + expression.offset
    np.testing.assert_allclose(flat, value, rtol=1e-9, atol=1e-9 * (1 + np.abs(value).max()))
    np.testing.assert_allclose(stacked.transpose_apply(Z), Z @ stacked.dense(), rtol=1e-9, atol=1e-7)

"""Linear maps: every kind against the dense matrix it stands for. A new map is tested by being registered."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from varopt.model.maps import (
    Composition,
    Difference,
    HStack,
    Matrix,
    Operator,
    Scaled,
    Selection,
    Sparse,
    Sum,
    _base,
    as_map,
)

A = np.array([[1.0, -2.0, 0.0, 0.5], [0.0, 3.0, 0.0, -1.0], [2.0, 0.0, -1.5, 0.0], [0.25, 1.0, 1.0, 4.0], [0, 0, 0, 7]])
B = np.array([[0.0, 1.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, -3.0], [0, 0, 1, 0], [1, 0, 1, 0]])
C = np.array([[1.0, 0.0, 2.0, 0.0, -1.0], [0.0, 0.5, 0.0, 1.0, 0.0], [3.0, 0.0, 0.0, 0.0, 1.0]])
T = np.array([1.0, -1.0, 2.0, -0.5, 0.0])
INDEX = np.array([3, 0, 0, 2, 1])


class Shift(LinearOperator):
    """A user's own operator: neighbours subtracted."""

    def __init__(self, n: int) -> None:
        super().__init__(np.dtype(float), (n, n))

    def _matvec(self, x):
        return x.ravel() - np.roll(x.ravel(), 1)

    def _rmatvec(self, x):
        return x.ravel() - np.roll(x.ravel(), -1)


def unsorted_with_duplicates() -> sp.csr_array:
    """A legal matrix that holds entries in parts and out of order."""
    data, indices = np.array([1.0, 2.0, -1.0, 0.5, 4.0]), np.array([2, 0, 2, 1, 3])
    return sp.csr_array((data, indices, np.array([0, 3, 3, 4, 5, 5])), shape=(5, 4))


def select(index, columns):
    return np.eye(columns)[index]


LEAVES = {
    "matrix": (Matrix(A), A),
    "matrix of float32": (Matrix(A.astype(np.float32)), A),
    "matrix of integers": (Matrix((4 * A).astype(np.int8)), 4 * A),
    "matrix of booleans": (Matrix(A > 0), (A > 0).astype(float)),
    "matrix in Fortran order": (Matrix(np.asfortranarray(A)), A),
    "matrix of big-endian numbers": (Matrix(A.astype(">f8")), A),
    "matrix with strides": (Matrix(np.repeat(np.repeat(A, 2, axis=0), 3, axis=1)[::2, ::3]), A),
    "row of ones": (Matrix(np.broadcast_to(np.ones(1), (1, 4))), np.ones((1, 4))),
    "csr": (Sparse(sp.csr_array(B)), B),
    "csc": (Sparse(sp.csc_array(B)), B),
    "coo": (Sparse(sp.coo_array(B)), B),
    "csr matrix": (Sparse(sp.csr_matrix(B)), B),
    "csc matrix": (Sparse(sp.csc_matrix(B)), B),
    "lil matrix": (Sparse(sp.lil_matrix(B)), B),
    "csr of float32": (Sparse(sp.csr_array(B.astype(np.float32))), B),
    "csr of integers": (Sparse(sp.csr_array(B.astype(np.int8))), B),
    "csr with duplicates": (Sparse(unsorted_with_duplicates()), unsorted_with_duplicates().toarray()),
    "operator of a matrix": (Operator(aslinearoperator(A)), A),
    "operator of functions": (Operator(LinearOperator(A.shape, lambda x: A @ x, lambda y: A.T @ y, dtype=float)), A),
    "operator of a user": (Operator(Shift(4)), np.eye(4) - np.roll(np.eye(4), 1, axis=0)),
    "identity": (Selection(None, 4), np.eye(4)),
    "selection": (Selection(np.array([2, 0]), 4), select([2, 0], 4)),
    "selection with repeats": (Selection(INDEX, 4), select(INDEX, 4)),
    "repeated scalar": (Selection.repeat(5), np.ones((5, 1))),
    "difference": (Difference(5, 1), np.diff(np.eye(5), axis=0)),
    "difference of order 3": (Difference(7, 3), np.diff(np.eye(7), 3, axis=0)),
}
NESTED = {
    "negative": (Scaled(-1.0, Matrix(A)), -A),
    "rows scaled": (Scaled(T, Matrix(A)), T[:, None] * A),
    "rows scaled by small integers": (
        Scaled(np.array([100, -100, 1, 0, 2], np.int8), Matrix(A)),
        np.array([[100], [-100], [1], [0], [2]]) * A,
    ),
    "sparse rows scaled": (Scaled(T, Scaled(2.0, Sparse(sp.csc_array(B)))), 2 * T[:, None] * B),
    "operator rows scaled": (Scaled(T, Operator(aslinearoperator(A))), T[:, None] * A),
    "repeated scalar scaled": (Scaled(T, Selection.repeat(5)), T[:, None]),
    "product of matrices": (Composition(Matrix(C), Matrix(A)), C @ A),
    "product of sparse": (Composition(Sparse(sp.csr_array(C)), Sparse(sp.csc_array(B))), C @ B),
    "difference of predictions": (Composition(Difference(5, 2), Matrix(A)), np.diff(A, 2, axis=0)),
    "difference of scaled predictions": (
        Composition(Difference(5, 1), Scaled(T, Matrix(A))),
        np.diff(T[:, None] * A, axis=0),
    ),
    "matrix of sparse": (Composition(Matrix(C), Sparse(sp.csr_array(B))), C @ B),
    "matrix of an operator": (Composition(Matrix(C), Operator(aslinearoperator(A))), C @ A),
    "rows of an operator": (Operator(aslinearoperator(A)).rows(slice(1, 4)), A[1:4]),
    "scalar prediction repeated": (Composition(Selection.repeat(5), Matrix(A[:1])), np.repeat(A[:1], 5, axis=0)),
    "product of three": (
        Composition(Matrix(C), Composition(Scaled(T, Matrix(np.eye(5))), Matrix(A))),
        C @ (T[:, None] * A),
    ),
    "sum": (Sum([Matrix(A), Scaled(-2.0, Sparse(sp.csr_array(B)))]), A - 2 * B),
    "sum of sparse": (Sum([Sparse(sp.csr_array(B)), Selection(INDEX, 4)]), B + select(INDEX, 4)),
    "sum with an operator": (Sum([Operator(aslinearoperator(A)), Matrix(B)]), A + B),
    "sum with a product": (
        Sum([Composition(Difference(6, 1), Scaled(2.0, Matrix(np.vstack([A, A[0]])))), Matrix(B)]),
        2 * np.diff(np.vstack([A, A[0]]), axis=0) + B,
    ),
    "stack": (HStack(5, [(Matrix(A), 4), (Selection.repeat(5), 1)]), np.hstack([A, np.ones((5, 1))])),
    "stack of dense": (
        HStack(5, [(Matrix(A), 4), (None, 2), (Scaled(T, Matrix(B)), 4)]),
        np.hstack([A, np.zeros((5, 2)), T[:, None] * B]),
    ),
    "stack of sparse": (
        HStack(5, [(Sparse(sp.csr_array(B)), 4), (None, 3), (Scaled(T, Selection.repeat(5)), 1)]),
        np.hstack([B, np.zeros((5, 3)), T[:, None]]),
    ),
    "stack with an operator": (
        HStack(5, [(Operator(aslinearoperator(A)), 4), (Sparse(sp.csr_array(B)), 4)]),
        np.hstack([A, B]),
    ),
    "stack of operators": (
        HStack(5, [(Operator(aslinearoperator(A)), 4), (Operator(aslinearoperator(B)), 4)]),
        np.hstack([A, B]),
    ),
    "few dense columns beside many": (
        HStack(5, [(Selection(None, 5), 5), (Matrix(A[:, :2]), 2), (None, 9)]),
        np.hstack([np.eye(5), A[:, :2], np.zeros((5, 9))]),
    ),
    "stack of nothing": (HStack(5, [(None, 2)]), np.zeros((5, 2))),
    "sum in a stack in a product": (
        Composition(Matrix(C), HStack(5, [(Sum([Matrix(A), Matrix(B)]), 4), (Scaled(-1.0, Selection.repeat(5)), 1)])),
        C @ np.hstack([A + B, -np.ones((5, 1))]),
    ),
}
MAPS = LEAVES | NESTED
SPARSE = [
    "csr",
    "csc",
    "coo",
    "csr matrix",
    "csr of float32",
    "csr with duplicates",
    "identity",
    "selection",
    "selection with repeats",
    "repeated scalar",
    "difference",
    "difference of order 3",
    "sparse rows scaled",
    "repeated scalar scaled",
    "product of sparse",
    "sum of sparse",
    "stack of sparse",
    "few dense columns beside many",
    "stack of nothing",
]


@pytest.fixture(params=MAPS)
def pair(request):
    return MAPS[request.param]


@pytest.fixture(params=[1, 7, 1 << 20])
def chunk(request, monkeypatch):
    """Temporaries of one entry, of a few, and of all."""
    monkeypatch.setattr(_base, "_DENSE_ENTRIES", request.param)
    monkeypatch.setattr(_base, "_CACHED_ENTRIES", request.param)


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


def test_shape_and_entries(pair):
    linear, dense = pair
    assert linear.shape == dense.shape
    close(linear.dense(), dense)
    explicit = linear.explicit()
    assert explicit.dtype.kind == "f"
    assert sp.issparse(explicit) == (linear.storage == "sparse")


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.usefixtures("chunk")
def test_apply_and_its_transpose(pair, batch, rng):
    linear, dense = pair
    points, values = rng.normal(size=(*batch, dense.shape[1])), rng.normal(size=(*batch, dense.shape[0]))
    close(linear.apply(points), points @ dense.T)
    close(linear.transpose_apply(values), values @ dense)


@pytest.mark.parametrize("index", [slice(None), slice(0, 1), slice(None, None, -2), np.array([0]), np.array([0, 0])])
def test_rows(pair, index, rng):
    linear, dense = pair
    chosen = linear.rows(index)
    assert chosen.shape == dense[index].shape
    close(chosen.dense(), dense[index])
    point = rng.normal(size=dense.shape[1])
    close(chosen.apply(point), dense[index] @ point)


def test_columns(pair, rng):
    linear, dense = pair
    for index in (np.arange(dense.shape[1]), np.arange(0, dense.shape[1], 2), np.array([dense.shape[1] - 1])):
        chosen = linear.columns(index)
        assert chosen.shape == (dense.shape[0], index.size)
        assert (chosen.storage == "sparse") == (linear.storage == "sparse") or isinstance(linear, HStack)
        close(chosen.dense(), dense[:, index])
        point = rng.normal(size=index.size)
        close(chosen.apply(point), dense[:, index] @ point)


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("kind", ["scalar", "vector", "Cholesky", "wide"])
def test_row_variance(pair, kind, rng):
    linear, dense = pair
    n = dense.shape[1]
    factor = {
        "scalar": 0.7,
        "vector": rng.uniform(0.1, 2.0, n),
        "Cholesky": np.tril(rng.normal(size=(n, n))),
        "wide": rng.normal(size=(n, n + 2)),
    }[kind]
    square = factor @ factor.T if np.ndim(factor) == 2 else np.diag(np.broadcast_to(np.square(factor), n))
    close(linear.row_variance(factor), np.diag(dense @ square @ dense.T))


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("kind", ["any", "not negative", "equal"])
def test_gram_and_its_diagonal(pair, kind, rng):
    linear, dense = pair
    weights = {
        "any": rng.normal(size=dense.shape[0]),
        "not negative": rng.normal(size=dense.shape[0]) ** 2 * (rng.random(dense.shape[0]) < 0.7),
        "equal": np.full(dense.shape[0], -0.3),
    }[kind]
    expected = dense.T @ np.diag(weights) @ dense
    gram = linear.gram(weights)
    close(gram.toarray() if sp.issparse(gram) else gram, expected)
    close(linear.gram_diagonal(weights), np.diag(expected))


@pytest.mark.parametrize("name", SPARSE)
def test_what_is_sparse_stays_sparse(name, monkeypatch, rng):
    linear, dense = MAPS[name]
    for kind in (Sparse, Selection, Scaled, Composition, Sum, HStack):
        monkeypatch.setattr(kind, "dense", lambda self: pytest.fail(f"{self} was made dense"), raising=False)
    assert linear.storage == "sparse"
    gram = linear.gram(rng.normal(size=dense.shape[0]))
    assert sp.issparse(gram) or gram.shape == (1, 1)
    linear.gram_diagonal(rng.normal(size=dense.shape[0]))
    linear.row_variance(rng.uniform(size=dense.shape[1]))


def test_a_sparse_design_with_an_intercept_is_not_made_dense(rng):
    rows, columns = 20_000, 50_000  # 8 GB, were it dense
    places = np.arange(100_000) % rows, rng.integers(columns, size=100_000)
    X = sp.csr_array((rng.uniform(size=100_000), places), shape=(rows, columns))
    stacked = HStack(rows, [(Scaled(np.ones(rows), Sparse(X)), columns), (Selection.repeat(rows), 1)])
    gram = stacked.gram(np.ones(rows))
    assert gram.nnz < 20 * X.nnz
    assert gram[-1, -1] == rows
    close(stacked.row_variance(1.0), X.multiply(X).sum(axis=1) + 1)


def test_the_map_of_a_sum_is_kept_by_reference():
    X = np.zeros((3, 2))
    assert Matrix(X).explicit() is X
    kept = Sparse(sp.csr_matrix(B))
    for part in ("data", "indices"):
        assert np.shares_memory(getattr(Sparse(kept.array).array, part), getattr(kept.array, part))
    assert np.shares_memory(Matrix(X).rows(slice(1, 3)).explicit(), X)


def test_duplicates_are_summed_without_changing_the_matrix(rng):
    given = unsorted_with_duplicates()
    before = given.data.copy(), given.indices.copy()
    linear = as_map("X", given)
    linear.row_variance(1.0), linear.gram(np.ones(5)), linear.gram_diagonal(np.ones(5)), linear.apply(np.ones(4))
    np.testing.assert_array_equal(given.data, before[0])
    np.testing.assert_array_equal(given.indices, before[1])


def test_integers_do_not_overflow():
    X = np.full((300, 2), 100, dtype=np.int8)
    for linear in (as_map("X", X), as_map("X", sp.csr_array(X))):
        assert linear.row_variance(1.0)[0] == 20_000
        assert linear.apply(np.ones(2))[0] == 200
        assert linear.gram_diagonal(np.ones(300))[0] == 3_000_000


def test_float32_data_are_summed_in_float64():
    X = np.full((1, 1000), 0.1, dtype=np.float32)
    exact = math.fsum(float(np.float32(0.1)) ** 2 for _ in range(1000))
    for linear in (as_map("X", X), as_map("X", sp.csr_array(X))):
        assert linear.row_variance(1.0)[0] == pytest.approx(exact, rel=1e-14)
        assert linear.row_variance(np.ones(1000))[0] == pytest.approx(exact, rel=1e-14)


def test_an_operator_without_a_transpose_says_so():
    linear = Operator(LinearOperator((2, 2), matvec=lambda x: x, dtype=float))
    close(linear.apply(np.ones(2)), np.ones(2))
    close(linear.row_variance(2.0), [4.0, 4.0])
    for values in (np.ones(2), np.ones((3, 2))):
        with pytest.raises(ValueError, match=r"L\[2 x 2\] must define rmatvec"):
            linear.transpose_apply(values)


NAMES = {
    "matrix": "A[5 x 4] @ w",
    "csr": "S[5 x 4] @ w",
    "operator of a user": "L[4 x 4] @ w",
    "identity": "w",
    "selection": "w[2 entries]",
    "repeated scalar": "w",
    "difference": "diff(w)",
    "difference of order 3": "diff(w, 3)",
    "negative": "-A[5 x 4] @ w",
    "rows scaled": "t * (A[5 x 4] @ w)",
    "sum": "A[5 x 4] @ w - 2 * S[5 x 4] @ w",
    "product of matrices": "A[3 x 5] @ (A[5 x 4] @ w)",
    "difference of predictions": "diff(A[5 x 4] @ w, 2)",
    "rows of an operator": "(L[5 x 4] @ w)[1:4]",
}


@pytest.mark.parametrize("name", NAMES)
def test_how_a_map_is_written(name):
    assert MAPS[name][0].of("w") == NAMES[name]


def test_every_map_has_a_name_of_its_own(pair):
    assert str(pair[0])
    assert "w" in pair[0].of("w")

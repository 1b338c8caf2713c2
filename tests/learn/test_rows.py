"""Data as a weighted set of rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from varopt.learn import LassoCV
from varopt.learn._data import DataMemory, distinct_rows  # equal rows against a sort
from varopt.learn._least_squares import Squares  # whose Gram matrices are counted
from varopt.model.maps import Matrix, kept_products
from varopt.model.maps._dense import _KEPT  # what is kept is looked at


def as_set(rows):
    X = rows.X.toarray() if sp.issparse(rows.X) else rows.X
    table = [(*x, y, w) for x, y, w in zip(X.tolist(), rows.y.tolist(), rows.weight.tolist(), strict=True)]
    assert len({row[:-1] for row in table}) == len(table), "equal rows are merged"
    return sorted(table)


@given(
    arrays(np.float64, (12, 3), elements=st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.5])),
    arrays(np.int64, 12, elements=st.integers(0, 1)),
    arrays(np.int64, 12, elements=st.integers(0, 3)),
    st.permutations(range(12)),
)
def test_repetition_is_weight_and_order_does_not_matter(X, y, weight, order):
    if not weight.any():
        return
    weighted = distinct_rows(X, y, weight.astype(float))
    order = np.array(order)
    X, y, weight = X[order], y[order], weight[order]
    repeated = distinct_rows(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.total == weight.sum()
    assert as_set(weighted) == as_set(repeated)
    np.testing.assert_array_equal(weighted.X, repeated.X)
    np.testing.assert_array_equal(weighted.y, repeated.y)
    sparse = distinct_rows(sp.csr_array(X), y, weight.astype(float))
    assert as_set(sparse) == as_set(weighted)


@pytest.mark.parametrize("convert", [np.asarray, np.asfortranarray, sp.csr_array, sp.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_layout_does_not_matter(convert, dtype, rng):
    X, y = rng.integers(0, 2, (500, 4)).astype(dtype), rng.integers(0, 2, 500)
    expected, rows = distinct_rows(X, y), distinct_rows(convert(X), y)
    assert as_set(rows) == as_set(expected)
    assert len(rows.y) == 32
    assert rows.X.dtype == dtype


def test_distinct_rows_are_all_kept(rng):
    X, y = rng.standard_normal((1000, 2)), rng.standard_normal(1000)
    rows = distinct_rows(X, y)
    assert sorted(rows.index) == list(range(1000))
    np.testing.assert_array_equal(rows.X, X[rows.index])


def test_sparse_rows_stay_sparse_unless_they_are_full(rng):
    thin = sp.random_array((40, 50), density=0.1, rng=rng, format="csr")
    full = sp.random_array((40, 50), density=0.6, rng=rng, format="csr")
    y = rng.standard_normal(40)
    assert sp.issparse(distinct_rows(thin, y).X)
    for dense in (full, thin[:, :10]):  # or few features
        rows = distinct_rows(dense, y)
        np.testing.assert_array_equal(rows.X, dense.toarray()[rows.index])


def test_very_large_data_without_equal_rows_are_not_copied(rng, monkeypatch):
    monkeypatch.setattr("varopt.learn._data._rows._SORTED_ENTRIES", 50)
    X, y, weight = rng.standard_normal((20, 3)), rng.standard_normal(20), np.ones(20)
    rows = distinct_rows(X, y, weight)
    assert rows.X is X
    np.testing.assert_array_equal(rows.index, np.arange(20))
    X[3], y[3] = X[7], y[7]
    assert distinct_rows(X, y, weight).X.shape == (19, 3)
    assert distinct_rows(X, y, np.where(np.arange(20) == 5, 0.0, 1.0)).X.shape == (18, 3)


def test_few_gram_matrices_are_kept(rng):
    with kept_products():
        arrays = [rng.standard_normal((4, 2)) for _ in range(5)]
        for array in arrays:
            for _ in range(2):
                np.testing.assert_allclose(Matrix(array).gram(np.ones(4)), array.T @ array)
        assert len(_KEPT.get()) <= 2


def test_fits_of_the_same_data_share_their_rows(rng):
    X, y, weight = rng.standard_normal((20, 3)), rng.standard_normal(20), np.ones(20)
    memory = DataMemory()
    first = memory.rows(X, y, weight)
    assert memory.rows(X, y.copy(), weight.copy()) is first
    for others in [(X.copy(), y, weight), (X, 2.0 * y, weight), (X, y, 2.0 * weight)]:
        assert memory.rows(*others) is not first
    assert memory.rows(X, y, weight) is not DataMemory().rows(X, y, weight)


@pytest.mark.parametrize("weights", [None, np.arange(1.0, 61.0)])
def test_a_path_of_a_fold_takes_one_gram_matrix(weights, rng, monkeypatch):
    formed = []
    form, folds = Matrix._gram, Squares.gram.func
    monkeypatch.setattr(Matrix, "_gram", lambda self, weights: (formed.append(self.shape), form(self, weights))[1])
    monkeypatch.setattr(Squares.gram, "func", lambda self: (formed.append(self.X.shape), folds(self))[1])
    X = rng.standard_normal((60, 5))
    LassoCV(alphas=10, cv=3).fit(X, X[:, 0] + rng.standard_normal(60), sample_weight=weights)
    assert sum(columns == 5 for _, columns in formed) == 3 + 1  # the last on all data

"""What a run keeps of the products of its arrays: the same numbers, never those of other data."""

import gc
import weakref

import numpy as np
import pytest
import scipy.sparse as sp

import varopt as vo
from varopt.model.maps import Composition, Difference, HStack, Matrix, Scaled, Selection, _dense, latest_products


def test_a_product_with_the_latest_point_is_computed_once_and_for_reading(rng):
    matrix, x, y = Matrix(rng.standard_normal((300, 70))), rng.standard_normal(70), rng.standard_normal(70)
    with latest_products():
        first = matrix.apply(x)
        assert matrix.apply(x.copy()) is first
        assert not first.flags.writeable
        assert np.array_equal(matrix.apply(y), matrix.array @ y)
        assert np.array_equal(matrix.apply(x), first)
    assert matrix.apply(x) is not matrix.apply(x)


def test_the_point_may_change_afterwards(rng):
    matrix, x = Matrix(rng.standard_normal((300, 70))), rng.standard_normal(70)
    with latest_products():
        before = matrix.apply(x).copy()
        x[0] += 1.0
        assert np.array_equal(matrix.apply(x), matrix.array @ x)
        assert not np.array_equal(matrix.apply(x), before)


def test_the_latest_product_with_the_transpose_is_known_and_with_what(rng):
    matrix, v = Matrix(rng.standard_normal((300, 70))), rng.standard_normal(300)
    assert matrix.known_transposed() is None
    with latest_products():
        assert matrix.known_transposed() is None
        product = matrix.transpose_apply(v)
        values, known, additions = matrix.known_transposed()
        assert np.array_equal(values, v)
        assert np.array_equal(known, product)
        assert additions >= 300
        product[0] += 1.0  # which is the caller's
        assert np.array_equal(matrix.transpose_apply(v), v @ matrix.array)
        before = v.copy()
        v[1] += 1.0
        assert np.array_equal(matrix.known_transposed()[0], before)
        assert np.array_equal(matrix.transpose_apply(v), v @ matrix.array)
        assert np.array_equal(matrix.known_transposed()[0], v)
    assert matrix.known_transposed() is None


def test_what_is_known_of_the_largest_array_stays(rng):
    large, copies = Matrix(rng.standard_normal((400, 70))), [rng.standard_normal((300, 70)) for _ in range(6)]
    with latest_products():
        squares = large.column_squares
        for copy in copies:
            Matrix(copy).apply(np.ones(70))
        assert large.column_squares is squares


def test_lengths_of_columns_tell_what_is_finite_and_leave_large_numbers_alone():
    array = np.ones((300_000, 4))
    array[5, 1] = 1e200  # whose square is not
    for entry, finite in ((1.0, True), (np.nan, False), (np.inf, False)):
        array[7, 2] = entry
        with latest_products():
            assert Matrix(array)._finite is finite


def test_an_array_does_not_outlive_its_use(rng):
    with latest_products():
        matrix = Matrix(rng.standard_normal((300, 70)))
        matrix.apply(np.ones(70))
        array = weakref.ref(matrix.array)
        del matrix
        gc.collect()
        assert array() is None
        other = Matrix(rng.standard_normal((300, 70)))  # perhaps in the same place
        assert np.array_equal(other.apply(np.ones(70)), other.array @ np.ones(70))


@pytest.mark.parametrize("scale", [2.0, -0.5])
def test_data_that_change_between_runs_are_seen(rng, scale):
    X, y, w = rng.standard_normal((400, 30)), rng.standard_normal(400), vo.Variable(30)
    f = vo.sum_squares(y - X @ w) + 5.0 * vo.norm1(w)
    vo.minimize(f)
    X *= scale
    again, new = vo.minimize(f), vo.minimize(vo.sum_squares(y - X.copy() @ w) + 5.0 * vo.norm1(w))
    assert again.fun == pytest.approx(new.fun, rel=1e-12)
    assert again.status is vo.Status.OPTIMAL
    assert f(again.x) == again.fun


def test_a_callback_sees_nothing_of_what_its_run_keeps(rng):
    X, y, w = rng.standard_normal((400, 30)), rng.standard_normal(400), vo.Variable(30)
    other, x, seen = rng.standard_normal((400, 30)), rng.standard_normal(30), []
    f = vo.sum_squares(y - other @ w) + 5.0 * vo.norm1(w)

    def callback(state):
        if len(seen) < 3:
            seen.append((f(x), np.sum((y - other @ x) ** 2) + 5.0 * np.abs(x).sum()))
            other[:] *= 1.5  # its own data, in one place

    vo.minimize(vo.norm1(y - X @ w) + 5.0 * vo.norm1(w), callback=callback)
    assert len(seen) > 1
    for value, expected in seen:
        assert value == pytest.approx(expected, rel=1e-12)


class _Interrupted(np.ndarray):
    """Numbers that are written, and then the user has enough."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        raise KeyboardInterrupt


def test_no_product_stands_beside_other_numbers_where_a_run_is_interrupted(rng):
    matrix, v = Matrix(rng.standard_normal((300, 70))), rng.standard_normal(300)
    with latest_products():
        matrix.transpose_apply(v)
        latest = _dense._latest_of(matrix.array)
        latest.transposed = latest.transposed[0].view(_Interrupted), latest.transposed[1]
        with pytest.raises(KeyboardInterrupt):
            matrix.transpose_apply(2.0 * v)
        assert matrix.known_transposed() is None
        assert np.array_equal(matrix.transpose_apply(2.0 * v), 2.0 * v @ matrix.array)


def _maps(rng):
    X, labels = rng.standard_normal((80, 6)), rng.choice([-1.0, 1.0], 80)
    one = Composition(Selection.repeat(80), Scaled(-3.0, Selection(None, 1)))
    return [
        Matrix(X), Scaled(-2.0, Matrix(X)), Scaled(labels, Matrix(X)), one, HStack(80, [(Matrix(X), 6), (one, 1)]),
        Matrix(X.astype(np.float32)), Difference(80, 2), Matrix(np.asfortranarray(X)),
    ]  # fmt: skip


@pytest.mark.parametrize("equal", [True, False])
def test_diagonals_of_gram_matrices_are_those_of_the_whole(rng, equal):
    for linear in _maps(rng):
        count = linear.shape[0]
        weights = np.broadcast_to(0.7, count) if equal else rng.random(count)
        whole = linear.gram(weights)
        whole = whole.toarray() if sp.issparse(whole) else whole
        with latest_products():
            assert np.allclose(linear.gram_diagonal(weights), np.diagonal(whole), rtol=1e-12)
            assert np.allclose(linear.gram_diagonal(np.array(weights)), np.diagonal(whole), rtol=1e-12)

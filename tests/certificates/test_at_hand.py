"""What proofs take from products that a run has at hand, and from lengths of columns, against rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

import varopt as vo
from varopt import terms
from varopt._verified import Ball  # what intervals are written in
from varopt.certificates import DualRows, Verifier
from varopt.certificates.enclosures import column_lengths, enclosed_value, transposed, transposed_at_hand
from varopt.composite import composite, unmultiplied
from varopt.model import as_objective
from varopt.model.maps import Composition, Difference, HStack, Matrix, Scaled, Selection, latest_products

COUNT, SIZE = 330, 53  # more entries than are multiplied in extended precision


UNIT = 2**400  # of which every number here is a whole multiple of the inverse: sums of whole numbers are quick


def _whole(values):
    """Numbers as multiples of ``1 / UNIT``."""
    exact = [Fraction(v) * UNIT for v in np.asarray(values, dtype=float).tolist()]
    assert all(v.denominator == 1 for v in exact)
    return [v.numerator for v in exact]


def _exact(linear):
    return [_whole(row) for row in np.asarray(linear.dense(), dtype=float)]


def _dot(a, b):
    return Fraction(sum(x * y for x, y in zip(a, b, strict=True)), UNIT * UNIT)


def _columns(linear):
    return list(zip(*_exact(linear), strict=True))


def _maps(rng, spread):
    X = rng.standard_normal((COUNT, SIZE)) * 10.0 ** rng.uniform(-spread, spread, (COUNT, SIZE))
    ones, labels = Composition(Selection.repeat(COUNT), Selection(None, 1)), rng.choice([-1.0, 1.0], COUNT)
    yield Matrix(X)
    yield Scaled(-1.0, Matrix(X))
    yield Scaled(0.3, Matrix(X))
    yield HStack(COUNT, [(Scaled(labels, Matrix(X)), SIZE), (Scaled(labels, ones), 1)])


@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_lengths_of_columns_are_not_below_the_exact_ones(rng, spread):
    for linear in _maps(rng, spread):
        norms = {}
        assert column_lengths(linear, norms) is None
        transposed(linear, Ball.exact(np.ones(COUNT)), norms)
        exact = [_dot(column, column) for column in _columns(linear)]
        if isinstance(linear, Scaled) and abs(np.ravel(linear.scale)[0]) != 1.0:  # rounded entries are others
            exact = [Fraction(0.3) ** 2 * _dot(column, column) for column in _columns(linear.inner)]
        lengths = column_lengths(linear, norms)
        assert all(Fraction(h) ** 2 >= e for h, e in zip(lengths.tolist(), exact, strict=True))
        assert np.allclose(lengths**2, [float(e) for e in exact], rtol=1e-4)


def _terms():
    absolute = composite(vo.norm1(vo.Variable(2))).rows[0].term
    pinball = composite(vo.sum(vo.pinball(vo.Variable(2), 0.3))).rows[0].term
    hinge = composite(vo.sum(vo.hinge(vo.Variable(2)))).rows[0].term
    square = composite(vo.sum_squares(vo.Variable(2)), multiplied=False).rows[0].term
    tube, delta = Fraction(0.3), Fraction(0.7)
    return [
        (absolute, abs), (pinball, lambda z: max(Fraction(0.3) * z, (Fraction(0.3) - 1) * z)),
        (hinge, lambda z: max(1 - z, Fraction(0))), (square, lambda z: z * z),
        (terms.epsilon_insensitive(0.3), lambda z: max(abs(z) - tube, Fraction(0))),
        (terms.huber(0.7), lambda z: z * z / 2 if abs(z) <= delta else delta * (abs(z) - delta / 2)),
    ]  # fmt: skip


@pytest.mark.parametrize("spread", [0.0, 3.0])
@pytest.mark.parametrize("which", range(6))
def test_values_by_lengths_enclose_the_exact_ones(rng, spread, which):
    term, exact_term = _terms()[which]
    maps = [*_maps(rng, spread), Difference(160, 2), Scaled(-1.0, Selection(None, 200))]
    for linear in (maps[0], *maps[3:]):
        count, size = linear.shape
        x, offset, weights = rng.standard_normal(size), 10.0 * rng.standard_normal(count), rng.random(count) + 0.1
        norms = {}
        if linear.storage == "dense":
            transposed(linear, Ball.exact(np.ones(count)), norms)
        rows = DualRows(linear, offset, term, weights, np.zeros(count))
        value, error = enclosed_value([rows], np.zeros(size), 0.0, x, (), norms, 1e-9)
        point = _whole(x)
        exact = sum(
            Fraction(w) * exact_term(_dot(row, point) + Fraction(d))
            for w, row, d in zip(weights.tolist(), _exact(linear), offset.tolist(), strict=True)
        )
        assert abs(Fraction(value) - exact) <= Fraction(error)
        assert error <= 1e-9 * abs(value)


@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_gradients_at_hand_and_their_shares_enclose_the_exact_ones(rng, spread):
    term = _terms()[3][0]
    for linear in (m for k, m in enumerate(_maps(rng, spread)) if k != 2):
        v, norms = rng.standard_normal(COUNT), {}
        rows = DualRows(linear, np.zeros(COUNT), term, np.ones(COUNT), v)
        with latest_products():
            assert transposed_at_hand(linear, v, norms) is None
            linear.transpose_apply(v)
            known = rows.gradient_at_hand(v, norms)
            less, part = rows.shrunk(v, known, 0.7, norms)
            rounded = v * (1.0 + rng.integers(-3, 4, COUNT) * 2.0**-52)  # as numbers are that are moved into bounds
            near = rows.gradient_at_hand(rounded, norms)
            assert rows.gradient_at_hand(1.001 * v, norms) is None
        for dual, ball in ((v, known), (less, part), (rounded, near)):
            exact = [_dot(column, _whole(dual)) for column in _columns(linear)]
            off = [abs(Fraction(m) - e) for m, e in zip(ball.middle.tolist(), exact, strict=True)]
            assert all(o <= Fraction(r) for o, r in zip(off, ball.radius.tolist(), strict=True))
            assert np.all(ball.radius <= 1e-11 * column_lengths(linear, norms) * np.linalg.norm(dual))


def _exact_value(X, y, penalty, w):
    point = _whole(w)
    squares = sum((Fraction(t) - _dot(row, point)) ** 2 for t, row in zip(y.tolist(), X, strict=True))
    return squares + Fraction(penalty) * Fraction(sum(map(abs, point)), UNIT)


@pytest.mark.parametrize("share", [2.0, 30.0, 1000.0])
def test_a_lasso_is_proved_at_hand_and_no_point_is_below(rng, share, monkeypatch):
    X, y = rng.standard_normal((COUNT, SIZE)), rng.standard_normal(COUNT) * 3.0
    w, penalty = vo.Variable(SIZE), 2.0 * float(np.abs(X.T @ y).max()) / share
    found = []
    at_hand = Verifier._at_hand
    monkeypatch.setattr(Verifier, "_at_hand", lambda *args: found.append(at_hand(*args)) or found[-1])
    monkeypatch.setattr("varopt.certificates._verified_bracket.lasso_at_hand", lambda *_: None)  # a way of its own
    r = vo.minimize(vo.sum_squares(y - X @ w) + penalty * vo.norm1(w))
    assert r.status is vo.Status.OPTIMAL
    assert found[-1] is not None
    rows, lower = [_whole(row) for row in X], Fraction(r.lower)
    assert lower <= _exact_value(rows, y, penalty, r.x) <= Fraction(r.upper)
    for _ in range(3):
        near = r.x + 1e-9 * rng.standard_normal(SIZE) * (r.x != 0.0)
        assert lower <= _exact_value(rows, y, penalty, near)


def test_rows_of_the_canonical_form_are_those_of_the_objective(rng):
    X, y, w, b = rng.standard_normal((30, 4)), rng.standard_normal(30), vo.Variable(4), vo.Variable()
    for f in (
        vo.sum_squares(y - X @ w) + vo.norm1(w), vo.sum(vo.hinge(X @ w + b)) + vo.sum_squares(w) + vo.norm1(w),
        vo.sum(vo.huber(y - X @ w)) + 3.0, vo.sum_squares(w) + vo.sum(w), vo.norm2(X @ w) + vo.norm1(w),
        -1.0 * vo.sum_squares(w) + vo.norm1(w), vo.quad_form(w, np.eye(4)) + vo.norm1(w),
        vo.sum(0.0 * vo.zero_one(w)) + vo.sum_squares(w), vo.sum_squares(w),
    ):  # fmt: skip
        objective = as_objective(f)
        problem, plain = composite(objective), composite(objective, multiplied=False)
        known = unmultiplied(objective, problem)
        assert len(known.rows) == len(plain.rows)
        assert (len(known.groups), len(known.forms), known.scalar) == (
            len(plain.groups), len(plain.forms), plain.scalar,
        )  # fmt: skip
        assert np.array_equal(known.vector, plain.vector)
        for r, other in zip(known.rows, plain.rows, strict=True):
            assert r.term is other.term or r.term.pieces == other.term.pieces
            assert np.array_equal(r.linear.dense(), other.linear.dense())
            assert np.array_equal(r.offset, other.offset)
            assert np.array_equal(r.weights, other.weights)

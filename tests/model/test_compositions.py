"""Terms of terms, maxima, sums of the largest entries, and vectors put together."""

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_array

import varopt as vo
from varopt import terms


@pytest.mark.parametrize("seed", range(20))
def test_a_term_of_a_term_is_a_term(seed):
    rng = np.random.default_rng(seed)
    outers = [terms.pos(), terms.abs_(), terms.square(), terms.hinge(), terms.squared_hinge(), terms.huber(0.7)]
    inners = [terms.abs_(), terms.pos(), terms.pinball(0.3), terms.epsilon_insensitive(0.4), terms.clip(-1.0, 2.0)]
    outer, inner = outers[rng.integers(len(outers))], inners[rng.integers(len(inners))]
    factor, shift = rng.choice([-2.0, -1.0, 0.5, 1.0, 3.0]), np.round(rng.standard_normal(), 1)
    term = terms.composed(outer, inner, factor, shift)
    z = np.r_[rng.uniform(-6, 6, 400), np.linspace(-3, 3, 61)]
    np.testing.assert_allclose(term.value(z), outer.value(factor * inner.value(z) + shift), atol=1e-12, rtol=1e-12)


def test_composed_terms_are_solved_and_proved():
    w = vo.Variable(3, name="w")
    y = np.array([3.0, 0.5, -2.0])
    f = vo.sum_squares(w - y) + 2.0 * vo.sum(vo.pos(vo.abs(w) - 1.0))
    g = vo.sum_squares(w - y) + 2.0 * vo.sum(vo.epsilon_insensitive(w, 1.0))
    r, s = vo.minimize(f), vo.minimize(g)
    assert f.curvature.name == "CONVEX"
    assert r.status.name == "OPTIMAL"
    np.testing.assert_allclose(r[w], s[w], atol=1e-12)


def test_what_is_no_single_term_is_explained():
    w = vo.Variable(3, name="w")
    f = vo.sum(vo.pos(vo.abs(w) + vo.abs(w - 1.0) - 2.0))
    assert f.curvature.name == "CONVEX"
    with pytest.raises(ValueError, match="no piecewise linear-quadratic term"):
        vo.minimize(f)


def test_python_abs_and_squared_norms():
    w = vo.Variable(3, name="w")
    assert vo.sum(abs(w - 1.0))([0.0, 2.0, 1.0]) == 2.0
    f = (2.0 * vo.norm2(w)) ** 2
    assert f([1.0, 2.0, 2.0]) == 36.0
    assert vo.minimize(f + vo.sum(w)).status.name == "OPTIMAL"


def test_the_maximum_is_that_of_a_linear_programme():
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((30, 4)), rng.standard_normal(30)
    w = vo.Variable(4, name="w")
    r = vo.minimize(vo.norm_inf(A @ w - b))
    assert r.status.name == "OPTIMAL"
    assert r.x.shape == (4,)
    assert r.fun == pytest.approx(np.abs(A @ r[w] - b).max(), rel=1e-12)
    rows = np.vstack([np.c_[A, -np.ones(30)], np.c_[-A, -np.ones(30)]])
    highs = linprog([0, 0, 0, 0, 1], A_ub=rows, b_ub=np.r_[b, -b], bounds=(None, None))
    assert r.fun == pytest.approx(highs.fun, rel=1e-9)
    bounded = vo.minimize(vo.max(A @ w - b), subject_to=[w >= -1, w <= 1])
    highs = linprog([0, 0, 0, 0, 1], A_ub=np.c_[A, -np.ones(30)], b_ub=b, bounds=[(-1, 1)] * 4 + [(None, None)])
    assert bounded.fun == pytest.approx(highs.fun, rel=1e-9)


def test_the_largest_entries_and_the_value_at_risk():
    rng = np.random.default_rng(1)
    R = rng.standard_normal((200, 5)) * 0.02 + 0.001
    w = vo.Variable(5, name="w")
    simplex = [w >= 0, vo.sum(w) == 1]
    r = vo.minimize(vo.cvar(-(R @ w), 0.9), subject_to=simplex)
    assert r.status.name == "OPTIMAL"
    losses = np.sort(-(R @ r[w]))[::-1]
    assert r.fun == pytest.approx(losses[:20].mean(), rel=1e-12)
    assert vo.minimize(vo.sum_largest(-(R @ w), 20.0), subject_to=simplex).fun == pytest.approx(20 * r.fun, rel=1e-9)
    # The explicit programme: threshold, excesses.
    n = len(R)
    c = np.r_[np.zeros(5), 1.0, np.full(n, 1 / 20)]
    rows = np.c_[-R, -np.ones(n), -np.eye(n)]
    highs = linprog(
        c, A_ub=rows, b_ub=np.zeros(n), A_eq=[np.r_[np.ones(5), np.zeros(n + 1)]], b_eq=[1.0],
        bounds=[(0, None)] * 5 + [(None, None)] + [(0, None)] * n,
    )  # fmt: skip
    assert r.fun == pytest.approx(highs.fun, rel=1e-9)


def test_a_maximum_of_what_is_minimised_only():
    w = vo.Variable(3)
    with pytest.raises(ValueError, match="not convex"):
        vo.maximize(vo.max(w), subject_to=[w <= 1])


def test_elementwise_maxima_and_starts():
    w = vo.Variable(3, name="w")
    y = np.array([1.0, -1.0, 0.5])
    assert vo.sum(vo.max(w, -w))([1.0, -2.0, 0.0]) == 3.0
    f = vo.sum_squares(w - y) + vo.max(w[0], w[1] + 1.0, 0.25)
    a, b = vo.minimize(f), vo.minimize(f, x0=np.array([3.0, 3.0, 3.0]))
    assert a.fun == pytest.approx(b.fun, rel=1e-9)
    for bad, message in (
        (lambda: vo.max(vo.huber(w)), "affine"), (lambda: vo.max(w, w, w), "two vectors at a time"),
        (lambda: vo.sum_largest(w, 4), "at most the length 3"), (lambda: vo.cvar(w, 1.0), "below 1"),
        (lambda: vo.concatenate([1.0, 2.0]), "at least one"), (lambda: vo.norm_inf(3.0), "affine"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            bad()


def test_vectors_one_after_the_other():
    a, b = vo.Variable(2, name="a"), vo.Variable(name="b")
    z = vo.concatenate([np.eye(2) @ a + 1.0, b, [7.0], 2 * a[:1]])
    np.testing.assert_array_equal(z({a: [1.0, 2.0], b: 5.0}), [2.0, 3.0, 5.0, 7.0, 2.0])
    assert vo.minimize(vo.sum_squares(z)).status.name == "OPTIMAL"


def test_matrix_variables_are_indexed_as_such():
    W = vo.Variable((2, 3), name="W")
    r = vo.minimize(vo.sum_squares(W - np.arange(6.0)), subject_to=[vo.sum(W[0]) == 0, W[:, 1] >= 5])
    np.testing.assert_allclose(r[W], [[-3.5, 5.0, -1.5], [3.0, 5.0, 5.0]], atol=1e-9)
    assert W[1, 2]({W: np.arange(6.0).reshape(2, 3)}) == 5.0
    with pytest.raises(ValueError, match="outside"):
        W[2, 0]


def test_largest_absolute_values(rng):
    w, X, y = vo.Variable(3, name="w"), rng.standard_normal((20, 3)), rng.standard_normal(20)
    x = rng.standard_normal(3)
    sizes = np.sort(np.abs(y - X @ x))[::-1]
    f = vo.sum_largest(abs(y - X @ w), 4.5)
    assert f(x) == pytest.approx(sizes[:4].sum() + 0.5 * sizes[4])
    assert vo.max(2.0 * abs(w))(x) == 2.0 * np.abs(x).max()
    assert vo.cvar(abs(y - X @ w), 0.75)(x) == pytest.approx(sizes[:5].mean())
    r = vo.minimize(f)
    t, s, u = vo.Variable(), vo.Variable(20), vo.Variable(20)
    rows = [s >= y - X @ w - t, u >= X @ w - y - t, s >= 0, u >= 0]
    other = vo.minimize(4.5 * t + vo.sum(s) + vo.sum(u), subject_to=rows)
    assert r.fun == pytest.approx(other.fun, rel=1e-8)
    assert "abs(" in str(f)
    with pytest.raises(ValueError, match="sum_largest needs an affine expression"):
        vo.sum_largest(-abs(w), 2)


def _with_itself(r):
    return r @ r


FORMS = {
    "form": (lambda w, Q: w @ Q @ w, lambda x, Q: x @ Q @ x),
    "the other way round": (lambda w, Q: (Q @ w) @ w, lambda x, Q: x @ Q @ x),
    "transposed": (lambda w, Q: w.T @ Q @ w, lambda x, Q: x @ Q @ x),
    "half of it": (lambda w, Q: 0.5 * w @ Q @ w, lambda x, Q: 0.5 * x @ Q @ x),
    "half of it, later": (lambda w, Q: w @ (0.5 * (Q @ w)), lambda x, Q: 0.5 * x @ Q @ x),
    "sparse": (lambda w, Q: w @ (csr_array(Q) @ w), lambda x, Q: x @ Q @ x),
    "with a line": (lambda w, Q: w @ (Q @ w - np.arange(4.0)), lambda x, Q: x @ Q @ x - x @ np.arange(4.0)),
    "with a constant": (lambda w, Q: (Q @ w + 2.0) @ w, lambda x, Q: x @ Q @ x + 2.0 * x.sum()),
    "inner product": (lambda w, Q: w @ w, lambda x, Q: x @ x),
    "of residuals": (lambda w, Q: _with_itself(Q @ w - 1.0), lambda x, Q: ((Q @ x - 1.0) ** 2).sum()),
    "squares": (lambda w, Q: vo.sum(w * w), lambda x, Q: x @ x),
}


@pytest.mark.parametrize("name", FORMS)
def test_products_of_a_variable_with_its_own_image_are_quadratic_forms(name):
    rng = np.random.default_rng(0)
    A, x, w = rng.standard_normal((4, 4)), rng.standard_normal(4), vo.Variable(4, name="w")
    build, value = FORMS[name]
    for Q in (A @ A.T, A):  # only the symmetric part matters
        f = build(w, Q)
        assert f(x) == pytest.approx(value(x, Q), rel=1e-13, abs=1e-13)
    r = vo.minimize(build(w, A @ A.T) + vo.norm1(w - 1.0))
    assert r.status.name == "OPTIMAL"
    assert r.fun <= value(x, A @ A.T) + np.abs(x - 1.0).sum()


def test_sums_and_means_as_numpy_writes_them():
    w, W, x = vo.Variable(6, name="w"), vo.Variable((2, 3), name="W"), np.arange(6.0) - 2.0
    bits = vo.Binary(6, name="bits")
    assert w.sum()(x) == vo.sum(w)(x) == np.sum(w)(x) == x.sum()
    assert abs(w).mean()(x) == vo.mean(vo.abs(w))(x) == np.mean(np.abs(w))(x) == np.abs(x).mean()
    np.testing.assert_array_equal(W.mean(axis=0)(x), x.reshape(2, 3).mean(axis=0))
    np.testing.assert_allclose(vo.mean(W, axis=1)(x), x.reshape(2, 3).mean(axis=1), rtol=1e-15)
    np.testing.assert_array_equal(np.sum(W, axis=1)(x), x.reshape(2, 3).sum(axis=1))
    assert vo.mean(w[0])(x) == x[0]
    assert (bits * bits).mean()([1, 1, 0, 0, 0, 0]) == pytest.approx(1 / 3)
    r = vo.minimize(abs(w - 1.0).mean() + 0.5 * (w @ w) / 6, subject_to=[w.sum() == 2])
    assert r.status.name == "OPTIMAL"
    lam = vo.Parameter(2.0, name="lam")
    assert vo.mean(lam * vo.abs(w)).given()(x) == 2.0 * np.abs(x).mean()
    with pytest.raises(ValueError, match="sum needs an expression"):
        vo.mean(x)


@pytest.mark.parametrize("name", ["max", "norm_inf"])
def test_the_largest_entry_takes_no_axis_and_says_what_to_write(name):
    W, at = vo.Variable((3, 2)), np.array([[1.0, 2.0], [3.0, -4.0], [0.0, 1.0]])
    largest = getattr(vo, name)
    with pytest.raises(ValueError, match=rf"no axis; got axis=0.*sum\(vo.{name}\(W\[:, j\]\) for j in range\(k\)\)"):
        largest(W, axis=0)
    sizes = at if name == "max" else np.abs(at)
    assert sum(largest(W[:, j]) for j in range(2))(at.ravel()) == sizes.max(axis=0).sum()
    assert sum(largest(W[i]) for i in range(3))(at.ravel()) == sizes.max(axis=1).sum()
    with pytest.raises(ValueError, match="no axis; got axis=1"):
        np.max(W, axis=1)
    with pytest.raises(ValueError, match="got none"):
        vo.max()


def test_a_list_of_constraints_within_the_list_is_refused_in_a_sentence():
    w = vo.Variable(3)
    for given in ([w >= 0, [w <= 1]], [(w >= 0, w <= 1)]):
        with pytest.raises(ValueError, match=r"a list within the list: write \[w >= 0, \*others\]"):
            vo.minimize(vo.sum_squares(w - 1.0), subject_to=given)

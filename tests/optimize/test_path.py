"""Families of problems and parameters."""

import numpy as np
import pytest

import varopt as vo
from varopt.model.maps import Matrix
from varopt.optimize import Status


@pytest.fixture
def data(rng):
    X = rng.standard_normal((300, 5))
    return X, X @ np.array([2.0, 0.0, -1.0, 0.0, 0.5]) + rng.standard_t(3, 300)


def test_a_path_over_lambda_solves_every_problem(data):
    X, y = data
    w, lam = vo.Variable(5, name="w"), vo.Parameter(name="lam")
    loss = vo.sum_squares(y - X @ w)
    values = np.geomspace(1.0, 1000.0, 8)[::-1]
    p = vo.path(loss + lam * vo.norm1(w), lam, values)
    assert p.success
    assert len(p) == 8
    assert p[w].shape == (8, 5)
    for value, r in zip(values, p, strict=True):
        alone = vo.minimize(loss + value * vo.norm1(w))
        assert r.fun == pytest.approx(alone.fun, rel=1e-9)
        np.testing.assert_allclose(r[w], alone[w], atol=1e-7)
    assert np.all(p.lower <= p.fun)
    assert np.all(p.fun <= p.upper)
    assert np.all(p.gap <= 1e-9 * np.maximum(1.0, p.fun))
    assert "8 of 8" in repr(p)
    assert p[2:4].values.tolist() == values[2:4].tolist()


def test_a_path_over_quantile_levels(data):
    X, y = data
    w, b, tau = vo.Variable(5), vo.Variable(name="b"), vo.Parameter(name="tau")
    p = vo.path(vo.sum(vo.pinball(y - X @ w - b, tau)), tau, [0.1, 0.5, 0.9])
    for value, r in zip((0.1, 0.5, 0.9), p, strict=True):
        assert r.fun == pytest.approx(vo.minimize(vo.sum(vo.pinball(y - X @ w - b, value))).fun, rel=1e-9)
    assert np.all(np.diff(p[b]) > 0)


def test_neighbours_help(data):
    X, y = data
    w, tau = vo.Variable(5), vo.Parameter(name="tau")
    values = np.linspace(0.45, 0.55, 11)
    f = vo.sum(vo.pinball(y - X @ w, tau))
    together = sum(r.nit for r in vo.path(f, tau, values, method="newton"))
    assert together < sum(vo.minimize(f.given({tau: v}), method="newton").nit for v in values)


def test_a_path_that_ends_early_has_one_problem_and_no_success(data):
    """It was empty at times, a success, and in error where its points were asked for."""
    X, y = data
    w, lam = vo.Variable(X.shape[1], name="w"), vo.Parameter(name="lam")
    p = vo.path(vo.sum_squares(y - X @ w) + lam * vo.norm1(w), lam, np.arange(1.0, 200.0), time_limit=1e-6)
    assert len(p) == 1
    assert p.x.shape == (1, X.shape[1])
    assert not p.success
    assert p.lower[0] <= p.fun[0]
    assert "of 199 within" in repr(p)


def test_an_interrupt_between_two_problems_keeps_what_is_solved(data, monkeypatch):
    X, y = data
    w, lam = vo.Variable(X.shape[1], name="w"), vo.Parameter(name="lam")
    calls = []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return vo.minimize(*arguments, **options)

    monkeypatch.setattr("varopt.optimize._path.minimize", interrupted)
    f = vo.sum_squares(y - X @ w) + lam * vo.norm1(w)
    p = vo.path(f, lam, [1.0, 2.0, 3.0, 4.0])
    assert len(p) == 2
    assert not p.success
    assert p[:2].success
    calls[:] = [1, 1]
    with pytest.raises(KeyboardInterrupt):
        vo.path(f, lam, [1.0, 2.0])


def test_a_path_ends_early_with_what_it_has(data):
    X, y = data
    w, lam = vo.Variable(5), vo.Parameter(name="lam")
    f = vo.norm1(y - X @ w) + lam * vo.norm1(w)
    assert len(vo.path(f, lam, np.arange(1.0, 2000.0), time_limit=0.2)) < 1999
    calls = []

    def interrupt(state):
        calls.append(state)
        if len(calls) == 12:
            raise KeyboardInterrupt

    p = vo.path(f, lam, np.arange(1.0, 100.0), callback=interrupt)
    assert p[-1].status is Status.INTERRUPTED
    assert len(p) < 99


def test_parameters_in_every_place(data):
    X, y = data
    w, a, b = vo.Variable(5), vo.Parameter(2.0, name="a"), vo.Parameter(name="b")
    g = vo.sum_squares(w)
    value = np.arange(5.0)
    for f, expected in [
        (g * a + 1.0, 2 * g + 1.0),
        (1.0 - a * g, 1.0 - 2 * g),
        (g / a - a, g / 2 - 2.0),
        (vo.norm1(y - X @ (a * w)), vo.norm1(y - X @ (2.0 * w))),
        (vo.sum(vo.huber(w, delta=a)), vo.sum(vo.huber(w, 2.0))),
        (-(a**2) * g + g - a, -4.0 * g + g - 2.0),
        (np.arange(5.0) @ (w * (2 / a)), np.arange(5.0) @ w),
    ]:
        assert f.given()(value) == pytest.approx(expected(value))
    f = a * g + b * vo.norm1(w)
    assert f.parameters == (a, b)
    assert f.given({b: 3.0})(value) == pytest.approx(2 * g(value) + 3 * 10.0)
    with pytest.raises(ValueError, match="b has no value"):
        f.given()
    a.value, b.value = 1.0, 1.0
    assert vo.minimize(f).fun == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f, lam: vo.path(f, "lam", [1.0]), "vo.Parameter"),
        (lambda f, lam: vo.path(f, vo.Parameter(name="mu"), [1.0]), "mu occurs"),
        (lambda f, lam: vo.path(vo.norm1(vo.Variable(2)), lam, [1.0]), "lam occurs"),
        (lambda f, lam: vo.path(f, lam, []), "at least one"),
        (lambda f, lam: vo.path(f, lam, [1.0, np.nan]), "finite"),
        (lambda f, lam: vo.path(f, lam, [-1.0], method="newton"), "not known to be convex"),
        (lambda f, lam: vo.path(f, lam, [1.0], time_limit="soon"), "time_limit must be a positive number"),
        (lambda f, lam: vo.path(f, lam, [1.0], time_limit=0.0), "time_limit must be a positive number"),
        (lambda f, lam: vo.path(f, lam, [1.0], subject_to=5), "must hold constraints"),
    ],
)
def test_bad_paths_get_a_sentence(call, words):
    w, lam = vo.Variable(2), vo.Parameter(name="lam")
    with pytest.raises(ValueError, match=words):
        call(vo.sum_squares(w) + lam * vo.norm1(w), lam)


def test_plot_draws_a_line_for_each_coordinate(data):
    matplotlib = pytest.importorskip("matplotlib", reason="plots need the extra `plot`")
    matplotlib.use("Agg")
    X, y = data
    w, lam = vo.Variable(5, name="w"), vo.Parameter(name="lam")
    p = vo.path(vo.sum_squares(y - X @ w) + lam * vo.norm1(w), lam, [1.0, 10.0, 100.0])
    axes = p.plot(w)
    assert len(axes.lines) == 6  # five coordinates and the axis at zero
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "lam"


def test_what_does_not_depend_on_the_parameter_is_computed_once(data, monkeypatch):
    X, y = data
    w, lam = vo.Variable(5), vo.Parameter(name="lam")
    calls = []
    gram = Matrix.gram
    monkeypatch.setattr(Matrix, "gram", lambda self, weights: calls.append(self.shape) or gram(self, weights))
    loss = vo.sum_squares(y - X @ w)
    vo.path(loss + lam * vo.norm1(w), lam, [30.0, 20.0, 10.0])
    together = len(calls)
    vo.minimize(loss + 10.0 * vo.norm1(w))
    assert len(calls) == together + 1 == 2

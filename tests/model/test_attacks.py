"""What once went wrong silently: curvature that was guessed, constraints that vanished, operands that failed."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import varopt as vo
from varopt.terms import CONCAVE, CONVEX, UNKNOWN

NOT_CONVEX = {
    "diag(1e8, -1e-7)": np.diag([1e8, -1e-7]),
    "negative by 1e-12": np.array([[1.0, 1.0], [1.0, 1.0 - 1e-12]]),
    "sparse": sp.diags_array([1e6, 1.0, -1e-9]).tocsr(),
}


@pytest.mark.parametrize("name", NOT_CONVEX)
@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_a_slightly_negative_direction_is_seen(name, scale):
    matrix = scale * NOT_CONVEX[name]
    w = vo.Variable(matrix.shape[0])
    f = vo.quad_form(w, matrix) + vo.sum(vo.huber(w - 3.0))
    assert f.curvature is UNKNOWN
    assert "has eigenvalues" in f.explain()


@pytest.mark.parametrize("name", NOT_CONVEX)
def test_what_is_not_convex_is_never_optimal(name):
    matrix = NOT_CONVEX[name]
    w = vo.Variable(matrix.shape[0])
    f = vo.quad_form(w, matrix) + vo.sum(vo.huber(w - 3.0))
    assert vo.minimize(f, time_limit=1.0).status is not vo.Status.OPTIMAL


def test_definite_matrices_are_convex_in_any_units(rng):
    X = rng.standard_normal((40, 6))
    for scale in (1e-200, 1e-12, 1.0, 1e12, 1e200):
        f = vo.quad_form(vo.Variable(6), scale * (X.T @ X))
        assert f.curvature is CONVEX
        assert f.assumption == ""
        assert (-f).curvature is CONCAVE


def test_what_rounding_hides_is_assumed_and_said(rng):
    X = rng.standard_normal((5, 40))
    w = vo.Variable(40)
    f = vo.quad_form(w, X.T @ X) + vo.sum(vo.huber(w - 3.0))
    assert f.curvature is CONVEX
    assert "but for rounding" in f.assumption
    result = vo.minimize(f)
    assert result.status is vo.Status.ASSUMED
    assert "positive semidefinite" in result.certificate.assumption


def test_singular_matrices_of_whole_numbers_are_proved(rng):
    X = rng.integers(-3, 4, (3, 6)).astype(float)
    w = vo.Variable(6)
    f = vo.quad_form(w, X.T @ X) + vo.norm1(w - 1.0)
    assert f.curvature is CONVEX
    assert f.assumption == ""


def test_longdouble_matrices():
    w = vo.Variable(2)
    matrix = np.array([[2.0, 1.0], [1.0, 2.0]])
    f = vo.quad_form(w, matrix.astype(np.longdouble)) + vo.norm1(w - 1.0)
    assert f.curvature is CONVEX
    assert vo.minimize(f).fun == pytest.approx(vo.minimize(vo.quad_form(w, matrix) + vo.norm1(w - 1.0)).fun, rel=1e-12)


BEYOND = 2**60  # whole numbers here are those of double precision if they are multiples of 256


@pytest.mark.parametrize("kind", [np.asarray, lambda a: a.astype(np.longdouble), sp.csr_array])
def test_forms_of_whole_numbers_that_double_precision_rounds_are_not_called_convex_for_certain(kind):
    """Along (1, -1) the form is -1, and rounded to double precision it is 0."""
    w = vo.Variable(2)
    matrix = np.array([[BEYOND, BEYOND + 1], [BEYOND + 1, BEYOND + 1]])
    f = vo.quad_form(w, kind(matrix)) + vo.sum(vo.huber(w - 3.0))
    assert f.assumption
    assert vo.minimize(f).status is not vo.Status.OPTIMAL


@pytest.mark.parametrize("kind", [np.asarray, lambda a: a.astype(np.longdouble), sp.csr_array])
@pytest.mark.parametrize("seed", range(8))
def test_values_of_whole_numbers_that_double_precision_rounds_are_not_above_the_upper_end(seed, kind):
    """Far rows of them raised an exception, and an exact optimum was told with a value that was not."""
    rng = np.random.default_rng(seed)
    X, y = BEYOND + rng.integers(0, BEYOND, (30, 3)), rng.standard_normal(30)
    w = vo.Variable(3)
    f = vo.sum(vo.pinball(y - kind(X) @ w, 0.75)) if seed % 2 else vo.sum_squares(y - kind(X) @ w)
    r = vo.minimize(f)
    x = [Fraction(v) for v in r.x.tolist()]
    rows = [sum(a * b for a, b in zip(row, x, strict=True)) for row in X.tolist()]
    z = [Fraction(t) - v for t, v in zip(y.tolist(), rows, strict=True)]
    value = sum(max(3 * v, -v) / 4 if seed % 2 else v * v for v in z)
    assert r.certificate.assumption or Fraction(r.lower) <= value <= Fraction(r.upper)
    assert r.status is vo.Status.OPTIMAL or kind is not np.asarray or not seed % 2  # which rational numbers solve


def test_longdouble_data_beside_norms_and_constraints(rng):
    X, y = rng.standard_normal((30, 3)).astype(np.longdouble) + np.longdouble(1e-18), rng.standard_normal(30)
    w = vo.Variable(3)
    r = vo.minimize(vo.norm2(y - X @ w) + vo.norm1(w), subject_to=[X @ w <= 1.0])
    assert r.status is vo.Status.ASSUMED


class TestFrames:
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [0.0, 1.0, 1.0]})

    def test_a_frame_times_a_variable(self):
        w = vo.Variable(2)
        f = vo.norm1(self.frame @ w - np.array([1.0, 2.0, 4.0]))
        assert f([1.0, 1.0]) == 1.0
        assert vo.minimize(f).fun == pytest.approx(1.0)

    def test_series_are_vectors(self):
        w = vo.Variable(2)
        y = pd.Series([1.0, 2.0, 4.0])
        plain = vo.norm1(y.to_numpy() - self.frame.to_numpy() @ w)
        assert vo.norm1(y - self.frame @ w)([1.0, 1.0]) == plain([1.0, 1.0])
        assert vo.sum(y * vo.abs(self.frame @ w))([1.0, 1.0]) == 1.0 + 6.0 + 16.0
        assert (y @ (self.frame @ w)).total()([1.0, 1.0]) == 1.0 + 6.0 + 16.0

    def test_frames_among_themselves_are_as_before(self):
        vo.Variable(2)
        pd.testing.assert_frame_equal(self.frame.T @ self.frame, self.frame.T.dot(self.frame))
        pd.testing.assert_series_equal(self.frame @ np.ones(2), self.frame.dot(np.ones(2)))


COMPARISONS = {
    "variable == number": lambda w, b: w == 0,
    "number == variable": lambda w, b: 0 == w,  # noqa: SIM300
    "variable != number": lambda w, b: w != 0,
    "sum == number": lambda w, b: vo.sum(w) == 2,
    "variable >= number": lambda w, b: w >= 0,
    "number <= variable": lambda w, b: 0 <= w,  # noqa: SIM300
    "variable < array": lambda w, b: w < np.ones(3),
    "array > variable": lambda w, b: np.ones(3) > w,
    "array == variable": lambda w, b: np.ones(3) == w,
    "affine <= variable": lambda w, b: 2 * w <= w,
    "affine == variable": lambda w, b: 2 * w == w,
    "variable <= variable": lambda w, b: w[0] <= b,
    "elementwise": lambda w, b: vo.abs(w) <= 1,
    "list": lambda w, b: w == [1.0, 2.0, 3.0],
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_is_no_silent_false(name):
    """It is a constraint, without a truth value, or an error that says why it is none."""
    with pytest.raises(TypeError, match=r"has no truth value|is no constraint|affine expressions"):
        bool(COMPARISONS[name](vo.Variable(3, name="w"), vo.Variable(name="b")))


def test_variables_are_keys_and_entries_all_the_same():
    w, v = vo.Variable(3), vo.Variable(3)
    assert w == w
    assert w != v
    assert {w: 1, v: 2}[v] == 2
    assert v in [w, v]
    assert (w, v) == (w, v)
    assert (w, v) != (v, w)
    assert [w, v].index(v) == 1
    assert w != None  # noqa: E711
    assert w != "w"


def test_parameters_are_compared_to_no_number():
    lam, mu = vo.Parameter(1.0, name="lam"), vo.Parameter(1.0, name="mu")
    assert lam != mu
    assert {lam: 1}[lam] == 1
    for compare in (lambda: lam == 1.0, lambda: bool(lam), lambda: 2 * lam == 1.0):
        with pytest.raises(TypeError):
            compare()


def test_what_is_masked_is_not_computed_with():
    """NumPy drops a mask without a word, and with it what was not to be read."""
    w = vo.Variable(2, name="w")
    X = np.ma.masked_array([[1.0, 2.0], [3.0, -999.0]], mask=[[False, False], [False, True]])
    for build in (lambda: X @ w, lambda: w - X[1], lambda: w * X[1], lambda: vo.norm1(w)({w: X[1]})):
        with pytest.raises(ValueError, match="no masked entries"):
            build()
    whole = np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]])
    assert vo.norm1(whole @ w)([1.0, 1.0]) == 10.0


def test_frames_of_nullable_numbers_are_numbers():
    pandas = pytest.importorskip("pandas")
    w = vo.Variable(2, name="w")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [3, 4]}).astype({"a": "Float64", "b": "Int64"})
    assert vo.norm1(frame @ w)([1.0, 1.0]) == 10.0
    with pytest.raises(ValueError, match="finite"):
        frame.mask(frame > 3) @ w
    with pytest.raises(ValueError, match="real numbers"):
        frame.assign(c="text")[["a", "c"]] @ w


@pytest.mark.parametrize("seed", range(20))
def test_constants_of_sums_hold_in_fractions(seed):
    """Brackets of sums whose constants were rounded as they were added up, or lost beside others that cancel."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 30))
    far = rng.standard_normal(size) * 10.0 ** rng.integers(-8, 17, size)
    d = rng.permutation(np.concatenate([far, -far, rng.standard_normal(3)]))
    c, x = np.round(rng.standard_normal(d.size), 1), vo.Variable(d.size, name="x")
    least = {
        "sum": (vo.norm1(x) + vo.sum(0.1 * x + d), d, np.ones(d.size)),
        "dot": (vo.norm1(x) + c @ (0.01 * x + d), d, c),
        "numbers": (vo.norm1(x) + vo.sum(0.1 * x[0] + d[0] + d[1] - d[0]), d[[0, 1]], np.array([0.0, 1.0])),
        "entries": (vo.sum(vo.abs(x) + 1e16 + 0.3 - 1e16), np.full(d.size, 0.3), np.ones(d.size)),
    }
    for name, (f, constants, weights) in least.items():
        r = vo.minimize(f)
        exact = sum(Fraction(a) * Fraction(b) for a, b in zip(constants.tolist(), weights.tolist(), strict=True))
        assert r.status.name == "OPTIMAL", name
        assert Fraction(r.lower) <= exact <= Fraction(r.upper), name
        assert r.gap <= 1e-12 * float(abs(exact) + 1), name


def test_a_constant_inside_a_term_is_not_lost_beside_numbers_that_cancel():
    w = vo.Variable(2, name="w")
    r = vo.minimize(vo.norm1(w + 1e16 + 0.3 - 1e16) + vo.norm1(w))
    assert r.fun == pytest.approx(0.6, rel=1e-15)


def test_constants_that_overflow_are_no_exception_of_the_model():
    w = vo.Variable(3, name="w")
    f = vo.norm1(w) + vo.sum(0.01 * w + np.full(3, 1.7e308))
    assert np.isinf(f(np.zeros(3)))


def test_long_doubles_that_are_doubles_are_proved_as_such(rng):
    X, w = np.round(rng.standard_normal((12, 3)), 1), vo.Variable(3, name="w")
    f = vo.norm1(X.astype(np.longdouble) @ w - 1.0) + 0.1 * vo.sum_squares(w)
    r = vo.minimize(f)
    assert r.status.name == "OPTIMAL"
    assert not r.certificate.assumption


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_the_square_of_a_norm_of_a_matrix_is_that_of_its_entries(columns, rng):
    A, D = rng.standard_normal((2, 5)), rng.standard_normal((2, columns))
    W = vo.Variable((5, columns), name="W")
    at = rng.standard_normal((5, columns))
    assert ((3.0 * vo.norm2(A @ W + D)) ** 2)({W: at}) == pytest.approx(9.0 * np.sum((A @ at + D) ** 2))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_no_row_and_no_column_of_a_product_with_a_matrix(kind, rng):
    """Where nothing rests on a kink the active set asks for no rows: twenty of a thousand small problems failed."""
    A = rng.standard_normal((3, 2))
    W = vo.Variable((2, 4), name="W")
    (product,) = ((A if kind == "dense" else sp.csr_array(A)) @ W).maps.values()
    none = np.zeros(0, dtype=np.intp)
    assert product.rows(none).shape == (0, 8)
    assert product.columns(none).shape == (12, 0)
    Y = rng.standard_normal((3, 4))
    for f in (
        vo.sum(vo.abs(A @ W - Y)) + vo.sum(vo.square(vo.pos(W.T + 0.5))),
        vo.sum(vo.hinge(A @ W - Y)) + vo.sum_squares(W),
        100.0 * vo.sum_squares(A @ W - Y) + 0.01 * vo.sum(vo.abs(A @ W + 5.0)),
    ):
        r = vo.minimize(f)
        assert r.status.name == "OPTIMAL"
        assert r.lower <= f(r.x) <= r.upper

"""SVC and SVR against LIBSVM, whose objective they share."""

import pickle
import time
import warnings

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.svm
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from fuzz.kernels import kernel_bracket
from varopt.certificates import DualGap, NoCertificate
from varopt.learn import SVC, SVR

KERNELS = [{}, {"kernel": "linear"}, {"kernel": "poly", "coef0": 1.0, "degree": 2}, {"gamma": 0.05, "C": 50.0}]


def linear(A, B):
    return A @ B.T


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return X[:200], y[:200]


def primal(model, X, y, C, loss):
    """The primal objective of a machine with one set of coefficients."""
    K = rbf_kernel(X, gamma=model._gamma)
    beta = np.zeros(len(y))
    beta[model.support_] = model.dual_coef_[0]
    values = K @ beta
    return 0.5 * beta @ values + np.sum(C * loss(values + model.intercept_[0]))


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("options", KERNELS, ids=str)
def test_classification_is_that_of_libsvm(options, container, iris):
    X, y = container(iris[0]), iris[1]
    ours, theirs = SVC(**options).fit(X, y), sklearn.svm.SVC(tol=1e-8, **options).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-4)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert ours.gap_.shape == (3,)
    assert np.all(ours.gap_ <= 1e-9 * np.maximum(1.0, ours.objective_))
    assert all(isinstance(c, DualGap) for c in ours.certificate_)


@pytest.mark.parametrize("options", [*KERNELS, {"epsilon": 0.0}, {"epsilon": 5.0, "C": 1000.0}], ids=str)
def test_regression_is_that_of_libsvm(options, diabetes):
    X, y = diabetes
    ours, theirs = SVR(**options).fit(X, y), sklearn.svm.SVR(tol=1e-8, **options).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-4)
    assert ours.gap_ <= 1e-9 * ours.objective_


def test_the_objective_is_never_above_that_of_libsvm(diabetes, rng):
    X, y = diabetes
    weight = rng.integers(0, 4, y.size).astype(float)
    t = np.where(y > np.median(y), 1.0, -1.0)
    for C in (0.1, 10.0, 1000.0):
        ours, theirs = (M(C=C, gamma=2.0).fit(X, t, weight) for M in (SVC, sklearn.svm.SVC))
        hinge = lambda f: np.maximum(1.0 - t * f, 0.0)  # noqa: E731
        assert primal(ours, X, t, C * weight, hinge) == pytest.approx(ours.objective_, rel=1e-9)
        # scikit-learn numbers its support among the samples with a weight.
        theirs.support_ = np.flatnonzero(weight)[theirs.support_]
        assert ours.objective_ <= primal(theirs, X, t, C * weight, hinge) * (1.0 + 1e-12)
        assert ours.lower_bound_ <= ours.objective_
        ours, theirs = (M(C=C, gamma=2.0, epsilon=3.0).fit(X, y) for M in (SVR, sklearn.svm.SVR))
        tube = lambda f: np.maximum(np.abs(y - f) - 3.0, 0.0)  # noqa: E731
        assert primal(ours, X, y, C, tube) == pytest.approx(ours.objective_, rel=1e-9)
        assert ours.objective_ <= primal(theirs, X, y, C, tube) * (1.0 + 1e-12)


def test_kernels_given_as_matrices_and_functions(iris):
    X, y = iris
    whole = SVC(kernel="linear").fit(X, y)
    matrix = SVC(kernel="precomputed").fit(linear(X, X), y)
    function = SVC(kernel=linear).fit(X, y)
    np.testing.assert_allclose(matrix.decision_function(linear(X, X)), whole.decision_function(X), atol=1e-6)
    np.testing.assert_allclose(function.decision_function(X), whole.decision_function(X), atol=1e-6)
    assert "semidefinite" in str(function.certificate_[0])
    assert "semidefinite" not in str(whole.certificate_[0])


def test_an_indefinite_kernel_has_no_lower_bound(iris):
    X, y = iris
    model = SVC(kernel="sigmoid", gamma=0.1).fit(X, y)
    assert all(isinstance(c, NoCertificate) for c in model.certificate_)
    assert np.all(model.gap_ == np.inf)
    np.testing.assert_array_equal(model.predict(X), sklearn.svm.SVC(kernel="sigmoid", gamma=0.1).fit(X, y).predict(X))


def test_many_classes_and_pickling():
    X, y = load_digits(return_X_y=True)
    X, y = X[:400], y[:400]
    model = pickle.loads(pickle.dumps(SVC(gamma=0.001).fit(X, y)))
    reference = sklearn.svm.SVC(gamma=0.001, tol=1e-8).fit(X, y)
    assert model.gap_.shape == (45,)
    np.testing.assert_allclose(
        model.set_params(decision_function_shape="ovo").decision_function(X),
        reference.set_params(decision_function_shape="ovo").decision_function(X), atol=1e-5,
    )  # fmt: skip


def test_a_time_limit_warns_and_keeps_the_pilot(diabetes):
    X, y = diabetes
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model = SVR(time_limit=1e-9, C=100.0).fit(X, y)
    best = SVR(C=100.0).fit(X, y)
    assert model.lower_bound_ <= best.objective_ <= model.objective_


def test_weights_that_leave_too_few_classes(iris):
    X, y = iris
    with pytest.raises(ValueError, match="every class"):
        SVC().fit(X, y, np.where(y == 0, 0.0, 1.0))
    with pytest.raises(ValueError, match="same class"):
        SVC().fit(X, y, np.where(y == 0, 1.0, 0.0))


@pytest.mark.parametrize("unit", [1e12, 1e-12])
@pytest.mark.parametrize("weight", [1.0, 1e6, 1e12, 1e-12])
def test_units_of_data_and_weights_leave_no_gap(unit, weight, rng):
    X = rng.standard_normal((80, 3))
    y = X @ [1.0, -1.0, 0.5] + 0.3 * rng.standard_t(2, 80)
    for model, target in ((SVR(), y), (SVC(), y > 0.0)):
        plain = clone(model).fit(X, target, sample_weight=np.full(80, weight))
        model.fit(unit * X, target, sample_weight=np.full(80, weight))  # a warning would be an error
        assert model.lower_bound_ <= plain.objective_ * (1.0 + 1e-9)
        assert plain.lower_bound_ <= model.objective_ * (1.0 + 1e-9)
        assert model.gap_ <= 1e-9 * max(1.0, model.objective_)


def test_weights_beyond_what_a_tube_takes_do_not_matter(rng):
    X = rng.standard_normal((60, 3))
    y = X @ [1.0, -1.0, 0.5] + 0.3 * rng.standard_normal(60)
    objectives = [SVR(C=C).fit(X, y).objective_ for C in (1e6, 1e8, 1e10)]
    np.testing.assert_allclose(objectives, objectives[0], rtol=1e-8)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("count", [60, 2100])
def test_targets_within_epsilon_need_no_support(count, container, rng):
    X = rng.standard_normal((count, 3))
    model = SVR(epsilon=0.1).fit(container(X), 0.01 * np.tanh(X[:, 0]))
    assert (model.objective_, model.lower_bound_, model.gap_) == (0.0, 0.0, 0.0)
    assert model.support_.size == 0
    assert np.ptp(model.predict(container(X))) == 0.0


@pytest.mark.parametrize("unit", [1e-9, 1e-4, 1.0])
def test_regression_does_not_hang_on_the_unit_of_its_targets(unit, rng):
    """Targets in a unit, with epsilon in it and C by it, are the same problem times its square."""
    X = rng.standard_normal((80, 3))
    y = X[:, 0] ** 2 + 0.1 * rng.standard_normal(80)
    plain, model = SVR(C=1.0, epsilon=0.1).fit(X, y), SVR(C=unit, epsilon=0.1 * unit).fit(X, unit * y)
    assert model.gap_ <= 1e-9 * model.objective_
    assert model.objective_ == pytest.approx(unit**2 * plain.objective_, rel=1e-8)


def test_a_gap_is_relative_where_the_objective_is_small():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = X[:, 0] + 0.5 * rng.standard_normal(60) > 0.0
    for C in (1e-8, 1e-6, 1e-4):
        model = SVC(C=C).fit(X, y)
        assert model.gap_ <= 1e-9 * model.objective_


def test_the_warning_is_of_the_line_that_fits(diabetes):
    with pytest.warns(ConvergenceWarning, match="time_limit") as caught:
        SVR(time_limit=1e-9).fit(*diabetes)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("unit", [1e-10, 1e-5, 1.0])
def test_targets_in_small_units_end(unit, rng):
    """LIBSVM has the kernel in single precision, and would go on for ever."""
    X = rng.standard_normal((100, 3))
    y = unit * rng.standard_normal(100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of the gap, where C is beyond all bounds
        model = SVR(epsilon=0.0, C=1.0).fit(X, y)
    open_to = 1e-3 if unit < 1e-9 else 1e-9
    assert 0.0 < model.lower_bound_ <= model.objective_ <= (1.0 + open_to) * model.lower_bound_
    assert model.fit_status_ == 0
    assert model.max_iter == -1


@pytest.mark.parametrize("model", [SVC(time_limit=0.1), SVR(time_limit=0.1)], ids=["SVC", "SVR"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_factorisation_that_would_end_too_late_is_not_begun(model, rng):
    X = rng.standard_normal((4000, 20))
    y = X[:, 0] + rng.standard_normal(4000)
    began = time.process_time()
    model.fit(X, y > 0.0 if isinstance(model, SVC) else y)
    assert time.process_time() - began < 1.0  # several seconds where all samples rest on a kink
    assert model.lower_bound_ <= model.objective_


def test_a_gap_of_targets_far_from_zero_is_told():
    """It is measured by the objective, not by what targets without an intercept would cost."""
    rng = np.random.default_rng(3020020038)
    X = rng.standard_normal((34, 4))
    y = X @ rng.standard_normal(4) + rng.standard_t(2, 34)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = SVR(C=0.01).fit(X + 1e4, y + 1e8)
    assert bool(told) == (model.gap_ > model.tol * model.objective_)


def test_a_start_that_is_far_off_ends_without_a_warning():
    """LIBSVM's kernel of data so far from zero has few digits; variables of the programme end on their bounds."""
    rng = np.random.default_rng(6000020090)
    X = rng.standard_normal((28, 2))
    y = X @ rng.standard_normal(2) + rng.standard_t(2, 28)
    X = np.c_[X, X[:, :1]] + 1e8
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = SVR().fit(X, y + 1e3)
    assert 0.0 < model.lower_bound_ <= model.objective_


@pytest.mark.parametrize(("offset", "shift"), [(1e5, 0.0), (0.0, 1e6), (1e4, -1e7)])
def test_data_far_from_zero_leave_no_gap(offset, shift, rng):
    X = rng.standard_normal((120, 4))
    y = np.sin(X[:, 0]) + 0.3 * rng.standard_normal(120)
    for model, target, moved in ((SVR(C=10.0), y, shift), (SVC(C=10.0), y > 0.0, 0.0)):
        plain = clone(model).fit(X, target)
        far = model.fit(X + offset, target + moved if moved else target)  # a warning would be an error
        assert far.gap_ <= 1e-9 * far.objective_
        np.testing.assert_allclose(far.objective_, plain.objective_, rtol=1e-6)  # rounding of the data themselves
        at = plain.predict(X) if isinstance(model, SVR) else plain.decision_function(X)
        there = far.predict(X + offset) - moved if isinstance(model, SVR) else far.decision_function(X + offset)
        np.testing.assert_allclose(there, at, atol=1e-3)
        assert far.certificate_.assumption == ""


# -- Rounding ---------------------------------------------------------------------------------------------------------


def enclosed_objective(model, X, target, C, epsilon=None):
    """The objective at the model's point, of a kernel in 60 digits."""
    mpmath.mp.dps = 60
    rows = [[mpmath.mpf(float(v)) for v in row] for row in X]
    beta = [mpmath.mpf(float(v)) for v in model.dual_coef_[0]]
    gamma, support = mpmath.mpf(float(model._gamma)), model.support_.tolist()

    def kernel(a, c):
        if model.kernel == "rbf":
            return mpmath.exp(-gamma * sum((x - y) ** 2 for x, y in zip(a, c, strict=True)))
        product = sum(x * y for x, y in zip(a, c, strict=True))
        return (
            product if model.kernel == "linear" else (gamma * product + mpmath.mpf(float(model.coef0))) ** model.degree
        )

    values = [sum(v * kernel(row, rows[j]) for v, j in zip(beta, support, strict=True)) for row in rows]
    square = sum(v * values[j] for v, j in zip(beta, support, strict=True)) / 2
    b = mpmath.mpf(float(model.intercept_[0]))
    if epsilon is None:
        losses = [max(1 - int(t) * (v + b), 0) for t, v in zip(target, values, strict=True)]
    else:
        losses = [
            max(abs(mpmath.mpf(float(t)) - v - b) - mpmath.mpf(epsilon), 0) for t, v in zip(target, values, strict=True)
        ]
    return square + C * sum(losses), sum(beta)


@pytest.mark.parametrize(
    ("options", "C"),
    [({}, 1.0), ({}, 1e3), ({"kernel": "linear"}, 1.0), ({"kernel": "poly", "coef0": 1.0}, 1.0)],
    ids=str,
)
def test_both_ends_hold_in_many_digits_and_nothing_is_assumed(options, C, rng):
    """Upper ends are those of the kernel itself and not of its rounding; coefficients add up to zero exactly."""
    X = rng.standard_normal((24, 2))
    y = np.sin(X[:, 0]) + 0.3 * rng.standard_normal(24)
    for model, target, epsilon in ((SVC(C=C, **options), np.where(y > 0, 1, -1), None), (SVR(C=C, **options), y, 0.1)):
        fit = model.fit(X, target)
        value, balance = enclosed_objective(fit, X, target, C, epsilon)
        assert fit.certificate_.assumption == ""
        assert fit.gap_ <= 1e-9 * fit.objective_
        assert balance == 0
        last = (
            0 if epsilon is None else 1e-14 * fit.certificate_.upper
        )  # the median of the targets was added to the intercept
        assert fit.lower_bound_ <= value <= fit.certificate_.upper + last


@pytest.mark.parametrize("C", [1e4, 1e6, 1e8])
def test_a_large_C_is_no_reason_to_assume(C, rng):
    """Nor to leave a gap: double precision has fewer digits than this takes."""
    X = rng.standard_normal((30, 2))
    y = np.where(rng.random(30) < 0.5, 1, -1)
    fit = SVC(C=C).fit(X, y)
    value, balance = enclosed_objective(fit, X, y, C)
    assert (fit.certificate_.assumption, balance) == ("", 0)
    assert fit.lower_bound_ <= value
    assert fit.gap_ <= 1e-9 * fit.objective_
    assert value == pytest.approx(fit.objective_, rel=1e-6)  # last digits of coefficients times C


def attack(name):
    """Data, targets, weights and options that make rounding dear."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((26, 3))
    y = np.sin(X[:, 0]) + 0.4 * rng.standard_normal(26)
    far, ones = np.round(X, 3) + 1e8, 1e6 * np.ones((26, 1))
    return {
        "noise that is fitted": (X, y, None, {"C": 1e8, "gamma": 1.0}),
        "duplicates": (np.vstack([X, X]), np.r_[y, np.where(rng.random(26) < 0.3, -y, y)], None, {"C": 1e6}),
        "far": (X + 1e6, y, None, {"C": 10.0}),
        "very far": (far, y, None, {"C": 10.0, "gamma": 0.3}),
        "far, linear": (far, y, None, {"C": 10.0, "kernel": "linear"}),
        "a constant column": (np.hstack([X, ones]), y, None, {"C": 1e4, "kernel": "linear"}),
        "constants, sparse": (sp.csr_array(ones), y, None, {"gamma": 1e30}),
        "one class nearly absent": (X, np.where(np.arange(26) == 3, 9.0, y - 9.0), None, {"C": 1e5}),
        "flat": (X, y, None, {"C": 1e6, "gamma": 1e-7}),
        "steep": (X, y, None, {"C": 1e6, "gamma": 1e7}),
        "a power": (X, y, None, {"C": 1e5, "kernel": "poly", "coef0": 1.0}),
        "weights": (X, y, np.round(rng.uniform(0.0, 3.0, 26), 1), {"C": 1e3}),
        "single precision": (X.astype(np.float32), y.astype(np.float32), None, {"C": 1e4}),
    }[name]


ATTACKS = [
    "noise that is fitted", "duplicates", "far", "very far", "far, linear", "a constant column", "constants, sparse",
    "one class nearly absent", "flat", "steep", "a power", "weights", "single precision",
]  # fmt: skip


@pytest.mark.parametrize("epsilon", [None, 0.0, 0.1])
@pytest.mark.parametrize("name", ATTACKS)
def test_brackets_hold_in_fractions_with_nothing_assumed(name, epsilon):
    """Against the objective, with the best intercept, and the dual value of the coefficients."""
    X, y, weight, options = attack(name)
    model, target = SVR(epsilon=epsilon or 0.0, **options), y
    if epsilon is None:
        model, target = SVC(**options), (y > (0.0 if name == "one class nearly absent" else np.median(y))).astype(int)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(X, target, weight)
    findings = []
    null = kernel_bracket(model, X, target, weight, lambda what, text: findings.append(f"{what}: {text}"))
    assert not findings
    assert model.certificate_.assumption == ""
    assert bool(told) == (model.gap_ > 1e-9 * max(model.objective_, null / 4096.0))
    assert not told or name == "flat"  # of which the best samples to rest are not found
    assert 0.0 < model.lower_bound_ <= model.objective_ == model.certificate_.upper


@pytest.mark.parametrize("epsilon", [0.0, 0.05])
def test_rounded_data_far_from_zero_leave_no_gap(epsilon, rng):
    X, y = np.round(2.0 * rng.standard_normal((33, 5))) + 1e8, np.round(3.0 * rng.standard_normal(33)) + 1e8
    for kernel in ("rbf", "linear"):
        model = SVR(kernel=kernel, epsilon=epsilon).fit(X, y)  # a warning would be an error
        assert model.gap_ <= 1e-9 * model.objective_


def test_gamma_of_weighted_features_is_that_of_scikit_learn(rng):
    """Means of features are in the variance that it is made of, though the machine is fitted without them."""
    X = rng.standard_normal((40, 3)) + np.array([0.0, 5.0, -3.0])
    y = X[:, 0] + rng.standard_normal(40)
    assert SVR().fit(X, y, np.full(40, 2.0))._gamma == pytest.approx(sklearn.svm.SVR().fit(X, y)._gamma, rel=1e-12)


@pytest.mark.filterwarnings("ignore:The certified gap is:sklearn.exceptions.ConvergenceWarning")
def test_a_kernel_times_its_costs_that_overflows_is_no_warning():
    rng = np.random.default_rng(55000170029)
    X = rng.standard_normal((23, 1))
    y = X @ rng.standard_normal(1) + rng.standard_t(2, 23)
    weight = np.round(rng.uniform(0.0, 3.0, 23), 1)
    model = SVC(C=1e5, kernel="linear").fit(1e150 * np.round(X), np.round(y) > np.median(np.round(y)), weight)
    assert 0.0 <= model.lower_bound_ <= model.objective_


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_sparse_matrix_without_zeros_far_from_zero_leaves_no_gap(kernel):
    """Products of its rows cancelled, and a linear machine ended with a gap of a fifth."""
    rng = np.random.default_rng(51000110024)
    X = rng.standard_normal((33, 3))
    y = X @ rng.standard_normal(3) + rng.standard_t(2, 33) + 1e2
    X += 1e2
    model, dense = (SVR(C=1000.0, kernel=kernel, gamma=0.1).fit(features, y) for features in (sp.csr_array(X), X))
    assert model.gap_ <= 1e-9 * model.objective_
    assert model.objective_ == pytest.approx(dense.objective_, rel=1e-9)
    np.testing.assert_allclose(model.predict(sp.csr_array(X)), dense.predict(X), rtol=1e-5)


def test_sparse_features_far_from_zero_are_not_refused_for_a_gamma_that_nobody_uses(rng):
    X = np.round(rng.standard_normal((28, 5))) + 1e8
    model = SVR(kernel="linear", C=1e-12).fit(sp.csr_array(X), X[:, 0] - 1e8)
    assert model.lower_bound_ <= model.objective_


def test_the_optimum_is_that_of_a_second_solver(rng):
    clarabel = pytest.importorskip("clarabel")
    X = rng.standard_normal((60, 3))
    t = np.where(X[:, 0] + rng.standard_normal(60) > 0.0, 1.0, -1.0)
    model = SVC(C=100.0, gamma=0.5).fit(X, t)
    matrix = t[:, None] * rbf_kernel(X, gamma=0.5) * t
    A = sp.csc_matrix(np.vstack([t[None, :], -np.eye(60), np.eye(60)]))
    b = np.concatenate([[0.0], np.zeros(60), np.full(60, 100.0)])
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(120)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solution = clarabel.DefaultSolver(sp.csc_matrix(np.triu(matrix)), -np.ones(60), A, b, cones, settings).solve()
    assert model.objective_ == pytest.approx(-solution.obj_val, rel=1e-6)


def test_a_definite_matrix_that_is_given_is_proved_to_be_one(rng):
    X = rng.standard_normal((40, 3))
    y = (X[:, 0] + rng.standard_normal(40) > 0.0).astype(int)
    fit, whole = SVC(kernel="precomputed").fit(rbf_kernel(X, gamma=1.0), y), SVC(gamma=1.0).fit(X, y)
    assert fit.certificate_.assumption == ""
    assert max(fit.lower_bound_, whole.lower_bound_) <= min(fit.objective_, whole.objective_) * (1.0 + 1e-12)


def test_of_a_matrix_with_a_negative_eigenvalue_nothing_is_proved(rng):
    X = rng.standard_normal((40, 3))
    matrix = rbf_kernel(X, gamma=1.0) - 0.5 * np.eye(40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = SVC(kernel="precomputed").fit(matrix, (X[:, 0] > 0.0).astype(int))
    assert fit.certificate_.assumption == "the kernel is positive semidefinite"


def test_what_is_given_as_a_matrix_is_taken_as_it_is(iris):
    """Sums with it are charged, and that it is semidefinite is assumed."""
    X, y = iris[0][:100], iris[1][:100]
    fit = SVC(kernel="precomputed").fit(X @ X.T, y)
    assert fit.certificate_.assumption == "the kernel is positive semidefinite"


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("weight", [1.0, 0.3])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_smallest_C_is_no_error(container, weight):
    """It has squares that vanish, and times weights it leaves no support vectors at all."""
    X = np.arange(12.0).reshape(6, 2)
    model = SVC(kernel="poly", degree=2, gamma=0.5, C=5e-324).fit(container(X), [0, 1, 0, 1, 1, 0], np.full(6, weight))
    assert model.lower_bound_ <= 6.0 * 5e-324
    assert model.objective_ <= 1e-300

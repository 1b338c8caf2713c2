"""Data made to break a fit: huge units, offsets, ties, texts. Each was once seen to break one."""

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier
from sklearn.linear_model import HuberRegressor as SciKitHuber
from sklearn.svm import SVC as SciKitSVC

from varopt import learn
from varopt.learn._problem import LinearProblem, near_zero  # what moves data near zero, by itself
from varopt.solvers.huber import HuberProblem

NAMES = [name for name in learn.__all__ if hasattr(getattr(learn, name), "fit")]


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("unit", [1e-100, 1e-60, 1e100, 1e200])
@pytest.mark.parametrize(
    "model",
    [
        learn.HuberRegressor(alpha=0.0),
        learn.LADRegressor(),
        learn.QuantileRegressor(alpha=0.0, quantile=0.3),
        learn.CompositeRegressor("huber", None),
        learn.CompositeClassifier("squared_hinge", None),
    ],
    ids=lambda model: type(model).__name__,
)
def test_features_in_units_whose_squares_overflow(model, unit, container, rng):
    """Products of such features are no numbers: they are divided by their size first."""
    X = rng.standard_normal((60, 3))
    y = X @ [1.0, 0.0, -2.0] + rng.standard_normal(60)
    y = y > 0.0 if is_classifier(model) else y
    plain, huge = clone(model).fit(X, y), clone(model).set_params(time_limit=5.0).fit(container(unit * X), y)
    np.testing.assert_allclose(huge.objective_, plain.objective_, rtol=1e-9)
    np.testing.assert_allclose(unit * huge.coef_, plain.coef_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("epsilon", [1.0, 1.1, 1.35])
@pytest.mark.parametrize("alpha", [0.0, 1e-4])
def test_a_huber_fit_of_targets_with_many_equal_values_keeps_its_certificate(alpha, epsilon):
    """Its scale may be zero: the dual variables of the rows that are met exactly are the least within their bounds."""
    rng = np.random.default_rng(0)
    groups = [np.eye(size)[rng.integers(0, size, 500)] for size in (7, 6, 4)]  # one-hot: dependent columns
    X = np.hstack(groups)
    y = rng.poisson(np.exp(-3.0 + groups[0] @ np.arange(7) * 0.6 + groups[1] @ np.arange(6) * 0.3)).astype(float)
    assert np.mean(y == 0.0) > 0.4
    model = learn.HuberRegressor(alpha=alpha, epsilon=epsilon).fit(X, y)
    assert model.gap_ <= 1e-9 * model.objective_
    reference = SciKitHuber(alpha=alpha, epsilon=epsilon, tol=1e-8, max_iter=10_000).fit(X, y)
    assert model.lower_bound_ <= huber_objective(reference, X, y) * (1.0 + 1e-12)


@pytest.mark.parametrize(
    ("rows", "columns", "unit", "epsilon", "alpha", "fit_intercept"),
    [(8, 3, 1e4, 1.35, 0.01, False), (30, 4, 1.0, 1.1, 0.01, True), (22, 1, 1e10, 1.01, 1e-4, True)],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_huber_fit_of_fewer_rows_within_than_columns_closes_soon(
    rows, columns, unit, epsilon, alpha, fit_intercept, sparse, monkeypatch
):
    """Newton's step is then cut short by damping; the fits at one scale after the other took seconds."""
    if epsilon > 1.05:  # nearer to one, rows tell so little of the scale that it is tried out
        monkeypatch.setattr("varopt.learn.HuberRegressor._fit_problem", _at_no_scale_but_zero)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((rows, columns))
        y = X @ rng.standard_normal(columns) + rng.standard_t(2, rows)
        model = learn.HuberRegressor(alpha=alpha, epsilon=epsilon, fit_intercept=fit_intercept)
        model.fit(sp.csr_array(unit * X) if sparse else unit * X, y)
        assert model.gap_ <= 1e-9 * model.objective_
        reference = SciKitHuber(alpha=alpha / unit**2, epsilon=epsilon, fit_intercept=fit_intercept, max_iter=10_000)
        assert model.lower_bound_ <= huber_objective(reference.fit(X, y), X, y) * (1.0 + 1e-12)


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 0.01])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("unit", [1e100, 1e150, 1e155, 1e160, 1e200, 1e300])
def test_a_huber_fit_beside_a_constant_column_of_huge_units_is_bracketed_without_a_warning(
    unit, container, alpha, others
):
    """A ridge is nothing in such units: the optimum is that at unit one, without a ridge where all columns have it."""
    X, y = beside_a_constant()
    huge = X * np.where(others, unit, np.array([1.0, 1.0, 1.0, unit]))
    optimum = clarabel_huber(X[:, :3], y, 0.0 if others else alpha)
    model = learn.HuberRegressor(alpha=alpha).fit(container(huge), y)  # a warning would be an error
    assert model.lower_bound_ <= optimum * (1.0 + 1e-9)
    assert model.objective_ >= optimum * (1.0 - 1e-9)
    assert model.gap_ <= 1e-9 * model.objective_
    assert model.coef_[-1] == 0.0


@pytest.mark.parametrize("unit", [1e100, 1e155, 1e200])
@pytest.mark.parametrize(
    "model",
    [learn.LinearSVR(), learn.LinearSVC(loss="hinge"), learn.QuantileRegressor(alpha=0.01, quantile=0.3)],
    ids=lambda model: type(model).__name__,
)
def test_other_fits_beside_a_constant_column_of_huge_units_have_the_optimum_in_their_bracket(model, unit):
    X, y = beside_a_constant()
    y = np.where(y > 0.0, 1, -1) if is_classifier(model) else y
    small = clone(model).fit(X[:, :3], y)  # the constant column adds nothing to the intercept
    huge = clone(model).fit(X * np.array([1.0, 1.0, 1.0, unit]), y)
    assert huge.lower_bound_ <= small.objective_ * (1.0 + 1e-9)
    assert huge.objective_ >= small.lower_bound_ * (1.0 - 1e-9)
    assert huge.gap_ <= 1e-9 * huge.objective_


def test_a_huber_point_whose_predictions_cancel_is_not_below_the_bound():
    """The value is too low by rounding: the bound is not cut down to it."""
    X, y = beside_a_constant()
    problem = HuberProblem(X, y, np.ones(23), 1.35, 0.0, True)
    optimum = clarabel_huber(X[:, :3], y, 0.0)
    found = learn.HuberRegressor(alpha=0.0).fit(X, y)
    near = np.concatenate([found.coef_, [found.intercept_, found.scale_]])
    seen_low = False
    for size in 10.0 ** np.arange(11, 16, 0.125):
        x = near + size * np.array([0.0, 0.0, 0.0, 1.0, -1.0, 0.0])
        dual = np.clip(2.0 * problem.residual(near) / near[-1], -2.7, 2.7)
        _, upper, gap, _, _ = problem.bracket(x, dual)
        seen_low |= problem.value(x, problem.residual(x)) < optimum * (1.0 - 1e-9)
        assert upper >= optimum * (1.0 - 1e-9)
        assert upper - gap <= optimum * (1.0 + 1e-9)
    assert seen_low


@pytest.mark.parametrize(("alpha", "epsilon"), [(1e-4, 1.35), (1e-4, 1.001), (1.0, 1.35), (1.0, 1.1), (0.0, 1.35)])
@pytest.mark.parametrize("offset", [1e6, 1e7])
def test_a_huber_fit_without_an_intercept_far_from_zero_closes(offset, alpha, epsilon):
    """What columns have in common is taken into a variable of its own, as of data that are not in memory."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))
    y = X @ np.array([1.0, -1.0, 0.5]) + rng.standard_t(2, 300)
    model = learn.HuberRegressor(alpha=alpha, epsilon=epsilon, fit_intercept=False).fit(X + offset, y)
    assert model.gap_ <= 1e-9 * model.objective_
    assert not model.certificate_.assumption
    # In coordinates in which two columns are what they differ from the third by.
    far = X + offset
    basis = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, -1.0, 1.0 / offset]])
    optimum = clarabel_huber(far @ basis, y, alpha, epsilon, basis, intercept=False)
    assert model.lower_bound_ <= optimum * (1.0 + 1e-7)
    assert model.objective_ >= optimum * (1.0 - 1e-7)


def beside_a_constant():
    rng = np.random.default_rng(8000080158)
    X = rng.standard_normal((23, 4))
    y = X @ rng.standard_normal(4) + rng.standard_t(2, 23)
    X[:, -1] = 1.0
    return X, y


def clarabel_huber(X, y, alpha, epsilon=1.35, basis=None, intercept=True):
    """The optimum with the scale, as a second-order cone program; coefficients are `basis` times what is solved for.

    With q_i of ``2 eps |r_i - q_i|`` beyond and ``q_i^2 <= s t_i`` within, each row costs
    ``s + t_i + 2 eps |r_i - q_i|``.
    """
    n, p = X.shape
    basis = np.eye(p) if basis is None else basis
    ones = np.ones((n, int(intercept)))
    k = p + ones.shape[1]
    # variables: coefficients (and intercept), s, q, t, m >= |r - q|
    size = k + 1 + 3 * n
    s, q, t, m = k, slice(k + 1, k + 1 + n), slice(k + 1 + n, k + 1 + 2 * n), slice(k + 1 + 2 * n, size)
    cost = np.zeros(size)
    cost[s], cost[t], cost[m] = n, 1.0, 2.0 * epsilon
    P = np.zeros((size, size))
    P[:p, :p] = 2.0 * alpha * basis.T @ basis
    linear = np.zeros((2 * n, size))
    for sign, part in ((1.0, slice(0, n)), (-1.0, slice(n, 2 * n))):  # sign (y - X u - q) <= m
        linear[part, :k], linear[part, q], linear[part, m] = -sign * np.hstack([X, ones]), -sign * np.eye(n), -np.eye(n)
    bound = np.concatenate([-y, y])
    cones, rows = np.zeros((3 * n, size)), np.arange(n)  # (s + t, s - t, 2 q) in the cone
    for row, (a, b) in enumerate(((-1.0, -1.0), (-1.0, 1.0))):
        cones[3 * rows + row, s], cones[3 * rows + row, t.start + rows] = a, b
    cones[3 * rows + 2, q.start + rows] = -2.0
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_rel = settings.tol_gap_abs = settings.tol_feas = 1e-12
    solver = clarabel.DefaultSolver(
        sp.csc_matrix(P), cost, sp.csc_matrix(np.vstack([linear, cones])), np.append(bound, np.zeros(3 * n)),
        [clarabel.NonnegativeConeT(2 * n), *[clarabel.SecondOrderConeT(3)] * n], settings,
    )  # fmt: skip
    return solver.solve().obj_val


def _at_no_scale_but_zero(self, *given, scale):
    assert scale == 0.0, f"fitted at the scale {scale:g}"
    return _FIT(self, *given, scale=scale)


_FIT = learn.HuberRegressor._fit_problem


def huber_objective(model, X, y):
    sizes = np.abs(y - model.predict(X))
    linear = 2.0 * model.epsilon * sizes - model.scale_ * model.epsilon**2
    losses = np.where(sizes <= model.epsilon * model.scale_, sizes**2 / model.scale_, linear)
    return len(y) * model.scale_ + losses.sum() + model.alpha * (model.coef_ @ model.coef_)


@pytest.mark.parametrize("name", [name for name in NAMES if not is_classifier(getattr(learn, name)())])
@pytest.mark.parametrize("size", [1e160, 1e300])
@pytest.mark.filterwarnings("ignore:The certified gap is:sklearn.exceptions.ConvergenceWarning")
def test_no_objective_is_infinite(name, size, rng):
    X = rng.standard_normal((30, 3))
    y = size * (X[:, 0] + rng.standard_normal(30))
    model = getattr(learn, name)()
    model.set_params(**{"alphas": 3} if "alphas" in model.get_params() else {})
    if name == "ConformalIntervals":
        assert not np.isnan(model.fit(X, y).predict_interval(X)).any()
        return
    if name.startswith("MultiTask"):
        y = np.column_stack([y, y])
    linear = name in ("LADRegressor", "LinearSVR", "SVR") or name.startswith(("Huber", "Quantile"))
    refusal = ""
    try:
        model.fit(X, y)
    except ValueError as error:
        refusal = str(error)
    if refusal:
        assert not linear  # residuals are not squared
        assert "infinite objective without coefficients: y or sample_weight contain values" in refusal
        return
    assert np.all(np.isfinite(model.objective_))
    assert np.all(np.isfinite(model.gap_))


@pytest.mark.parametrize("name", [n for n in NAMES if n[:2] not in ("SV", "Mu") and not n.endswith("CV")])
def test_written_targets_are_numbers(name, rng):
    model = getattr(learn, name)()
    if is_classifier(model):
        return
    X, y = rng.standard_normal((12, 2)), np.arange(12.0)
    np.testing.assert_array_equal(model.fit(X, y.astype(str)).predict(X), clone(model).fit(X, y).predict(X))
    with pytest.raises(ValueError, match="could not convert string to float"):
        model.fit(X, np.full(12, "high"))


FREE_INTERCEPT = [
    learn.LinearSVR(),
    learn.LinearSVR(epsilon=0.1, loss="squared_epsilon_insensitive"),
    learn.LinearSVC(),
    learn.LinearSVC(loss="hinge"),
    learn.LinearSVC(penalty="l1"),
    learn.CompositeClassifier(penalty="l1", alpha=0.01),
    learn.CompositeRegressor("absolute_error", alpha=0.01),
    learn.QuantileRegressor(quantile=[0.2, 0.7], alpha=0.01),
    learn.LADRegressor(),
    learn.HuberRegressor(),
    learn.Lasso(0.01),
    learn.FusedLasso(0.01),
    learn.GroupLasso(0.01, groups=[0, 0, 1, 1]),
]


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("offset", [1e6, 1e7, 1e8])
@pytest.mark.parametrize("model", FREE_INTERCEPT, ids=lambda model: repr(model)[:50])
def test_features_far_from_zero_are_fitted_as_well_as_near_ones(model, offset, storage, rng):
    near = rng.standard_normal((200, 4))
    if storage == "sparse":  # one column of numbers far from zero beside sparse ones
        near[:, 1:] *= rng.random((200, 3)) < 0.05
    y = near[:, 0] + rng.standard_normal(200)
    y = y > 0.0 if is_classifier(model) else y
    moved = near + (offset if storage == "dense" else offset * np.eye(4)[0])
    container = np.asarray if storage == "dense" else sp.csr_array
    expected, far = clone(model).fit(near, y), clone(model).fit(container(moved), y)
    assert np.all(far.gap_ <= 1e-9 * far.objective_)
    np.testing.assert_allclose(far.objective_, expected.objective_, rtol=1e-14 * offset)
    np.testing.assert_allclose(far.coef_, expected.coef_, atol=1e-11 * offset)


def test_sparse_features_stay_sparse_where_one_is_far_from_zero(rng):
    sparse = sp.hstack([sp.random_array((500, 60), density=0.02, rng=rng), 1e6 + rng.random((500, 1))], format="csr")
    y, weight = rng.standard_normal(500), rng.uniform(0.1, 2.0, 500)
    problem = near_zero(LinearProblem(sparse, y, weight, True))
    assert problem.X.nnz == sparse.nnz
    np.testing.assert_array_equal(np.flatnonzero(problem.center), [60])
    np.testing.assert_array_equal((problem.X + problem.center).round(12), sparse.toarray().round(12))
    untouched = LinearProblem(sparse[:, :60], y, weight, True)
    assert near_zero(untouched) is untouched


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("seed", range(5))
def test_quantiles_do_not_cross_by_rounding_either(seed, dtype):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 3)).astype(dtype)
    y = 100.0 + X @ [1.0, 0.0, -1.0] + rng.standard_t(2, 60) * (1.0 + np.abs(X[:, 0]))
    model = learn.QuantileRegressor(quantile=[0.9, 0.8, 0.7, 0.5, 0.3, 0.2, 0.1], alpha=0.0, non_crossing=True).fit(
        X, y
    )
    assert np.all(np.diff(model.predict(X), axis=1) <= 0.0)
    for row in X:  # the order of sums differs from that of all rows at once
        assert np.all(np.diff(model.predict(row[None])[0]) <= 0.0)
    # What single precision takes to keep numbers of 100 apart is charged.
    assert model.gap_ <= (1e-9 if dtype is np.float64 else 1e-4) * 100.0


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("unit", [1e-150, 1e-200])
def test_steps_to_knots_that_are_passed_at_infinity(unit):
    """Products of tiny features with tiny directions are so small that knots are infinitely far away."""
    rng = np.random.default_rng(70000899)
    X = np.round(rng.standard_normal((10, 3)))
    y = X @ rng.standard_normal(3) + rng.standard_t(2, 10)
    model = learn.RampClassifier(C=0.1).fit(sp.csr_array(unit * X), np.round(y) > np.median(np.round(y)))
    assert model.lower_bound_ <= model.objective_ < np.inf


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_exchanges_of_rows_that_rounding_makes_dependent():
    rng = np.random.default_rng(80000054)
    X = rng.standard_normal((39, 4))
    y = np.round(X @ rng.standard_normal(4) + rng.standard_t(2, 39))
    model = learn.QuantileRegressorCV(time_limit=1.0, alphas=3, cv=2).fit(sp.csr_array(1e150 * np.round(X)), y)
    assert model.lower_bound_ <= model.objective_ < np.inf


@pytest.mark.parametrize("model", [learn.Lasso(0.1), learn.LassoCV(), learn.QuantileRegressor(), learn.LinearSVC()])
def test_weights_whose_sum_overflows_are_refused(model, rng):
    """Shares of an infinite sum are zeros, and zeros fit everything."""
    X = rng.standard_normal((200, 3))
    with pytest.raises(ValueError, match="sample_weight must have a finite sum"):
        model.fit(X, np.arange(200) % 2, sample_weight=np.full(200, 1e306))


@pytest.mark.parametrize(
    "model", [learn.LADRegressor(), learn.HuberRegressor(), learn.Lasso(), learn.LinearSVR()], ids=repr
)
@pytest.mark.parametrize(("features", "targets"), [(1.0, 1e-315), (1e-315, 1.0), (1.0, 1e308)])
def test_numbers_at_the_ends_of_double_precision_get_a_fit_or_a_sentence(model, features, targets, rng):
    """Not a math domain error, a warning of NumPy's, coefficients without end, or a constant that nobody gave."""
    X = rng.standard_normal((30, 3))
    y = np.clip(X.sum(axis=1) + rng.standard_normal(30), -1.7, 1.7)
    told = ""
    try:
        model.fit(X * features, y * targets)
    except ValueError as refusal:
        told = str(refusal)
    assert "need to be" in told or (np.all(np.isfinite(model.coef_)) and model.lower_bound_ <= model.objective_)


def test_an_interrupt_before_a_huber_fit_has_a_point_is_no_fault_of_the_data(monkeypatch, rng):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("varopt.solvers.huber._solve._together", interrupted)
    X = rng.standard_normal((30, 3))
    with pytest.raises(KeyboardInterrupt):
        learn.HuberRegressor().fit(X, X.sum(axis=1) + rng.standard_normal(30))


@pytest.mark.parametrize(
    "model", [learn.LADRegressor(), learn.HuberRegressor(), learn.SVR(), learn.LassoCV()], ids=repr
)
@pytest.mark.parametrize("place", ["X", "y", "sample_weight"])
def test_what_is_masked_is_not_fitted_to(model, place, rng):
    """scikit-learn drops a mask without a word, and computes with what is behind it."""
    data = {"X": rng.standard_normal((20, 2)), "y": rng.standard_normal(20), "sample_weight": np.ones(20)}
    model.fit(**data | {place: np.ma.masked_array(data[place])})  # of which nothing is masked
    with pytest.raises(ValueError, match=f"{place} must have no masked entries"):
        model.fit(**data | {place: np.ma.masked_greater(data[place], 0.5)})


def test_what_is_masked_is_not_certified():
    X, y = np.arange(8.0).reshape(4, 2), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match="X must have no masked entries"):
        learn.certify(SciKitSVC().fit(X, y), np.ma.masked_equal(X, 3.0), y)

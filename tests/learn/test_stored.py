"""Estimators on data that are not in memory: the fits of memory, in a few passes."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
from sklearn import linear_model
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import varopt as vo
from varopt.learn import (
    CompositeClassifier,
    CompositeRegressor,
    ElasticNet,
    HuberRegressor,
    LADRegressor,
    Lasso,
    LinearSVC,
    LinearSVR,
    QuantileRegressor,
)

ROWS = 12_000


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((ROWS, 4))
    z = X @ [1.0, -2.0, 0.0, 0.5] + rng.standard_normal(ROWS)
    return X, z, np.digitize(z, [-1.0, 1.5]), rng.random(ROWS)


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored")
    for name, array in zip("Xycw", data, strict=True):
        np.save(folder / f"{name}.npy", array)
    np.save(folder / "two.npy", (data[2] > 0).astype(int))
    return folder


@pytest.fixture(autouse=True)
def never_at_once(monkeypatch):
    monkeypatch.setattr("varopt.optimize.anywhere._engine._ALL", 0)


MODELS = [
    QuantileRegressor(quantile=0.3, alpha=0.01),
    QuantileRegressor(quantile=[0.1, 0.5, 0.9], alpha=0.0),
    LADRegressor(alpha=0.1, penalty="l2"),
    LinearSVR(C=0.01, epsilon=0.3),
    Lasso(alpha=0.1),
    ElasticNet(alpha=0.1, l1_ratio=0.4),
    HuberRegressor(),
    HuberRegressor(alpha=0.0, epsilon=1.1, fit_intercept=False),
    HuberRegressor(alpha=300.0, epsilon=5.0),
    CompositeRegressor(loss="huber", epsilon=1.2, penalty="l1", alpha=0.01),
    LinearSVC(C=0.01, loss="hinge", class_weight="balanced"),
    LinearSVC(C=0.01),
    CompositeClassifier(loss="squared_hinge", penalty="l1", alpha=0.01),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_fits_are_those_of_memory(model, data, folder):
    X, y, labels, weight = data
    classify = hasattr(type(model), "decision_function")
    target, name = (labels, "c") if classify else (y, "y")
    if getattr(model, "loss", "") == "hinge":  # of three classes the one in the middle has no hyperplane to itself
        target, name = (labels > 0).astype(int), "two"
    near = model.fit(X, target, weight)
    expected = {k: np.array(getattr(near, k)) for k in ("coef_", "intercept_", "objective_")}
    far = model.fit(folder / "X.npy", folder / f"{name}.npy", folder / "w.npy")
    assert 1 <= far.passes_ <= 4
    assert np.all(far.gap_ <= 1e-9 * far.objective_)
    assert far.objective_ == pytest.approx(expected["objective_"], rel=1e-9)
    for k, value in expected.items():
        assert np.asarray(getattr(far, k)).shape == value.shape
        assert getattr(far, k) == pytest.approx(value, rel=1e-4, abs=1e-5)
    assert far.predict(X[:5]).shape[0] == 5


def huber_objective(X, y, weight, model, coef, intercept, scale):
    """The objective of Huber's regression, without any rounding."""
    epsilon, alpha, scale = Fraction(model.epsilon), Fraction(model.alpha), Fraction(scale)
    coef, total = [Fraction(float(v)) for v in coef], Fraction(0)
    for row, target, c in zip(X.tolist(), y.tolist(), weight.tolist(), strict=True):
        r = abs(Fraction(target) - Fraction(intercept) - sum(Fraction(a) * v for a, v in zip(row, coef, strict=True)))
        loss = r * r / scale if r <= epsilon * scale else 2 * epsilon * r - epsilon**2 * scale
        total += Fraction(c) * (scale + loss)
    return total + alpha * sum(v * v for v in coef)


@pytest.mark.parametrize("alpha", [0.0, 0.25])
@pytest.mark.parametrize("kind", ["exact", "constant", "few outliers", "many outliers"])
def test_where_the_best_scale_is_zero_the_bracket_closes(kind, alpha, tmp_path):
    """At a scale of zero rows cost ``2 epsilon |r|``: whole numbers, so that fits are exact without rounding."""
    rng = np.random.default_rng(6)
    X = rng.integers(-9, 10, (3000, 3)).astype(float)
    coef = np.array([1.0, -2.0, 4.0]) if kind != "constant" else np.zeros(3)
    share = {"few outliers": 0.02, "many outliers": 0.4}.get(kind, 0.0)
    outliers = np.where(rng.random(3000) < share, rng.integers(-50, 50, 3000), 0)
    y = X @ coef + 3.0 + outliers
    for name, array in (("X", X), ("y", y)):
        np.save(tmp_path / f"{name}.npy", array)
    far = HuberRegressor(alpha=alpha).fit(tmp_path / "X.npy", tmp_path / "y.npy")
    best = Fraction(1.35) * 2 * int(np.abs(outliers).sum()) + Fraction(alpha) * int(coef @ coef)
    assert Fraction(far.objective_) - Fraction(far.gap_) <= best  # nothing is below: absolute values see no outliers
    assert far.objective_ == pytest.approx(float(best), rel=1e-9, abs=1e-6)
    assert far.objective_ == pytest.approx(HuberRegressor(alpha=alpha).fit(X, y).objective_, rel=1e-9, abs=1e-6)
    assert far.gap_ <= 1e-9 * max(far.objective_, 1e3)
    assert far.passes_ <= 4
    np.testing.assert_allclose(far.coef_, coef, atol=1e-9)


def test_steps_go_on_until_there_is_a_bound(tmp_path):
    """Two values that most rows have: a scale far below what least squares begin with."""
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((3000, 2)), (rng.random(3000) < 0.2) * 1.0
    for name, array in (("X", X), ("y", y)):
        np.save(tmp_path / f"{name}.npy", array)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        far = HuberRegressor(alpha=0.0).fit(tmp_path / "X.npy", tmp_path / "y.npy")
    assert far.objective_ == pytest.approx(HuberRegressor(alpha=0.0).fit(X, y).objective_, rel=1e-8)


def test_a_sample_that_is_fitted_exactly_may_mislead(data, folder, monkeypatch):
    """All that it says is where to begin."""
    from varopt.optimize.anywhere import _scale  # its exact finish is replaced

    monkeypatch.setattr(_scale, "_exact", lambda *_: (np.array([1.0, -2.0, 0.0, 0.5, 0.0]), 2.0**-26))
    far = HuberRegressor().fit(folder / "X.npy", folder / "y.npy")
    assert far.objective_ == pytest.approx(HuberRegressor().fit(data[0], data[1]).objective_, rel=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 1e-4, 50.0])
def test_a_scale_is_estimated_and_its_bracket_is_proved(alpha, data, monkeypatch):
    """Few rows, by passes all the same: nobody's point is below the bound, in fractions."""
    from varopt.optimize.anywhere import _scale  # its exact finish is replaced

    monkeypatch.setattr(_scale, "rows_at_once", lambda problem, options: 200)
    X, y, _, weight = (array[:600] for array in data)
    far = HuberRegressor(alpha=alpha).fit(
        vo.rows([(X[:250], y[:250], weight[:250]), (X[250:], y[250:], weight[250:])]), None
    )
    near = HuberRegressor(alpha=alpha).fit(X, y, weight)
    theirs = linear_model.HuberRegressor(alpha=alpha, tol=1e-9, max_iter=10_000).fit(X, y, weight)
    assert far.certificate_.assumption == ""
    assert far.gap_ <= 1e-9 * far.objective_
    assert far.scale_ == pytest.approx(near.scale_, rel=1e-5)
    assert far.coef_ == pytest.approx(theirs.coef_, abs=1e-4)
    assert not hasattr(far, "outliers_")
    for model in (far, near, theirs):
        exact = huber_objective(X, y, weight, far, model.coef_, float(model.intercept_), float(model.scale_))
        assert far.lower_bound_ <= exact
    exact = huber_objective(X, y, weight, far, far.coef_, float(far.intercept_), far.scale_)
    assert exact <= Fraction(far.certificate_.upper)


@pytest.mark.parametrize(
    ("columns", "targets", "offset", "shift"),
    [
        (1e6, 1.0, 0.0, 0.0), (1.0, 1e-80, 0.0, 0.0), (1.0, 1.0, 1e6, 0.0), (1.0, 1e80, 0.0, 0.0),
        (1e-80, 1.0, 0.0, 0.0), (1.0, 1.0, 0.0, 1e6), (1.0, 1.0, 0.0, -1e8), (1e-3, 1e40, 1e43, 1e4),
    ],
)  # fmt: skip
@pytest.mark.parametrize("alpha", [0.0, 1e-4, 50.0])
def test_a_scale_of_data_in_other_units_is_proved(alpha, columns, targets, offset, shift, data, monkeypatch):
    """Ridges that are faint or strong beside the data, targets and columns far from zero; in fractions."""
    from varopt.optimize.anywhere import _scale

    monkeypatch.setattr(_scale, "rows_at_once", lambda problem, options: 500)
    X, y, weight = data[0][:2000] * columns + shift, data[1][:2000] * targets + offset, np.ones(2000)
    far = HuberRegressor(alpha=alpha).fit(vo.rows([(X[:900], y[:900]), (X[900:], y[900:])]), None)
    assert far.certificate_.assumption == ""
    assert far.gap_ <= 1e-9 * far.objective_
    near = HuberRegressor(alpha=alpha).fit(X, y)
    for model in (far, near):
        exact = huber_objective(X, y, weight, far, model.coef_, float(model.intercept_), float(model.scale_))
        assert far.lower_bound_ <= exact
    exact = huber_objective(X, y, weight, far, far.coef_, float(far.intercept_), far.scale_)
    assert exact <= Fraction(far.certificate_.upper)


@pytest.mark.parametrize(
    ("units", "shift", "options"),
    [
        (1.0, 1e4, {"fit_intercept": False}),
        (1.0, 1e5, {"fit_intercept": False}),
        (1.0, 1e5, {"fit_intercept": False, "alpha": 0.0}),
        (1.0, 1e6, {"fit_intercept": False}),
        (1.0, 1e6, {"fit_intercept": False, "alpha": 0.0}),
        (1.0, 1e8, {"fit_intercept": False, "alpha": 50.0}),
        (1.0, 1e10, {"fit_intercept": False, "alpha": 0.0}),  # columns nearly repeat others, and no row says just so
        (10.0 ** np.arange(4), np.array([0.0, -1e3, 1e6, 1e9]), {"fit_intercept": False}),
        (10.0 ** np.arange(-6, 7, 4), 0.0, {}),  # a ridge that is faint beside some and strong beside others
        (10.0 ** np.arange(-6, 7, 4), 0.0, {"alpha": 50.0}),
        (1.0, 0.0, {"epsilon": 1.01}),
        (1.0, 0.0, {"epsilon": 1.01, "alpha": 0.0}),
        (1.0, 1e3, {"epsilon": 1.02}),
        (1.0, 0.0, {"epsilon": 1.001}),
        (1.0, 1e6, {"epsilon": 1.001, "alpha": 0.0, "fit_intercept": False}),
        (1.0, 0.0, {"epsilon": 1.001, "alpha": 50.0}),  # the best scale is zero
        (1.0, 0.0, {"epsilon": 1.0001, "alpha": 0.0}),
    ],
)
def test_a_scale_beside_columns_that_nearly_depend_on_each_other_or_few_rows_within_it(
    units, shift, options, data, monkeypatch
):
    """Rounding asks for more room than balance does, and at epsilon 1.01 fifty rows lie outside for each inside."""
    from varopt.optimize.anywhere import _scale

    monkeypatch.setattr(_scale, "rows_at_once", lambda problem, options: 500)
    X, y, weight = data[0][:2000] * units + shift, data[1][:2000], np.ones(2000)
    far = HuberRegressor(**options).fit(vo.rows([(X[:900], y[:900]), (X[900:], y[900:])]), None)
    assert far.certificate_.assumption == ""
    assert far.gap_ <= far.tol * far.objective_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # in memory not all of them are closed
        near = HuberRegressor(**options).fit(X, y)
    for model in (far, near):
        exact = huber_objective(X, y, weight, far, model.coef_, float(model.intercept_), float(model.scale_))
        assert far.lower_bound_ <= exact
    exact = huber_objective(X, y, weight, far, far.coef_, float(far.intercept_), far.scale_)
    assert exact <= Fraction(far.certificate_.upper)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("epsilon", [1.013, 1.001, 1.00001])
@pytest.mark.parametrize("kind", ["tails", "sorted", "ties", "one side"])
def test_a_scale_within_which_few_rows_are(kind, epsilon, alpha, monkeypatch):
    """Far rows are one line, and the others a small problem: three passes, five where the scale is zero."""
    from varopt.optimize.anywhere import _scale

    monkeypatch.setattr(_scale, "rows_at_once", lambda problem, options: 1500)
    rng = np.random.default_rng(0)
    X, weight = rng.standard_normal((20_000, 3)), np.ones(20_000)
    y = X @ [1.0, 2.0, 0.0] + rng.standard_t(2, len(X)) + (kind == "one side") * 50.0 * (rng.random(len(X)) < 0.3)
    y = np.sort(y) if kind == "sorted" else np.round(y) if kind == "ties" else y
    table = vo.rows([(X[:900], y[:900]), (X[900:], y[900:])])
    far = HuberRegressor(epsilon=epsilon, alpha=alpha).fit(table, None)
    assert far.certificate_.assumption == ""
    assert far.gap_ <= 1e-9 * far.objective_
    assert far.passes_ <= 5
    near = HuberRegressor(epsilon=epsilon, alpha=alpha).fit(X, y)
    for model in (far, near):
        exact = huber_objective(X, y, weight, far, model.coef_, float(model.intercept_), float(model.scale_))
        assert far.lower_bound_ <= exact
    exact = huber_objective(X, y, weight, far, far.coef_, float(far.intercept_), far.scale_)
    assert exact <= Fraction(far.certificate_.upper)


def test_a_scale_beside_columns_far_from_zero_of_which_some_rows_lose_digits(data, monkeypatch):
    """From such a column nothing is taken, from the others it is; in fractions."""
    from varopt.optimize.anywhere import _scale

    monkeypatch.setattr(_scale, "rows_at_once", lambda problem, options: 500)
    X, y, weight = data[0][:2000] + np.array([0.0, 1e3, 1e6, 1e5]), data[1][:2000].copy(), np.ones(2000)
    X[1700, 1] = 1e-9 / 3.0
    far = HuberRegressor().fit(vo.rows([(X[:900], y[:900]), (X[900:], y[900:])]), None)
    near = HuberRegressor().fit(X, y)
    assert far.certificate_.assumption == ""
    assert far.gap_ <= 1e-9 * far.objective_
    assert far.coef_ == pytest.approx(near.coef_, abs=1e-4)
    for model in (far, near):
        exact = huber_objective(X, y, weight, far, model.coef_, float(model.intercept_), float(model.scale_))
        assert far.lower_bound_ <= exact
    exact = huber_objective(X, y, weight, far, far.coef_, float(far.intercept_), far.scale_)
    assert exact <= Fraction(far.certificate_.upper)


@pytest.mark.parametrize("alpha", [0.0, 1e-4])
def test_a_scale_beside_columns_that_depend_on_each_other(alpha, data, tmp_path):
    X, y = np.column_stack([data[0], np.eye(3)[data[2]]]), data[1]
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    far = HuberRegressor(alpha=alpha).fit(tmp_path / "X.npy", tmp_path / "y.npy")
    assert far.certificate_.assumption == ""
    assert far.objective_ == pytest.approx(HuberRegressor(alpha=alpha).fit(X, y).objective_, rel=1e-9)


def test_a_scale_on_a_device(data):
    torch = pytest.importorskip("torch", reason="needs PyTorch: make test-nn installs it")
    X, y, _, weight = data
    table = vo.rows(torch.tensor(X), y=torch.tensor(y), weight=torch.tensor(weight))
    far, near = HuberRegressor().fit(table, None), HuberRegressor().fit(X, y, weight)
    assert far.certificate_.assumption == ""
    assert float(far.objective_) == pytest.approx(near.objective_, rel=1e-9)
    assert far.scale_ == pytest.approx(near.scale_, rel=1e-4)


@pytest.mark.parametrize("options", [{}, {"alpha": 50.0}, {"epsilon": 1.001}, {"alpha": 0.0, "fit_intercept": False}])
def test_a_scale_of_few_rows_of_a_device_far_from_zero(options, data):
    """Rows that are read at once lie in memory, and what columns have in common is taken from them as from others."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: make test-nn installs it")
    X, y, weight = data[0][:2000] + 1e6, data[1][:2000], np.ones(2000)
    far = HuberRegressor(**options).fit(vo.rows(torch.tensor(X), y=torch.tensor(y)), None)
    assert far.passes_ == 1
    assert far.certificate_.assumption == ""
    assert float(far.gap_) <= 1e-9 * float(far.objective_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # for the comparison any point will do
        near = HuberRegressor(**options).fit(X, y)
    for model in (far, near):
        coef = np.asarray(model.coef_)
        exact = huber_objective(X, y, weight, far, coef, float(model.intercept_), float(model.scale_))
        assert Fraction(float(far.lower_bound_)) <= exact
    exact = huber_objective(X, y, weight, far, np.asarray(far.coef_), float(far.intercept_), float(far.scale_))
    assert exact <= Fraction(float(far.certificate_.upper))


def test_a_scale_of_zero_is_told(folder):
    with pytest.raises(ValueError, match="epsilon=1 has its optimum at a scale of zero"):
        HuberRegressor(epsilon=1.0).fit(folder / "X.npy", folder / "y.npy")


def test_what_is_small_is_read_and_any_estimator_takes_it(data, folder, monkeypatch):
    monkeypatch.undo()
    X, y, _, weight = data
    paths = folder / "X.npy", folder / "y.npy", folder / "w.npy"
    for model in (Lasso(alpha=0.1, positive=True), HuberRegressor(epsilon=1.0), QuantileRegressor(quantile=[0.2, 0.8])):
        far = clone(model).fit(*paths)
        assert far.passes_ == 1
        assert np.array_equal(far.coef_, clone(model).fit(X, y, weight).coef_)
    bad = y.copy()
    bad[7] = np.nan
    np.save(folder / "bad.npy", bad)
    with pytest.raises(ValueError, match=r"y must be finite; got nan in row 7 of .*bad.npy"):
        LADRegressor().fit(folder / "X.npy", folder / "bad.npy")


def test_nineteen_levels_share_the_passes(data, folder):
    levels = np.arange(0.05, 1.0, 0.05)
    one = QuantileRegressor(quantile=0.5, alpha=0.0).fit(folder / "X.npy", folder / "y.npy")
    many = QuantileRegressor(quantile=levels, alpha=0.0).fit(folder / "X.npy", folder / "y.npy")
    assert many.coef_.shape == (19, 4)
    assert many.passes_ <= 2 * one.passes_
    assert np.all(many.gap_ <= 1e-9 * many.objective_)


def test_a_table_a_memmap_and_parquet_are_taken(data, folder, tmp_path, monkeypatch):
    X, y, _, weight = data
    expected = LADRegressor().fit(X, y, weight)
    table = vo.rows(lambda: ((X[i : i + 5000], y[i : i + 5000], weight[i : i + 5000]) for i in range(0, ROWS, 5000)))
    assert LADRegressor().fit(table, None).objective_ == pytest.approx(expected.objective_, rel=1e-12)
    monkeypatch.setattr("varopt.places._together.SMALL_MAPPED", 1000)
    mapped = LADRegressor(memory="50MB").fit(np.load(folder / "X.npy", mmap_mode="r"), y, weight)
    assert mapped.passes_ >= 2
    assert mapped.objective_ == pytest.approx(expected.objective_, rel=1e-12)
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {f"x{j}": X[:, j] for j in range(4)} | {"y": y, "w": weight}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    model = LADRegressor().fit(tmp_path / "a.parquet", "y", "w")
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-12)
    assert list(model.feature_names_in_) == ["x0", "x1", "x2", "x3"]


def test_what_needs_memory_says_so(folder):
    X, y = folder / "X.npy", folder / "y.npy"
    with pytest.raises(ValueError, match="positive=True needs data in memory"):
        Lasso(positive=True).fit(X, y)
    with pytest.raises(ValueError, match="non_crossing=True needs data in memory"):
        QuantileRegressor(quantile=[0.1, 0.9], non_crossing=True).fit(X, y)
    with pytest.raises(ValueError, match="memory"):
        LADRegressor(memory="lots").fit(X, y)
    with pytest.raises(ValueError, match="the target y is None"):
        LADRegressor().fit(X, None)
    with pytest.raises(ValueError, match="one entry for each of 12000 rows"):
        LADRegressor().fit(vo.rows(X), np.ones(3))

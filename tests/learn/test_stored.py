"""Estimators on data that are not in memory: the fits of memory, in a few passes."""

import numpy as np
import pytest

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
    monkeypatch.setattr("varopt.places._together.SMALL", 1000)
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

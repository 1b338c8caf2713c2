"""Ten tunings of scikit-learn's models: 3 to 10 parameters, an error on rows that the fit did not see."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.fresh._problems import Parameter, Point, Problem

__all__ = ["TASKS", "task"]

Maker = Callable[[Point], Any]


def _real(name: str, low: float, high: float) -> Parameter:
    return Parameter(name, low, high)


def _log(name: str, low: float, high: float) -> Parameter:
    return Parameter(name, low, high, "log")


def _whole(name: str, low: int, high: int) -> Parameter:
    return Parameter(name, low, high, "integer")


def _one_of(name: str, *options: str) -> Parameter:
    return Parameter(name, kind="choice", options=options)


def _elastic_net(p: Point) -> Any:
    from sklearn.linear_model import ElasticNet
    from sklearn.preprocessing import PolynomialFeatures

    return PolynomialFeatures(p["degree"]), ElasticNet(alpha=p["alpha"], l1_ratio=p["share"], max_iter=200)


def _svc(p: Point) -> Any:
    from sklearn.svm import SVC

    return SVC(
        C=p["C"], kernel=p["kernel"], gamma=p["gamma"], degree=p["degree"], coef0=p["shift"],
        class_weight=None if p["weight"] == "none" else "balanced", tol=p["tol"], max_iter=5000,
    )  # fmt: skip


def _svr(p: Point) -> Any:
    from sklearn.svm import SVR

    return SVR(C=p["C"], gamma=p["gamma"], epsilon=p["epsilon"], kernel=p["kernel"], max_iter=5000)


def _neighbours(p: Point) -> Any:
    from sklearn.decomposition import PCA
    from sklearn.neighbors import KNeighborsClassifier

    return PCA(p["components"], whiten=p["whiten"] == "yes", random_state=0), KNeighborsClassifier(
        p["k"], weights=p["weights"], p=p["power"], algorithm="brute"
    )


def _tree(p: Point) -> Any:
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(
        criterion=p["criterion"], max_depth=p["depth"], min_samples_split=p["split"], min_samples_leaf=p["leaf"],
        max_features=p["features"], ccp_alpha=p["prune"], random_state=0,
    )  # fmt: skip


def _forest(p: Point) -> Any:
    from sklearn.ensemble import ExtraTreesClassifier

    return ExtraTreesClassifier(
        p["trees"], max_depth=p["depth"], max_features=p["features"], min_samples_leaf=p["leaf"],
        criterion=p["criterion"], bootstrap=p["bootstrap"] == "yes", random_state=0,
    )  # fmt: skip


def _boosting(p: Point) -> Any:
    from sklearn.ensemble import GradientBoostingRegressor

    return GradientBoostingRegressor(
        loss=p["loss"], learning_rate=p["rate"], n_estimators=p["trees"], subsample=p["rows"],
        max_depth=p["depth"], min_samples_leaf=p["leaf"], max_features=p["features"], alpha=p["alpha"], random_state=0,
    )  # fmt: skip


def _descent(p: Point) -> Any:
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(
        loss=p["loss"], penalty=p["penalty"], alpha=p["alpha"], l1_ratio=p["share"], learning_rate=p["schedule"],
        eta0=p["rate"], average=p["average"] == "yes", max_iter=10, tol=None, random_state=0,
    )  # fmt: skip


def _kernel_ridge(p: Point) -> Any:
    from sklearn.kernel_ridge import KernelRidge

    return KernelRidge(alpha=p["alpha"], kernel=p["kernel"], gamma=p["gamma"], degree=p["degree"], coef0=p["shift"])


def _network(p: Point) -> Any:
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(
        (p["width"],) * p["layers"], activation=p["activation"], alpha=p["alpha"], learning_rate_init=p["rate"],
        batch_size=p["batch"], beta_1=p["first"], beta_2=p["second"], epsilon=p["epsilon"], max_iter=p["epochs"],
        random_state=0,
    )  # fmt: skip


YES_NO = ("yes", "no")
TASKS: dict[str, tuple[str, Maker, tuple[Parameter, ...]]] = {
    "elastic net, diabetes": ("diabetes", _elastic_net, (
        _log("alpha", 1e-4, 10), _real("share", 0, 1), _whole("degree", 1, 2))),
    "SVC, cancer": ("cancer", _svc, (
        _log("C", 1e-3, 1e3), _log("gamma", 1e-5, 10), _one_of("kernel", "rbf", "poly", "sigmoid"),
        _whole("degree", 2, 5), _real("shift", 0, 5), _one_of("weight", "none", "balanced"), _log("tol", 1e-5, 0.1))),
    "SVR, Friedman 1": ("friedman1", _svr, (
        _log("C", 1e-2, 1e3), _log("gamma", 1e-4, 10), _log("epsilon", 1e-3, 1), _one_of("kernel", "rbf", "sigmoid"))),
    "neighbours, digits": ("digits", _neighbours, (
        _whole("components", 2, 40), _one_of("whiten", *YES_NO), _whole("k", 1, 30),
        _one_of("weights", "uniform", "distance"), _real("power", 1, 4))),
    "tree, wine": ("wine", _tree, (
        _one_of("criterion", "gini", "entropy"), _whole("depth", 1, 12), _whole("split", 2, 20), _whole("leaf", 1, 15),
        _real("features", 0.1, 1), _log("prune", 1e-5, 0.1))),
    "forest, generated": ("classes", _forest, (
        _whole("trees", 1, 8), _whole("depth", 1, 12), _real("features", 0.1, 1), _whole("leaf", 1, 15),
        _one_of("criterion", "gini", "entropy"), _one_of("bootstrap", *YES_NO))),
    "boosting, Friedman 2": ("friedman2", _boosting, (
        _one_of("loss", "squared_error", "absolute_error", "huber"), _log("rate", 0.01, 1), _whole("trees", 3, 20),
        _real("rows", 0.3, 1), _whole("depth", 1, 5), _whole("leaf", 1, 20), _real("features", 0.2, 1),
        _real("alpha", 0.5, 0.99))),
    "descent, generated": ("classes", _descent, (
        _one_of("loss", "hinge", "log_loss", "modified_huber", "squared_hinge"),
        _one_of("penalty", "l2", "l1", "elasticnet"), _log("alpha", 1e-6, 1), _real("share", 0, 1),
        _one_of("schedule", "optimal", "constant", "invscaling", "adaptive"), _log("rate", 1e-4, 1),
        _one_of("average", *YES_NO))),
    "kernel ridge, Friedman 3": ("friedman3", _kernel_ridge, (
        _log("alpha", 1e-6, 10), _log("gamma", 1e-3, 10), _one_of("kernel", "rbf", "laplacian", "polynomial"),
        _whole("degree", 1, 5), _real("shift", 0, 3))),
    "network, iris": ("iris", _network, (
        _whole("width", 2, 24), _whole("layers", 1, 2), _one_of("activation", "relu", "tanh", "logistic"),
        _log("alpha", 1e-6, 1), _log("rate", 1e-4, 0.3), _whole("batch", 8, 64), _real("first", 0.5, 0.99),
        _real("second", 0.8, 0.999), _log("epsilon", 1e-9, 1e-3), _whole("epochs", 2, 12))),
}  # fmt: skip


def _data(name: str, seed: int) -> Any:
    from sklearn import datasets

    if name == "classes":
        return datasets.make_classification(240, 12, n_informative=6, n_classes=3, flip_y=0.05, random_state=seed)
    if name.startswith("friedman"):
        make = getattr(datasets, f"make_{name}")
        return make(240, noise={"friedman1": 1.0, "friedman2": 100.0, "friedman3": 0.1}[name], random_state=seed)
    loaded = {"cancer": "breast_cancer"}.get(name, name)
    return getattr(datasets, f"load_{loaded}")(return_X_y=True)


def task(name: str, seed: int) -> Problem:
    """The error of a model on a half of some rows, fitted on the other; rows by the seed.

    Of a classifier the share of rows that it has wrong, of a regression its root mean square over that of the mean.
    """
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data, make, parameters = TASKS[name]
    X, y = _data(data, seed)
    rows = np.random.default_rng(3000 + seed).permutation(len(y))[:240]
    fitted, seen = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    classes = y.dtype.kind in "iu" and len(np.unique(y)) < 20
    target = y if classes else (y - y[fitted].mean()) / y[fitted].std()

    def cost(p: Point) -> float:
        model = make(p)
        steps = model if isinstance(model, tuple) else (model,)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = make_pipeline(StandardScaler(), *steps).fit(X[fitted], target[fitted]).predict(X[seen])
            except (ValueError, np.linalg.LinAlgError):
                return 1.0
        if classes:
            return float((found != target[seen]).mean())
        return min(float(np.sqrt(((found - target[seen]) ** 2).mean())), 10.0)

    return Problem(parameters, cost)

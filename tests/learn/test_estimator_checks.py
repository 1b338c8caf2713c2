"""scikit-learn's own checks of estimators: none may fail, and none is expected to."""

import os
import subprocess
import sys

import pytest
import sklearn
from sklearn.utils._testing import SkipTest
from sklearn.utils.estimator_checks import estimator_checks_generator

from varopt import learn

VERSION = tuple(map(int, sklearn.__version__.split(".")[:2]))

# Short grids and few steps: a check fits dozens of times.
SHORT = {
    "ElasticNetCV": {"alphas": 2, "cv": 2},
    "FusedLassoCV": {"alphas": [0.01], "fusions": [0.01], "cv": 2},
    "GroupLassoCV": {"alphas": [0.01], "cv": 2},
    "HuberRegressorCV": {"alphas": [0.01], "cv": 2},
    "LassoCV": {"alphas": 2, "cv": 2},
    "LinearSVCCV": {"Cs": [1.0], "cv": 2},
    "QuantileRegressorCV": {"alphas": [0.01], "cv": 2},
    "RampClassifier": {"max_iter": 5},
    "TrendFilterCV": {"alphas": [0.01], "cv": 2},
    "ZeroOneClassifier": {"max_iter": 100},
}
# Half a minute, for weights of a thousand and a thousandth. VAROPT_SLOW=1 runs it too.
SLOW = {("RampClassifier", "check_class_weight_classifiers")}

NAMES = [name for name in learn.__all__ if hasattr(getattr(learn, name), "fit")]
ESTIMATORS = [getattr(learn, name)(**SHORT.get(name, {})) for name in NAMES]

# Variants whose code differs from that of the defaults, for the checks that look at the numbers.
VARIANTS = [
    learn.ElasticNet(positive=True),
    learn.Lasso(fit_intercept=False),
    learn.LinearSVC(loss="hinge", penalty="l1"),
    learn.LinearSVC(penalize_intercept=True, class_weight="balanced"),
    learn.LinearSVC(positive=True),
    learn.LinearSVR(loss="squared_epsilon_insensitive", epsilon=0.1, penalize_intercept=True),
    learn.QuantileRegressor(quantile=0.8, penalty="l2"),
    learn.GeneralizedLasso(loss="absolute_error", alpha=0.01),
    learn.CompositeRegressor(loss="huber", penalty="fused", alpha=0.01),
    learn.TrendFilter(order=0, alpha=0.01),
    learn.GroupLasso(0.01, l1_ratio=0.5),
    learn.SVC(kernel="linear", class_weight="balanced"),
    learn.SVC(kernel="poly", degree=2, coef0=1.0),
    learn.SVR(kernel="linear", epsilon=0.0),
]


def checks():
    for estimator in [*ESTIMATORS, *VARIANTS]:
        for number, (instance, check) in enumerate(estimator_checks_generator(estimator)):
            name = getattr(check, "func", check).__name__
            if "array_api" in name and instance.__sklearn_tags__().array_api_support:
                continue  # below
            if (type(estimator).__name__, name) in SLOW and "VAROPT_SLOW" not in os.environ:
                continue
            if estimator in ESTIMATORS or "weight_equivalence" in name or "invariance" in name or "train" in name:
                yield pytest.param(instance, check, id=f"{estimator!r:.60}-{name}-{number}")


@pytest.mark.filterwarnings("ignore")  # the checks provoke warnings of many kinds
@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_check(estimator, check):
    try:
        check(estimator)
    except SkipTest as skipped:
        pytest.skip(str(skipped))


ARRAY_API = """
import sys, warnings
warnings.simplefilter("ignore")
from sklearn.utils._testing import SkipTest
from sklearn.utils.estimator_checks import estimator_checks_generator
from varopt import learn

def has_cuda():  # a PyTorch that was built for it tells nothing of the machine
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()

ran, failed = set(), []
for name in learn.__all__:
    if not hasattr(getattr(learn, name), "fit"):
        continue
    for estimator, check in estimator_checks_generator(getattr(learn, name)(**%r.get(name, {}))):
        if "array_api" in getattr(check, "func", check).__name__:
            if "cuda" in repr(check) and not has_cuda():
                continue
            try:
                check(estimator)
                ran |= {name}
            except SkipTest:
                pass
            except Exception as error:
                failed.append((name, check, error))
print(*ran)
sys.exit("\\n".join(map(str, failed)) or None)
"""


@pytest.mark.skipif(VERSION < (1, 8), reason="before 1.8 scikit-learn wanted classes where X is, and not in NumPy")
def test_arrays_of_other_libraries():
    """With the switch that SciPy reads when it is imported; PyTorch takes part where it is installed."""
    run = subprocess.run(
        [sys.executable, "-c", ARRAY_API % SHORT],
        env=os.environ | {"SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    declared = {type(model).__name__ for model in ESTIMATORS if model.__sklearn_tags__().array_api_support}
    assert declared == set(NAMES) - {
        "ConformalIntervals",
        "SVC",
        "SVR",
        "TrendFilter",
        "TrendFilterCV",
    }  # which take NumPy's arrays
    assert declared <= set(run.stdout.split())

"""scikit-learn estimators that say how far from optimal they can be.

They take scikit-learn's parameters and minimise its objectives, so that a model is exchanged by changing an import;
each fit ends with a bracket of the optimum.

>>> from sklearn.datasets import load_diabetes
>>> from varopt.learn import QuantileRegressor
>>> X, y = load_diabetes(return_X_y=True)
>>> model = QuantileRegressor(quantile=0.9, alpha=0.01).fit(X, y)
>>> bool(model.lower_bound_ <= model.objective_), bool(model.gap_ <= 1e-9 * model.objective_)
(True, True)
"""

from varopt.learn._certify import certify
from varopt.learn._classification import CompositeClassifier, LinearSVC
from varopt.learn._huber import HuberRegressor
from varopt.learn._inference import Inference, JointTest, inference
from varopt.learn._intervals import ConformalIntervals
from varopt.learn._kernel import SVC, SVR
from varopt.learn._lassos import (
    CompositeRegressor,
    FusedLasso,
    GeneralizedLasso,
    GroupLasso,
    MultiTaskElasticNet,
    MultiTaskLasso,
    TrendFilter,
)
from varopt.learn._linear import ElasticNet, LADRegressor, Lasso, LinearSVR
from varopt.learn._nonconvex import RampClassifier, ZeroOneClassifier
from varopt.learn._paths import (
    ElasticNetCV,
    FusedLassoCV,
    GroupLassoCV,
    HuberRegressorCV,
    LassoCV,
    LinearSVCCV,
    QuantileRegressorCV,
    TrendFilterCV,
)
from varopt.learn._quantile import QuantileRegressor

__all__ = [
    "SVC",
    "SVR",
    "CompositeClassifier",
    "CompositeRegressor",
    "ConformalIntervals",
    "ElasticNet",
    "ElasticNetCV",
    "FusedLasso",
    "FusedLassoCV",
    "GeneralizedLasso",
    "GroupLasso",
    "GroupLassoCV",
    "HuberRegressor",
    "HuberRegressorCV",
    "Inference",
    "JointTest",
    "LADRegressor",
    "Lasso",
    "LassoCV",
    "LinearSVC",
    "LinearSVCCV",
    "LinearSVR",
    "MultiTaskElasticNet",
    "MultiTaskLasso",
    "QuantileRegressor",
    "QuantileRegressorCV",
    "RampClassifier",
    "TrendFilter",
    "TrendFilterCV",
    "ZeroOneClassifier",
    "certify",
    "inference",
]

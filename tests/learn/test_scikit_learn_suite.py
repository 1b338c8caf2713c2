"""scikit-learn's own test files, read from its installation and run against ours with the import swapped.

A test is taken over where its source names one of our estimators. `EXCLUDED` lists what we leave out, and why; whoever
adds an estimator that scikit-learn has adds its name to `SWAPPED`.
"""

import importlib.util
import inspect
import os
import re
from contextlib import ExitStack
from types import SimpleNamespace
from unittest import mock

import pytest
import sklearn
import sklearn.linear_model
import sklearn.svm

import varopt.learn as learn

if tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 9):
    pytest.skip("what is left out below was read off the tests of scikit-learn 1.9", allow_module_level=True)

SWAPPED = {
    sklearn.linear_model: ("ElasticNet", "ElasticNetCV", "HuberRegressor", "Lasso", "LassoCV", "QuantileRegressor"),
    sklearn.svm: ("SVC", "SVR", "LinearSVC", "LinearSVR"),
}

MODULES = (
    "sklearn.linear_model.tests.test_quantile",
    "sklearn.linear_model.tests.test_coordinate_descent",
    "sklearn.linear_model.tests.test_sparse_coordinate_descent",
    "sklearn.linear_model.tests.test_huber",
    "sklearn.svm.tests.test_svm",
    "sklearn.svm.tests.test_sparse",
    "sklearn.svm.tests.test_bounds",
)

_CD = "an internal of coordinate descent, which is not how we solve it: "
_STEPS = "counts the passes of another algorithm: ours is exact after a few steps"
_CS = "the model of Crammer and Singer is not offered, and refused by name"

EXCLUDED = {
    "test_error_interior_point_future": "patches the SciPy version inside scikit-learn's own module",
    "test_enet_nonfinite_params": _CD + "the error is raised, but does not name coordinate descent",
    "test_lasso_dual_gap": _CD + "recomputes the gap of one certain dual point; ours is tighter",
    "test_elasticnet_precompute_incorrect_gram": _CD + "a Gram matrix is not needed, and not looked at",
    "test_overridden_gram_matrix": _CD + "a Gram matrix is not needed, and not looked at",
    "test_lassoCV_does_not_set_precompute": _CD + "patches scikit-learn's own Lasso inside its module",
    "test_check_input_false": _CD + "wants wrong results for data in C order",
    "test_enet_copy_X_False_check_input_False": _CD + "wants X to be overwritten, which we never do",
    "test_warm_start": _STEPS,
    "test_warm_start_convergence": _STEPS,
    "test_warm_start_convergence_with_regularizer_decrement": _STEPS,
    "test_enet_coordinate_descent_raises_convergence": _STEPS,
    "test_sparse_enet_coordinate_descent": _STEPS,
    "test_sparse_input_convergence_warning": _STEPS,
    "test_linear_svm_convergence_warnings": _STEPS,
    "test_huber_max_iter": _STEPS,
    "test_huber_warm_start": _STEPS,
    "test_1d_multioutput_enet_and_multitask_enet_cv": "compares to seven digits with an estimator that stops at four",
    "test_1d_multioutput_lasso_and_multitask_lasso_cv": "compares to seven digits with an estimator that stops at four",
    "test_linearsvc_crammer_singer": _CS,
    "test_crammer_singer_binary": _CS,
    "test_linearsvc_parameters": "wants pairs of loss and penalty refused that we solve",
    "test_dense_liblinear_intercept_handling": "the intercept is not penalised unless penalize_intercept asks for it",
    "test_sparse_liblinear_intercept_handling": "the intercept is not penalised unless penalize_intercept asks for it",
}


# Cross-validation over a hundred strengths, dozens of times: minutes. VAROPT_SLOW=1 runs them too.
SLOW = re.compile(
    "test_enet_alpha_max|test_enet_cv_grid_search|test_enet_cv_sample_weight|test_lasso_cv_with_some_model_selection"
    "|test_linear_models_cv_fit_with_loky|test_same_output_sparse_dense_lasso_and_enet_cv"
    r"|test_sparse_dense_equality.*CV\]"
)


@pytest.fixture(autouse=True)
def only_the_quick_ones(request):
    if SLOW.match(request.node.name) and "VAROPT_SLOW" not in os.environ:
        pytest.skip("slow: set VAROPT_SLOW=1")


def load(name):
    """The tests and fixtures of a test module of scikit-learn that concern our estimators."""
    spec = importlib.util.find_spec(name)
    module = importlib.util.module_from_spec(spec)
    with ExitStack() as stack:
        for package in SWAPPED:
            stack.enter_context(mock.patch.multiple(package, **ours(package)))
        spec.loader.exec_module(module)
    # The tests name `svm.LinearSVC` when they run.
    if getattr(module, "svm", None) is sklearn.svm:
        module.svm = SimpleNamespace(**(vars(sklearn.svm) | ours(sklearn.svm)))
    names = re.compile(rf"\b({'|'.join(name for group in SWAPPED.values() for name in group)})\b")
    for key, value in vars(module).items():
        if key.startswith("test_") and inspect.isfunction(value) and names.search(inspect.getsource(value)):
            yield f"{key}__{name.rsplit('.', 1)[1]}", mark(value, EXCLUDED.get(key))
        elif type(value).__name__ == "FixtureFunctionDefinition":
            yield key, value


def ours(module):
    return {name: getattr(learn, name) for name in SWAPPED[module] if name in learn.__all__}


def mark(test, reason):
    for k, known in enumerate(getattr(test, "pytestmark", ())):
        if known.name == "parametrize":  # some values are iterators, which are used up by the first look at them
            test.pytestmark[k] = pytest.mark.parametrize(known.args[0], list(known.args[1]), **known.kwargs).mark
    test = pytest.mark.filterwarnings("default")(test)
    return pytest.mark.skip(reason=reason)(test) if reason else test


for _module in MODULES:
    globals().update(load(_module))

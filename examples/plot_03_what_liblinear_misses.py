"""
What LIBLINEAR misses
=====================

scikit-learn's ``LinearSVC`` stops after ``max_iter`` rounds. On raw data it warns,
names no number, and most of us ignore it. How far from the optimum is it then? A
certified lower bound makes that a number.
"""

import time
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC as SklearnLinearSVC

from varopt.learn import LinearSVC

try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# Both get the same data and the same objective, in which LIBLINEAR's intercept is
# penalised like a coefficient.
X, y = load_breast_cancer(return_X_y=True)
t = np.where(y == 1, 1.0, -1.0)


def objective(model, C):
    """What scikit-learn says it minimises, at a model's coefficients."""
    w, b = model.coef_.ravel(), model.intercept_.item()
    return 0.5 * (w @ w + b * b) + C * np.maximum(1.0 - t * (X @ w + b), 0.0).sum()


strengths = np.geomspace(1e-3, 1e2, 6)
theirs, ours = [], []
for C in strengths:
    best = LinearSVC(loss="hinge", C=C, penalize_intercept=True).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        rival = SklearnLinearSVC(
            loss="hinge", C=C, max_iter=10_000, random_state=0
        ).fit(X, y)
    theirs.append(objective(rival, C) / best.lower_bound_ - 1.0)
    ours.append(objective(best, C) / best.lower_bound_ - 1.0)
    print(
        f"C = {C:<6g} LIBLINEAR is {theirs[-1]:9.2%} above the optimum, varopt {ours[-1]:.0e}"
    )

# %%
# More rounds help slowly. To scale the features helps much more, and is another
# model: the penalty then weighs other coefficients.
started = time.perf_counter()
LinearSVC(loss="hinge", C=1.0, penalize_intercept=True).fit(X, y)
print(f"varopt took {1e3 * (time.perf_counter() - started):.0f} ms at C = 1.")

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.loglog(strengths, theirs, "s-", label="LIBLINEAR, 10,000 rounds")
axes.loglog(strengths, np.maximum(ours, 1e-17), "o-", label="varopt")
axes.set(
    xlabel="C",
    ylabel="loss above the optimum, relative",
    title="Raw breast cancer data, hinge loss",
)
axes.axhline(1.0, color="0.5", lw=0.8, ls=":", label="twice the optimum")
axes.legend(loc="center right")
plt.show()

"""
Tune a model, and survive a crash
=================================

Three settings of a classifier, one of them a choice, judged by cross-validation. Every
evaluation is in a file before it is used: run the same line again after a crash, and
nothing is evaluated twice.
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import SVC

import varopt as vo

try:
    import matplotlib.pyplot as plt
except ModuleNotFoundError:
    raise SystemExit("Needs Matplotlib: pip install 'varopt[plot]'") from None

# %%
# The error of a support vector machine on a third of the digits.
X, y = load_digits(return_X_y=True)
X, y = X[::3], y[::3]
tried = []


def error(p):
    """Share of errors under cross-validation."""
    model = make_pipeline(
        MinMaxScaler(), SVC(C=p["C"], gamma=p["gamma"], kernel=p["kernel"])
    )
    tried.append((p, 1.0 - cross_val_score(model, X, y, cv=3).mean()))
    return tried[-1][1]


space = vo.Space(
    {
        "C": vo.Box(1e-2, 1e3, log=True),
        "gamma": vo.Box(1e-4, 1e1, log=True),
        "kernel": ["rbf", "linear", "sigmoid"],
    }
)

# %%
# Twenty evaluations, and then, as if the machine had gone down meanwhile, the same
# line with a larger budget.
journal = Path(tempfile.mkdtemp()) / "tuning.db"
first = vo.minimize(error, space, budget=20, seed=0, journal=journal)
r = vo.minimize(error, space, budget=60, seed=0, journal=journal)
print(
    f"{len(tried)} calls for {first.nfev} and then {r.nfev} evaluations: none was made twice"
)
print(r)

# %%
# The file can be looked at while a search is running.
search = vo.Search.load(journal, space, read_only=True)
print(f"{len(search.records)} records, best {search.best.fun:.2%} at {search.best.x}")
search.close()

# %%
# Each point is an evaluation.
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for kernel, marker in (("rbf", "o"), ("linear", "s"), ("sigmoid", "^")):
    shown = [
        (p["C"], p["gamma"], value) for p, value in tried if p["kernel"] == kernel
    ] or [(1.0, 1.0, np.nan)]
    C, gamma, value = np.transpose(shown)
    points = left.scatter(
        C, gamma, c=value,
        marker=marker, vmin=0.0, vmax=0.3, cmap="viridis_r", label=kernel,
    )  # fmt: skip
left.set(
    xscale="log", yscale="log", xlabel="C", ylabel="gamma", title="where it looked"
)
left.legend(fontsize=8)
figure.colorbar(points, ax=left, label="error")
right.step(
    range(1, len(tried) + 1),
    np.minimum.accumulate([value for _, value in tried]),
    where="post",
)
right.axvline(20, color="0.6", ls=":")
right.text(20.5, right.get_ylim()[1] * 0.9, "restart", color="0.4")
right.set(xlabel="evaluations", ylabel="best error so far", title=f"best: {r.fun:.1%}")
plt.show()
